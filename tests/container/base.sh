#!/usr/bin/env bash
# Make a local base image in place of nvidia/cuda:12.4.1-base-ubuntu22.04, for machines that reach no registry.
#
#     tests/container/base.sh WORK | docker import - IMAGE          (as root; needs debootstrap)
#
# Ubuntu 22.04 from Ubuntu's own archive, its signatures checked by a keyring of known hash. Like NVIDIA's image
# it has a list of live packages, which the build has to remove: this one names a host that does not exist.
set -euo pipefail

work=$1
mirror=${APT:-http://archive.ubuntu.com/ubuntu}
keyring=ubuntu-keyring_2021.03.26_all.deb
hash=0d0e7ed6b112f5d03eabf3c7eb01ebdacf9c57714b279e90495cfc58c8c4520f

mkdir -p "$work"
cd "$work"
if [[ ! -e base/made ]]; then
    rm -rf base && mkdir base
    curl -fsS -o "$keyring" "$mirror/pool/main/u/ubuntu-keyring/$keyring"
    echo "$hash  $keyring" | sha256sum --check --quiet
    dpkg-deb -x "$keyring" keyring
    debootstrap --variant=minbase --keyring="$PWD/keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg" \
        jammy base/root "$mirror" >base.log
    echo 'deb https://packages.invalid/cuda /' >base/root/etc/apt/sources.list.d/cuda-ubuntu2204-x86_64.list
    rm -rf base/root/var/cache/apt/* base/root/var/lib/apt/lists/* base/root/var/log/*
    touch base/made
fi
tar -C base/root -c .
