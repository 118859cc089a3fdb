"""Logs of searches: what is a candidate, what failed, and by which rule a score was made."""

import json
import math
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.audit import logs
from tests.unit.audit.logs import statuses, whole

from search_to_signal import audit
from search_to_signal.audit.groups import RewardGroups, summed
from search_to_signal.audit.importers import read
from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.base.errors import RecordError


def said(groups: RewardGroups) -> dict[str, Mapping[str, int]]:
    """The counts of every assumption, by its key."""
    return {one.key: one.counts for one in groups.assumptions}


def verdicts(path: Path) -> str:
    return "\n".join(audit.conclusions(audit.audit(read(path))))


def trace(directory: Path, *children: Any, parent: Any = 0.2, **more: Any) -> Path:
    """A trace of children with these metrics, or these scores, whose parents have one score."""
    rows = [
        {
            "iteration": number,
            "timestamp": float(number),
            "parent_id": "a",
            "child_id": f"b{number}",
            "parent_metrics": {"combined_score": parent} if isinstance(parent, float) else parent,
            "child_metrics": {"combined_score": metrics} if isinstance(metrics, float) else metrics,
            "island_id": 0,
            "generation": 1,
            **more,
        }
        for number, metrics in enumerate(children, 1)
    ]
    return logs.jsonl(directory / "evolution_trace.jsonl", rows)


def test_truth_values_are_no_scores(tmp_path: Path) -> None:
    """The rule since 411fb59, and the one before for what is dated before; both counts where they differ."""
    timeout = {"error": 0.0, "timeout": True}
    scored = (0.5, timeout, {"combined_score": 0.0, **timeout}, {"validity": True, "speed": 0.8})
    groups = whole(path := trace(tmp_path, *scored))
    assert groups.reward.tolist() == [0.5, 0.0, 0.0, 0.8]
    assert (groups.improvement > 0).tolist() == [True, False, False, True]
    assert list(said(groups)["earlier_fitness"].values()) == [2, 0, 2, 3]
    assert "2 of 4 candidates are better" in verdicts(path)
    groups = whole(trace(tmp_path, *scored, timestamp=1764547200.0))
    assert groups.reward.tolist() == [0.5, 0.5, 0.0, 0.9]
    assert list(said(groups)["earlier_fitness"].values()) == [2, 4, 2, 3]
    assert "1 of 2 candidates that failed or timed out count as an improvement" in verdicts(path)
    assert whole(trace(tmp_path, *scored, timestamp=1790000000.0)).reward.tolist() == [0.5, 0.0, 0.0, 0.8]
    assert "earlier_fitness" not in said(whole(trace(tmp_path, 0.5, 0.1)))


def test_the_earlier_rule_is_counted_over_all_batches(tmp_path: Path) -> None:
    path = trace(tmp_path, 0.5, 0.6, {"error": 0.0, "timeout": True})
    total = summed(one for batch in read(path, options=ReadOptions(rows=1)) for one in batch.assumptions)
    (told,) = [one.counts for one in total if one.key == "earlier_fitness"]
    assert list(told.values()) == [1, 0, 2, 3]
    # A row without the id of a parent is compared with nothing, whatever stands in its parent's metrics.
    assert said(whole(trace(tmp_path, 0.5, parent={}, parent_id=None)))["candidates"]["compared"] == 0
    assert said(whole(trace(tmp_path, 0.5, parent={})))["candidates"]["improved"] == 1
    assert said(whole(trace(tmp_path, 0.2, 0.0, -0.0)))["candidates"]["improved"] == 0


