"""Build the tables of README.md from the tests: ``python -m spec.index`` rewrites them."""

import ast
import re
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from inspect import getsource
from io import StringIO
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from search_to_signal.cli import main
from search_to_signal.report.metrics.replay import DECISIONS
from search_to_signal.report.tables.catalogue import BUILDERS
from search_to_signal.run.config import RunConfig
from search_to_signal.run.profile import Profile

SPEC = Path(__file__).parent
README = SPEC / "README.md"
IDENTIFIER = re.compile(r"(R-[A-Z]+-\d\d)( \(D\d\d\))?: (.*)", re.DOTALL)
MARKERS = ("<!-- tables: python -m spec.index -->", "<!-- end of tables -->")


@dataclass(frozen=True)
class Requirement:
    """One test and the sentence that it states."""

    identifier: str
    sentence: str
    file: str
    test: str

    @property
    def decisions(self) -> tuple[str, ...]:
        """The decisions that the sentence relies on, as it names them."""
        return tuple(re.findall(r"D\d\d", self.sentence))


def requirements() -> list[Requirement]:
    """Every requirement of the specification, from the first words of the tests' docstrings."""
    found = []
    for path in sorted(SPEC.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                match = IDENTIFIER.match(ast.get_docstring(node) or "")
                if match:
                    sentence = match[3] + (match[2] or "")
                    found.append(Requirement(match[1], sentence, path.name, node.name))
    return sorted(found, key=lambda item: item.identifier)


def unnamed() -> list[str]:
    """Tests of this package whose docstring does not begin with an identifier."""
    return [
        f"{path.name}::{node.name}"
        for path in sorted(SPEC.glob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and not IDENTIFIER.match(ast.get_docstring(node) or "")
    ]


def passages() -> dict[str, list[dict[str, Any]]]:
    """The sentences of the paper, and the requirements of our own, as data."""
    return msgspec.toml.decode((SPEC / "passages.toml").read_bytes())


def decisions() -> dict[str, dict[str, str]]:
    """The list of decisions as data."""
    return msgspec.toml.decode((SPEC / "decisions.toml").read_bytes())


def unreachable() -> list[str]:
    """Promises of the list of decisions that lead nowhere, one line each."""
    problems = []
    for name, entry in decisions().items():
        promised = entry["alternative"].split("; ") if entry["alternative"] else []
        reached = entry["reach"].split(", ") if entry["reach"] else []
        if len(reached) < len(promised) or (reached and not promised):
            problems.append(f"{name}: {len(promised)} alternatives, {len(reached)} ways to reach them")
        problems += [f"{name}: {way} is nothing" for way in reached if not _leads(name, way)]
    known = {way for entry in decisions().values() for way in entry["reach"].split(", ")}
    return problems + [f"{name} is of no decision" for name in DECISIONS if name not in known]


def _leads(decision: str, way: str) -> bool:
    """Whether a way is a reading of that decision, a setting that takes the value, a column or an option."""
    if way in DECISIONS:
        return DECISIONS[way] == decision
    if way.startswith("s2s "):
        _, command, option = way.split()
        return option in _help_of(command).split()
    table, _, column = way.partition(" / ")
    if column:
        module = sys.modules[BUILDERS[table].function.__module__] if table in BUILDERS else None
        return module is not None and f'"{column}"' in getsource(module)
    path, _, value = way.partition(" = ")
    section, _, key = path.rpartition(".")
    settings = {**get_type_hints(RunConfig), **get_type_hints(Profile)}
    if section:
        kind = settings.get(section, object)
        settings = get_type_hints(next((part for part in get_args(kind) if part is not type(None)), kind))
    if key not in settings:
        return False
    try:
        msgspec.convert(value or None, settings[key] if value else Any, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _help_of(command: str) -> str:
    """What a command says of itself; empty for one that does not exist."""
    with redirect_stdout(StringIO()) as said, redirect_stderr(StringIO()), suppress(SystemExit):
        main([command, "--help"])
    return said.getvalue()


def tables() -> str:
    """The three tables as Markdown."""
    listed = requirements()
    return "\n\n".join([_by_passage(), _by_requirement(listed), _by_decision(listed)])


def _by_passage() -> str:
    rows = [f"| {p['where']} | {_cell(p['says'])} | {', '.join(p['tests'])} |" for p in passages()["passage"]]
    rows += [f"| ours | {_cell(p['why'])} | {', '.join(p['tests'])} |" for p in passages()["ours"]]
    head = "## From the paper to the tests\n\n| where | sentence | requirements |\n|---|---|---|\n"
    return head + "\n".join(rows)


def _by_requirement(listed: list[Requirement]) -> str:
    where: dict[str, list[str]] = {}
    for passage in passages()["passage"]:
        for test in passage["tests"]:
            where.setdefault(test, []).append(passage["where"])
    rows = [
        f"| {r.identifier} | {_cell(r.sentence)} | {'; '.join(where.get(r.identifier, ['']))} | "
        f"{', '.join(r.decisions)} | `{r.file}::{r.test}` |"
        for r in listed
    ]
    head = "## Requirements\n\n| id | requirement | paper | decisions | test |\n|---|---|---|---|---|\n"
    return head + "\n".join(rows)


def _by_decision(listed: list[Requirement]) -> str:
    rows = []
    for name, entry in decisions().items():
        tests = ", ".join(r.identifier for r in listed if name in r.decisions)
        stated = tests or f"package {entry['package']}"
        reach = f"`{_cell(entry['reach'])}`" if entry["reach"] else ""
        rows.append(f"| {name} | {_cell(entry['open'])} | {stated} | {reach} |")
    head = "## Decisions\n\n| id | open point | stated by | alternative |\n|---|---|---|---|\n"
    return head + "\n".join(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def rendered() -> str:
    """README.md with its tables up to date."""
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(MARKERS[0])
    after = rest.split(MARKERS[1])[1]
    return f"{before}{MARKERS[0]}\n\n{tables()}\n\n{MARKERS[1]}{after}"


if __name__ == "__main__":
    README.write_text(rendered(), encoding="utf-8")
