"""Both hosts of one problem, the questions that they are asked, and what a comparison of them found."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import islice
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, chi2

from search_to_signal.base.errors import HostError, S2SError
from search_to_signal.base.numerics import Floats
from search_to_signal.base.progress import one_line
from search_to_signal.base.seeding import derive_seed, stream
from search_to_signal.credit import get_mapping
from search_to_signal.problems.base import Problem
from search_to_signal.problems.grammar import SPOKEN, draw_program, render_code
from search_to_signal.records.groups import Candidate, ExternalGroup, external_batch
from search_to_signal.records.schema import Operator, Outcome
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.programs import (
    COMPONENT_AFTER,
    COMPONENT_BEFORE,
    OPENING,
    Proposal,
    parse,
    program_sha256,
)
from search_to_signal.search.hosts.calm.host import crossover_pairs, primary
from search_to_signal.search.hosts.calm.prompts import CROSSOVER, OPERATORS, operator_probabilities
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import SearchState, collapsed, state_of, transition
from search_to_signal.search.hosts.released.host import (
    MOST_TRIES,
    AskedPrompt,
    NotComparableError,
    PlayedGroup,
    ReleasedHost,
    seeded,
)
from search_to_signal.search.member import Evaluated, Member

TOLERANCE = 1e-9
"""Relative; above it two scores are two scores."""


class Agreement(Enum):
    """What is counted."""

    EQUAL = "equal"
    DIFFERS = "differ"
    NOT_COMPARED = "not compared"


class Verdict(Enum):
    """How far two answers agree."""

    EXACT = "bit for bit"
    CLOSE = "within tolerance"
    DIFFERS = "differs"
    UNKNOWN = "not compared"

    @property
    def agreement(self) -> Agreement:
        """Equal, to the bit or within tolerance; or not; or not compared."""
        if self in (Verdict.EXACT, Verdict.CLOSE):
            return Agreement.EQUAL
        return Agreement.DIFFERS if self is Verdict.DIFFERS else Agreement.NOT_COMPARED


@dataclass(frozen=True)
class HostFinding:
    """One compared thing; ``detail`` says by how much, or why not; ``draws`` of the host are behind it."""

    subject: str
    verdict: Verdict
    detail: str = ""
    draws: int = 0


def numbers(subject: str, ours: Sequence[float] | None, theirs: Sequence[float] | None) -> HostFinding:
    """Compare two rows of numbers; a failure is None. Rows of other length compare by their last entry."""
    if ours is None or theirs is None:
        same = ours is None and theirs is None
        return HostFinding(
            subject, Verdict.EXACT if same else Verdict.DIFFERS, f"ours {ours}, theirs {theirs}"
        )
    if len(ours) != len(theirs):
        ours, theirs = ours[-1:], theirs[-1:]
    return arrays(subject, np.array(ours, dtype=np.float64), np.array(theirs, dtype=np.float64))


def arrays(subject: str, ours: NDArray[Any], theirs: NDArray[Any]) -> HostFinding:
    """Compare two arrays of one shape as float64."""
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    if ours.tobytes() == theirs.tobytes():
        return HostFinding(subject, Verdict.EXACT)
    with np.errstate(invalid="ignore"):
        gap = float(np.max(np.abs(ours - theirs) / np.maximum(np.abs(ours), 1.0)))
    verdict = Verdict.CLOSE if gap <= TOLERANCE else Verdict.DIFFERS
    return HostFinding(subject, verdict, f"largest relative gap {gap:.3g}")


def things(subject: str, ours: object, theirs: object) -> HostFinding:
    """Compare two things that are equal or not."""
    if ours == theirs:
        return HostFinding(subject, Verdict.EXACT)
    return HostFinding(subject, Verdict.DIFFERS, f"ours {ours}, theirs {theirs}")


def attempted(
    subject: str, compare: Callable[..., HostFinding | Iterable[HostFinding]], *arguments: Any
) -> Iterator[HostFinding]:
    """The findings of a comparison; where it raises, one more that says why it was not made."""
    try:
        result = compare(*arguments)
        yield from [result] if isinstance(result, HostFinding) else result
    except (Exception, SystemExit) as error:
        yield HostFinding(subject, Verdict.UNKNOWN, reason(error))


_SPEAKING = (S2SError, AttributeError, ImportError, NameError, TypeError, OSError)
"""Their messages name things; others may quote what the host was working on, a prompt for instance."""


def reason(error: BaseException) -> str:
    """An error in one line: type, place, and the message where it cannot hold a prompt."""
    if isinstance(error, S2SError):
        return _line(str(error))
    frames = extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    message = f": {error}" if isinstance(error, _SPEAKING) else ""
    return _line(f"{type(error).__name__}{place}{message}")


def _line(text: str) -> str:
    return one_line(text, 200)


def programs(problem: Problem, count: int) -> list[str]:
    """Programs that run, drawn from the grammar of the training corpus."""
    words, _ = SPOKEN[problem.name]
    rng = stream(0, "conformance", "bank", problem.name)
    return [render_code(words, draw_program(words, rng)).strip() for _ in range(count)]


def answer(code: str, idea: str = f"{OPENING} do what the code says.") -> str:
    """A completion that proposes a program."""
    return f"{{{{{idea}}}}}\n\n```python\n{code}\n```\n"


def odd_answers(problem: Problem, code: str) -> dict[str, str]:
    """Completions at the edges of what counts as a proposal, by what is odd about them."""
    plain = answer(code)
    return {
        "nothing": "",
        **_odd_ideas(code, plain),
        "no code": plain.split("```")[0],
        "untagged block": plain.replace("```python", "```"),
        "capital tag": plain.replace("```python", "```PYTHON"),
        "a longer tag": plain.replace("```python", "```python3"),
        "a short tag": plain.replace("```python", "```py"),
        "a blank before the tag": plain.replace("```python", "``` python"),
        "code on the line of the tag": plain.replace("```python\n", "```python "),
        "open block": plain.rstrip().removesuffix("```"),
        "two blocks": f"{plain}\n```python\n{code}\n```",
        "an empty block": answer(""),
        "ticks within the code": answer(f"{code}\n# as `here`"),
        "returns at line ends": plain.replace("\n", "\r\n"),
        "tabs and blanks around the code": answer(f"\n  \n{code}\n \t\n"),
        **{name: answer(text) for name, text in _odd_codes(problem, code).items()},
    }


def _odd_ideas(code: str, plain: str) -> dict[str, str]:
    block = f"```python\n{code}\n```"
    return {
        "no idea": block,
        "another opening": plain.replace(OPENING, "My idea is to"),
        "a small opening": plain.replace(OPENING, OPENING.lower()),
        "ten characters of idea": answer(code, f"{OPENING}0123456789"),
        "eleven characters of idea": answer(code, f"{OPENING}0123456789a"),
        "eleven characters, most of them blank": answer(code, f"{OPENING} wait{' ' * 6}"),
        "blank before the opening": answer(code, f" {OPENING} do what the code says."),
        "words before the opening": answer(code, f"Well. {OPENING} do what the code says."),
        "an idea of two lines": answer(code, f"{OPENING} do\nwhat the code says."),
        "two ideas": f"{{{{{OPENING} begin with this one.}}}}\n{plain}",
        "an idea of another opening first": f"{{{{An idea.}}}}\n{plain}",
        "braces within the idea": answer(code, f"{OPENING} take {{a}} of {{{{b}}}} as c."),
        "three braces": f"{{{plain.replace('}}', '}}}', 1)}",
        "braces that never close": plain.replace("}}", ""),
        "braces that never open": plain.replace("{{", ""),
        "an idea after the code": f"{block}\n{plain.split('```')[0]}",
        "single braces": plain.replace("{{", "{").replace("}}", "}"),
        "idea without braces": f"{OPENING} do what the code says.\n\n{block}",
        "loose idea after words": f"Well. {OPENING} do what the code says.\n\n{block}",
        "loose idea, said twice": f"{OPENING} be. {OPENING} do what the code says.\n\n{block}",
        "loose idea of a word, then code": f"{OPENING} wait\n{block}",
        "loose idea of a word, then a fence": f"{OPENING} wait\n```\na note\n```\n{block}",
        "loose idea of a word, then a long fence": f"{OPENING} wait\n````\na note\n````\n{block}",
        "loose idea of a word, then a fence further in": f"{OPENING} wait\n  {block}",
        "loose idea of a word, then code on its line": f"{OPENING} wait {block}",
        "loose idea with ticks": f"{OPENING} be ```so``` and so.\n```\na note\n```\n{block}",
        "loose idea with a tick": f"{OPENING} be `so` and ``so``.\n{block}",
        "loose idea and blanks": f"{OPENING} wait{' ' * 12}\n```\na note\n```\n{block}",
        "loose idea after the code": f"{block}\n{OPENING} do what the code says.",
    }


def _odd_codes(problem: Problem, code: str) -> dict[str, str]:
    head = problem.template.split("    return")[0]
    (name, *_) = re.findall(r"def (\w+)", code)
    return {
        "no function": "x = 1",
        "two functions": f"{code}\n\ndef another():\n    return 1",
        "a helper class": f"{code}\n\n\nclass Helper:\n    pass",
        "a helper as lambda": f"{code}\n\nhelp = lambda x: x",
        "an imported function": f"from os.path import join\n{code}",
        "a second name": f"{code}\n\nagain = {name}",
        "syntax error": "def broken(:\n    return 1",
        "an error while loading": f"{code}\nnothing.here",
        "an end while loading": f"{code}\nraise SystemExit",
        "an error while running": f"{head}    raise ValueError",
        "an end while running": f"{head}    raise SystemExit",
        "a wrong answer": f"{head}    return None",
        "random in a comment": f"{code}\n# random",
        "Random in a comment": f"{code}\n# Random",
        "random within a word": f"{code}\n# randomly",
        "random that fails": f"{head}    raise ValueError  # random",
    }


def crowded_state(problem: Problem, seed: Member, size: int) -> SearchState:
    """A state of the seed and ``size - 1`` made-up members, never evaluated.

    Each idea has the words of the one before and another, so distances are zero or differ. Scores lie on
    both sides of the seed's, and the best beats any program, so that groups degrade and stagnate as well.
    """
    members = [seed]
    for number in range(1, size):
        idea = f"{OPENING} {' '.join(f'word{i}' for i in range(number))}"
        code = f"{problem.template.split('    return')[0]}    return {number}"
        score = seed.score + abs(seed.score) * (0.97 - 1.9 * (number - 1) / (size - 1))
        members.append(Member(idea, code, score, None, number, 0, program_sha256(code)))
    return state_of(members, [seed]).listed()


def groups(problem: Problem, codes: Sequence[str], seed: str) -> list[tuple[str, ...]]:
    """Groups of four for transitions: new programs, some twice, the seed again, components, failures."""
    head = problem.template.split("    return")[0]
    announced = f"{OPENING} do more. {COMPONENT_BEFORE} part (%d) {COMPONENT_AFTER}."
    first, second, third, *rest = [*codes, *codes, *codes]
    return [
        (answer(seed), answer(first), answer(first), "nothing"),
        (answer(second, announced.replace("%d", "a")), answer(third, announced.replace("%d", "a")), "", ""),
        (answer(rest[0], announced.replace("%d", "b")), answer(first), answer(seed), answer("x = 1")),
        (answer(f"{second}\n# random"), answer(f"{head}    raise ValueError"), answer(third), ""),
    ]


@dataclass(frozen=True)
class ReferenceSide:
    """Our host for one problem; ``pool`` evaluates on the instances of ``split``."""

    problem: Problem
    pool: EvaluationPool
    settings: SearchSettings
    split: str = "train"

    def arrays(self) -> Sequence[NDArray[Any]]:
        """The arrays of the instances, those of one name and shape stacked."""
        instances = self.problem.instances(self.split)
        named = [[instance[name] for instance in instances] for name in instances[0]]
        alike = [len({array.shape for array in arrays}) == 1 for arrays in named]
        return [
            array
            for arrays, same in zip(named, alike, strict=True)
            for array in ([np.stack(arrays)] if same else arrays)
        ]

    def scores(self, code: str) -> tuple[float, ...] | None:
        """Score on every instance, then their mean, by the isolated evaluator; None for a failure."""
        (evaluation,) = self.pool.evaluate([code])
        return None if evaluation.score is None else (*evaluation.per_instance, evaluation.score)

    def play(self, state: SearchState, asked: AskedPrompt, texts: Sequence[str]) -> PlayedGroup:
        """Judge the answers to a prompt, and move the state."""
        results = [self._judged(text) for text in texts]
        candidates = tuple(Candidate(result.outcome, result.score) for result in results)
        bases = tuple(state.archive[position].score for position in asked.bases)
        credit = get_mapping("native")(external_batch([ExternalGroup(candidates, bases=bases)]))
        rewards = tuple(float(reward) for reward in credit.reward[0])
        step = 1 + max(member.step for member in state.archive)
        after, _ = transition(state, results, operator=asked.operator, step=step, settings=self.settings)
        scores = tuple(result.score for result in results)
        return PlayedGroup(tuple(result.outcome for result in results), scores, rewards, after.listed())

    def collapsed(self, state: SearchState) -> SearchState:
        return collapsed(state).listed()

    def _judged(self, text: str) -> Evaluated:
        proposal = parse(text)
        if not isinstance(proposal, Proposal):
            return Evaluated(proposal.outcome)
        (evaluation,) = self.pool.evaluate([proposal.code])
        return Evaluated(evaluation.outcome, proposal.idea, proposal.code, evaluation.score, response=text)


UNLIKELY = 1e-6
"""Frequencies differ when chance alone would take them further apart less often than this."""
FEWEST = 5

Kind = tuple[Operator, tuple[int, ...]]
"""The operator of a prompt, and the positions of its heuristics in the order in which it shows them."""


def chances(state: SearchState, settings: SearchSettings) -> dict[Kind, float]:
    """Exact chance of each kind of prompt, as ``selection`` has it."""
    by_kind: defaultdict[Kind, float] = defaultdict(float)
    alone = primary(len(state.archive), settings)
    for operator, chance in zip(OPERATORS, operator_probabilities(len(state.archive), settings), strict=True):
        if operator != CROSSOVER:
            by_kind.update({(operator, (i,)): float(chance * share) for i, share in enumerate(alone)})
        elif chance:
            for pair, share in np.ndenumerate(_pairs(state, len(alone))):
                shown = sorted(pair, key=lambda position: state.archive[position].score)[::-1]
                by_kind[operator, tuple(shown)] += float(chance * share)
    return {kind: chance for kind, chance in by_kind.items() if chance > 0}


def crossovers(state: SearchState, settings: SearchSettings) -> dict[Kind, float]:
    """The same among crossovers."""
    pairs = {kind: chance for kind, chance in chances(state, settings).items() if kind[0] == CROSSOVER}
    return {kind: chance / sum(pairs.values()) for kind, chance in pairs.items()}


def _pairs(state: SearchState, head: int) -> Floats:
    scores = np.array([member.score for member in state.archive[:head]])
    return crossover_pairs(scores, np.array([state.distances(first) for first in state.archive[:head]]))


def frequencies(subject: str, counted: Counter[Any], expected: Mapping[Any, float]) -> HostFinding:
    """Whether counts fit exact chances; a kind that ours never draws decides at once.

    Kinds due at least five times go into Pearson's test, all others together into an exact binomial one; the
    smaller of the two p-values counts, doubled.
    """
    draws = sum(counted.values())
    impossible = draws - sum(counted[kind] for kind in expected)
    if impossible:
        detail = f"{impossible} of {draws} draws are impossible for ours"
        return HostFinding(subject, Verdict.DIFFERS, detail, draws)
    common = [kind for kind, due in expected.items() if due * draws >= FEWEST]
    rare = 1.0 - sum(expected[kind] for kind in common)
    seen = draws - sum(counted[kind] for kind in common)
    values = [_pearson([counted[kind] for kind in common], [expected[kind] for kind in common])]
    if len(common) < len(expected):
        values.append(float(binomtest(seen, draws, min(max(rare, 0.0), 1.0)).pvalue))
    chance = min(1.0, len(values) * min(values))
    verdict = Verdict.CLOSE if chance >= UNLIKELY else Verdict.DIFFERS
    return HostFinding(subject, verdict, f"{draws} draws, {len(expected)} kinds, p = {chance:.3g}", draws)


def _pearson(counts: Sequence[int], chances: Sequence[float]) -> float:
    if len(counts) < 2:
        return 1.0
    seen, due = np.array(counts), np.array(chances) / sum(chances) * sum(counts)
    return float(chi2.sf(((seen - due) ** 2 / due).sum(), len(counts) - 1))


@dataclass(frozen=True)
class HostPair:
    """Both hosts of one problem, and how much to ask them.

    ``options`` are the checkout's own, ``seed_code`` and ``template`` what they name; ``programs`` are
    generated, ``draws`` are prompts per state. ``words`` are fingerprints of texts by name (HOST.md, 31).
    """

    problem: Problem
    ours: ReferenceSide
    theirs: ReleasedHost
    settings: SearchSettings
    options: Any
    seed_code: str
    template: str
    programs: int
    draws: int
    words: Mapping[str, str]

    @cached_property
    def codes(self) -> list[str]:
        """The bank of programs."""
        return programs(self.problem, self.programs)

    @cached_property
    def seed(self) -> Member:
        """The released seed, as our evaluator scores it."""
        code = self.seed_code.strip()
        idea = code.splitlines()[0].lstrip("# ")
        return Member(idea, code, self._score(self.seed_code), None, 0, 0, program_sha256(code))

    @cached_property
    def child(self) -> tuple[str, float]:
        """A program that runs, and its score."""
        return self.codes[0], self._score(self.codes[0])

    def members(self, scores: list[float]) -> SearchState:
        """A state of made-up members with these scores, and the seed heuristic outside of it."""
        made = crowded_state(self.problem, self.seed, len(scores) + 1).archive
        others = [member for member in made if member is not self.seed and member.id != self.seed.id]
        scored = [replace(member, score=score) for member, score in zip(others, scores, strict=True)]
        return state_of(scored, [self.seed]).listed()

    def kinds(self, name: str, state: SearchState, wanted: Operator | None = None) -> list[Kind]:
        """The kinds of ``draws`` prompts in a state, drawn once under a name.

        Of one operator where one is wanted: then prompts are told by what they show, not by their words.
        """
        if name not in self._drawn:
            with self.seeded(name):
                asked = islice(self.theirs.asks(state, wanted, named=wanted is None), self.draws)
                self._drawn[name] = [(one.operator, one.shown) for one in asked]
        return self._drawn[name]

    @cached_property
    def _drawn(self) -> dict[str, list[Kind]]:
        return {}

    def asked(
        self,
        state: SearchState,
        name: str,
        wanted: Operator | None = None,
        bases: tuple[int, ...] | None = None,
    ) -> AskedPrompt:
        """A prompt of the released host in a state, of this operator and these bases where they are given."""
        with self.seeded(name):
            for asked in islice(self.theirs.asks(state, wanted), MOST_TRIES):
                if bases in (None, asked.bases):
                    return asked
        raise HostError(f"calm_trainer.py: no prompt shows the members {bases} in {MOST_TRIES} draws")

    def creation(self) -> tuple[SearchState, AskedPrompt]:
        """A state whose members are equal and say the same, and the prompt that crossover makes of it."""
        score = self.child[1] + 1.0
        first, second = self.members([score, score]).archive
        state = state_of([first, replace(second, idea=first.idea)], [self.seed])
        with self.seeded("creation"):
            return state, self.theirs.creation(state)

    def both(
        self, state: SearchState, asked: AskedPrompt, texts: tuple[str, ...]
    ) -> tuple[PlayedGroup, PlayedGroup]:
        """Both judge the answers to one prompt, ours first.

        Raises NotComparableError when programs fail there alone and so does the released seed, which tells of
        this machine and not of a rule.
        """
        ours, theirs = self.ours.play(state, asked, texts), self.theirs.play(state, asked, texts)
        stopped = any(
            our in (Outcome.VALID, Outcome.RANDOMNESS) and their is Outcome.RUNTIME_FAILURE
            for our, their in zip(ours.outcomes, theirs.outcomes, strict=True)
        )
        if stopped and not self._seed_runs:
            raise NotComparableError("the released host calls its own seed heuristic a runtime failure here")
        return ours, theirs

    @cached_property
    def released_seed(self) -> tuple[float, ...] | None:
        """The released seed by the released evaluator; raises what that raises."""
        return self.theirs.evaluated(self.seed_code)

    @cached_property
    def _seed_runs(self) -> bool:
        state = self.members([self.seed.score])
        played = self.theirs.play(state, self.asked(state, "seed"), (answer(self.seed_code),))
        return played.outcomes == (Outcome.VALID,)

    @contextmanager
    def seeded(self, name: str) -> Iterator[None]:
        """Seed what the released host draws from by a name, so that no check moves another's draws."""
        with seeded(derive_seed(0, "conformance", self.problem.name, name)):
            yield

    def _score(self, code: str) -> float:
        scores = self.ours.scores(code)
        if scores is None:
            raise HostError("our evaluator cannot run a program that the checks need")
        return scores[-1]