@pytest.mark.parametrize(
    ("metrics", "fitness", "status"),
    [
        ({"combined_score": "0.5"}, 0.5, "ok"),
        ({"combined_score": True}, 1.0, "ok"),
        ({"combined_score": "none", "speed": 0.25}, 0.25, "ok"),
        ({"combined_score": None, "speed": 0.25}, 0.25, "ok"),
        ({"combined_score": [0.5], "speed": 0.25}, 0.25, "ok"),
        ({"combined_score": 0.5, "error": 0.01}, 0.5, "ok"),
        ({"combined_score": 0.5, "error": ""}, 0.5, "ok"),
        ({"combined_score": 0.0, "error": "ValueError"}, 0.0, "error"),
        ({"error": 1000.0}, 1000.0, "error"),
        ({"stage1_passed": 0.0, "error": 0.0}, 0.0, "error"),
        ({"combined_score": 0.5, "stage2_passed": 0.0}, 0.5, "error"),
        ({"combined_score": 0.5, "stage2_passed": 0.0, "timeout": True}, 0.5, "timeout"),
        ({"speed": 0.25, "complexity": 90.0}, 0.25, "ok"),
        ({"complexity": 90.0, "valid": True}, 90.0, "ok"),
        ({"combined_score": math.nan}, math.nan, "failed: score nan"),
        ({"combined_score": -math.inf}, -math.inf, "failed: score -inf"),
        ({}, 0.0, "failed: no metrics"),
        (None, math.nan, "failed: no metrics"),
        ([0.5], math.nan, "failed: no metrics"),
    ],
)
def test_a_fitness_is_the_frameworks(metrics: Any, fitness: float, status: str, tmp_path: Path) -> None:
    """get_fitness_score of 411fb59 with the default features, and its conventions of failure."""
    groups = whole(trace(tmp_path, metrics))
    assert groups.reward.tolist() == pytest.approx([fitness], nan_ok=True)
    assert statuses(groups) == [status]


@pytest.mark.parametrize("parent", [None, math.nan, [0.5], "0.5"])
def test_a_parent_without_a_score_is_not_compared(parent: Any, tmp_path: Path) -> None:
    path = trace(tmp_path, 0.5, parent=parent)
    assert said(whole(path))["candidates"]["compared"] == 0
    assert "No candidate of 1 has both a score and an earlier one" in verdicts(path)
    assert "advantage" not in verdicts(path)


def test_traces_hold_copies_and_resumed_runs(tmp_path: Path) -> None:
    path = trace(tmp_path, 0.5, 0.6)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    copy = {**rows[0], "child_id": "copy", "iteration": 0, "metadata": {"migrant": True, "island": 1}}
    groups = whole(logs.jsonl(path, [*rows, copy, rows[1]]))
    assert groups.reward.tolist() == [0.5, 0.6]
    assert said(groups)["copies"] == {"copies": 1, "copies in the archive": 0}
    assert said(groups)["repeated_programs"] == {"repetitions": 1}
    path = trace(tmp_path / "1", 0.5, 0.6)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    groups = whole(logs.jsonl(path, [*rows, {**rows[1], "child_id": "again"}]))
    assert len(groups.reward) == 3
    assert said(groups)["resumed"] == {"candidates of such an iteration": 1}


def test_traces_of_several_runs_and_of_islands(tmp_path: Path) -> None:
    for build in (logs.openevolve, logs.openevolve_checkpoint, logs.llm4ad):
        for run in ("one", "two"):
            build(tmp_path / build.__name__ / run)
        with pytest.raises(RecordError, match="holds 2 runs"):
            list(read(tmp_path / build.__name__))
    for island in range(2):
        trace(tmp_path / "1", 0.5).rename(tmp_path / "1" / f"evolution_trace_island_{island}.jsonl")
    assert sum(len(batch.reward) for batch in read(tmp_path / "1")) == 2 * sum(
        len(batch.reward) for batch in read(tmp_path / "1" / "evolution_trace_island_0.jsonl")
    )


def changed(path: Path, change: Callable[[Any], None]) -> Path:
    """A JSON file after a change to what it holds."""
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_empty_islands_and_failures_in_an_archive_are_told(tmp_path: Path) -> None:
    """OpenEvolve #391: all programs on one island; an island of programs that are gone holds none either."""
    path = logs.openevolve_checkpoint(tmp_path)
    assert "empty_islands" not in said(whole(path))
    changed(path, lambda metadata: metadata.update(islands=[["a", "b"], [], ["gone"]], archive=["a", "gone"]))
    assert said(whole(path))["empty_islands"] == {"empty": 2, "islands": 3}
    assert said(whole(path))["archive"] == {"unknown": 1, "archived": 2}
    # OpenEvolve #70: an archive that is not full takes a timeout; a ShinkaEvolve archive, what is wrong.
    path = logs.openevolve_checkpoint(tmp_path / "1")
    changed(path, lambda metadata: metadata.update(archive=["b", "d"]))
    assert "1 of 3 candidates that failed or timed out were kept" in verdicts(path)
    database = logs.shinka(tmp_path / "1")
    with sqlite3.connect(database) as connection:
        connection.execute("INSERT INTO archive VALUES ('p2')")
    connection.close()
    assert "1 of 2 candidates that failed or timed out were kept" in verdicts(database)


