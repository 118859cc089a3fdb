"""The page of the plan: its questions, their outcomes, and deviations from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from search_to_signal.base.package_data import render
from search_to_signal.base.progress import counted, span
from search_to_signal.problems.tsp import Tsp
from search_to_signal.records.amendments import Amendment
from search_to_signal.records.layers import COHORT
from search_to_signal.records.plan import Plan, Question, Study
from search_to_signal.report.figures.cohort import COURSES, Planned, describe_courses, draw_courses
from search_to_signal.report.figures.plot import (
    BLUE,
    GREY,
    ORANGE,
    RED,
    CsvFrame,
    Value,
    draw_from_csv,
    embed_picture,
    lines,
    zero_line,
)
from search_to_signal.report.summary import PageFinding
from search_to_signal.report.tables.cells import to_markdown, write_table
from search_to_signal.report.tables.measures import MEASURES
from search_to_signal.study import conclusions
from search_to_signal.study.formatting import (
    BESIDE_NOTE,
    NAME,
    build_beside_the_paper,
    build_exploratory_table,
    build_outcome_table,
    build_study_grid,
    format_outcome,
    headline_rows,
    metric_heading,
    select_headline,
    select_primary,
)
from search_to_signal.study.plan_checks import NOTHING, find_deviations, read_recorded_runs
from search_to_signal.study.standings import Standings
from search_to_signal.study.verdicts import (
    NO_CLOSED_STUDIES,
    OutcomeVerdict,
    QuestionOutcome,
    compute_outcomes,
)

# The plan's primary questions in one figure: every seed, the mean and its interval, zero as a line.

CAPTION = (
    "Primary questions of the plan. Small circles are seeds, diamonds their means, thick bars the "
    "uncorrected "
    "interval, thin bars the wider interval that decides. Blue: the wider interval is above zero; red: below "
    "zero; grey: undecided; orange: not all seeds are recorded, so no verdict. Higher is better."
)
_COLORS = {
    OutcomeVerdict.ABOVE.value: BLUE,
    OutcomeVerdict.BELOW.value: RED,
    OutcomeVerdict.PARTIAL.value: ORANGE,
    OutcomeVerdict.CLOSED.value: ORANGE,
}
_COLUMNS = (
    *("metric", "comparison", "seed", "value"),
    *("low", "high", "strict_low", "strict_high", "verdict", "n"),
)
# Narrow, with names above their rows: it stays readable on a telephone.
_WIDTH, _PER_LINE, _PER_PANEL = 4.4, 0.3, 0.72
# White behind them: the line at zero does not strike names through.
_NAMES: Mapping[str, Any] = {
    "fontsize": 6.5,
    "va": "bottom",
    "in_layout": False,
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.6},
}


def outcome_lines(outcomes: Sequence[QuestionOutcome], unit: str) -> str:
    """The text of the figure's CSV: a row per seed; scores in ``unit``, shares in points.

    Where the comparisons are of several profiles, each is called by its profile as well.
    """
    rows: list[tuple[Value, ...]] = []
    several = len({outcome.profile for outcome in outcomes}) > 1
    for outcome in outcomes:
        measure = MEASURES[outcome.question.metric]
        bars = [*(outcome.interval or (None, None)), *(outcome.corrected or (None, None))]
        scaled = [None if end is None else measure.factor * end for end in bars]
        title = metric_heading(outcome) if measure.factor != 1.0 else f"{metric_heading(outcome)} ({unit})"
        profile = f"{outcome.profile}: " if several and outcome.profile else ""
        name = f"{profile}{outcome.name} (n = {len(outcome.values)})"
        for seed, value in outcome.values.items():
            numbers = (measure.factor * value, *scaled)
            rows.append((title, name, seed, *numbers, outcome.verdict.value, len(outcome.values)))
    return lines(_COLUMNS, rows)


def draw_outcomes(text: str, out: Path) -> Path:
    """Write NAME.csv and draw NAME.png and NAME.pdf from it; returns the PNG's path."""
    parts = list(CsvFrame.read(text).by("metric"))
    rows = [len(own.names("comparison")) for _, own in parts]

    def draw(figure: Figure, _: CsvFrame) -> None:
        grid = figure.subplots(len(parts), 1, squeeze=False, height_ratios=[1 + count for count in rows])
        for axes, (name, own) in zip(grid[:, 0], parts, strict=True):
            _draw(axes, own, name)

    height = _PER_LINE * sum(rows) + _PER_PANEL * len(rows)
    return draw_from_csv(NAME, text, draw, (_WIDTH, height), out)


