"""Extraction of every number in a LaTeX document with its place; the ledger has to cover all of them.

Numbers are found in the source text: digits with sign, decimals and thousands separators, and the words zero
to twelve. Each has its context (kind of text), so that a rule can cover, for example, all numbers in layout
commands. The checked-in lists contain numbers and places (``published/numbers.csv``) and the words of
tables (``published/labels.csv``), no prose:

    python -m search_to_signal.claims.extraction labels PAPER
"""

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_NUMBER = re.compile(
    r"(?:(?<![\w\-)}])[+-])?(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)*)"
    rf"|\b(?:{'|'.join(WORDS)})\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z]+")
_LINE = re.compile(r"[^\n]+")
_COMMAND = re.compile(r"\\(?:[A-Za-z]+\*?|.)", re.DOTALL)
_COMMENT = re.compile(r"(?<!\\)%[^\n]*")
_FLOAT = re.compile(r"\\begin\{(table|figure)(\*?)\}.*?\\end\{\1\2\}", re.DOTALL)
_TABULAR = re.compile(r"\\begin\{(tabularx?)\}.*?\\end\{\1\}", re.DOTALL)
_EQUATION = re.compile(r"\\begin\{equation\}.*?\\end\{equation\}", re.DOTALL)
_LABEL = re.compile(r"\\label\{([^}]*)\}")
# The preamble, and the alternative preamble of a supplement that is compiled alone.
_PREAMBLES = (
    re.compile(r"\A.*?\\begin\{document\}", re.DOTALL),
    re.compile(r"\\ifdefined\\mainpaper.*?\\fi\b", re.DOTALL),
)
# Commands whose first brace groups are no text: the context of the groups, and their number.
_ARGUMENTS = {
    **dict.fromkeys(("cite", "citep", "citet", "ref", "eqref", "label", "bibliography"), ("key", 1)),
    **dict.fromkeys(("includegraphics", "vspace", "cmidrule"), ("layout", 1)),
    **dict.fromkeys(("setlength", "renewcommand", "multicolumn", "setcounter"), ("layout", 2)),
}
_ENVIRONMENTS = {"tabular": 2, "tabularx": 3}


class Number(msgspec.Struct, frozen=True):
    """A number as printed in the document: line and column from 1, and its context.

    ``context`` is prose, equation, caption LABEL, table LABEL, layout, key (citations and references), name
    (a number that touches a letter, as in 7B), or preamble.
    """

    line: int
    column: int
    text: str
    context: str


class Label(msgspec.Struct, frozen=True):
    """The words of one line of a table, its commands and numbers left out; ``context`` is table LABEL."""

    line: int
    text: str
    context: str


def labels(document: str) -> list[Label]:
    """Return the words of every table line, from the last line of headings on."""
    contexts, plain = _contexts(document), _without_commands(document)
    labelled = []
    for table in _TABULAR.finditer(document):
        end = document.rfind("\\end", *table.span())
        rule = document.find("\\midrule", *table.span())
        # The last line of headings is the line above the first rule between lines.
        first = document.rfind("\n", table.start(), rule - 1) + 1 if rule >= 0 else table.start()
        for line in _LINE.finditer(plain, first, end):
            at = line.start()
            kinds = contexts[at : line.end()]
            context = next((kind for kind in kinds if kind.startswith("table ")), "")
            text = "".join(c if kind == context else " " for c, kind in zip(line[0], kinds, strict=True))
            if words := words_in(text):
                labelled.append(Label(document.count("\n", 0, at) + 1, " ".join(words), context))
    return labelled


def words_in(text: str) -> list[str]:
    """Return the words of a table cell without commands; formulas keep their letters."""
    return _WORD.findall(_without_commands(text))


