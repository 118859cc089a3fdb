"""The report: the same bytes every time, honest about scale, smoke and absence, a way to every record."""

import csv
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.command import Command, Make, Patch

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.base.numerics import Floats
from search_to_signal.base.package_data import MODELS, PUBLISHED
from search_to_signal.credit.normalizers import get_normalizer
from search_to_signal.records.layers import LAYERS, in_paper_order
from search_to_signal.records.manifest import Accelerator, Manifest
from search_to_signal.report.build import line_ranges, read_ledger, report, short_origins
from search_to_signal.report.results import Origin, Results
from search_to_signal.report.summary import Facts, describe, format_duration, read_facts

pytestmark = pytest.mark.slow

FORMS = ("csv", "md", "tex")
AGAIN = f"""
import sys
from pathlib import Path
sys.path.append({str(Path(__file__).parents[4])!r})
from tests.drawing import not_drawn
from search_to_signal.report.build import report
from search_to_signal.report.figures import PLOTS
from search_to_signal.report.figures.plot import redraw
from search_to_signal.claims.page import write_ledger
records, out, figures = map(Path, sys.argv[1:])
with not_drawn():
    report(records, out, write_ledger)
for plot in PLOTS:
    if (figures / f"{{plot.name}}.csv").exists():
        redraw(plot, figures / f"{{plot.name}}.csv")
"""
# Of a row: full values by column, records, command, and the cells as shown.
ROW = re.compile(
    r"<th scope=\"row\"><details[^>]*>.*?</b><br>(.*)<br>(.*?)<br><code>(.*?)</code></p></details></th>"
    r"(.*)</tr>"
)


def cohort(make_run: Make, directory: Path, purpose: str = "formal") -> Path:
    """Two conditions with two seeds each."""
    for condition in ("frozen", "native"):
        for seed in (1, 2):
            run = directory / f"{condition}-s{seed}"
            make_run(run, condition, seed, shift=0.01 * seed, config={"purpose": purpose})
    return directory


