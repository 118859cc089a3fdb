"""Good logs of every format, with one value replaced by another that no writer puts there."""

import csv
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from tests.unit.audit import logs

from search_to_signal.audit import findings as run_audit
from search_to_signal.audit import report
from search_to_signal.audit.group_files import GroupTable, compared
from search_to_signal.audit.importers import USUAL, find, read
from search_to_signal.audit.importers.base import ReadOptions, ScatteredGroupsError
from search_to_signal.base.errors import S2SError

# Names within names that a field is looked for, and records of a file that are changed.
_DEEP, _RECORDS = 4, 2
# Written as brackets within brackets, which json.dumps cannot do.
_NESTED = {f"nested {depth}": "[" * depth + "]" * depth for depth in (150, 900, 100_000)}
VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "0": 0,
    "-1": -1,
    "2**63": 2**63,
    "2**70": 2**70,
    "10**400": 10**400,
    "1.5": 1.5,
    "NaN": float("nan"),
    "inf": float("inf"),
    "text": "x",
    "number": "17",
    "long number": "9" * 5000,
    "NUL": "a\x00b",
    "surrogates": "\ud800\udfff\udc00",
    "lines": "a\n\x1b[2J\u202e,\"'</script>",
    "empty": "",
    "list": [1, None, "x"],
    "mapping": {"a": 1, "content": [0]},
    "empty list": [],
    "empty mapping": {},
    **{name: name for name in _NESTED},
}
Place = tuple[Any, ...]
_AUDITED = "audited: "


@dataclass(frozen=True)
class Change:
    """A value of a log by its path within the records, and what it is replaced by; the log itself."""

    log: str
    place: Place
    value: str
    path: Path

    @property
    def field(self) -> str:
        """What ``--class`` is given for it."""
        return ".".join(str(name) for name in self.place[1:] if isinstance(name, str))


@contextmanager
def few_normalizers() -> Iterator[None]:
    """Compare with four entries of the atlas: it is the reading of values that is tried."""
    few = {name: run_audit.get_entry(name) for name in list(run_audit.entries())[:4]}
    with mock.patch.object(run_audit, "entries", return_value=few):
        yield


def audited(path: Path, options: ReadOptions) -> str:
    """What ``s2s audit --out`` does with a log: everything that reads it and what is printed of it.

    An error of this package is its text.
    """
    try:
        form, _ = find(path, None, bool(options.columns))
        usual = USUAL.get(form.name)
        rows = GroupTable(compared(usual), 1000)
        findings = run_audit.audit(read(path, form.name, options), None, usual, rows.add)
    except ScatteredGroupsError:
        raise
    except S2SError as error:
        return str(error)
    rows.data()
    report.as_json(findings)
    report.STEPS.rows(findings)
    return _AUDITED + report.text(findings) + report.page(findings, str(path), groups=True)


def audited_every_way(change: Change) -> None:
    """With ``--class`` of the changed field, and without where it is refused; read once and as scattered."""
    for together in (True, False) if change.log.startswith("neutral") else (False,):
        for label in (change.field or None, None):
            try:
                text = audited(change.path, ReadOptions(label=label, together=together))
            except ScatteredGroupsError:
                break
            if text.startswith(_AUDITED):
                break


def changes(directory: Path, chosen: Callable[[str, Place, str], bool]) -> Iterator[Change]:
    """Every change that is chosen, made in a directory of its own, one at a time."""
    for name, (build, records_of, write) in LOGS.items():
        good = directory / "good" / name
        good.mkdir(parents=True)
        path = build(good)
        records = records_of(path)
        for place in places(records):
            for value in VALUES:
                if chosen(name, place, value):
                    copied = directory / "changed"
                    shutil.rmtree(copied, ignore_errors=True)
                    shutil.copytree(good, copied)
                    target = copied / path.relative_to(good)
                    if write(target, _changed(records, place, VALUES[value])):
                        yield Change(name, place, value, target)


def places(records: Sequence[Any]) -> Iterator[Place]:
    """Paths to all values of the first records; the first of each list stands for the others."""
    for number, record in enumerate(records[:_RECORDS]):
        yield from ((number, *rest) for rest in _within(record, _DEEP))


def _within(value: Any, depth: int) -> Iterator[Place]:
    entries = dict(enumerate(value[:1])) if isinstance(value, list) else value
    for name, part in entries.items() if depth and isinstance(entries, dict) else ():
        yield (name,)
        yield from ((name, *rest) for rest in _within(part, depth - 1))


def _changed(records: Sequence[Any], place: Place, value: Any) -> list[Any]:
    changed = deepcopy(list(records))
    whole: Any = changed
    for name in place[:-1]:
        whole = whole[name]
    whole[place[-1]] = value
    return changed


def _text(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, indent=indent)
    for name, brackets in _NESTED.items():
        text = text.replace(json.dumps(name), brackets)
    return text


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _write_lines(path: Path, records: Sequence[Any]) -> bool:
    path.write_text("".join(_text(record) + "\n" for record in records), encoding="utf-8")
    return True


