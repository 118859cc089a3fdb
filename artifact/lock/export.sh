#!/usr/bin/env bash
# Write what is derived from uv.lock: hashed requirements, a PEP 751 lock, a bill of materials.   artifact/lock/export.sh [DIRECTORY]
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
out=$(cd "${1:-$here}" && pwd)
cd "$here/../.."
uv=$(command -v uv || printf '%s' .uv/bin/uv)
everything=(export --quiet --frozen --all-extras --no-dev --no-emit-project --no-header)
"$uv" "${everything[@]}" --format requirements.txt --output-file "$out/requirements.txt"
"$uv" "${everything[@]}" --format pylock.toml --output-file "$out/pylock.toml"
# A bill of materials carries a clock and a random number; both are optional, and equal locks give equal files.
"$uv" "${everything[@]}" --format cyclonedx1.5 | sed '/^  "serialNumber":/d; /^    "timestamp":/d' >"$out/sbom.cdx.json"
