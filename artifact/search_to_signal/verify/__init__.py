"""Results directories checked, by level: what an OK promises is printed, and quoted in docs/trust.md."""

from types import MappingProxyType

VERIFY = "verify"
TABLES = "verify --tables"
RECOMPUTE = "verify --recompute"
DRAWS = "verify --draws"
RERUN = "rerun"
SIGNATURE = "verify --signer"

PROMISES = MappingProxyType(
    {
        VERIFY: (
            "the files, but what is counted as not compared, are those of the list, and texts, program "
            "hashes, scores, rewards, advantages, archive, adapters and manifests agree with each other; "
            "whoever forged them all alike and wrote a new list would pass."
        ),
        TABLES: (
            "and tables, figures, audit, program hashes and the draws of every search are those that seeds "
            "and recorded scores give."
        ),
        RECOMPUTE: (
            "and every recorded text was parsed and every program executed again on this machine: no forged "
            "score passes but what is counted as not compared or not executed; whether a model wrote these "
            "texts, what the learner did, and the tables are left open."
        ),
        DRAWS: (
            "and every token that was read is, but for rounding, the one that the run's numbers draw from "
            "its model; groups that were not read, and updates that were not made again, are left open."
        ),
        RERUN: (
            "and model, programs and learner gave the texts, scores and adapters of these runs again on this "
            "machine, bit for bit; other runs, layers without runs, tables and times are left open."
        ),
        SIGNATURE: "and the holder of that key signed this list; who vouches is shown, not that it is true.",
    }
)
"""One sentence per level; it applies where the command ended in OK."""


def promise(level: str) -> str:
    """Return the printed line of a level."""
    return f"{level}: {PROMISES[level]}"