def test_copies_of_a_checkpoint_are_no_candidates(tmp_path: Path) -> None:
    path = logs.openevolve_checkpoint(tmp_path)
    programs = path.parent / "programs"
    for name in "ab":
        changed(programs / f"{name}.json", lambda program: program.update(generation=1, code="x = 1"))
    assert said(whole(path))["copies"]["copies"] == 2
    changed(programs / "b.json", lambda program: program.update(generation=2, metadata={"migrant": False}))
    assert said(whole(path))["copies"]["copies"] == 1
    shutil.copyfile(programs / "b.json", programs / "b (1).json")
    assert said(whole(path))["repeated_programs"] == {"repetitions": 1}


def archipelago(directory: Path, name: str = "evolution_db.sqlite") -> Path:
    """A ShinkaEvolve database: five programs, the first copied to two islands, a subtree to a new one."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    spawned = {"_spawned_island": True, "_spawn_strategy": "best"}
    rows = [
        ("s0", None, 0, 1.0, 1, 0, {}),
        ("s1", "s0", 1, 1.5, 1, 0, {}),
        ("s2", "s0", 2, 0.0, 0, 0, {}),
        ("s3", "s1", 3, 1.25, 1, 0, {}),
        ("s4", "s1", 4, 2.0, 1, 0, {}),
        *((f"init{island}", None, 0, 1.0, 1, island, {"_is_island_copy": True}) for island in (1, 2)),
        ("sp1", None, 1, 1.5, 1, 3, spawned),
        ("sp4", "sp1", 4, 2.0, 1, 3, {**spawned, "_spawned_as_child": True}),
    ]
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(
        "CREATE TABLE programs (id TEXT PRIMARY KEY, code TEXT, parent_id TEXT, generation INTEGER, "
        "timestamp REAL, combined_score REAL, correct BOOLEAN, island_idx INTEGER, metadata TEXT)"
    )
    connection.execute("CREATE TABLE archive (program_id TEXT PRIMARY KEY)")
    for at, (identity, parent, generation, score, correct, island, metadata) in enumerate(rows):
        code, packed = f"code {generation}", json.dumps(metadata)
        values = (identity, code, parent, generation, float(at), score, correct, island, packed)
        connection.execute("INSERT INTO programs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    kept = [(name,) for name in ("s1", "s4", "init1", "init2", "sp1", "sp4")]
    connection.executemany("INSERT INTO archive VALUES (?)", kept)
    connection.commit()
    connection.close()
    return path


_ISLANDS = {
    "candidates": {"candidates": 5, "compared": 4, "improved": 2, "admitted": 2},
    "copies": {"copies": 4, "copies in the archive": 4},
}


@pytest.mark.parametrize("name", ["evolution_db.sqlite", "None", "evolution"])
def test_copies_on_islands_are_no_candidates(name: str, tmp_path: Path) -> None:
    """ShinkaEvolve #54 and #119, and #23 for the name: by itself, and in its directory beside the prompts."""
    path = archipelago(tmp_path / "results", name)
    shutil.copyfile(path, path.with_name("prompts.sqlite"))
    path.with_name("README").write_text("no log", encoding="utf-8")
    for log in (path, path.parent):
        assert said(whole(log)) == _ISLANDS


