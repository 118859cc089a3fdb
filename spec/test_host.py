"""The search against a tiny obviously-correct model of the host, over random sequences of rounds."""

import re
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from search_to_signal.base.seeding import stream
from search_to_signal.problems.base import Heuristic
from search_to_signal.records.schema import (
    ArchiveEvent,
    CompletionRecord,
    GenerationRecord,
    Operator,
    Outcome,
    StepRecord,
)
from search_to_signal.run.replayed import AsRecorded, RecordedGroup, Replay
from search_to_signal.sandbox.programs import parse, program_sha256
from search_to_signal.search.hosts.calm.host import Draw, plan_round
from search_to_signal.search.hosts.calm.prompts import CREATION, CROSSOVER, INJECTION, REPLACEMENT
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import SearchState, initial_state, transition
from search_to_signal.search.member import Evaluated, archive_gap, frontier, seed_member
from spec.profiles import many
from spec.synthetic_runs import plain_manifest

RUN = {"purpose": "smoke", "problem": "tsp", "split": "embedded", "model": "m", "condition": "frozen"}
FACTS = plain_manifest({**RUN, "seed": 1, "groups": 1, "generation": {"group_size": 4}}).facts
SETTINGS = SearchSettings(population_size=3, collapse_threshold=4, collapse_speed=0.1)
OPENING = "The idea of the algorithm is to"
FAILURES = (Outcome.MISSING_RATIONALE, Outcome.MISSING_FUNCTION, Outcome.RUNTIME_FAILURE, Outcome.RANDOMNESS)
Kept = tuple[str, str, float]

ideas = st.lists(st.sampled_from(["walk", "near", "Far", "near far", "spread"]), max_size=3).map(" ".join)
announcements = st.sampled_from(["", ". The new component tabu has been introduced", ". The new component 2"])
scores = st.builds(lambda whole, hair: -whole + hair * 4e-8, st.integers(0, 6), st.integers(-3, 3))
children = st.lists(
    st.tuples(st.sampled_from([Outcome.VALID] * 3 + [*FAILURES]), ideas, announcements, scores),
    min_size=1,
    max_size=4,
)


def same(first: float, second: float) -> bool:
    return abs(first - second) < 1e-7


class Model:
    """Points 6 to 8, 13 to 15, 19 and 21 of HOST.md on plain lists of (idea, code, score)."""

    def __init__(self, seed: Kept) -> None:
        self.seeds, self.archive, self.injected, self.stuck = [seed], [seed], list[str](), 0

    def collapse(self) -> None:
        best = next(kept for kept in self.archive if kept[2] == max(k[2] for k in self.archive))
        self.archive = [best] + [seed for seed in self.seeds if not same(seed[2], best[2])]
        self.stuck = 0

    def list_best_first(self) -> None:
        self.archive = list(reversed(sorted(self.archive, key=lambda kept: kept[2])))

    def play(self, operator: Operator, group: list[Kept | None], texts: list[str]) -> list[ArchiveEvent]:
        best, full, events = max(kept[2] for kept in self.archive), len(self.archive) >= 3, []
        for child, text in zip(group, texts, strict=True):
            if child is None:
                events.append(ArchiveEvent.INVALID)
            elif any(same(child[2], kept[2]) for kept in self.archive):
                events.append(ArchiveEvent.DUPLICATE_SCORE)
            else:
                events.append(ArchiveEvent.ADMITTED)
                self.archive.append(child)
            found = re.search(r"The new component ([a-z ]+) has been introduced", text if child else "")
            if found and operator == INJECTION and found[1] not in self.injected:
                self.injected.append(found[1])
        self.stuck += full
        if any(child[2] > best for child in group if child):
            self.stuck = 0
        return events


def words(idea: str) -> set[str]:
    return set(re.findall(r"\w+", idea.lower()))


def listing(state: SearchState) -> list[Kept]:
    return [(member.idea, member.code, member.score) for member in state.archive]


def record(step: int, index: int, result: Evaluated, event: ArchiveEvent) -> CompletionRecord:
    """A completion record of which only what replay reads is meant."""
    return CompletionRecord(
        step=step, index=index, problem="", operator=CREATION, prompt_sha256="", parents=(),
        base_scores=(), frontier=None, archive_size=0, outcome=result.outcome, detail="",
        score=result.score, evaluation="", response_sha256="", program_sha256=result.program,
        matches_base_code=False, archive_gap=None, exposure=None, prompt_tokens=0, completion_tokens=0,
        truncated=False, archive_event=event, components=None, reward=None, advantage=None,
    )  # fmt: skip


def recorded(records: list[CompletionRecord], draw: Draw, texts: list[str]) -> RecordedGroup:
    """A group of which only what a replay reads is meant."""
    step = StepRecord(
        step=records[0].step, operator=draw.operator, prompt_sha256="", collapsed=draw.collapsed,
        stagnation=0, archive_size=0, frontier_before=None, frontier_after=None, valid=0, admitted=0,
        mapping=None, zero_advantage=None, loss=None, kl=None, grad_norm=None, training_tokens=0,
        adapter_sha256=None,
    )  # fmt: skip
    generation = GenerationRecord(
        step=step.step, prompt=draw.prompt, prompt_ids=(), completion_ids=((),) * len(texts),
        completions=tuple(texts),
    )  # fmt: skip
    return RecordedGroup(tuple(records), step, generation)


