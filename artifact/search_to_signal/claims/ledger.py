"""The ledger: every number of the paper as an entry with its place, its evidence layer, and its checks.

``claims.toml`` lists the numbers of the running text by passage. The numbers in cells of published tables
become entries by rules (``[[cells]]``): one formula for a column, filled in for every row. A claim of one
evidence layer is never checked with numbers of another, and no aggregate mixes two; settings (layer
"protocol") belong to all.
"""

from collections.abc import Mapping

import msgspec

from search_to_signal.claims.counterparts import Counterpart
from search_to_signal.claims.expressions import Scope
from search_to_signal.claims.intervals import Interval
from search_to_signal.claims.tables import Table
from search_to_signal.records.layers import get_layer

SETTINGS = "protocol"
# Tables of what this repository implements: the paper's profile, the lock, and constants of the code.
IMPLEMENTATION = ("profile", "lock", "code")


class Layer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a fresh estimate of an evidence layer's numbers needs.

    ``contrasts`` names a layer against which the paper defines this one's published differences.
    """

    needs: str = ""
    contrasts: tuple[str, ...] = ()
    provider: bool = False


class Checks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a number can be checked; every field is a formula.

    ``equals`` derives it, ``holds`` is a statement that is true or not, ``possible`` a condition that it must
    meet and that does not determine it. ``implements`` is what this repository has for it: a number, or a
    statement that is true of it. ``disagrees`` is true where the paper's equation contradicts its sentence.
    ``neighbour`` (``beside`` in the file) names a number of another layer: shown, never compared. ``why``
    says why nothing can derive it, ``note`` what to know of the check.
    """

    equals: str = ""
    holds: str = ""
    possible: str = ""
    implements: str = ""
    disagrees: str = ""
    neighbour: str = msgspec.field(default="", name="beside")
    why: str = ""
    note: str = ""

    def formulas(self) -> tuple[str, ...]:
        """The formulas that decide a verdict."""
        every = (self.equals, self.holds, self.possible, self.implements, self.disagrees)
        return tuple(text for text in every if text)


class Claim(Checks, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One number of the running text at ``at`` ("line:column"), or a statement without a number."""

    id: str
    at: str
    quantity: str
    value: str = ""
    unit: str = ""
    rounding: str = ""
    layer: str = ""


class Passage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Claims that stand together and share a layer and a rounding."""

    where: str
    layer: str
    claims: tuple[Claim, ...]
    rounding: str = ""


class CellRule(Checks, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Checks of the cells of ``table`` in ``columns``, which maps each heading to what {of} stands for.

    In a formula {HEADING} is the row's cell, {column} the heading itself, and {k} the number's place in a
    cell of text, from 0. ``places`` limits a rule to some of them.
    """

    table: str
    columns: dict[str, str]
    only: tuple[str, ...] = ()
    places: tuple[int, ...] = ()


class LedgerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of claims.toml."""

    layers: dict[str, Layer]
    passage: tuple[Passage, ...]
    cells: tuple[CellRule, ...] = ()


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A number to be judged; ``at`` is empty for a cell.

    ``published`` is None for a statement, which has no value, and for a version, which is no decimal number.
    """

    id: str
    where: str
    at: str
    quantity: str
    value: str
    unit: str
    published: Interval | None
    layer: str
    checks: Checks


class Ledger(msgspec.Struct, frozen=True):
    """Entries in the order of the document, then of the tables; layers by id; the published tables.

    ``counterparts`` are our own quantities beside entries, by id.
    """

    entries: tuple[Entry, ...]
    layers: dict[str, Layer]
    tables: dict[str, Table]
    counterparts: Mapping[str, Counterpart] = {}

    def scope(self) -> Scope:
        """What the formulas of this ledger may name: every table, and every claim of the text by id."""
        claims = {entry.id: entry.published for entry in self.entries if entry.at and entry.published}
        return Scope(self.tables, claims)

    def strongest_claim(self, layer: str) -> str:
        """What the paper's evidence matrix lets the layer support; settings support no claim."""
        return "none: a setting is no evidence" if layer == SETTINGS else get_layer(layer).claim


def layer_name(key: str) -> str:
    """What the paper calls a layer, or the settings."""
    return "Settings" if key == SETTINGS else get_layer(key).name