def _draw(axes: Axes, frame: CsvFrame, title: str) -> None:
    zero_line(axes)
    names = frame.names("comparison")
    for place, name in enumerate(names):
        own = frame.where(comparison=name)
        row, hue = own.rows[0], _COLORS.get(own.rows[0]["verdict"], GREY)
        axes.plot(
            own.numbers(), [place] * len(own.rows), "o", color=hue, ms=2.4, mfc="none", mew=0.5, alpha=0.7
        )
        for low, high, width in (("strict_low", "strict_high", 0.8), ("low", "high", 2.2)):
            if row[low]:
                axes.plot((float(row[low]), float(row[high])), (place, place), color=hue, lw=width)
        axes.plot(own.mean(), place, "D", color=hue, ms=4.5, mec="white", mew=0.6)
        axes.text(0.0, place - 0.24, name, **_NAMES, transform=axes.get_yaxis_transform())
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_ylim(len(names) - 0.5, -0.85)
    axes.set_title(title, fontsize=8)
    axes.locator_params(axis="x", nbins=5)


HTML, MARKDOWN = "evidence.html", "evidence.md"


@dataclass(frozen=True)
class PlanSummary:
    """The plan with its outcomes; ``recorded`` is the number of packed runs, ``deviations`` are by study.

    ``exploratory`` are outcomes of questions that the plan does not ask, ``longer`` the runs that continued
    after the horizon, ``closed`` the amendments that closed studies. ``unit`` is that of scores, ``problem``
    what the first study solves, empty without a run of it.
    """

    plan: Plan
    outcomes: tuple[QuestionOutcome, ...]
    deviations: Mapping[str, Sequence[str]]
    recorded: int
    unit: str
    exploratory: tuple[QuestionOutcome, ...] = ()
    longer: tuple[conclusions.ContinuedRuns, ...] = ()
    closed: Mapping[str, Amendment] = field(default_factory=dict)
    problem: str = ""

    @property
    def partial(self) -> bool:
        """Whether seeds of a question, or a whole study, are missing and still to be recorded."""
        open_studies = [study.key for study in self.plan.studies if study.key not in self.closed]
        missing = any(outcome.pending for outcome in self.outcomes)
        return missing or any(NOTHING in self.deviations[key] for key in open_studies)

    @property
    def counts(self) -> str:
        """How much of the plan is packed, as a sentence: a finished run may wait for an earlier seed."""
        answers = [outcome for outcome in self.outcomes if not outcome.answered_elsewhere]
        whole = sum(not (outcome.pending or outcome.closed_short) for outcome in answers)
        lines = f"{whole} of {len(answers)} planned comparisons and descriptions have all their seeds"
        studies = [study for study in self.plan.studies if study.key in self.closed]
        closings = [f"{study.key} ({self.closing(study).removeprefix('closed: ')})" for study in studies]
        closing = f"; closed: {'; '.join(closings)}" if closings else ""
        return f"{self.recorded} runs are packed; {lines}{closing}."

    def closing(self, study: Study) -> str:
        """Return ``closed: 10 of 20 seeds, amendment of 2000-01-31``; empty for a study that is open."""
        if study.key not in self.closed:
            return ""
        own = (outcome for outcome in self.outcomes if outcome.study.key == study.key)
        recorded = [len(outcome.values) for outcome in own if outcome.closed_short] or [study.seeds]
        least, most = min(recorded), max(recorded)
        seeds = f"{least}" if least == most else f"{least} to {most}"
        return f"closed: {seeds} of {counted(study.seeds, 'seed')}, {self.closed[study.key].words}"