def _document(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _write_document(path: Path, records: Sequence[Any]) -> bool:
    path.write_text(_text(records, indent=1), encoding="utf-8")
    return True


def _traces(directory: Path) -> Path:
    path = directory / "evolution_trace.json"
    _write_traces(path, _lines(logs.openevolve(directory)))
    (directory / "evolution_trace.jsonl").unlink()
    return path


def _document_traces(path: Path) -> list[Any]:
    return _document(path)["traces"]  # type: ignore[no-any-return]


def _write_traces(path: Path, records: Sequence[Any]) -> bool:
    path.write_text(_text({"traces": records}, indent=1), encoding="utf-8")
    return True


def _rows(path: Path) -> list[Any]:
    return pq.read_table(path).to_pylist()  # type: ignore[no-any-return]


def _write_parquet(path: Path, records: Sequence[Any]) -> bool:
    """False for what Parquet cannot hold. A column has one type: where it must, the odd value is repeated."""
    columns = {name: [record[name] for record in records] for name in records[0]}
    try:
        pq.write_table(pa.table({name: _column(values) for name, values in columns.items()}), path)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, StopIteration):
        return False
    return True


def _column(values: list[Any]) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        odd = next(value for value in values if type(value) is not type(values[-1]) or value == 2**63)
        return pa.array([odd] * len(values), pa.uint64() if odd == 2**63 else None)


def _cells(path: Path) -> list[Any]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _write_cells(path: Path, records: Sequence[Any]) -> bool:
    with path.open("w", encoding="utf-8", errors="surrogatepass", newline="") as lines:
        # Before 3.11 a NUL cannot be written without.
        out = csv.DictWriter(lines, list(records[0]), escapechar="\\")
        out.writeheader()
        out.writerows(records)
    return True


def _neutral(directory: Path) -> Path:
    return logs.jsonl(directory / "a.jsonl", logs.neutral_rows())


def _neutral_json(directory: Path) -> Path:
    path = directory / "a.json"
    path.write_text(json.dumps(logs.neutral_rows(), indent=1), encoding="utf-8")
    return path


def _plain_rows() -> list[dict[str, Any]]:
    return [
        {"group": f"g{at // 2}", "reward": at / 2, "step": 1, "label": "x", "response": str(at)}
        for at in range(4)
    ]


def _neutral_csv(directory: Path) -> Path:
    _write_cells(directory / "a.csv", _plain_rows())
    return directory / "a.csv"


def _neutral_parquet(directory: Path) -> Path:
    _write_parquet(directory / "a.parquet", _plain_rows())
    return directory / "a.parquet"


_TABLES = ("programs", "archive", "attempt_log")


def _database(path: Path) -> list[Any]:
    with sqlite3.connect(path) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(connection.execute(f"SELECT * FROM {table}").fetchone()) for table in _TABLES]


def _write_database(path: Path, records: Sequence[Any]) -> bool:
    """The first row of each table, where its keys allow."""
    with sqlite3.connect(path) as connection:
        try:
            for table, record in zip(_TABLES, records, strict=True):
                names = ", ".join(f"{name} = ?" for name in record)
                connection.execute(
                    f"UPDATE {table} SET {names} WHERE rowid = (SELECT min(rowid) FROM {table})",
                    [_bytes_if_odd(value) for value in record.values()],
                )
        except (sqlite3.Error, OverflowError, UnicodeEncodeError):
            return False
    return True


def _bytes_if_odd(value: Any) -> Any:
    odd = isinstance(value, str) and not value.isprintable()
    return value.encode("utf-8", "surrogatepass") if odd else value


def _checkpoint(path: Path) -> list[Any]:
    return [_document(path), *(_document(file) for file in sorted((path.parent / "programs").iterdir()))]


def _write_checkpoint(path: Path, records: Sequence[Any]) -> bool:
    metadata, *programs = records
    path.write_text(_text(metadata), encoding="utf-8")
    for file, program in zip(sorted((path.parent / "programs").iterdir()), programs, strict=True):
        file.write_text(_text(program), encoding="utf-8")
    return True


_Log = tuple[Callable[[Path], Path], Callable[[Path], list[Any]], Callable[[Path, Sequence[Any]], bool]]
LOGS: dict[str, _Log] = {
    "trl": (logs.trl, _rows, _write_parquet),
    "trl-wandb": (logs.trl_table, _lines, _write_lines),
    "verl": (logs.verl_v1, _lines, _write_lines),
    "verl v0": (logs.verl_v0, _lines, _write_lines),
    "nemo-rl": (logs.nemo_rl, _lines, _write_lines),
    "skyrl-eval": (logs.skyrl_eval, _lines, _write_lines),
    "prime-rl": (logs.prime_traces, _lines, _write_lines),
    "prime-rl-tokens": (logs.prime_tokens, _lines, _write_lines),
    "prime-rl-rollouts": (logs.prime_rollouts, _lines, _write_lines),
    "areal": (logs.areal, _lines, _write_lines),
    "tinker": (logs.tinker, _lines, _write_lines),
    "ttt-discover": (logs.ttt, _lines, _write_lines),
    "slime": (logs.slime, _lines, _write_lines),
    "theta-evolve": (logs.theta_evolve, _lines, _write_lines),
    "ms-swift": (logs.ms_swift, _lines, _write_lines),
    "ms-swift-ray": (logs.ms_swift_ray, _lines, _write_lines),
    "roll": (logs.roll, _lines, _write_lines),
    "s2s": (logs.own_records, _lines, _write_lines),
    "openevolve": (logs.openevolve, _lines, _write_lines),
    "openevolve-checkpoint": (logs.openevolve_checkpoint, _checkpoint, _write_checkpoint),
    "shinka": (logs.shinka, _database, _write_database),
    "openevolve-json": (_traces, _document_traces, _write_traces),
    "llm4ad": (logs.llm4ad, _document, _write_document),
    "neutral-jsonl": (_neutral, _lines, _write_lines),
    "neutral-json": (_neutral_json, _document, _write_document),
    "neutral-csv": (_neutral_csv, _cells, _write_cells),
    "neutral-parquet": (_neutral_parquet, _rows, _write_parquet),
}
