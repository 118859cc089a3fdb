"""Figures: drawn from the CSV beside them, the same bytes every time, of the numbers of the tables."""

import csv
import shutil
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tests.command import Make, Patch
from tests.drawing import drawn
from tests.synthetic_updates import write_updates

from search_to_signal.credit.normalizers import NORMALIZERS
from search_to_signal.report.figures import PLOTS, draw_all
from search_to_signal.report.figures.cohort import (
    COURSE,
    UNPAIRED,
    Planned,
    describe_courses,
    draw_courses,
    draw_side_by_side,
)
from search_to_signal.report.figures.plot import (
    CsvFrame,
    Plot,
    display_name,
    letter,
    line_style,
    lines,
    redraw,
    score_unit,
    seed_count,
    write_data,
)
from search_to_signal.report.figures.style import house_style
from search_to_signal.report.tables.catalogue import Evidence, read_evidence

pytestmark = pytest.mark.slow

DRAWN = tuple(plot for plot in PLOTS if plot.name != "heldout")


@pytest.fixture(scope="module", autouse=True)
def drawings() -> Iterator[None]:
    """Figures are drawn: these tests look at them."""
    with drawn():
        yield


def rows(figures: Path, name: str) -> list[dict[str, str]]:
    with (figures / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def mean(found: list[dict[str, str]]) -> float:
    assert found
    return sum(float(row["value"]) for row in found) / len(found)


def test_every_figure_lies_beside_its_data(figures: Path) -> None:
    names = {plot.name for plot in DRAWN}
    assert {path.name for path in figures.iterdir()} == {
        f"{name}.{form}" for name in names for form in ("csv", "pdf", "png")
    }
    assert all(rows(figures, name) for name in names)


def test_the_course_ends_where_the_tables_do(evidence: Evidence, figures: Path) -> None:
    found = rows(figures, "course")
    for run in evidence.results.cohort:
        own = [row for row in found if (row["condition"], row["seed"]) == (run.condition, str(run.seed))]
        valid = [row for row in own if row["measure"] == "valid (%)"]
        ends = [0, *(int(row["group"]) for row in valid)]
        sizes = [stop - start for start, stop in pairwise(ends)]
        total = sum(size * float(row["value"]) for size, row in zip(sizes, valid, strict=True))
        assert ends[-1] == len(run.groups)
        assert total / len(run.groups) == pytest.approx(100 * run.metrics.valid_rate)
        best = [row for row in own if row["measure"] == "best score so far"]
        assert float(best[-1]["value"]) == run.metrics.final_best
        distinct = [float(row["value"]) for row in own if "distinct" in row["measure"] and row["value"]]
        assert distinct
        assert all(0 < share <= 100 for share in distinct)


def test_courses_stand_side_by_side(figures: Path, tmp_path: Path) -> None:
    text = (figures / "course.csv").read_text()
    alone, two = (
        draw_courses(texts, tmp_path / str(len(texts))) for texts in ({"a": text}, {"a": text, "b": text})
    )
    assert CsvFrame.read(two.with_suffix(".csv").read_text()).names("cohort") == ["a", "b"]
    wide, high = (struct.unpack(">II", path.read_bytes()[16:24]) for path in (alone, two))
    assert wide[0] > wide[1]
    assert high[1] > high[0]
    again = draw_courses({"a": text, "b": text}, tmp_path / "again")
    assert again.read_bytes() == two.read_bytes()


def test_a_cohort_that_lacks_seeds_says_so(figures: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    text = (figures / "course.csv").read_text()
    n = len(CsvFrame.read(text).names("seed"))
    titles: list[str] = []
    monkeypatch.setattr(Axes, "set_title", lambda _, title, **__: titles.append(title))
    planned = {"a": Planned(n + 1, "PARTIAL"), "b": Planned(n, "PARTIAL"), "d": Planned(n + 2, "closed")}
    draw_courses(dict.fromkeys("abcd", text), tmp_path, planned)
    assert [title.splitlines()[1] for title in titles] == [
        f"PARTIAL: n = {n} of {n + 1}",
        f"n = {n}",
        f"n = {n}",
        f"closed: n = {n} of {n + 2}",
    ]


def without_a_run(text: str) -> str:
    """The CSV of a course of which native lacks the last seed."""
    last = CsvFrame.read(text).where(condition="native").names("seed")[-1]
    return "".join(line for line in text.splitlines(True) if f",native,{last}," not in line)


def test_conditions_with_different_seeds_are_counted_beside_their_names(figures: Path) -> None:
    text = (figures / "course.csv").read_text()
    frame = CsvFrame.read(text)
    lacking, n = CsvFrame.read(without_a_run(text)), len(frame.names("seed"))
    other = next(name for name in frame.names("condition") if name != "native")
    for shown, counts in ((frame, ["", ""]), (lacking, [f"\nn = {n}", f"\nn = {n - 1}"])):
        figure = Figure()
        COURSE.draw(figure, shown)
        labels = [label.get_text() for label in figure.legends[0].get_texts()]
        for name, count in zip((other, "native"), counts, strict=True):
            assert f"{display_name(name)}{count}" in labels
        assert ("not all planned runs" in figure.legends[0].get_title().get_text()) == any(counts)
    rows = [{**row, "cohort": name} for name, own in (("a", frame), ("b", lacking)) for row in own.rows]
    figure = Figure(figsize=(4.7, 6.6), layout="constrained")
    draw_side_by_side({"b": Planned(n, "PARTIAL")}, figure, CsvFrame(tuple(rows)))
    listed = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    counted = [[label.get_text() for label in legend.get_texts()] for legend in listed]
    assert f"Native (n = {n})" in counted[0]
    assert {f"Native (n = {n - 1})", f"{display_name(other)} (n = {n})"} <= set(counted[1])
    titles = [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes[:2]]
    assert [title.splitlines()[-1] for title in titles] == [f"n = {n}", f"PARTIAL: n = {n - 1} to {n} of {n}"]


def test_the_caption_says_that_seeds_differ(figures: Path, tmp_path: Path) -> None:
    text = (figures / "course.csv").read_text()
    (tmp_path / "course.csv").write_text(without_a_run(text))
    assert UNPAIRED in COURSE.remarked(tmp_path / "course.csv").caption
    assert UNPAIRED not in COURSE.remarked(figures / "course.csv").caption
    assert UNPAIRED in describe_courses({"a": text, "b": without_a_run(text)})
    assert UNPAIRED not in describe_courses({"a": text, "b": text})


@pytest.mark.parametrize(("columns", "width"), [(2, 4.7), (3, 5.4), (3, 7.05)])
def test_lists_below_models_are_not_cut(figures: Path, columns: int, width: float) -> None:
    frame = crowded(CsvFrame.read(without_a_run((figures / "course.csv").read_text())))
    rows = [{**row, "cohort": str(k)} for k in range(columns) for row in frame.rows]
    with house_style():
        figure = Figure(figsize=(width, 6.1), layout="constrained")
        draw_side_by_side({}, figure, CsvFrame(tuple(rows)))
        figure.draw_without_rendering()
        boxes = [axes.get_legend().get_window_extent() for axes in figure.axes if axes.get_legend()]
        names = [axes.xaxis.label.get_window_extent() for axes in figure.axes[-columns:]]
    assert len(boxes) == columns
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
    assert all(figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(box.y1 <= name.y0 for box, name in zip(boxes, names, strict=True))


def crowded(frame: CsvFrame) -> CsvFrame:
    """Native's rows also as those of two more conditions, and every seed ten times under other numbers."""
    others = [
        {**row, "condition": name}
        for name in ("tail_weighted", "search_exposure")
        for row in frame.where(condition="native").rows
    ]
    every = [*frame.rows, *others]
    more = [{**row, "seed": f"{row['seed']}{k}"} for row in every if row["seed"] for k in range(10)]
    return CsvFrame((*(row for row in every if not row["seed"]), *more))


@pytest.mark.parametrize("name", ["outcomes", "restart", "diagnostic_atlas", "stage_dynamics"])
def test_nothing_is_cut_or_overlaps_with_many_conditions(figures: Path, name: str) -> None:
    plot = next(plot for plot in DRAWN if plot.name == name)
    frame = CsvFrame.read((figures / f"{name}.csv").read_text())
    with house_style():
        figure = Figure(figsize=plot.size, layout="constrained")
        plot.draw(figure, crowded(frame))
        figure.draw_without_rendering()
        page = figure.bbox
        for legend in figure.legends:
            box = legend.get_window_extent()
            assert page.x0 <= box.x0 < box.x1 <= page.x1, "the legend is wider than the figure"
        for axes in figure.axes:
            boxes = [
                label.get_window_extent() for label in axes.get_xticklabels() if not label.get_rotation()
            ]
            assert all(one.x1 < other.x0 for one, other in pairwise(boxes)), axes.get_ylabel()


def test_the_legend_tells_the_fewest_and_the_most_seeds() -> None:
    rows = [("frozen", "live", s) for s in (1, 2, 3)] + [("native", "restart", 1)]
    frame = CsvFrame.read(lines(("condition", "layer", "seed", "unit"), [(*row, "meters") for row in rows]))
    assert seed_count(frame) == "n = 1 to 3 seeds; scores in meters"
    assert seed_count(frame.where(condition="native")) == "n = 1 seed; scores in meters"
    frame = CsvFrame.read(lines(("seed", "value"), [(1, 2.0), (2, None)]))
    assert np.isnan(frame.mean())
    assert frame.known().mean() == 2.0
    assert [letter(number) for number in (0, 25, 26, 27, 52)] == ["a", "z", "aa", "ab", "ba"]


def test_every_row_has_the_unit_of_its_value(figures: Path, evidence: Evidence) -> None:
    units = {"(%)": "%", "(points)": "percentage points"}
    of_cells = {"cvrp-tiny": "minus total distance", "op-tiny": "collected prize"}
    checked = 0
    for path in figures.glob("*.csv"):
        for row in rows(figures, path.stem):
            if "unit" not in row:
                continue
            told = [row[name] for name in ("measure", "part", "what") if name in row]
            named = [unit for ending, unit in units.items() if any(text.endswith(ending) for text in told)]
            panel = (path.stem, row.get("panel"))
            share = panel in {("outcomes", "a"), ("diagnostic_atlas", "b")}
            score = of_cells.get(row.get("cell", ""), evidence.unit)
            assert row["unit"] == ("%" if share else (*named, score)[0]), (path.stem, row)
            checked += bool(share or named)
    assert checked
    assert "scores in" in seed_count(CsvFrame.read((figures / "stage_dynamics.csv").read_text()))


def test_a_changed_number_changes_the_figure(figures: Path, tmp_path: Path) -> None:
    plot = next(plot for plot in DRAWN if plot.name == "best_so_far")
    text = (figures / "best_so_far.csv").read_text()
    copy = tmp_path / "best_so_far.csv"
    copy.write_text(text.replace("native,1,30,-6", "native,1,30,-5"))
    assert text != copy.read_text()
    assert redraw(plot, copy).read_bytes() != (figures / "best_so_far.png").read_bytes()


def test_effects_stages_and_breadth_are_those_of_the_tables(figures: Path, evidence: Evidence) -> None:
    table, found = evidence.table("paired"), rows(figures, "paired_effects")
    for comparison in ("native minus frozen", "factorized minus native"):
        for column in table.columns:
            own = [r for r in found if r["comparison"] == comparison and r["measure"] == column]
            assert mean(own) == pytest.approx(table.cell(comparison, column).value)
    for row in rows(figures, "stage_dynamics"):
        cell = evidence.table("stages").cell(
            f"{row['condition']}-s{row['seed']}/{row['stage']}", row["measure"]
        )
        assert float(row["value"]) == pytest.approx(cell.value)
    for row in rows(figures, "breadth"):
        label = f"{row['cell']}/{row['condition']}-s{row['seed']} minus frozen-s{row['seed']}"
        cell = evidence.table("breadth_gains").cell(label, row["measure"])
        assert float(row["value"]) == pytest.approx(cell.value)


def test_outcomes_add_up_and_gains_meet_the_curves(figures: Path) -> None:
    found = rows(figures, "outcomes")
    shares = [r for r in found if (r["panel"], r["condition"], r["seed"]) == ("a", "native", "1")]
    assert sum(float(row["value"]) for row in shares) == pytest.approx(100)
    own = [r for r in found if r["condition"] == "native" and r["seed"] == "1" and r["layer"] == "live"]
    curve = [float(row["value"]) for row in own if row["panel"] == "b"]
    ends = {row["what"]: float(row["value"]) for row in own if row["panel"] == "c"}
    assert len(curve) == 30
    assert curve[-1] == pytest.approx(ends["Final best"])
    assert sum(curve) / 30 == pytest.approx(ends["Trajectory AUC"])
    assert {row["layer"] for row in found if row["panel"] == "c"} == {"live", "restart"}


def test_credit_and_diagnostics_are_those_of_the_tables(figures: Path, evidence: Evidence) -> None:
    found = rows(figures, "diagnostic_atlas")
    assert {row["panel"] for row in found} == set("abcd")
    own = [r for r in found if r["panel"] == "b" and r["condition"] == "native" and r["what"] == "precision"]
    assert mean(own) == pytest.approx(evidence.table("admissions").cell("native", "Precision (%)").value)
    table = evidence.table("credit")
    found = [row for row in rows(figures, "learner_path") if row["panel"] == "b" and not row["seed"]]
    assert {row["condition"] for row in found} == {"native", "factorized"}
    for label in {f"{row['condition']}/{row['part']}" for row in found}:
        own = {row["what"]: row["value"] for row in found if f"{row['condition']}/{row['part']}" == label}
        assert float(own["prevalence"]) == table.cell(label, "Prevalence (%)").value
        assert float(own["mass"]) / float(own["prevalence"]) == pytest.approx(float(own["enrichment"]))
        assert float(own["enrichment"]) == table.cell(label, "Enrichment").value


def test_matched_updates_show_the_sequence(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "results")
    write_updates(tmp_path / "results" / "updates")
    again = read_evidence(tmp_path / "results")
    plot = next(plot for plot in PLOTS if plot.name == "learner_path")
    caption = plot.remarked(write_data(plot, again, tmp_path / "figures")).caption
    found = [row for row in rows(tmp_path / "figures", "learner_path") if row["panel"] == "d"]
    table = again.table("matched_mappings")
    for steps, name in (("2", "several steps"), ("1", "one step")):
        own = {row["what"]: float(row["value"]) for row in found if row["steps"] == steps}
        assert len(own) == 3
        for what, value in own.items():
            assert value == table.cell(f"tsp tiny, {name}: native – factorized", what).value
    assert "2 consecutive groups in sequence" in caption
    assert "each group by itself, one step with a fresh optimizer" in caption


def plot_with_updates(results: Path, directory: Path) -> tuple[Plot, CsvFrame]:
    """The learner-path figure and its data, of the results with matched updates."""
    shutil.copytree(results, directory / "results")
    write_updates(directory / "results" / "updates")
    plot = next(plot for plot in PLOTS if plot.name == "learner_path")
    path = write_data(plot, read_evidence(directory / "results"), directory / "figures")
    frame = CsvFrame.read(path.read_text())
    return plot, frame


def test_matched_updates_show_the_sequence_or_why_not(results: Path, tmp_path: Path) -> None:
    plot, frame = plot_with_updates(results, tmp_path)
    blank = CsvFrame(tuple({**row, "value": ""} if row["panel"] == "d" else row for row in frame.rows))
    other = CsvFrame(tuple(row for row in frame.rows if row["panel"] != "d"))
    for shown, reason in (
        (frame, None),
        (blank, "no matched update has credit"),
        (other, "matched updates have not run"),
    ):
        figure = Figure(figsize=plot.size, layout="constrained")
        plot.draw(figure, shown)
        notes = [text.get_text() for axes in figure.subfigs[1].axes for text in axes.texts]
        assert [note for note in notes if note] == ([reason] if reason else [])
    # Panels c and d give a task one colour and a model one marker, whatever their order.
    looks: dict[str, set[tuple[str, str]]] = {}
    # In another order of the cells, places would give other looks.
    for given in (frame, CsvFrame(tuple(reversed(frame.rows)))):
        figure = Figure(figsize=plot.size, layout="constrained")
        plot.draw(figure, given)
        for axes in figure.subfigs[1].axes:
            for line in axes.get_lines():
                looks.setdefault(line.get_label(), set()).add((line.get_color(), line.get_marker()))
    assert {"tsp tiny", "cvrp tiny"} <= set(looks)
    assert all(len(found) == 1 for found in looks.values())
    colors = {hue for found in looks.values() for hue, _ in found}
    assert len(colors) == len({label.split()[0] for label in looks})


def test_the_signal_figure_shows_every_task_of_the_audit(figures: Path, evidence: Evidence) -> None:
    own = [row for row in rows(figures, "learner_path") if row["panel"] == "c"]
    assert {row["style"] for row in own} == {"tsp", "cvrp", "op", "obp"}
    table = evidence.table("replay_pairs")
    for row in own:
        equivalent = table.cell(f"{row['condition']}/{row['part']}", "Equivalent (%)").value
        assert float(row["value"]) == pytest.approx(100.0 - equivalent)
    assert len(own) == len(table.rows)


def test_the_caption_says_what_these_data_say(figures: Path, evidence: Evidence) -> None:
    plot = next(plot for plot in PLOTS if plot.name == "learner_path")
    caption = plot.remarked(figures / "learner_path.png").caption
    assert "erases" not in caption
    told = caption.partition("cubed ")[2].replace("%", " ").split()
    table = evidence.table("reward_changes")
    runs = [run.name for run in evidence.results.cohort if run.condition == "native"]
    shares = [float(table.cell(run, "Cubed (%)").text()) for run in runs]
    assert {f"{max(shares):.0f}", f"{min(shares):.0f}"} <= set(told)


def test_no_axis_of_breadth_mixes_units(figures: Path) -> None:
    plot = next(plot for plot in PLOTS if plot.name == "breadth")
    frame = CsvFrame.read((figures / "breadth.csv").read_text())
    scores = {score_unit(own) for _, own in frame.by("cell")}
    alike = tuple({**row, "unit": "items"} if row["unit"] in scores else row for row in frame.rows)
    for given, units in ((frame, 2), (CsvFrame(alike), 1)):
        figure = Figure(layout="constrained")
        plot.draw(figure, given)
        assert len(figure.axes) == units * len(given.names("measure"))


def test_smoke_figures_say_so(make_run: Make, tmp_path: Path) -> None:
    faces = {}
    for purpose in ("formal", "smoke"):
        for condition in ("frozen", "native"):
            where = tmp_path / purpose / f"{condition}-s1"
            make_run(where, condition, 1, config={"purpose": purpose})
        with drawn("best_so_far"):
            made = draw_all(read_evidence(tmp_path / purpose), tmp_path / f"{purpose}-out")
        faces[purpose] = {plot.name: path for plot, path in made.figures}
        assert set(made.absent) == {"restart", "breadth", "heldout"}
        assert made.absent["breadth"] == "layer breadth has not run"
    assert all(path.name == f"smoke_{name}.png" for name, path in faces["smoke"].items())
    formal, smoke = (faces[purpose]["best_so_far"].read_bytes() for purpose in faces)
    assert formal != smoke
    for name in faces["formal"]:
        csvs = [faces[purpose][name].with_suffix(".csv").read_bytes() for purpose in faces]
        assert csvs[0] == csvs[1]


def titles(figure: Figure) -> list[str]:
    """The headings of the panels that are drawn."""
    return [axes.get_title() for axes in figure.axes if axes.axison]


@pytest.mark.parametrize("name", ["paired_effects", "restart", "stage_dynamics", "breadth"])
def test_every_measure_has_a_panel(figures: Path, name: str) -> None:
    plot = next(plot for plot in DRAWN if plot.name == name)
    frame = CsvFrame.read((figures / f"{name}.csv").read_text())
    first, *others = frame.names("measure")
    more = tuple({**row, "measure": "Tenth"} for row in frame.where(measure=first).rows)
    less = tuple(row for row in frame.rows if row["measure"] != first)
    for rows_of, count in ((frame.rows, 0), ((*frame.rows, *more), 1), (less, -1)):
        figure = Figure(figsize=plot.size, layout="constrained")
        plot.draw(figure, CsvFrame(rows_of))
        headed = [title for title in titles(figure) if title]
        assert [title[:4] for title in headed] == [f"({letter(n)}) " for n in range(len(others) + 1 + count)]
        assert headed[-1].endswith("Tenth") is (count == 1)


def test_every_normalizer_of_a_mapping_has_its_own_line_in_the_mappings_colour() -> None:
    for mapping in ("native", "factorized", "own.module.Mapping"):
        names = [mapping, *(f"{mapping}+{normalizer}" for normalizer in NORMALIZERS)]
        styles = [line_style(name) for name in names]
        assert len({(style["marker"], style["linestyle"]) for style in styles}) == len(names)
        assert len({style["color"] for style in styles}) == 1