def build_plan_summary(
    root: Path,
    plan: Plan,
    sha256: str,
    closed: Mapping[str, Amendment] = NO_CLOSED_STUDIES,
    amendments: Sequence[Amendment] = (),
) -> PlanSummary:
    """Read the recorded evidence below ``root`` and compute outcomes and deviations.

    ``sha256`` is the plan's own hash, ``closed`` those of the ``amendments`` that closed studies, by study.
    Raises RunDirectoryError for a run that is incomplete or changed.
    """
    runs = read_recorded_runs(root)
    planned, exploratory = conclusions.split_exploratory(
        plan, compute_outcomes(root, conclusions.add_exploratory_questions(plan), closed)
    )
    units = [manifest.score_unit for manifest in runs.values() if manifest.score_unit]
    unit = units[0] if len(set(units)) == 1 else "score"
    first = tuple(f"{name}/" for name in plan.studies[0].profiles)
    problems = {manifest.facts.problem for run, manifest in runs.items() if run.startswith(first)}
    problem = problems.pop() if len(problems) == 1 else ""
    deviations = find_deviations(plan, sha256, runs, planned, closed, amendments)
    longer = conclusions.read_continued_runs(root, plan)
    packed = sum(place.partition("/")[0] not in plan.controls for place in runs)
    return PlanSummary(
        plan, tuple(planned), deviations, packed, unit, tuple(exploratory), tuple(longer), closed, problem
    )


def write_plan_report(
    summary: PlanSummary,
    out: Path,
    findings: Sequence[PageFinding] = (),
    pages: Mapping[str, str] | None = None,
    others: Mapping[str, str] | None = None,
    embedded: bool = True,
    courses: Mapping[str, str] = MappingProxyType({}),
    standings: Standings | None = None,
    source: str = "",
) -> Path:
    """Write table, figures, evidence.md and evidence.html; returns the latter.

    ``findings`` are those of the own tables of the profile ``source``, ``pages`` are pages by profile and
    ``others`` pages of other plans by title, relative to ``out``. ``embedded`` is true where this artifact
    ships every model. ``courses`` are the CSVs of the cohorts whose courses are drawn side by side, by name.
    ``standings`` are those of the best programs.
    """
    out.mkdir(parents=True, exist_ok=True)
    table = build_outcome_table(summary.outcomes, summary.plan)
    tables = [table]
    if any(outcome.values for outcome in summary.exploratory):
        tables.append(build_exploratory_table(summary.exploratory, summary.plan))
    if summary.longer:
        tables.append(conclusions.build_continued_table(summary.longer))
    if standings is not None:
        tables.append(standings.table)
        if standings.beside_seed is not None:
            tables.append(standings.beside_seed.table)
    for made in tables:
        write_table(made, out)
    pictures = {}
    if drawn := select_primary(summary.outcomes):
        pictures[NAME] = CAPTION, draw_outcomes(outcome_lines(drawn, summary.unit), out / "figures")
    if courses:
        seeds = planned_seeds(summary.plan, summary.closed)
        pictures[COURSES] = describe_courses(courses), draw_courses(courses, out / "figures", seeds)
    beside = None
    if not embedded and summary.problem == Tsp.name:
        first = summary.plan.studies[0].key
        beside = build_beside_the_paper([one for one in summary.outcomes if one.study.key == first])
    values = {
        **_page_values(summary),
        "pictures": {name: (caption, *embed_picture(path)) for name, (caption, path) in pictures.items()},
        "table": table,
        "rows": table.text_rows(),
        "findings": findings,
        "source": source,
        "pages": pages or {},
        "others": others or {},
        "embedded": embedded,
        "standings": standings,
        "beside": beside,
    }
    for name, template in ((HTML, "plan.html"), (MARKDOWN, "plan.md")):
        text = render("search_to_signal.report", template, **values)
        (out / name).write_text(text, encoding="utf-8")
    return out / HTML