class Host(RuleBasedStateMachine):
    """R-HOST-01: after any sequence of rounds the search holds what the model of the host holds."""

    @initialize(score=scores, idea=ideas, seed=st.integers(0, 2**32))
    def begin(self, score: float, idea: str, seed: int) -> None:
        self.first = initial_state(seed_member(Heuristic(idea, "seed = 1"), score))
        self.state, self.seed, self.step = self.first, seed, 0
        self.model = Model((idea, "seed = 1", score))
        self.played: list[RecordedGroup] = []

    def render(self, draw: Draw) -> str:
        return " ".join([draw.operator, str(draw.variant), *(p.code for p in draw.parents)])

    def plan(self) -> Draw:
        rng = stream(self.seed, "search", self.step)
        return plan_round(self.state, rng, SETTINGS, self.render)

    def check_parents(self, draw: Draw) -> None:
        """R-HOST-04: parents come from where the host takes them, and the draw repeats."""
        again = self.plan()
        assert (again.operator, again.parents, again.variant) == (draw.operator, draw.parents, draw.variant)
        archive = draw.state.archive
        assert len(draw.parents) == (2 if draw.operator == CROSSOVER else 1)
        assert draw.parents[0] in archive[:3]
        assert draw.operator != CROSSOVER or len(archive) > 1
        if draw.operator == CROSSOVER:
            first, second = draw.parents
            by_performance = second in archive[:3] and not same(first.score, second.score)
            assert by_performance or words(second.idea) - words(first.idea)
        assert draw.variant in (range(3) if draw.operator == REPLACEMENT else (0,))

    def check_collapse(self, draw: Draw) -> None:
        """R-HOST-02: no collapse without stagnation, always one at the threshold, and what it keeps."""
        assert draw.collapsed or self.model.stuck < 4
        assert not draw.collapsed or self.model.stuck > 0
        if draw.collapsed:
            self.model.collapse()
            assert draw.state.used_prompts == {draw.prompt}
        self.model.list_best_first()
        assert listing(draw.state) == self.model.archive

    def group(self, drawn: list[tuple[Outcome, str, str, float]]) -> tuple[list[Evaluated], list[str]]:
        results, texts = [], []
        for index, (outcome, idea, announcement, score) in enumerate(drawn):
            inside = announcement if index % 2 else ""
            idea, code = f"{OPENING} walk onward{idea}{inside}", f"x = {self.step}, {index}"
            text = f"{{{{{idea}}}}}\n```python\n{code}\n```\n{announcement}"
            text = idea[: len(OPENING)] if outcome is Outcome.MISSING_RATIONALE else text
            kept = score if outcome is Outcome.VALID else None
            results.append(Evaluated(outcome, idea, code, kept, program_sha256(code), text))
            texts.append(text)
        return results, texts

    @rule(drawn=children)
    def round(self, drawn: list[tuple[Outcome, str, str, float]]) -> None:
        """R-HOST-03: a round changes archive, components and counter, and names events, as the host does."""
        self.step += 1
        draw = self.plan()
        self.check_collapse(draw)
        self.check_parents(draw)
        results, texts = self.group(drawn)
        self.state, events = transition(
            draw.state, results, operator=draw.operator, step=self.step, settings=SETTINGS
        )
        group = [(r.idea, r.code, r.score) if r.score is not None else None for r in results]
        assert list(events) == self.model.play(draw.operator, group, texts)
        records = [record(self.step, i, r, e) for i, (r, e) in enumerate(zip(results, events, strict=True))]
        self.played.append(recorded(records, draw, texts))

    @rule(score=scores)
    def seed_appears(self, score: float) -> None:
        """A host may hold several seeds; they enter like members."""
        state = initial_state(seed_member(Heuristic("other", "seed = 2"), score))
        if self.played or len(self.state.seeds) > 1 or archive_gap(self.state.archive, score) == 0:
            return
        self.state = replace(self.state.extended(state.seeds), seeds=(*self.state.seeds, *state.seeds))
        self.first = self.state
        self.model.seeds.append(("other", "seed = 2", score))
        self.model.archive.append(("other", "seed = 2", score))

    @invariant()
    def holds_what_the_host_holds(self) -> None:
        if not hasattr(self, "model"):
            return
        assert listing(self.state) == self.model.archive
        assert list(self.state.injected) == self.model.injected
        assert self.state.stagnation == self.model.stuck
        assert self.state.used_prompts == frozenset()
        assert frontier(self.state.archive) == max(kept[2] for kept in self.model.archive)
        assert len(self.state.ideas) == len(self.state.archive)
        for member in self.state.archive:
            expected = [
                len(words(k[0]) - words(member.idea)) / max(len(words(k[0])), 1) for k in self.model.archive
            ]
            assert self.state.distances(member).tolist() == expected

    def teardown(self) -> None:
        """R-HOST-05: replaying the records alone goes through the same states."""
        if not hasattr(self, "model"):
            return
        replay = Replay(AsRecorded(SETTINGS), self.first, FACTS, reading=parse)
        for group in self.played:
            assert replay.play(group).transition.events == tuple(r.archive_event for r in group.group)
        last = replay.state
        assert (last.archive, last.injected, last.stagnation) == (
            self.state.archive,
            self.state.injected,
            self.state.stagnation,
        )


Host.TestCase.settings = settings(max_examples=many(60), stateful_step_count=25, deadline=None)
TestHost = Host.TestCase
