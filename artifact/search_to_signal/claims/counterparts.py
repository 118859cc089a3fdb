"""Which quantity of a report of our own stands beside an entry: rules on ids, from counterparts.toml."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from search_to_signal.claims.expressions import parse
from search_to_signal.claims.tables import read_toml
from search_to_signal.errors import LedgerError
from search_to_signal.package_data import PUBLISHED

FILE = "counterparts.toml"
Kind = Literal["difference", "ratio", "level", "seeds", "end", "value", "every", "most", "mixed", "not every"]
STATEMENTS = ("every", "most", "mixed", "not every")
NEGATIVE = ("mixed", "not every")
# What a number with a direction of its own is compared with, here and in the paper.
_TURN = {"difference": "0", "ratio": "1", "seeds": "0", "end": "0"}


class Counterpart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Formulas over a report's tables, and what has a direction; counterparts.toml explains the fields."""

    kind: Kind
    ours: str
    against: str = ""
    reference: str = ""
    whole: str = ""
    why: str = ""

    @property
    def compared(self) -> str:
        """The formula whose signs are our directions; a plain value has none."""
        turn = self.against or _TURN.get(self.kind, "0")
        ours = self.whole if self.kind == "end" else self.ours
        return ours if turn == "0" else f"({ours}) - ({turn})"

    @property
    def published(self) -> str:
        """The formula over published numbers whose sign is the published direction; empty without one."""
        if self.kind == "value" or self.kind in STATEMENTS:
            return ""
        return f"value - ({self.reference or _TURN[self.kind]})"


class Rule(Counterpart, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The counterpart of every entry whose id matches; a word in braces stands for any of its names."""

    entries: tuple[str, ...]


class CounterpartFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of counterparts.toml: what we call what the paper calls so, and the rules."""

    names: dict[str, dict[str, str]]
    rule: tuple[Rule, ...]


def load_counterparts(ids: Iterable[str], directory: Path = PUBLISHED) -> dict[str, Counterpart]:
    """The counterpart of every entry that has one, by id.

    Raises LedgerError for a damaged file, an entry with two counterparts, and a pattern without entries.
    """
    content, known = read_toml(directory / FILE, CounterpartFile), list(ids)
    found: dict[str, Counterpart] = {}
    for rule in content.rule:
        for pattern in rule.entries:
            matcher = _matcher(pattern, content)
            matches = [match for name in known if (match := matcher.fullmatch(name))]
            if not matches:
                raise LedgerError(f"{directory / FILE}: no entry is called {pattern!r}")
            for match in matches:
                if match[0] in found:
                    raise LedgerError(f"{directory / FILE}: {match[0]} has two counterparts, keep one")
                found[match[0]] = _filled(rule, match.groupdict(), content.names)
    return found


def _matcher(pattern: str, content: CounterpartFile) -> "re.Pattern[str]":
    if unknown := sorted(set(re.findall(r"{(\w+)}", pattern)) - set(content.names)):
        raise LedgerError(f"{FILE}: {pattern!r} uses {', '.join(unknown)}, which [names] lacks")
    alternatives = {
        name: "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
        for name, words in content.names.items()
    }
    named = re.sub(r"\\{(\w+)\\}", lambda m: f"(?P<{m[1]}>{alternatives[m[1]]})", re.escape(pattern))
    return re.compile(named)


def _filled(rule: Rule, printed: Mapping[str, str], names: Mapping[str, Mapping[str, str]]) -> Counterpart:
    """The rule's formulas with our names in them, and the paper's where they end in _printed."""
    words = {f"{name}_printed": word for name, word in printed.items()}
    ours = {name: names[name][word] for name, word in printed.items()}
    # A name may hold another one, as a breadth cell is called by task and model.
    words |= {name: word.format_map(ours) for name, word in ours.items()}
    fields = {name: getattr(rule, name) for name in Counterpart.__struct_fields__}
    try:
        filled = Counterpart(**{name: text.format_map(words) for name, text in fields.items()})
    except KeyError as error:
        raise LedgerError(f"{FILE}: a rule of {rule.entries[0]} uses the unknown {error}") from error
    needs = {"value": filled.why, "level": filled.against, "end": filled.whole}
    if not needs.get(filled.kind, "nothing") or (filled.why and filled.kind != "value"):
        raise LedgerError(
            f"{FILE}: the rule of {rule.entries[0]} is of kind {filled.kind}: a value needs why, "
            "a level needs against, an end needs whole"
        )
    for formula in filter(None, (filled.compared, filled.published, filled.whole)):
        parse(formula)
    return filled
