#!/usr/bin/env bash
# Builds the wheel, installs it with what the lock pins into an environment of its own, and runs the smoke
# profile in an empty directory:   tests/proofs/wheel.sh WORK       (WORK: an empty directory; needs uv)
set -euo pipefail

work=$(realpath "$1")
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")

cd "$root"
uv build --quiet --wheel --out-dir "$work/dist"
uv venv --quiet --python 3.10 "$work/environment"
uv export --quiet --locked --no-dev --no-emit-project >"$work/requirements.txt"
uv pip install --quiet --python "$work/environment/bin/python" --requirements "$work/requirements.txt"
uv pip install --quiet --no-deps --python "$work/environment/bin/python" "$work"/dist/*.whl

mkdir "$work/elsewhere"
cd "$work/elsewhere"
s2s=$work/environment/bin/s2s
"$s2s" run --profile smoke --out results
"$s2s" verify --tables results
"$s2s" claims --results results | tail -n 1
