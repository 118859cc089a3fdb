"""The result of a verification: findings, one line each, and the counts of what was checked."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from search_to_signal.base.errors import S2SError, reason


@dataclass(frozen=True)
class Finding:
    """A problem, or with ``compared`` False the reason why something could not be compared.

    ``where`` names a run, a file or a place in one; it is empty where ``text`` names it.
    """

    where: str
    text: str
    compared: bool = True

    @property
    def line(self) -> str:
        """The finding as one line to print."""
        return f"{self.where}: {self.text}" if self.where else self.text

    def within(self, place: str) -> "Finding":
        """The finding with ``place`` in front of its own."""
        return replace(self, where=f"{place}: {self.where}" if self.where else place)


@dataclass(frozen=True)
class VerificationResult:
    """Every finding of a verification in order, and the counts of what it checked."""

    findings: tuple[Finding, ...] = ()
    counts: Mapping[str, int] = field(default_factory=Counter)

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems as lines; empty where everything that was compared agrees."""
        return tuple(finding.line for finding in self.findings if finding.compared)

    @property
    def not_compared(self) -> dict[str, tuple[str, ...]]:
        """The places that could not be compared, by the reason."""
        places: dict[str, list[str]] = {}
        for finding in self.findings:
            if not finding.compared:
                places.setdefault(finding.text, []).append(finding.where)
        return {text: tuple(names) for text, names in places.items()}


def distinct_lines(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings without those whose line an earlier one has."""
    by_line: dict[str, Finding] = {}
    for finding in findings:
        by_line.setdefault(finding.line, finding)
    return tuple(by_line.values())


def findings_of(where: str, problems: Iterable[str], unreadable: str) -> Iterator[Finding]:
    """Problems of ``where`` as findings; an error of reading ends them and becomes the last one.

    Such an error names its file itself. ``unreadable`` names what contains values that no check can use.
    """
    try:
        for problem in problems:
            yield Finding(where, problem)
    except S2SError as error:
        yield Finding("", str(error))
    except OSError as error:
        yield Finding("", f"cannot read {error.filename}: {reason(error)}; restore it")
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        yield Finding("", f"{unreadable} cannot be read ({type(error).__name__}: {error})")


# The guarantee of an OK at each level of verification, as printed and as docs/trust.md quotes it.

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
