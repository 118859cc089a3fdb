"""Validity, speed and memory of each backend on one card, one after the other, with one model.

    python tests/benchmarks/backends_benchmark.py mounts/qwen2.5-coder-0.5b-instruct --groups 20 --out DIR
    python tests/benchmarks/backends_benchmark.py qwen2-2.1m --profile embedded --device cpu --groups 2 \\
        --backends local,trl --out DIR     to try this script

Ours are live runs, condition factorized, one seed, with the profile's search, limits and learner: local
(bfloat16), local-nf4, unsloth (engine and learner share its 4-bit weights, the paper's arrangement) and vllm
(bfloat16, the learner beside it with weights of its own). Both engines are given --engine-gib of the card.

trl is TRL's stock GRPOTrainer with transformers' generate, in bfloat16. It gets the prompts and rewards
that the run of local recorded. Its sampler draws as ever and is then given that run's tokens, so that both
sample and learn from equally many. It keeps its key-value cache, which transformers drops in a model that
is checkpointed while it trains; trl-checkpointed has gradient checkpointing, as the others.

Every backend has a process of its own, and an error of one ends none of the others. One whose DIR/NAME.json
is there is not run again: give the command once more to go on.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import backends_measured as measured
import msgspec

from search_to_signal.base.processes import end_with_parent

BACKENDS = ("local", "local-nf4", "unsloth", "vllm", "trl")
STOCK = ("trl", "trl-checkpointed")
# Nothing asks a network, and one process does everything.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "UNSLOTH_DISABLE_STATISTICS": "1",
    "UNSLOTH_DISABLE_AUTO_UPDATES": "1",
    "VLLM_USE_V1": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "0",
    "PYTHONUNBUFFERED": "1",
}


def arguments() -> argparse.ArgumentParser:
    """The options; ``--only`` is for the processes that this script starts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", help="the name of an embedded model, or a model directory")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument(
        "--backends", default=",".join(BACKENDS), help=f"of {', '.join((*BACKENDS, STOCK[1]))}"
    )
    parser.add_argument("--profile", default="pretrained")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--engine-gib", type=float, default=8.0, help="memory that an engine is given")
    parser.add_argument(
        "--timeout-s", type=float, help="of a program's evaluation; the profile's unless given"
    )
    parser.add_argument("--stock-groups", type=int, help="of trl, which takes many times as long")
    parser.add_argument("--limit-s", type=float, default=1200.0, help="of a backend")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    return parser


def run_apart(name: str, given: argparse.Namespace) -> measured.Backend:
    """One backend in a process of its own; what it printed goes to DIR/NAME.log."""
    command = [sys.executable, __file__, *sys.argv[1:], "--only", name]
    log = given.out / f"{name}.log"
    with log.open("w") as lines, measured.CardMemory() as card:
        # A group of its own, because a run starts processes that evaluate.
        child = subprocess.Popen(
            command,
            stdout=lines,
            stderr=subprocess.STDOUT,
            env={**ENVIRONMENT, **os.environ},
            start_new_session=True,
        )
        try:
            code: int | None = child.wait(given.limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_group(child)
    found = measured.of_stock(given.out, name) if name in STOCK else measured.of_run(given.out, name)
    error = ""
    if code is None:
        error = f"ended after {given.limit_s:.0f} s (--limit-s)"
    elif code:
        error = error_line(log.read_text(errors="replace"), code)
    return msgspec.structs.replace(found, card_peak_mib=card.peak_mib, error=error)


def end_group(child: "subprocess.Popen[bytes]") -> None:
    """End a process and what it started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def error_line(text: str, code: int) -> str:
    """The last line that names an error, else the last line."""
    # vLLM puts its rank before every line of a traceback.
    lines = [re.sub(r"^\[rank\d+\]:\s*", "", line.strip()) for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    last = (named or lines or [""])[-1]
    return f"exit status {code}: {last[:300]}"


def main() -> int:
    """Run what has not been run, print the table; 1 where a backend failed."""
    given = arguments().parse_args()
    names = given.backends.split(",")
    if unknown := [name for name in names if name not in (*BACKENDS, *STOCK)]:
        raise SystemExit(f"--backends has {unknown[0]!r}: choose of {', '.join((*BACKENDS, STOCK[1]))}")
    if given.only:
        import backends_run  # with torch, which who waits for it does not need

        end_with_parent(os.getppid())
        backends_run.run_backend(given.only, given)
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    found = []
    for name in names:
        path = given.out / f"{name}.json"
        if not path.exists():
            result = run_apart(name, given)
            path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
        found.append(msgspec.json.decode(path.read_bytes(), type=measured.Backend))
        print(f"{name}: {measured.summary(found[-1])}", flush=True)
    (given.out / "summaries.json").write_text(
        json.dumps([measured.numbers(backend) for backend in found], indent=1)
    )
    print(f"\n{measured.table(found)}\n")
    print("\n".join(measured.ratios(found)))
    return int(any(backend.error for backend in found))


if __name__ == "__main__":
    sys.exit(main())
