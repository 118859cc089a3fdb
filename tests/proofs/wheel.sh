#!/usr/bin/env bash
# Builds the wheel and tries it where there is no clone:   tests/proofs/wheel.sh WORK       (WORK: an empty directory; needs uv)
# A log as TRL writes it is audited by uvx. With what the lock pins, the embedded profile begins, is stopped by Ctrl-C,
# goes on and is stopped again, and the smoke profile runs to its end.
set -euo pipefail

work=$(realpath "$1")
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")

cd "$root"
uv build --quiet --wheel --out-dir "$work/dist"
wheel=$(echo "$work"/dist/*.whl)
uv build --quiet --wheel --out-dir "$work/weights" artifact/models

mkdir "$work/elsewhere"
cd "$work/elsewhere"
uv run --quiet --no-project --with pyarrow python - <<'LOG'
# One group of equal rewards, one that hardly differs; advantages as TRL gives them.
from pathlib import Path
from statistics import mean, stdev
import pyarrow, pyarrow.parquet

Path("completions").mkdir()
for step in (1, 2):
    rewards = [1.0] * 4 + [0.0, 0.0, 0.0, 1e-5]
    advantages = [(r - mean(g)) / (stdev(g) + 1e-4) for g in (rewards[:4], rewards[4:]) for r in g]
    columns = {
        "step": [step] * 8,
        "prompt": ["a"] * 4 + ["b"] * 4,
        "completion": [f"{step} {number}" for number in range(8)],
        "reward": rewards,
        "advantage": advantages,
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), f"completions/completions_{step:05d}.parquet")
LOG
uvx --quiet --from "$wheel" s2s audit completions/ && exit 1    # says which extra reads Parquet
uvx --quiet --from "search-to-signal[parquet] @ file://$wheel" s2s audit completions/ --out audit
[[ -s audit/audit.html ]]

uv venv --quiet --python 3.10 "$work/environment"
uv --project "$root" export --quiet --locked --no-dev --extra run --no-emit-project >"$work/requirements.txt"
uv pip install --quiet --python "$work/environment/bin/python" --requirements "$work/requirements.txt"
uv pip install --quiet --no-deps --python "$work/environment/bin/python" "$wheel"
"$work/environment/bin/s2s" run --profile smoke --out none && exit 1    # says which wheel brings the weights
uv pip install --quiet --no-deps --python "$work/environment/bin/python" "$work"/weights/*.whl

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
