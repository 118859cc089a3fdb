#!/usr/bin/env bash
# Set everything up and run a profile:   ./reproduce.sh [PROFILE]     (default: embedded)
# Set everything up and run the tests:   ./reproduce.sh test
# Only those that take seconds, at every change:   ./reproduce.sh quick
# Check the shipped evidence and make its tables, figures and pages again:   ./reproduce.sh evidence
# Results go to results/PROFILE; set S2S_RESULTS to put them elsewhere.
set -euo pipefail

UV_VERSION=0.12.24
cd "$(dirname "${BASH_SOURCE[0]}")"

say() { printf 's2s: %s\n' "$*"; }

usage() {
    sed -n '2,6p' "${BASH_SOURCE[0]}" | sed 's/^# //'
    printf 'profiles: '
    find artifact/profiles -maxdepth 1 -name '*.toml' -exec basename {} .toml \; | sort | paste -sd' '
}

# Before gigabytes are installed for a card that is not there.
need_card() {
    if ! nvidia-smi --list-gpus >/dev/null 2>&1; then
        say "error: profile $1 needs an NVIDIA card, and nvidia-smi finds none here (in a container: --gpus all); the profile embedded needs none"
        exit 2
    fi
}

# The pinned uv: the one on the PATH if it is that version, else from PyPI into .uv/.
find_uv() {
    if command -v uv >/dev/null && [[ "$(uv --version)" == "uv ${UV_VERSION}"* ]]; then
        UV=$(command -v uv)
        return
    fi
    UV=$PWD/.uv/bin/uv
    if [[ ! -x $UV ]]; then
        say "installing uv ${UV_VERSION} from PyPI into .uv"
        python3 -m venv .uv || { say "error: python3 with venv is needed to install uv"; exit 2; }
        .uv/bin/python -m pip install --quiet --disable-pip-version-check "uv==${UV_VERSION}"
    fi
}

# With the extras that it is given: uv takes away those that it is not asked for.
setup() {
    # In the container image the locked environment is there, read-only, and only results can be written.
    if [[ -n ${S2S_IMAGE:-} ]]; then return; fi
    find_uv
    say "installing the locked environment (a few GB the first time)"
    local quiet=--quiet
    [[ -t 1 ]] && quiet=--color=auto
    # Compiled once, also where Python is told to write no bytecode: every run and test begins seconds sooner.
    "$UV" sync --locked --compile-bytecode "$quiet" "$@"
    .venv/bin/python -m compileall -q artifact
    say "environment ready"
}

# In a container bash is the first process: it would hand no signal on to the command that it waits for.
run() {
    if [[ -z ${S2S_IMAGE:-} ]]; then "$@"; return; fi
    local code signalled=yes
    # Set before the command starts: a signal that comes as soon as it runs must reach it too.
    trap 'signalled=yes; kill -TERM "${!:-}" 2>/dev/null || exit 143' INT TERM
    "$@" &
    # A signal ends the waiting, not the command: only a wait without one tells how the command ended.
    while [[ $signalled ]]; do signalled='' code=0; wait "$!" || code=$?; done
    trap - INT TERM
    return "$code"
}

# Say before the work what would be found after it: no place to write, or one that goes with the container.
need_place() {
    if ! mkdir -p "$1" 2>/dev/null || [[ ! -w $1 ]]; then
        say "error: $1 cannot be written: let user $(id -u) write there"
        exit 2
    fi
    # An engine names by 64 digits the volume that it makes where nobody mounted one.
    if [[ -n ${S2S_IMAGE:-} ]] && grep -Eq '/volumes/[0-9a-f]{64}/_data /results ' /proc/self/mountinfo; then
        say "warning: nothing is mounted at /results, so what is written there goes with the container: -v DIRECTORY:/results"
    fi
}

# Tests are compiled once, too: pytest keeps what it made of them, which takes each worker four seconds.
run_pytest() {
    run env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -m pytest -n 2 --dist loadfile --benchmark-disable "$@"
}

run_tests() {
    setup
    need_place results
    say "running the property suite and the tests"
    run .venv/bin/ruff check artifact spec tests
    # Types need one core for a minute or two: beside the tests they cost half of it.
    run .venv/bin/mypy >results/types.txt 2>&1 &
    local types=$!
    run_pytest spec tests -o junit_family=xunit2 --junitxml=results/tests.xml
    wait "$types" || { cat results/types.txt; exit 1; }
    say "OK: tests passed, results in results/tests.xml"
}

# The specification, and the tests that are not marked slow: they start no Python and take less than a second.
run_quick_tests() {
    setup
    run .venv/bin/ruff check artifact spec tests
    run_pytest spec tests/spec_meta tests/unit -m "not slow" --hypothesis-profile few
    say "OK: the quick tests passed; ./reproduce.sh test runs all"
}

rebuild_evidence() {
    local out=${S2S_RESULTS:-results/shipped}
    setup
    need_place "$out"
    say "checking artifact/evidence and making its tables, figures and pages again"
    run .venv/bin/s2s rebuild artifact/evidence --out "$out"
}

# The released host beside ours; the run goes on whatever comes out.
compare_hosts() {
    local code=0
    run .venv/bin/s2s conformance --calm "$S2S_CALM" || code=$?
    case $code in
        0) say "the released host does what ours does" ;;
        1) say "the released host differs from ours, as printed above" ;;
        11) say "nothing in the released host differs, but not everything was compared, as printed above" ;;
        *) say "the released host was not compared (exit code $code), as printed above" ;;
    esac
}

run_profile() {
    local out=${S2S_RESULTS:-results/$1} extras=()
    if grep -Eq '^backend = "(unsloth|vllm)"$' "artifact/profiles/$1.toml"; then
        need_card "$1"
        extras=(--extra gpu)
    fi
    setup "${extras[@]}"
    need_place "$out"
    say "running profile $1 into $out"
    if [[ $1 == paper && -n ${S2S_CALM:-} ]]; then
        # A missing model, card or key is told at once, not behind the comparison.
        run .venv/bin/s2s run --dry-run --resume --profile "$1" --out "$out"
        compare_hosts
    fi
    run .venv/bin/s2s run --resume --profile "$1" --out "$out"
    run .venv/bin/s2s verify --tables "$out"
    (cd "$out" && sha256sum -c --strict --quiet SHA256SUMS)
    if [[ -f $out/report/report.html ]]; then
        say "OK: results in $out; open $out/report/report.html"
    else
        say "OK: results in $out"
    fi
}

if (($# > 1)); then
    say "error: one argument, a profile, test, quick or evidence; '${*:2}' is more: set S2S_RESULTS for the results' place, and see s2s run --help"
    exit 2
fi
case ${1:-embedded} in
    -h | --help) usage ;;
    test) run_tests ;;
    quick) run_quick_tests ;;
    evidence) rebuild_evidence ;;
    *)
        if [[ ! -f artifact/profiles/${1:-embedded}.toml ]]; then
            say "error: there is no profile '${1}'; one of your own: s2s run --profile FILE --out DIRECTORY"
            usage
            exit 2
        fi
        run_profile "${1:-embedded}"
        ;;
esac
