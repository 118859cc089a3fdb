#!/usr/bin/env bash
# Install today's libraries beside the wheel, run the smoke profile and the tests of model families:
#   tests/core/stack.sh [PYTHON [PACKAGE...]]      such as 3.13 'torch<2.16'; 3.12 and 3.13 are tried
# Several GB are downloaded the first time. ENVIRONMENT=DIR keeps the environment there, and takes it up again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

uv=$(command -v uv || printf '%s' "$PWD/.uv/bin/uv")
[[ -x $uv ]] || { printf 's2s: error: uv is neither on the PATH nor in .uv: run ./reproduce.sh first\n'; exit 2; }
python=''
for candidate in "${1:-3.13}" "${PYENV_ROOT:-$HOME/.pyenv}/versions/${1:-3.13}".*/bin/python3; do
    if "$uv" python find --quiet --no-project --no-config --no-python-downloads "$candidate" >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
if [[ -z $python ]]; then
    printf "s2s: NOT RUN: there is no Python %s on this machine for today's libraries\n" "${1:-3.13}"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
environment=${ENVIRONMENT:-$work/environment}
"$uv" build --quiet --wheel --out-dir "$work/dist"
"$uv" build --quiet --wheel --out-dir "$work/dist" artifact/models
[[ -d $environment ]] || "$uv" venv --quiet --no-project --no-config --no-python-downloads --python "$python" "$environment"
# Without the constraints and the date of pyproject.toml, as pip installs it.
"$uv" pip install --quiet --no-config --python "$environment/bin/python" --reinstall-package search-to-signal \
    --reinstall-package search-to-signal-models "${@:2}" "$work"/dist/search_to_signal_models-*.whl \
    "search-to-signal[run,parquet] @ file://$(echo "$work"/dist/search_to_signal-*.whl)" pytest hypothesis

cd "$work"
"$environment/bin/s2s" --version
"$environment/bin/s2s" run --profile smoke --out smoke
"$environment/bin/s2s" verify --tables smoke
cd - >/dev/null
"$environment/bin/python" -m pytest -o pythonpath=. -p no:cacheprovider -q tests/unit/models/test_families.py
printf "s2s: OK: the smoke profile and the model families on today's libraries\n"