def written(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="session")
def html(results: Path) -> str:
    """The first page of the synthetic results."""
    return (results / "report" / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def pages(results: Path) -> dict[Path, str]:
    """Every page of the report by its path."""
    return {path: path.read_text(encoding="utf-8") for path in (results / "report").rglob("*.html")}


def test_equal_records_give_equal_bytes(results: Path, figures: Path, tmp_path: Path) -> None:
    # Also figures that it draws from their CSVs, without any record: every third, for time.
    other = {**os.environ, "PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "1", "TZ": "Asia/Tokyo"}
    (tmp_path / "figures").mkdir()
    chosen = sorted(figures.glob("*.csv"))[::3]
    for data in chosen:
        shutil.copy(data, tmp_path / "figures")
    places = (results, tmp_path / "again", tmp_path / "figures")
    subprocess.run([sys.executable, "-c", AGAIN, *map(str, places)], check=True, env=other)
    first = written(results / "report")
    assert first == written(tmp_path / "again")
    assert {f"core_results.{form}" for form in FORMS} | {"report.html", "report.md"} <= set(first)
    made = written(tmp_path / "figures")
    assert {name.partition(".")[0] for name in made} == {data.stem for data in chosen}
    assert made.items() <= written(figures).items()
    assert len(made) >= 2 * len(chosen)


def test_smoke_runs_get_smoke_tables_only(make_run: Make, tmp_path: Path) -> None:
    page = report(cohort(make_run, tmp_path / "runs", "smoke"), tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").rglob("*") if path.suffix in (".tex", ".csv", ".png")}
    assert len(names) > 20
    assert all(name.startswith("smoke_") for name in names)
    markdown, html = page.read_text(encoding="utf-8"), page.with_suffix(".html").read_text(encoding="utf-8")
    assert "no evidence" in markdown
    assert html.index("SMOKE RUN.") < html.index("What ran</h2>")
    assert "<title>SMOKE RUN" in html
    assert "ran (smoke)" in html


def test_formal_pages_do_not_cry_smoke_and_open_small(html: str) -> None:
    """A formal report bears no mark of a smoke run, and says first that it is not the paper's."""
    assert "smoke" not in re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL).lower()
    assert html.index('class="banner scale"') < html.index("What ran</h2>")
    assert "None is pooled with a number of the paper" in html
    assert html.count("<table") <= 5
    assert html.count("<details") < 50
    assert len(re.sub(r'src="data:[^"]*"', "", html)) < 100_000
    assert "<li>table <code>probe</code>: layer probe has not run</li>" in html
    assert "<li>figure <code>heldout</code>: layer heldout has not run</li>" in html
    assert "<li>table <code>intervals</code>: " in html


def test_embedded_models_are_called_so(make_run: Make, tmp_path: Path, monkeypatch: Patch) -> None:
    models = tmp_path / "models"
    (models / "tiny").mkdir(parents=True)
    card = (
        b'{"parameters":1234567,"completions":384,"problems":{"tsp":{"outcomes":{"valid":0.5}}},"prompts":96}'
    )
    (models / "tiny" / "card.json").write_bytes(card)
    monkeypatch.setattr("search_to_signal.report.summary.MODELS", models)
    run = tmp_path / "runs" / "native-s1"
    make_run(run, "native", 1, model_files={"card.json": hashlib.sha256(card).hexdigest()})
    assert read_facts(run.parent).embedded
    page = report(run.parent, tmp_path / "out")
    assert "confirm none of its numbers" in page.read_text(encoding="utf-8")
    html = page.with_suffix(".html").read_text(encoding="utf-8")
    assert "tiny, 1,234,567 parameters, made for this artifact" in html
    assert "valid of 384 held-out completions: 50.0 % tsp" in html
    assert "None is a result of the paper’s 7B models" in html
    (models / "tiny" / "card.json").write_bytes(card + b" ")
    assert not read_facts(run.parent).embedded


def test_the_card_and_the_engines_are_named(manifest: Callable[..., Manifest]) -> None:
    plain = manifest({"condition": "native"})
    card = Accelerator(name="NVIDIA H200", driver="580.1", cuda="13.0", memory_mib=143771, share="40")
    packages = {"torch": "2.5.1", "unsloth": "2025.3.18", "vllm": "0.7.3", "bitsandbytes": None}
    environment = msgspec.structs.replace(plain.environment, accelerator=card, packages=packages)
    on_card = msgspec.structs.replace(plain, environment=environment)
    lines = dict(describe(Facts({"cohort/native-s1": on_card}, {})))
    assert lines["Machine"].endswith(", NVIDIA H200 (40 % of it), 140 GiB, driver 580.1")
    assert lines["Software"].endswith("torch 2.5.1, unsloth 2025.3.18, vllm 0.7.3")
    both = dict(describe(Facts({"cohort/native-s1": on_card, "cohort/native-s2": plain}, {})))["Machine"]
    assert (both.count("; "), both.count("driver")) == (1, 1)


def test_layers_say_what_ran_and_claim_what_the_paper_does(html: str, results: Path) -> None:
    text = (results / "report" / "report.md").read_text(encoding="utf-8")
    ran = {layer.name for layer in LAYERS if f"| {layer.name} | ran |" in text}
    assert ran == {
        "Normalizer replay",
        "Formal live cohort",
        "Frozen restart",
        "Directional breadth",
        "API system reference",
    }
    for layer in LAYERS:
        row = re.search(rf"<tr class=\"(ran|not)\"><th[^>]*>(?:<a[^>]*>)?{layer.name}.*?</tr>", html)
        assert row is not None
        assert (row[1] == "ran") == (layer.name in ran)
        assert layer.claim in row[0]
    with (PUBLISHED / "evidence_matrix.csv").open(encoding="utf-8", newline="") as file:
        published = {row["Layer"]: row["Claim supported"] for row in csv.DictReader(file)}
    assert {layer.name: layer.claim for layer in LAYERS if layer.row} == published
    assert [layer.name for layer in in_paper_order() if layer.row] == list(published)


def test_every_cell_leads_to_its_records(
    pages: dict[Path, str], s2s: Command, monkeypatch: Patch, results: Path
) -> None:
    monkeypatch.chdir(results)
    rows = [(page, *found) for page in pages.values() for found in ROW.findall(page)]
    assert len(rows) > 300
    for number, (page, values, records, command, shown) in enumerate(rows[:: len(rows) // 12]):
        cells = unescape(values).split("<br>")
        assert len(cells) == shown.count("<td>")
        column, _, value = cells[number % len(cells)].partition(": ")
        program, *arguments = shlex.split(unescape(command))
        assert (program, arguments[:2], arguments[-1]) == ("s2s", ["trace", "."], "COLUMN")
        out = s2s(*arguments[:-1], column).out
        assert f"value    {value.split(' ± ')[0].split(', n = ')[0]}\n" in out
        assert f"n        {value.split('n = ')[1]}\n" in out
        (formula,) = re.findall(r"formula  (.*)\n", out)
        heading = unescape(re.findall(r"<thead>.*</thead>", page)[0])
        assert f"<br>{formula}" in heading
        assert re.findall(r"records +([a-z]+)/", out)[0] in records


def test_tables_have_pages_with_the_cells_of_the_csv(pages: dict[Path, str], results: Path) -> None:
    for path in (results / "report").glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            expected = [row["n"] for row in csv.DictReader(file)]
        page = pages[path.parent / "tables" / f"{path.stem}.html"]
        assert re.findall(r", n = (\d+)", page) == expected, path.stem


def test_pages_ask_for_nothing(pages: dict[Path, str]) -> None:
    for path, page in pages.items():
        assert "<script" not in page
        assert "default-src 'none'" in page
        assert not re.findall(r"https?://", page)
        assert set(re.findall(r'src="([a-z]+:[a-z/]+)', page)) <= {"data:image/png"}
        identifiers = re.findall(r'id="([^"]+)"', page)
        assert len(identifiers) == len(set(identifiers))
        assert set(re.findall(r'href="#([^"]+)"', page)) <= set(identifiers)
        for link in re.findall(r'(?:href|src)="([^"#:]+)"', page):
            assert (path.parent / link).is_file(), link


def test_the_ledger_has_a_page(html: str, pages: dict[Path, str], results: Path, tmp_path: Path) -> None:
    ledger = read_ledger(results / "report")
    assert ledger is not None
    assert f"{ledger.total} published numbers and statements" in html
    page = pages[results / "report" / "ledger.html"]
    for verdict, rows in ledger.by_verdict.items():
        assert f"<strong>{verdict}</strong>" in page
        assert f"{len(rows)} entries" in page
    assert sum(counts[0] for _, counts in ledger.counts) == ledger.total
    assert ledger.estimated == sum(ledger.directions.values()) > 150
    assert read_ledger(tmp_path) is None
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "claims.csv").write_text("id,where\na,b\n")
    with pytest.raises(RunDirectoryError, match=r"claims\.csv"):
        read_ledger(tmp_path)


def test_shares_of_time_are_shown(make_run: Make, tmp_path: Path) -> None:
    text = report(cohort(make_run, tmp_path / "runs"), tmp_path / "out").read_text(encoding="utf-8")
    head, row = (line for line in text.splitlines() if line.startswith(("| Run |", "| native-s2 |")))
    shown = dict(zip(*([cell.strip() for cell in line.split("|")] for line in (head, row)), strict=True))
    shares = {"Generation (%)": "50.0", "Evaluation (%)": "25.0", "Update (%)": "12.5", "Else (%)": "12.5"}
    assert shares.items() <= shown.items()
    assert (shown["Groups"], shown["Groups/min"]) == ("4", "60.0")
    assert "s2s claims" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.44, "0.4 s"),
        (59.96, "1 min 00 s"),
        (61, "1 min 01 s"),
        (3599.6, "1 h 00 min"),
        (7260, "2 h 01 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_origins_in_short() -> None:
    both = [Origin(f"cohort/native-s{seed}/steps.jsonl") for seed in (1, 2)]
    assert short_origins(both) == "cohort/{native-s1,native-s2}/steps.jsonl: all lines"
    assert short_origins([Origin("run/steps.jsonl", (1, 2, 9))]) == "run/steps.jsonl: lines 1-2, 9"
    assert short_origins([Origin("probe/bank.jsonl", range(1, 200, 2))]) == "probe/bank.jsonl: 100 lines"


@given(st.sets(st.integers(1, 400), max_size=120))
def test_only_lines_that_take_too_much_room_are_counted(lines: set[int]) -> None:
    full = line_ranges(sorted(lines))
    told = short_origins([Origin("run/steps.jsonl", sorted(lines))]).removeprefix("run/steps.jsonl: ")
    assert told == (full if len(full) <= 60 else f"{len(lines)} lines")


def test_scores_have_a_direction_and_models_their_cards(make_run: Make, tmp_path: Path) -> None:
    cases = {"one": ("op", None), "two": ("mine:problem", "collected fruit"), "three": ("mine:problem", None)}
    for name, (problem, unit) in cases.items():
        make_run(tmp_path / name / "cohort" / "frozen-s1", config={"problem": problem}, score_unit=unit)
    units = [Results(tmp_path / name).cohort[0].unit for name in cases]
    assert units == ["collected prize", "collected fruit", "score"]
    models = sorted(path.parent for path in MODELS.glob("*/card.json"))
    assert models
    for model in models:
        digest = hashlib.sha256((model / "card.json").read_bytes()).hexdigest()
        config = {"model": model.name}
        make_run(tmp_path / "1" / f"native-{model.name}", config=config, model_files={"card.json": digest})
    facts = read_facts(tmp_path / "1")
    assert facts.embedded
    assert [card.parameters > 1_000_000 for card in facts.cards.values() if card] == [True] * len(models)


def doubled(rewards: Floats) -> Floats:
    return 2.0 * rewards


def test_commands_allow_what_is_somebodys_own(make_run: Make, tmp_path: Path) -> None:
    normalizer = f"{__name__}:doubled"
    assert get_normalizer(normalizer) is doubled  # which a user names
    own = {"purpose": "formal", "normalizer": normalizer, "condition": f"nowhere:mine+{normalizer}"}
    make_run(tmp_path / "cohort" / "frozen-s42", "frozen")
    make_run(tmp_path / "cohort" / "native-s42", "native", config=own)
    report(tmp_path, tmp_path / "report", lambda *_: None)
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    for command in ("verify", "report", "trace"):
        assert f"s2s {command} --mapping nowhere:mine --normalizer {normalizer} . " in page
