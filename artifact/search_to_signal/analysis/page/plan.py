"""The page of the plan: what was asked, what came out, and where the recording departed from it."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from search_to_signal.analysis.figures.outcomes import CAPTION, draw_outcomes, outcome_lines
from search_to_signal.analysis.page.story import Finding
from search_to_signal.analysis.plan.besides import Continued, continued, parted, with_besides
from search_to_signal.analysis.plan.deviations import NOTHING, deviations, recorded_runs
from search_to_signal.analysis.plan.lines import (
    besides_table,
    outcome_table,
    primary_rows,
    recorded_primary,
    sentence,
    study_grid,
    told_first,
)
from search_to_signal.analysis.plan.outcomes import NOT_CLOSED, Outcome, Verdict, outcomes
from search_to_signal.analysis.plan.verdicts import continued_table, decided, left_to_find
from search_to_signal.analysis.tables.cells import Table
from search_to_signal.analysis.tables.files import to_markdown, write_table
from search_to_signal.progress import counted
from search_to_signal.records.amendments import Amendment
from search_to_signal.records.plan import Plan, Question, Study
from search_to_signal.templates import render

HTML, MARKDOWN = "evidence.html", "evidence.md"
_WIDTH = 616


@dataclass(frozen=True)
class Story:
    """The plan with its outcomes; ``recorded`` runs are there, ``departed`` by study.

    ``besides`` is what is asked besides the plan, ``longer`` what runs that went on still found.
    """

    plan: Plan
    outcomes: tuple[Outcome, ...]
    departed: Mapping[str, Sequence[str]]
    recorded: int
    unit: str
    besides: tuple[Outcome, ...] = ()
    longer: tuple[Continued, ...] = ()
    closed: Mapping[str, Amendment] = field(default_factory=dict)

    @property
    def partial(self) -> bool:
        """Whether seeds of some question, or a whole study, are missing that are still to come."""
        open_studies = [study.key for study in self.plan.studies if study.key not in self.closed]
        missing = any(one.waits for one in self.outcomes)
        return missing or any(NOTHING in self.departed[key] for key in open_studies)

    @property
    def counts(self) -> str:
        """How much of the plan is recorded, in words."""
        own = [one for one in self.outcomes if not one.borrowed]
        whole = sum(not (one.waits or one.short) for one in own)
        lines = f"{whole} of {len(own)} planned comparisons and descriptions have all their seeds"
        return f"{self.recorded} runs are recorded; {lines}{self._closing}."

    @property
    def _closing(self) -> str:
        """The studies that were closed, how far each was, and by which amendment."""
        studies = [study for study in self.plan.studies if study.key in self.closed]
        told = [f"{study.key} ({self.closing(study).removeprefix('closed: ')})" for study in studies]
        return f"; closed: {'; '.join(told)}" if told else ""

    def closing(self, study: Study) -> str:
        """``closed: 10 of 20 seeds, amendment of 2000-01-31`` of a study; empty where none closed it."""
        if study.key not in self.closed:
            return ""
        own = [len(one.values) for one in self.outcomes if one.study.key == study.key and one.short]
        least, most = (min(own), max(own)) if own else (study.seeds, study.seeds)
        seeds = f"{least}" if least == most else f"{least} to {most}"
        return f"closed: {seeds} of {counted(study.seeds, 'seed')}, {self.closed[study.key].words}"


def tell(root: Path, plan: Plan, sha256: str, closed: Mapping[str, Amendment] = NOT_CLOSED) -> Story:
    """Read the recorded evidence; ``closed`` are the amendments that closed studies, by study.

    Raises RunDirectoryError for a run that is short or changed.
    """
    runs = recorded_runs(root)
    found, besides = parted(plan, outcomes(root, with_besides(plan), closed))
    units = [manifest.score_unit for manifest in runs.values() if manifest.score_unit]
    unit = units[0] if len(set(units)) == 1 else "score"
    departed, longer = deviations(plan, sha256, runs, found, closed), continued(root, plan)
    return Story(plan, tuple(found), departed, len(runs), unit, tuple(besides), tuple(longer), closed)


def write_plan_report(
    story: Story,
    out: Path,
    survived: Sequence[Finding] = (),
    pages: Mapping[str, str] | None = None,
    others: Mapping[str, str] | None = None,
    embedded: bool = True,
) -> Path:
    """Write table, figure, evidence.md and evidence.html; returns the latter.

    ``survived`` are what a profile's own tables answer, ``pages`` its page by profile, ``others`` those of
    other plans by title, relative to ``out``. ``embedded`` says that every model is one that this artifact
    ships.
    """
    out.mkdir(parents=True, exist_ok=True)
    table = outcome_table(story.outcomes, story.plan)
    write_table(table, out)
    if any(one.values for one in story.besides):
        write_table(besides_table(story.besides, story.plan), out)
    if story.longer:
        write_table(continued_table(story.longer), out)
    drawn = recorded_primary(story.outcomes)
    picture = draw_outcomes(outcome_lines(drawn, story.unit), out / "figures") if drawn else None
    page = out / HTML
    said = {"survived": survived, "pages": pages or {}, "others": others or {}, "embedded": embedded}
    page.write_text(_html(story, table, picture, said), encoding="utf-8")
    (out / MARKDOWN).write_text(_markdown(story, table), encoding="utf-8")
    return page


def primary_answers(story: Story) -> list[str]:
    """What is told first of each recorded study, as a heading and a pipe table."""
    blocks = []
    for study in story.plan.studies:
        if own := told_first([one for one in story.outcomes if one.study.key == study.key]):
            counts = sorted({len(one.values) for one in own})
            n = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
            short = any(one.verdict in (Verdict.PARTIAL, Verdict.CLOSED) for one in own)
            state = f"n = {n} of {study.seeds} seeds, no verdict" if short else f"n = {n}"
            state = story.closing(study) or state
            blocks.append(f"{study.title} ({state})\n\n{to_markdown(primary_rows(own))}")
    return blocks


def _questions(
    found: Sequence[Outcome], longer: Sequence[Continued] = ()
) -> list[tuple[Question, list[str]]]:
    asked = ((question, list(same)) for question, same in groupby(found, key=lambda one: one.question))
    return [(question, [*_answers(same), *left_to_find(question, longer)]) for question, same in asked]


def _answers(found: Sequence[Outcome]) -> list[str]:
    if all(one.verdict in (Verdict.MISSING, Verdict.DROPPED) for one in found):
        planned = f"{counted(len(found), 'comparison')} of {counted(found[0].planned, 'seed')}"
        return [f"{found[0].verdict.value}: {planned} planned"]
    return [sentence(one) for one in found]


def _html(story: Story, table: Table, picture: Path | None, said: Mapping[str, Any]) -> str:
    plan, found = story.plan, story.outcomes
    parts = [(study, [one for one in found if one.study.key == study.key]) for study in plan.studies]
    data = None if picture is None else base64.b64encode(picture.read_bytes()).decode("ascii")
    return render(
        "search_to_signal.analysis.page",
        "plan.html",
        plan=plan,
        partial=story.partial,
        counts=story.counts,
        decided=decided(found, story.besides, story.longer),
        primary=_questions([one for one in found if one.question.role == "primary"], story.longer),
        picture=None if data is None else f"data:image/png;base64,{data}",
        width=_WIDTH,
        caption=CAPTION,
        studies=[
            (
                study,
                _questions(own, story.longer),
                study_grid(own),
                story.departed[study.key],
                story.closing(study),
            )
            for study, own in parts
        ],
        table=table,
        rows=table.text_rows(),
        everywhere=story.departed[""],
        **said,
    )


def _markdown(story: Story, table: Table) -> str:
    parts = [f"# {story.plan.title}", f"**PARTIAL.** {story.counts}" if story.partial else story.counts]
    for one in decided(story.outcomes, story.besides, story.longer):
        parts.append("\n".join([f"**{one.title}**", "", *(f"- {line}" for line in one.lines)]))
    for study in story.plan.studies:
        parts.append(f"## {study.title}")
        parts += [f"**{closing}**" for closing in [story.closing(study)] if closing]
        own = [one for one in story.outcomes if one.study.key == study.key]
        for question, lines in _questions(own, story.longer):
            parts.append(
                "\n".join([f"**{question.asks}** ({question.role})", "", *(f"- {line}" for line in lines)])
            )
        parts += [f"Deviation: {line}." for line in story.departed[study.key]]
    parts += [
        "## Deviations that concern all studies",
        *(f"- {line}" for line in story.departed[""] or ["none"]),
    ]
    parts += ["## All outcomes", to_markdown(table.text_rows()).strip(), table.note]
    return "\n\n".join(parts) + "\n"
