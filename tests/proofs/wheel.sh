#!/usr/bin/env bash
# Builds the wheel and installs it, with what the lock pins, into an environment of its own. In an empty directory it
# then begins the embedded profile, is stopped by Ctrl-C, goes on and is stopped again, and runs the smoke profile:
#   tests/proofs/wheel.sh WORK       (WORK: an empty directory; needs uv)
set -euo pipefail

work=$(realpath "$1")
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")

cd "$root"
uv build --quiet --wheel --out-dir "$work/dist"
uv venv --quiet --python 3.10 "$work/environment"
uv export --quiet --locked --no-hashes --no-emit-project >"$work/constraints.txt"
wheel=$(echo "$work"/dist/*.whl)
uv pip install --quiet --python "$work/environment/bin/python" --constraint "$work/constraints.txt" "$wheel[run]"

mkdir "$work/elsewhere"
cd "$work/elsewhere"
s2s=$work/environment/bin/s2s

recorded() { cat embedded/cohort/*/steps.jsonl 2>/dev/null | wc -l; }

# GROUPS [OPTION]: run until so many groups are recorded, then stop as Ctrl-C does.
until_stopped() {
  env --default-signal=INT "$s2s" run --profile embedded --out embedded "${@:2}" &
  until [ "$(recorded)" -ge "$1" ]; do
    kill -0 $!
    sleep 1
  done
  kill -INT $!
  local code=0
  wait $! || code=$?
  [ "$code" -eq 130 ]
  echo "embedded: stopped with $(recorded) groups recorded"
}

until_stopped 25
until_stopped 50 --resume
"$s2s" run --profile smoke --out results
"$s2s" verify --tables results
"$s2s" claims --results results | tail -n 1
