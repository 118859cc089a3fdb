"""Change published numbers by a few units in their last digit, and count how often the ledger notices.

    python -m tests.proofs.ledger_mutations                 every number, 2 units up and down: some minutes
    python -m tests.proofs.ledger_mutations --every 20      a sample
    python -m tests.proofs.ledger_mutations --survivors     and what went unnoticed

A change is noticed when an entry becomes inconsistent, differs from what is implemented, or all numbers can
no longer be right at once. The document, which would show every change, is not asked.
"""

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

import msgspec
from tests.figures import print_figure

from search_to_signal.base.errors import LedgerError
from search_to_signal.claims.expressions import parse, references
from search_to_signal.claims.feasibility import check_feasibility
from search_to_signal.claims.intervals import Interval, is_number
from search_to_signal.claims.ledger import ClaimEntry, Ledger, load_ledger
from search_to_signal.claims.page import MISFITS, ClaimVerdict, Implementation, judge_claims
from search_to_signal.claims.settings import implementation
from search_to_signal.claims.tables import ClaimTable, cell_name, selected

CONSISTENT, OTHERS = "consistent numbers", "other numbers"


@dataclass(frozen=True)
class Tried:
    """One change of one number, and whether it was noticed."""

    entry: str
    units: int
    kind: str
    noticed: bool


class Mutations:
    """A ledger with, for every number, the entries whose checks read it."""

    def __init__(self, ledger: Ledger, facts: Implementation) -> None:
        self._ledger = ledger
        self._facts = facts
        self._readers: dict[str, set[str]] = defaultdict(set)
        for entry in ledger.entries:
            for name in (entry.id, *_read(entry, ledger)):
                self._readers[name].add(entry.id)

    def tried(self, units: int, every: int = 1) -> Iterator[Tried]:
        """Every ``every``-th number, changed by so many units up and down."""
        verdicts = {
            finding.entry.id: finding.verdict for finding in judge_claims(self._ledger, None, self._facts)
        }
        numbers = [entry for entry in self._ledger.entries if is_number(entry.value)]
        for entry in numbers[::every]:
            kind = CONSISTENT if verdicts[entry.id] is ClaimVerdict.CONSISTENT else OTHERS
            for change in (-units, units):
                yield Tried(entry.id, change, kind, self._noticed(entry, change))

    def _noticed(self, entry: ClaimEntry, units: int) -> bool:
        changed = mutated(self._ledger, entry, units)
        try:
            found = judge_claims(changed, None, self._facts, self._readers[entry.id])
            return any(f.verdict in MISFITS for f in found) or bool(check_feasibility(changed).conflicts)
        except LedgerError:
            return True


def mutated(ledger: Ledger, entry: ClaimEntry, units: int) -> Ledger:
    """The ledger with one number changed by units of its last digit, in its entry and its table."""
    value = Decimal(entry.value)
    step = Decimal(1).scaleb(int(value.as_tuple().exponent))
    text, shift = f"{value + units * step:f}", units * Fraction(step)
    old = entry.published
    new = msgspec.structs.replace(
        entry, value=text, published=Interval(old.lo + shift, old.hi + shift) if old else None
    )
    entries = tuple(new if one is entry else one for one in ledger.entries)
    tables = ledger.tables
    if not entry.at:
        tables = {name: _changed(table, entry, text) for name, table in tables.items()}
    return msgspec.structs.replace(ledger, entries=entries, tables=tables)


def _changed(table: ClaimTable, entry: ClaimEntry, text: str) -> ClaimTable:
    """The table with the entry's number in place of the old one; a table without it is as it was."""
    rows = [dict(row) for row in table.rows]
    for row in rows:
        for heading in table.printed:
            for k, number in enumerate(table.numbers(row, heading)):
                if cell_name(table, row, heading, k) == entry.id:
                    row[heading] = _with_number(row[heading], number, k, text, table)
    return replace(table, rows=tuple(rows))


def _with_number(cell: str, number: str, k: int, text: str, table: ClaimTable) -> str:
    """A cell whose k-th number is another one; thousands separators are left out."""
    plain = cell.replace(",", "") if number not in cell else cell
    before = table.numbers({"": plain}, "")[:k].count(number)
    at = -1
    for _ in range(before + 1):
        at = plain.find(number, at + 1)
    return plain[:at] + text + plain[at + len(number) :]


def _read(entry: ClaimEntry, ledger: Ledger) -> Iterator[str]:
    """The numbers that an entry's checks read, by id."""
    for text in entry.checks.formulas():
        for name, node in references(parse(text)):
            yield from _cells(ledger.tables[name], node) if name in ledger.tables else (name,)


def _cells(table: ClaimTable, node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Subscript) and isinstance(node.value, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Subscript):
        rows, heading = selected(table, node.slice)
        for row in rows:
            for k, _ in enumerate(table.numbers(row, heading)):
                yield cell_name(table, row, heading, k)


def rates(tried: Sequence[Tried]) -> dict[str, tuple[int, int]]:
    """By kind of number, how many changes were noticed, of how many."""
    return {
        kind: (sum(t.noticed for t in tried if t.kind == kind), sum(t.kind == kind for t in tried))
        for kind in (CONSISTENT, OTHERS)
    }


def main() -> None:
    """Print the rates, and the survivors when asked."""
    parser = argparse.ArgumentParser(description="how often the ledger notices a changed number")
    parser.add_argument("--units", type=int, default=2)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--survivors", action="store_true")
    arguments = parser.parse_args()
    tried = list(Mutations(load_ledger(), implementation()).tried(arguments.units, arguments.every))
    for one in tried:
        if arguments.survivors and not one.noticed:
            print(f"unnoticed: {one.entry} {one.units:+d} ({one.kind})")
    for kind, (noticed, total) in rates(tried).items():
        share = 100 * noticed / total if total else 0.0
        said = f"{kind}: {noticed} of {total} changes by {arguments.units} units noticed, {share:.1f} %"
        command = f"python -m tests.proofs.ledger_mutations --every {arguments.every}"
        print_figure(f"ledger_mutations, {kind}", command, said)


if __name__ == "__main__":
    main()
