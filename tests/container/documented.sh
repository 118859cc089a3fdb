#!/usr/bin/env bash
# Run the lines of docs/container.md as they stand there, in order; stop at the first that fails.
#
#     tests/container/documented.sh                                  (needs an engine; hours, embedded is among them)
#     IMAGE=search-to-signal:small tests/container/documented.sh     (takes that image instead of building one)
#
# Lines that end in "# needs ..." are skipped unless ALL=1. DOCKER_HOST chooses the engine, as always.
set -euo pipefail

say() { printf 's2s: %s\n' "$*"; }

cd "$(dirname "$0")/../.."
if ! command -v docker >/dev/null; then
    say "error: missing docker: install an engine with BuildKit"
    exit 2
fi
if [[ -e results/container ]]; then
    say "error: results/container is there already: move it away, so that the lines begin as on a fresh checkout"
    exit 2
fi
# shellcheck disable=SC2016
mapfile -t lines < <(sed -n '/^```sh$/,/^```$/{/^```/!p}' docs/container.md)
ran=0
for line in "${lines[@]}"; do
    if [[ $line == *'  # needs '* && -z ${ALL:-} ]]; then
        say "skipped, it needs ${line##*  # needs }"
        continue
    fi
    if [[ $line == 'docker build '* && -n ${IMAGE:-} ]]; then
        line="docker tag $IMAGE search-to-signal"
    fi
    say "$line"
    bash -euo pipefail -c "$line" || { say "FAILED: $line"; exit 1; }
    ran=$((ran + 1))
done
((ran)) || { say "FAILED: docs/container.md has no lines"; exit 1; }
say "OK: $ran of ${#lines[@]} lines of docs/container.md ran as written"
