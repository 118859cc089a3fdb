#!/usr/bin/env bash
# Build the image without any registry, look inside, run it as its own user, build it again and compare.
#
#     tests/container/run.sh WORK          (as root; an hour or more, and 25 GB in WORK for the small image)
#
# Needs Debian's docker.io and debootstrap, uv on the path, an Ubuntu mirror (APT) and PyPI. EXTRAS chooses what is built:
# nothing (the small image, default) or "gpu cluster". Smoke stands in for embedded unless EMBEDDED=embedded. WORK keeps
# the base between calls; the engine is one of its own, and ends with the script. CA names the certificates of a proxy,
# which must not reach the image.
set -euo pipefail

say() { printf 's2s: %s\n' "$*"; }

# Say it, and keep it for the pages that quote it: they are in the image, whose two builds have to be of the same files.
noted=()
figure() { printf '%s\n' "$2"; noted+=("$1" "$2"); }

write_figures() {
    for ((i = 0; i < ${#noted[@]}; i += 2)); do
        python3 "$here/tests/figures.py" "container, ${noted[i]}" "EXTRAS='$extras' tests/container/run.sh WORK" "${noted[i + 1]}" >/dev/null
    done
}

engine=${DOCKER:-/usr/bin/docker}
missing=()
for tool in "$engine" dockerd debootstrap uv git curl dpkg-deb python3 sha256sum tar; do
    command -v "$tool" >/dev/null || missing+=("$tool")
done
if ((${#missing[@]})); then
    say "error: missing ${missing[*]}: install docker.io, debootstrap, curl, git and python3 from Debian, uv from PyPI"
    exit 2
fi
if (($# != 1)) || ((EUID != 0)); then
    say "error: run it as root with one directory, as in: tests/container/run.sh WORK"
    exit 2
fi

mkdir -p "$1"
work=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")/../.." && pwd)
extras=${EXTRAS:-}
ca=${CA:-/etc/ssl/certs/ca-certificates.crt}
mirror=${APT:-http://archive.ubuntu.com/ubuntu}
image=search-to-signal:${extras:+full}
[[ $image == *: ]] && image=search-to-signal:small

docker() { "$engine" --host "unix://$work/docker.sock" "$@"; }
contents() { python3 "$here/tests/container/contents.py" "$@"; }

start_engine() {
    dockerd --iptables=false --bridge=none --data-root "$work/data" --exec-root "$work/exec" \
        --pidfile "$work/dockerd.pid" --host "unix://$work/docker.sock" >"$work/dockerd.log" 2>&1 &
    trap stop_engine EXIT
    for _ in $(seq 100); do docker info >/dev/null 2>&1 && break; sleep 0.3; done
    say "engine $(docker info --format '{{.ServerVersion}}, {{.SecurityOptions}}')"
}

stop_engine() {
    kill "$(cat "$work/dockerd.pid")" 2>/dev/null || true
    wait || true
}

# The three stages that a registry or GitHub would give: base, uv, and CALM's source from a stand-in repository.
make_stages() {
    "$here/tests/container/base.sh" "$work/base" | docker import - s2s-base:local >/dev/null
    rm -rf "$work/uv" "$work/calm" "$work/repository"
    mkdir -p "$work/uv" "$work/calm/calm"
    cp -L "$(command -v uv)" "$work/uv/uv"
    tar -C "$work/uv" -c . | docker import - s2s-uv:local >/dev/null
    cp -r "$here/tests/standin" "$work/repository"
    local git=(git -C "$work/repository" -c user.name=tests -c user.email=tests@example.invalid)
    "${git[@]}" init --quiet
    "${git[@]}" add .
    "${git[@]}" commit --quiet --message "stand-in" --date 2026-01-01T00:00:00Z
    printf 'url = "%s"\nrevision = "%s"\n' "$work/repository" "$("${git[@]}" rev-parse --short=12 HEAD)" >"$work/pin.toml"
    rm -rf "$work/calm/calm"
    "$here/artifact/calm/fetch.sh" "$work/pin.toml" "$work/calm/calm"
    tar -C "$work/calm" -c . | docker import - s2s-calm:local >/dev/null
}

build() {
    local began=$SECONDS
    DOCKER_BUILDKIT=1 docker build --progress plain --network host \
        --build-arg BASE=s2s-base:local --build-arg UV=s2s-uv:local --build-arg CALM=s2s-calm:local \
        --build-arg "APT=$mirror" --build-arg "EXTRAS=$extras" --secret "id=ca,src=$ca" \
        --tag "$image" "$@" "$here" >"$work/build.log" 2>&1 || { tail -30 "$work/build.log"; return 1; }
    figure build "built $image in $((SECONDS - began)) s, $(($(docker inspect --format '{{.Size}}' "$image") / 1000000)) MB $*"
}

listing() {
    local container
    container=$(docker create "$image")
    docker export "$container" | contents list >"$1"
    docker rm "$container" >/dev/null
}

# Fails unless the first word equals the second.
is() { [[ $1 == "$2" ]] || { say "FAILED: $3 is '$1', not '$2'"; return 1; }; }

check_configuration() {
    local field
    config() { docker inspect --format "{{$1}}" "$image"; }
    is "$(config .Config.User)" 10001:10001 user
    is "$(config .Config.Entrypoint)" '[/opt/search-to-signal/reproduce.sh]' 'entry point'
    is "$(config .Config.Volumes)" 'map[/results:{}]' volumes
    for field in title description version licenses revision base.name; do
        [[ -n $(config "index .Config.Labels \"org.opencontainers.image.$field\"") ]] || { say "FAILED: label $field"; return 1; }
    done
    is "$(config 'index .Config.Labels "search-to-signal.calm.revision"')" \
        "$(sed -n 's/^revision = "\(.*\)"$/\1/p' "$here/artifact/calm/pin.toml")" 'label of the CALM revision'
    if docker history --no-trunc "$image" | grep -F "$ca"; then say "FAILED: history names the certificates"; return 1; fi
    say "configuration as it should be: user, entry point, volume, labels"
}

# Run in the image as a reviewer would: no network, nothing writable but results.
inside() { docker run --rm --network none --read-only --volume "$work/results:/results" "$@"; }

# Run a command with its output in a log of that name: its last lines, or what it says of failures.
told() {
    local log=$work/$1.log
    if "${@:2}" >"$log" 2>&1; then
        tail -2 "$log"
    else
        grep -E '^(FAILED|ERROR|E  )' "$log" || tail -20 "$log"
        say "FAILED: $1, see $log"
        return 1
    fi
}

check_walls() {
    # shellcheck disable=SC2016
    inside --entrypoint bash "$image" -c '
        set -eu
        [[ $(id -u) == 10001 && $(id -un) == s2s ]]
        [[ $(sed -n "s/^Seccomp:\s*//p" /proc/self/status) == 2 ]]
        for place in / /opt /opt/calm /opt/calm/source /opt/search-to-signal /opt/search-to-signal/artifact \
            /opt/search-to-signal/.venv /tmp /var/tmp /root /etc; do
            if touch "$place/written" 2>/dev/null; then echo "$place can be written"; exit 1; fi
        done
        touch /results/written && rm /results/written
        cd /opt/calm && sha256sum --check --strict --quiet SHA256SUMS && grep -qE "^[0-9a-f]{40}$" REVISION
        python - <<END
import socket
try:
    socket.create_connection(("1.1.1.1", 53), timeout=2)
except OSError:
    pass
else:
    raise SystemExit("the network can be reached")
END'
    say "only results can be written; no network; seccomp filter on; CALM source as listed"
}

start_engine
rm -rf "$work/results" && mkdir -m 777 "$work/results"
make_stages
build
check_configuration
listing "$work/first.txt"
contents check "$work/first.txt" "$ca" >"$work/contents.log" || { cat "$work/contents.log"; exit 1; }
figure contents "$(tail -1 "$work/contents.log")"
check_walls
told released inside --entrypoint tests/container/released.sh "$image" /opt/calm/source /results/released
for user in 10001 0; do
    inside --tmpfs /tmp --user "$user:$user" --entrypoint python "$image" tests/isolation/tally.py --once
done
# The lines of docs/running.md, as they stand there, in a checkout without results; their image is the one just built.
rm -rf "$work/checkout" && mkdir -p "$work/checkout/tests"
cp -r "$here/docs" "$work/checkout/" && cp -r "$here/tests/container" "$work/checkout/tests/"
PATH=${engine%/*}:$PATH
told documented env "IMAGE=$image" "EMBEDDED=${EMBEDDED:-smoke}" "DOCKER_HOST=unix://$work/docker.sock" \
    "$work/checkout/tests/container/documented.sh"
figure tests "$(grep -E '[0-9]+ passed' "$work/documented.log" | tail -1)"
figure documented "$(tail -1 "$work/documented.log")"
build --no-cache
listing "$work/second.txt"
contents compare "$work/first.txt" "$work/second.txt" >"$work/repeat.log" || { cat "$work/repeat.log"; exit 1; }
figure repeat "$(tail -1 "$work/repeat.log")"
write_figures
say "OK: the image builds, runs and repeats"
