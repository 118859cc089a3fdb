"""Benchmarks: ``python -m tests.benchmarks NAME [arguments]``, each to be run by itself on an idle machine.

    learner [GROUPS]           generation and update of a live run, beside TRL's stock GRPOTrainer
    dpo [GROUPS] [REPEATS]     a round of DPO, beside TRL's stock DPOTrainer
    generation [MODEL] [GROUPS]  our decoders beside transformers' generate
    verify DIRECTORY           s2s verify beside sha256sum -c
    analysis                   25 synthetic runs of 500 groups to tables and to the report
    audit [GROUPS]             a whole audit of a log of short rows, and of whole ones, beside pandas
    rewards                    groups per second of mappings, normalizers and the atlas, beside plain Python
    isolation                  what a worker, a call and a replay cost
    card MODEL [--help]        a group of four on a card by part

Times are of the processor unless a line says otherwise. Nothing fails on a slow machine.
"""

import sys
from importlib import import_module

MODULES = {
    **dict.fromkeys(("learner", "dpo", "generation"), "training"),
    **dict.fromkeys(("verify", "analysis", "audit"), "records"),
    **dict.fromkeys(("rewards", "isolation"), "parts"),
    "card": "card",
}

if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in MODULES:
        raise SystemExit(__doc__)
    sys.exit(getattr(import_module(f"tests.benchmarks.{MODULES[name]}"), name)(sys.argv[2:]))
