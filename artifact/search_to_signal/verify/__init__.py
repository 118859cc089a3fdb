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
            "the files are the listed ones, and texts, program hashes, scores, rewards, advantages, "
            "archive, adapters and manifests agree with each other. What was not compared is counted. "
            "Somebody who forged all of them consistently and wrote a new list would pass."
        ),
        TABLES: (
            "tables, figures, audit, program hashes and the draws of every search follow from seeds and "
            "recorded scores, too."
        ),
        RECOMPUTE: (
            "every recorded text was parsed and every program executed again on this machine, so no forged "
            "score passes, except where something was counted as not compared or not executed. Not "
            "checked: whether a model wrote these texts, what the learner did, and the tables."
        ),
        DRAWS: (
            "every token that was read is, up to rounding, what the run's random numbers draw from its "
            "model. Not checked: groups that were not read, and updates that were not repeated."
        ),
        RERUN: (
            "model, programs and learner gave the texts, scores and adapters of these runs again on this "
            "machine, bit for bit. Not checked: other runs, layers without runs, tables and times."
        ),
        SIGNATURE: (
            "the holder of that key signed this list. This shows who vouches for it, not that it is true."
        ),
    }
)
"""One sentence per level; it applies where the command ended in OK."""

OTHER_STACK = (
    "programs and scores have to be the same; an adapter parts in its last bits at its first update, and "
    "then, sooner or later, what is sampled"
)
"""What records of other libraries mean for those who compute them again."""


def promise(level: str) -> str:
    """Return the printed line of a level."""
    return f"{level}: {PROMISES[level]}"
