#!/bin/bash
# Runs the corpus of hostile programs in a container under the engine's default seccomp profile.
#
#     tests/isolation/container.sh PYTHON        (as root)
#
# PYTHON is an interpreter that has this project's dependencies. Needs Debian's docker.io package; starts an
# engine of its own with its own data directory and socket, and leaves nothing behind. No registry is used:
# the image is made of PYTHON, numpy, scipy, msgspec, their shared libraries and this checkout.
set -euo pipefail

python=$1
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
root=$work/root
socket=$work/docker.sock
docker() { /usr/bin/docker --host "unix://$socket" "$@"; }
finish() {
    if [[ -f $work/dockerd.pid ]]; then
        engine=$(cat "$work/dockerd.pid")
        kill "$engine" 2>/dev/null || true
        for _ in $(seq 100); do kill -0 "$engine" 2>/dev/null || break; sleep 0.1; done
    fi
    rm -rf "$work"
}
trap finish EXIT

prefix=$("$python" -c 'import sys; print(sys.base_prefix)')
site=$("$python" -c 'import numpy, pathlib; print(pathlib.Path(numpy.__file__).parents[1])')
mkdir -p "$root"/{opt/site,checkout,tmp,proc,dev,sys,etc,bin,lib64}
cp -r "$prefix" "$root/opt/python"
rm -rf "$root"/opt/python/lib/python3.10/{site-packages,test,idlelib,ensurepip} "$root"/opt/python/lib/*.a
for part in numpy numpy.libs scipy scipy.libs msgspec; do cp -r "$site/$part" "$root/opt/site/"; done
cp -r "$here/artifact" "$here/tests" "$root/checkout/"
find "$root/opt" -name '*.so*' -type f -print0 -o -path "$root/opt/python/bin/python3.10" -print0 |
    xargs -0 ldd 2>/dev/null | awk '$2 == "=>" && $3 ~ "^/(usr/)?lib" {print $3}' | sort -u |
    while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -Lf "$library" "$root$library"
    done
find "$prefix/lib" -maxdepth 1 -name 'libpython*.so*' -exec cp -L {} "$root/lib/x86_64-linux-gnu/" \;
chmod 1777 "$root/tmp"
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"

dockerd --iptables=false --bridge=none --data-root "$work/data" --exec-root "$work/exec" \
    --pidfile "$work/dockerd.pid" --host "unix://$socket" >"$work/dockerd.log" 2>&1 &
for _ in $(seq 100); do docker info >/dev/null 2>&1 && break; sleep 0.3; done
docker info --format 'engine {{.ServerVersion}}, security options {{.SecurityOptions}}'
tar -C "$root" -c . | docker import - isolation-corpus:local >/dev/null

for user in 10001 0; do
    docker run --rm --network none --read-only --tmpfs /tmp:mode=1777 --user "$user:$user" \
        --env PYTHONPATH=/checkout/artifact:/opt/site --env PYTHONDONTWRITEBYTECODE=1 --workdir /checkout \
        isolation-corpus:local /opt/python/bin/python3.10 tests/isolation/tally.py --once --verbose
done
