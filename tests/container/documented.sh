#!/usr/bin/env bash
# Run the lines of docs/running.md as they stand there, in order; stop at the first that fails.
#
#     tests/container/documented.sh                        (needs an engine; hours, embedded and the suite are among them)
#     EMBEDDED=smoke tests/container/documented.sh         (runs the profile smoke where a line says embedded, and says so)
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
mapfile -t lines < <(sed -n '/^```sh$/,/^```$/{/^```/!p}' docs/running.md)
written=0
changed=0
skipped=0
for line in "${lines[@]}"; do
    if [[ $line == *'  # needs '* && -z ${ALL:-} ]]; then
        say "skipped, it needs ${line##*  # needs }: $line"
        skipped=$((skipped + 1))
        continue
    fi
    run=${line//embedded/${EMBEDDED:-embedded}}
    [[ $run == 'docker build '* && -n ${IMAGE:-} ]] && run="docker tag $IMAGE search-to-signal"
    say "$line"
    if [[ $run == "$line" ]]; then
        written=$((written + 1))
    else
        say "in its place: $run"
        changed=$((changed + 1))
    fi
    bash -euo pipefail -c "$run" || { say "FAILED: $run"; exit 1; }
done
((written)) || { say "FAILED: docs/running.md has no lines"; exit 1; }
say "OK: of ${#lines[@]} lines of docs/running.md, $written ran as written, $changed with something in place, $skipped skipped"