def test_a_child_of_a_copy_is_compared_with_it(tmp_path: Path) -> None:
    path = archipelago(tmp_path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE programs SET parent_id = 'sp4' WHERE id = 's3'")
    connection.close()
    assert whole(path).improvement[3] == -0.75


def killed(directory: Path, companions: tuple[str, ...]) -> Path:
    """A database whose rows stand in its write-ahead log, as when the process that wrote it was killed."""
    whole_one = archipelago(directory / "whole")
    writer = sqlite3.connect(directory / "run.sqlite")
    writer.executescript("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0")
    with sqlite3.connect(whole_one) as source:
        tables = [row[0] for row in source.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
        for table in tables:
            writer.execute(table)
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for name in ("programs", "archive"):
            for row in source.execute(f"SELECT * FROM {name}"):
                writer.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
    source.close()
    writer.commit()
    target = directory / "killed"
    target.mkdir()
    for end in ("", *companions):
        shutil.copyfile(f"{directory / 'run.sqlite'}{end}", target / f"run.sqlite{end}")
    writer.close()
    return target / "run.sqlite"


@pytest.mark.parametrize("companions", [("-wal", "-shm"), ("-wal",)])
def test_the_log_of_a_killed_run_is_read(companions: tuple[str, ...], tmp_path: Path) -> None:
    path = killed(tmp_path, companions)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    assert said(whole(path)) == _ISLANDS
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before
    link = tmp_path / "link.sqlite"
    link.symlink_to(path)
    assert said(whole(link)) == _ISLANDS


def test_what_a_killed_run_left_without_its_log_is_one_line(tmp_path: Path) -> None:
    path = killed(tmp_path, ("-wal", "-shm"))
    path.with_name(f"{path.name}-wal").write_bytes(b"no log" * 1000)
    with pytest.raises(RecordError, match="no program is in it"):
        list(read(path))
    path = killed(tmp_path / "1", ())
    with pytest.raises(RecordError, match=r"run\.sqlite-wal"):
        list(read(path))


def test_a_transaction_that_did_not_end_is_not_read(tmp_path: Path) -> None:
    path = archipelago(tmp_path / "whole")
    writer = sqlite3.connect(path)
    writer.executescript("PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN")
    writer.execute("UPDATE programs SET combined_score = 9.0, code = code || hex(zeroblob(9000))")
    target = tmp_path / "killed"
    target.mkdir()
    for end in ("", "-journal"):
        shutil.copyfile(f"{path}{end}", target / f"run.sqlite{end}")
    writer.rollback()
    writer.close()
    assert said(whole(target / "run.sqlite")) == _ISLANDS
    assert len(list(target.iterdir())) == 2


def samples(directory: Path, *scores: object, **more: Any) -> Path:
    rows = [
        {"sample_order": order, "function": f"f{order}", "score": score, "program": "", **more}
        for order, score in enumerate(scores, 1)
    ]
    path = directory / "samples_1~200.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def test_scores_that_are_no_finite_number_are_failures(tmp_path: Path) -> None:
    """LLM4AD's NaN and infinities: no score to compare with, and told as what they are."""
    path = samples(tmp_path, -1.0, None, math.nan, -math.inf, math.inf, -0.5)
    groups = whole(path)
    failed = [f"failed: score {score}" for score in ("nan", "-inf", "inf")]
    assert statuses(groups) == ["ok", "failed", *failed, "ok"]
    assert said(groups)["candidates"] | {"admitted": 0} == {
        "candidates": 6,
        "compared": 1,
        "improved": 1,
        "admitted": 0,
    }
    assert "failed: score nan (1)" in verdicts(path)
    found = audit.audit(read(samples(tmp_path, None, math.nan)))
    page = audit.text(found)
    assert "No candidate of 2 has both a score" in page
    assert "failed (1), failed: score nan (1)" in page
    assert "advantage" not in page
    assert "rollout.n" not in page


def test_samples_of_every_method_are_read_and_no_pickle(tmp_path: Path) -> None:
    """LHNS, MLES and PartEvo log no program, others count files from 0; a second run into them is told."""
    path = samples(tmp_path, -1.0, -0.5, generation=0)
    changed(path, lambda rows: [row.pop("program") for row in rows])
    changed(path, lambda rows: rows.append(rows[0]))
    groups = whole(path.rename(tmp_path / "samples_0~200.json"))
    assert groups.improvement[1:].tolist() == [0.5, -0.5]
    assert said(groups)["sample_orders"] == {"candidates of such an order": 1}
    # EvoTune pickles its objects, which are never loaded: the line says so.
    path = tmp_path / "programbank.pkl"
    path.write_bytes(b"\x80\x02cpacking.funsearch.programs_database\nProgramsDatabase\n)\x81.")
    with pytest.raises(RecordError, match="is a pickle"):
        list(read(path))