def _page_values(summary: PlanSummary) -> dict[str, Any]:
    plan, outcomes, longer = summary.plan, summary.outcomes, summary.longer
    parts = [
        (study, [outcome for outcome in outcomes if outcome.study.key == study.key]) for study in plan.studies
    ]
    return {
        "plan": plan,
        "partial": summary.partial,
        "counts": summary.counts,
        "lead": conclusions.conclude(outcomes),
        "beside_note": BESIDE_NOTE,
        "decided": conclusions.group_by_verdict(outcomes, summary.exploratory, longer),
        "primary": [
            ("" if number else study.title, *answered)
            for study, own in parts
            for number, answered in enumerate(
                _questions([outcome for outcome in own if outcome.question.role == "primary"], longer)
            )
        ],
        "studies": [
            (
                study,
                any(outcome.values for outcome in own),
                _questions(own, longer),
                _questions_besides(summary, study),
                build_study_grid(own),
                summary.deviations[study.key],
                summary.closing(study),
            )
            for study, own in parts
        ],
        "besides": conclusions.ASKED_BESIDES,
        "everywhere": summary.deviations[""],
        "markdown": to_markdown,
    }


def planned_seeds(plan: Plan, closed: Mapping[str, Amendment] = NO_CLOSED_STUDIES) -> dict[str, Planned]:
    """The planned seeds of each profile's cohort, by the first of its studies that is not ``closed``."""
    studies = sorted(plan.studies, key=lambda study: study.key in closed)
    return {
        name: Planned(study.seeds, "closed" if study.key in closed else "PARTIAL")
        for study in reversed(studies)
        if COHORT in study.layers
        for name in study.profiles
    }


def format_primary_answers(summary: PlanSummary) -> list[str]:
    """Format the headline comparisons of each recorded study as a heading and a pipe table."""
    blocks = []
    for study in summary.plan.studies:
        if headline := select_headline([one for one in summary.outcomes if one.study.key == study.key]):
            state = f"n = {span({len(one.values) for one in headline})}"
            if any(one.verdict in (OutcomeVerdict.PARTIAL, OutcomeVerdict.CLOSED) for one in headline):
                state += f" of {counted(study.seeds, 'seed')}, no verdict"
            state = summary.closing(study) or state
            blocks.append(f"{study.title} ({state})\n\n{to_markdown(headline_rows(headline))}")
    return blocks


def _questions(
    outcomes: Sequence[QuestionOutcome], longer: Sequence[conclusions.ContinuedRuns] = ()
) -> list[tuple[Question, list[str]]]:
    questions = []
    for question, members in groupby(outcomes, key=lambda outcome: outcome.question):
        same = list(members)
        answers = [format_outcome(outcome) for outcome in same]
        if all(outcome.verdict in (OutcomeVerdict.MISSING, OutcomeVerdict.DROPPED) for outcome in same):
            planned = f"{counted(len(same), 'comparison')} of {counted(same[0].planned, 'seed')}"
            answers = [f"{same[0].verdict.value}: {planned} planned"]
        questions.append((question, [*answers, *conclusions.describe_continued_runs(question, longer)]))
    return questions


def _questions_besides(summary: PlanSummary, study: Study) -> list[tuple[Question, list[str]]]:
    own = [outcome for outcome in summary.exploratory if outcome.study.key == study.key]
    answered = {outcome.question.key for outcome in own if outcome.values and not outcome.answered_elsewhere}
    return _questions([outcome for outcome in own if outcome.question.key in answered])