def numbers(document: str) -> list[Number]:
    """Return every number of a LaTeX document in reading order."""
    contexts, plain = _contexts(document), _without_commands(document)
    starts = [0, *(match.end() for match in re.finditer("\n", document))]
    located = []
    line = 0
    for match in _NUMBER.finditer(plain):
        while line + 1 < len(starts) and starts[line + 1] <= match.start():
            line += 1
        context = contexts[match.start()]
        if context != "comment":
            around = plain[match.start() - 1 : match.start()] + plain[match.end() : match.end() + 1]
            if context.startswith(("prose", "caption")) and match[0][-1].isdigit():
                context = "name" if any(map(str.isalpha, around)) else context
            located.append(Number(line + 1, match.start() - starts[line] + 1, match[0], context))
    return located


def plain_text(number: str) -> str:
    """Format a number in digits, without plus sign and thousands separators: 'Three' is 3, '+1,282' 1282."""
    word = number.lower()
    return str(WORDS.index(word)) if word in WORDS else number.replace(",", "").removeprefix("+")


def numbers_in(text: str) -> list[str]:
    """Return the numbers of a table cell as plain text, including those that touch letters."""
    return [plain_text(match[0]) for match in _NUMBER.finditer(_without_commands(text))]


def _without_commands(text: str) -> str:
    """Replace commands by blanks, so that the letters of \\times do not touch the number in \\times10."""
    return _COMMAND.sub(lambda match: " " * len(match[0]), text)


def _contexts(document: str) -> list[str]:
    kinds = ["prose"] * len(document)
    for start, end, kind in _spans(document):
        kinds[start:end] = [kind] * (end - start)
    return kinds


def _spans(document: str) -> Iterator[tuple[int, int, str]]:
    """Yield spans that are not prose; a later span overrides an earlier one."""
    yield from ((*match.span(), "equation") for match in _EQUATION.finditer(document))
    for match in _FLOAT.finditer(document):
        start, end = match.span()
        label, caption = _LABEL.search(document, start, end), document.find("\\caption", start, end)
        name = label[1] if label else "unlabelled"
        if caption >= 0:
            yield caption, _group_end(document, document.index("{", caption)), f"caption {name}"
        yield from ((*m.span(), f"table {name}") for m in _TABULAR.finditer(document, start, end))
    for match in _COMMAND.finditer(document):
        yield from _argument_spans(document, match)
    for pattern in _PREAMBLES:
        yield from ((*match.span(), "preamble") for match in pattern.finditer(document))
    yield from ((*match.span(), "comment") for match in _COMMENT.finditer(document))


def _argument_spans(document: str, match: "re.Match[str]") -> Iterator[tuple[int, int, str]]:
    command = match[0][1:].rstrip("*")
    if command == "begin":
        name = document[match.end() + 1 : _group_end(document, match.end()) - 1]
        kind, groups = "layout", _ENVIRONMENTS.get(name, 1)
    elif command in _ARGUMENTS:
        kind, groups = _ARGUMENTS[command]
    else:
        return
    end = match.end()
    for _ in range(groups):
        end = _group_end(document, _options_end(document, end))
    yield match.end(), _options_end(document, end), kind


def _options_end(document: str, at: int) -> int:
    """Return the end of the [..] and (..) that follow directly."""
    match = re.compile(r"(?:\[[^\]]*\]|\([^)]*\))*").match(document, at)
    return match.end() if match else at


def _group_end(document: str, at: int) -> int:
    """Return the position after the group that starts at ``at``; ``at`` itself where no group starts."""
    if document[at : at + 1] != "{":
        return at
    depth = 0
    for match in re.compile(r"\\.|[{}]", re.DOTALL).finditer(document, at):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if not depth:
            return match.end()
    return at


if __name__ == "__main__":
    what, path = sys.argv[1:]
    source = Path(path).read_text(encoding="utf-8")
    found = labels(source) if what == "labels" else numbers(source)
    rows = [found[0].__struct_fields__, *map(msgspec.structs.astuple, found)]
    csv.writer(sys.stdout, lineterminator="\n").writerows(rows)
