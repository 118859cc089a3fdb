"""verl's rollout log: ``{trainer.rollout_data_dir}/{step}.jsonl``, one row per training sequence.

Read beside what the format names: verl/trainer/ppo/v1/agent_loop_tq.py (the keys), v1/utils.py
(``compute_advantage_for_multi_trajectories``) and verl/experimental/reward_loop/reward_manager/ (``dapo.py``,
``limited.py``), all at 1dda039; volcengine/verl, the same trainer before the move,
b178a3cd56f58b2d502255daba591e92833930a7, 2026-01-29.

Columns: input, output, gts, score, step. v1 (the default) adds uid, ``{prompt}_{session}_{output}``, and
sorts by it. v0, the deprecated trainer, adds what the reward function returned and request_id, and no group:
its rows are reordered to balance devices, so equal inputs need not stand together; a key "score" that the
function returned overwrites what was trained. A validation (``trainer.validation_data_dir``) has the same
form and a column reward. Neither logs advantages.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.audit.groups import LETTERS, UNKNOWN, Assumption, RewardGroups
from search_to_signal.audit.importers import base
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.rows import (
    Group,
    RolloutRow,
    count,
    digest,
    float32,
    number,
    numbers,
    score,
    sizes,
    told_by,
)
from search_to_signal.audit.importers.streams import first_record

PENALTY = "overlong_reward"
_SAID = {
    "outputs_of_sessions": "a group is what shares the first part of uid; the outputs of a session are one "
    "sample with the reward of the last, as verl's GRPO has it (its other estimators count every output)",
    "named_groups": "a group is the rows of one step with the same uid",
    "equal_inputs": "a group is the rows of one step with the same input: the log names no group and "
    "reorders its rows, so a prompt that occurs twice in a step is one group",
    "turns": "a row whose input begins with another's input and output is a later turn of the same sample, "
    "which has the reward of its last turn",
    "unknown_turns": "a row whose input goes on from another's, or is another than that of its uid, may be a "
    "later turn of a sample, and counts as a sample of its own: the log does not say",
    PENALTY: "the trained reward is score + overlong_reward: the reward function's own score, before the "
    "penalty, is in the column score",
    "validation": "a column reward that repeats what was scored is of a validation (validation_data_dir): "
    "nothing of it was trained",
}


_GROUPING = ("outputs_of_sessions", "named_groups", "equal_inputs")


@dataclass(frozen=True)
class Texts:
    """What a row says beside its numbers, until its step is whole."""

    input: str
    # Of the output without spaces at its end.
    length: int
    digest: int
    request: Hashable
    metrics: Mapping[str, Any]


@dataclass
class Samples:
    """Rows of a file as samples in groups.

    ``named``: rows have a uid. ``raw``: the caller named the reward. ``validates``: the directory says so.
    """

    named: bool
    raw: bool
    validates: bool
    _texts: dict[int, Texts] = field(default_factory=dict)
    _inputs: dict[str, str] = field(default_factory=dict)
    _counts: dict[str, Counter[str]] = field(default_factory=dict)

    def keep(self, position: int, record: Mapping[str, Any]) -> None:
        """Remember the texts of a row."""
        text, output = str(record.get("input") or ""), str(record.get("output") or "").rstrip()
        text = self._inputs.setdefault(text, text)
        known = {name: record[name] for name in ("acc", PENALTY, "reward") if name in record}
        self._texts[position] = Texts(text, len(output), digest(output), record.get("request_id"), known)

    def grouped(self, rows: Iterable[RolloutRow]) -> Iterator[Group]:
        """Samples of one group stand anywhere within their step: of a step, numbers and inputs are held."""
        for _, members in groupby(rows, key=lambda row: row.step):
            step = self._penalized(list(members))
            keys = _session_keys(step) if self.named else None
            samples = self._by_turns(step) if keys is None else self._by_sessions(step, keys)
            groups: dict[Hashable, list[RolloutRow]] = {}
            for sample in samples:
                groups.setdefault(sample.group, []).append(sample)
            # Only a validation of v1 has a reward beside uid; one of v0 has mostly one answer to each input.
            given = [number(self._texts[row.position].metrics.get("reward")) for row in step]
            same = all(_near(value, row.reward) for value, row in zip(given, step, strict=True))
            if same and (keys is not None or len(groups) == len(samples) or self.validates):
                self._count("validation", rows=len(step))
            for row in step:
                del self._texts[row.position]
            self._inputs = {texts.input: texts.input for texts in self._texts.values()}
            yield from groups.values()

    def evidence(self, groups: Sequence[Group]) -> tuple[Assumption, ...]:
        """What was found since it was last asked, with the sizes of these groups."""
        found = self._counts
        self._counts = {}
        of_groups = {key: sizes(groups) for key in _GROUPING}
        return tuple(
            Assumption(key, _SAID[key], {**counts, **of_groups.get(key, {})}) for key, counts in found.items()
        )

    def _count(self, key: str, **counts: int) -> None:
        self._counts.setdefault(key, Counter()).update(counts)

    def _penalized(self, step: list[RolloutRow]) -> list[RolloutRow]:
        given = [self._texts[row.position].metrics for row in step]
        logged = [number(metrics.get(PENALTY)) for metrics in given]
        if self.raw or all(map(math.isnan, logged)):
            return step
        penalties = [0.0 if math.isnan(penalty) else penalty for penalty in logged]
        rows = list(zip(step, penalties, [number(metrics.get("acc")) for metrics in given], strict=True))
        inside = any(penalties) and all(_near(row.reward, acc + penalty) for row, penalty, acc in rows)
        if not inside:
            self._count(PENALTY, rows=len(step), penalized=sum(penalty < 0 for penalty in penalties))
        return [
            msgspec.structs.replace(
                row,
                reward=row.reward if inside else float32(row.reward + penalty),
                components={"acc": acc, PENALTY: penalty}
                if inside
                else {"score": row.reward, PENALTY: penalty},
                weights={"acc" if inside else "score": 1.0, PENALTY: 1.0},
            )
            for row, penalty, acc in rows
        ]

    def _by_sessions(
        self, step: Sequence[RolloutRow], keys: Sequence[tuple[str, str, int]]
    ) -> list[RolloutRow]:
        outputs: dict[tuple[str, str], list[tuple[int, RolloutRow]]] = {}
        for row, (prompt, session, output) in zip(step, keys, strict=True):
            named = msgspec.structs.replace(row, group=(row.step, prompt), name=prompt)
            outputs.setdefault((prompt, session), []).append((output, named))
        self._count("outputs_of_sessions", rows=len(step), sessions=len(outputs))
        return [
            _sample([row for _, row in sorted(rows, key=lambda one: one[0])]) for rows in outputs.values()
        ]

    def _by_turns(self, step: Sequence[RolloutRow]) -> list[RolloutRow]:
        """Rows of one uid, where they have one, that go on from each other are turns of a sample."""
        self._count("named_groups" if self.named else "equal_inputs")
        texts = [self._texts[row.position] for row in step]
        before = _beginnings({one.input for one in texts})
        if not self.named and not any(before.values()):
            return list(step)
        often = Counter(one.input for one in texts)
        samples: list[list[RolloutRow]] = []
        first: dict[Hashable, str] = {}
        ends: dict[tuple[Hashable, str], list[list[RolloutRow]]] = {}
        for row, own in sorted(zip(step, texts, strict=True), key=lambda one: len(one[1].input)):
            scope = row.group if self.named else None
            places = [(scope, text) for text in reversed(before[own.input]) if (scope, text) in ends]
            fits = (
                (ends[place], at)
                for place in places
                for at, sample in enumerate(ends[place])
                if self._goes_on(sample[-1], own)
            )
            if found := next(fits, None):
                sample = found[0].pop(found[1])
                sample.append(row)
            else:
                samples.append(sample := [row])
                another = self.named and first.setdefault(scope, own.input) != own.input
                if another or (places and often[own.input] == 1):
                    self._count("unknown_turns", rows=1)
            ends.setdefault((scope, own.input), []).append(sample)
        if len(samples) < len(step):
            self._count("turns", rows=len(step), samples=len(samples))
        return [_sample(sample) for sample in sorted(samples, key=lambda one: one[0].position)]

    def _goes_on(self, row: RolloutRow, after: Texts) -> bool:
        """Whether an input that begins with a row's goes on with its output, or is of its request."""
        last = self._texts[row.position]
        start, end = len(last.input), len(last.input) + last.length
        # What is only the output has no answer to it: 1+1 answered by 2 is not how 1+12 began.
        held = start < end < len(after.input) and digest(after.input[start:end]) == last.digest
        return held or (last.request is not None and last.request == after.request)


