#!/usr/bin/env bash
# Build the wheel, install it without torch, run the core's tests:   tests/core/run.sh [PYTHON [NUMPY [TEST...]]]
# PYTHON is a version or a path, or newest, the newest CPython on this machine; NUMPY a version, such as '==1.26.*'.
# Without a TEST they are those of tests/core/few.txt; 'whole' stands for those of files.txt, all that need no torch.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

uv=$(command -v uv || printf '%s' "$PWD/.uv/bin/uv")
[[ -x $uv ]] || { printf 's2s: error: uv is neither on the PATH nor in .uv: run ./reproduce.sh first\n'; exit 2; }
ask='import sys; print("%d.%d" % sys.version_info[:2], sys.executable, sys.implementation.name, sys.version_info.releaselevel)'

# The newest CPython from 3.10 to 3.14 on the PATH and below pyenv's and uv's directories; none where there is none.
newest() {
    local python
    for python in $(compgen -c python3 | grep -E '^python3(\.[0-9]+)?$' | sort -u) \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3 "${XDG_DATA_HOME:-$HOME/.local/share}"/uv/python/*/bin/python3; do
        "$python" -c "$ask" 2>/dev/null || true
    done | grep -E '^3\.1[0-4] .* cpython final$' | sort -V | tail -n 1 | cut -d' ' -f2
}

python=${1:-newest}
if [[ $python == newest ]]; then python=$(newest); fi
if [[ -z $python ]] || ! "$uv" python find --quiet --no-project --no-config --no-python-downloads "$python" >/dev/null 2>&1; then
    printf 's2s: NOT RUN: there is no Python %s on this machine for the tests of the core\n' "${1:-newest}"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$uv" build --quiet --wheel --out-dir "$work/dist"
"$uv" venv --quiet --no-project --no-config --no-python-downloads --python "$python" "$work/environment"
install() { "$uv" pip install --quiet --no-config --python "$work/environment/bin/python" "$@"; }

# With nothing but what the wheel asks for.
install "$work"/dist/*.whl "numpy${2:-}"
(cd "$work" && environment/bin/s2s audit --help && environment/bin/s2s normalizers && environment/bin/s2s list) >"$work/said"

install "search-to-signal[report,parquet] @ file://$(echo "$work"/dist/*.whl)" "numpy${2:-}" \
    hypothesis jsonschema packaging pandas polars pytest pytest-benchmark pytest-xdist safetensors
tests=("${@:3}")
listed() { mapfile -t tests < <(sed '/^#/d' "tests/core/$1.txt"); }
if ((${#tests[@]} == 0)); then listed few; elif [[ ${tests[*]} == whole ]]; then listed files; fi
"$work/environment/bin/python" -m pytest -o pythonpath=. -p no:cacheprovider -n 2 --dist loadfile --benchmark-disable \
    --hypothesis-profile few "${tests[@]}"
"$work/environment/bin/python" -c 'import platform, numpy
print(f"s2s: OK: the tests of the core passed on Python {platform.python_version()} with numpy {numpy.__version__}")'
