#!/usr/bin/env bash
# Read the lock with real Nix and make a fixed-output derivation of every usable wheel; nothing is fetched.
#   tests/proofs/nix_lock.sh        (Debian: apt-get install nix-bin)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
state=$(mktemp -d)
trap 'chmod -R u+w "$state"; rm -rf "$state"' EXIT
export NIX_STORE_DIR=$state/store NIX_STATE_DIR=$state/var NIX_LOG_DIR=$state/log NIX_CONF_DIR=$state/etc
export NIX_REMOTE="" XDG_CACHE_HOME=$state/cache
count=$(nix-instantiate --eval --strict -A count artifact/lock/wheels.nix)
packages=$(nix-instantiate --eval --strict -A packages artifact/lock/wheels.nix)
made=$(nix-instantiate -A drvs artifact/lock/wheels.nix 2>/dev/null | sort -u | wc -l)
[[ $made -eq $count && $count -gt 0 ]]
python3 tests/figures.py nix_lock tests/proofs/nix_lock.sh \
    "$(nix-instantiate --version): $packages packages read, $made of $count wheels instantiated"