def _near(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=1e-6, abs_tol=1e-6)


def _sample(rows: Sequence[RolloutRow]) -> RolloutRow:
    if len(rows) == 1:
        return rows[0]
    first, counted = rows[0], [row.tokens for row in rows]
    return msgspec.structs.replace(
        rows[-1],
        group=first.group,
        position=first.position,
        prompt=first.prompt,
        tokens=UNKNOWN if UNKNOWN in counted else sum(counted),
        metrics={**rows[-1].metrics, LETTERS: sum(row.metrics.get(LETTERS, math.nan) for row in rows)},
        response=hash(tuple(row.response for row in rows)) & 2**64 - 1 or 1,
    )


def _session_keys(step: Sequence[RolloutRow]) -> list[tuple[str, str, int]] | None:
    """Prompt, session and output of each row's uid; None where uids are no such keys, each of one row."""
    keys = [row.name.rsplit("_", 2) for row in step]
    parsed = [len(key) == 3 and key[1].isdecimal() and key[2].isdecimal() for key in keys]
    if not any(parsed) or len({row.name for row in step}) < len(step):
        return None
    return [
        (key[0], key[1], int(key[2])) if good else (row.name, "", 0)
        for row, key, good in zip(step, keys, parsed, strict=True)
    ]


def _beginnings(inputs: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For each text those others with which it begins, the shortest first."""
    found: dict[str, tuple[str, ...]] = {}
    open_: list[str] = []
    for text in sorted(inputs):
        while open_ and not text.startswith(open_[-1]):
            open_.pop()
        found[text] = tuple(one for one in open_ if one)
        open_.append(text)
    return found


_BASE = ("input", "output", "gts", "score", "step", "uid", "request_id")


def _read(path: Path, options: base.ReadOptions) -> Iterator[RewardGroups]:
    named = isinstance(first_record(path).get("uid"), str)
    samples = Samples(named, raw=options.reward is not None, validates="val" in path.parent.name.lower())

    def row(_: Path, options: base.ReadOptions, record: dict[str, Any], position: int) -> RolloutRow:
        step = count(record.get("step"))
        name = "uid" if named else "input"
        if record.get(name) is None:
            # Rows without one would be a group that nobody sampled.
            raise ValueError(f"no {name}, by which the rows before are grouped")
        output = record.get("output")
        made = RolloutRow(
            group=(step, digest(str(record[name]))),
            name=str(record[name]) if named else "",
            prompt=options.prompts.add(record.get("input")),
            position=position,
            step=step,
            reward=float32(score(record.get(options.reward or "score"))),
            response=digest(None if output is None else str(output)),
            label=base.value_at(record, options.label),
            metrics=numbers(record, without=_BASE) | told_by(None if output is None else str(output)),
        )
        samples.keep(position, record)
        return made

    return base.read_json(path, options, row, samples.grouped, samples.evidence, rewards=dict)


VERL = base.Format(
    name="verl",
    container=JSONL,
    needs=("input", "output", "score", "step"),
    patterns=("[0-9]*.jsonl",),
    read=_read,
    takes=("reward",),
    usual="verl-grpo",
    writer="verl-project/verl verl/trainer/ppo/v1/trainer_base.py, ray_trainer.py "
    "1dda039b9c6311889a9c9a26040677e1254814f9 2026-08-22",
    met="real writer: both _write_generations, called with given rows",
)
