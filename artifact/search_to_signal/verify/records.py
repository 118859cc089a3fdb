"""Consistency of one run: what its records say of each other, without its host, its model or a program."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, zip_longest
from math import isfinite
from pathlib import Path
from typing import Any

from msgspec import UNSET

from search_to_signal.base.errors import ConfigError, IllFormedGroupError, MappingError, S2SError
from search_to_signal.credit import find_mapping, rewards_of
from search_to_signal.credit.assignment import agrees
from search_to_signal.credit.mappings import RoundSettings, distinct_scores, entries_of, recorded_rounds
from search_to_signal.credit.normalizers import advantages_by_group, find_normalizer
from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.base import mean_score
from search_to_signal.records.differences import Difference, Finding, findings_of
from search_to_signal.records.groups import batch_of
from search_to_signal.records.manifest import DATABASE, Manifest, RunFacts, read_database
from search_to_signal.records.reader import COMPLETIONS, HEURISTICS, STEPS, Group, read_groups, read_records
from search_to_signal.records.schema import (
    PREFERENCES,
    ArchiveEvent,
    CompletionRecord,
    HeuristicRecord,
    Outcome,
    PreferenceRecord,
    PreferenceRound,
    StepRecord,
    given,
    operators_of_host,
    population_sha256,
)
from search_to_signal.run.replayed import (
    AdmittedAsRecorded,
    AsRecorded,
    OfAnyHost,
    Reading,
    RecordedGroup,
    Replay,
    recorded_groups,
    recorded_start,
)
from search_to_signal.run.texts import ParsedTexts, answer_problems
from search_to_signal.sandbox.programs import Proposal
from search_to_signal.search.hosts.calm.settings import SearchSettings

CONFIGURATION = "the manifest's configuration"
_GROUPS_PER_CALL = 256


class Follower:
    """Follows the search of a run group by group, as long as its records ask what the search asks."""

    def __init__(self, replay: Replay) -> None:
        self._replay: Replay | None = replay

    @property
    def state(self) -> Any:
        """The state of the search after the last group; None where it could not be followed so far."""
        return None if self._replay is None else self._replay.state

    def findings(self, recorded: RecordedGroup, prompt_differs: Any = None) -> list[Finding]:
        """Return where the next group is not what it has to be.

        ``prompt_differs`` tells whether the recorded prompt is another one than that of a request.
        """
        if self._replay is None:
            return []
        where, lost = f"step {recorded.step.step}", True
        try:
            played = self._replay.play(recorded)
            found = [one.finding for one in played.differences]
            lost = played.asks_otherwise
            if not lost and prompt_differs is not None and prompt_differs(played.request.prompt):
                found, lost = [Finding(where, "its prompt is not the one that the search asks there")], True
        except S2SError as error:
            found = [Finding(where, str(error))]
        if lost:
            self._replay = None
            found.append(Finding(where, "the search cannot be followed from here on"))
        return found


def record_problems(directory: Path, manifest: Manifest, parsed: ParsedTexts | None = None) -> list[str]:
    """Return the contradictions within a run's records, one line each; raises nothing for damaged files.

    An unreadable file or value is the last line. ``parsed`` carries parsed texts from one run to the next,
    since equal programs have equal scores (D20).
    """
    problems = _record_problems(directory, manifest, parsed or ParsedTexts())
    return [finding.line for finding in findings_of("", problems, CONFIGURATION)]


def _record_problems(directory: Path, manifest: Manifest, parsed: ParsedTexts) -> Iterator[str]:
    config = manifest.config
    steps = list(read_records(directory / STEPS, StepRecord))
    for previous, step in pairwise(steps):
        # A collapse keeps the best member, and so the frontier.
        if step.frontier_before != previous.frontier_after:
            yield f"step {step.step}: frontier does not continue from step {previous.step}"
    heuristics = list(read_records(directory / HEURISTICS, HeuristicRecord))
    if not manifest.of_host.own_loop:
        yield from _store_problems(heuristics, config, parsed)
    yield from _population_problems(heuristics, config)
    yield from _operator_problems(heuristics, steps, manifest.host)
    wants_scores = manifest.of_host.instance_scores is True
    yield from _heuristic_problems(heuristics, wants_scores)
    instances = _count(heuristics[0]) if heuristics and wants_scores else 0
    yield from _group_problems(directory, manifest, parsed, instances)
    yield from pair_problems(directory, manifest)
    if not manifest.of_host.own_loop:
        yield from batch_problems(directory, manifest)
    yield from database_problems(directory, manifest)
    if len(steps) != manifest.facts.groups:
        yield f"{len(steps)} steps are recorded, the configuration asks for {manifest.facts.groups}"


def _population_problems(heuristics: list[HeuristicRecord], config: dict[str, Any]) -> Iterator[str]:
    """Whether a run began with the population of its configuration, and with none where it names none."""
    population = given(heuristics)
    expected = (config.get("parent") or {}).get("archive_sha256")
    if expected is None and population:
        yield f"{HEURISTICS} begins with a population, of which the configuration says nothing"
    if expected is not None and population_sha256(population) != expected:
        yield f"{HEURISTICS} begins with another population than the configuration says"
    if tuple(heuristics[1 : 1 + len(population)]) != population:
        yield f"{HEURISTICS} does not hold the given population directly behind the seed"


def _group_problems(
    directory: Path, manifest: Manifest, parsed: ParsedTexts, instances: int
) -> Iterator[str]:
    facts, own_loop, pending = manifest.facts, manifest.of_host.own_loop, list[RecordedGroup]()
    follower, ends = Follower(_replay(directory, manifest, parsed)), set[int]()
    missing = list(missing_code(facts))
    yield from missing
    for recorded in recorded_groups(directory):
        group, step = recorded.group, recorded.step
        if len(group) != facts.group_size:
            yield f"step {step.step}: {len(group)} completions in the group"
        yield from _outcome_problems(group)
        yield from _prompt_problems(group, step, manifest.config["generation"])
        yield from _sampler_problems(step, manifest.config["generation"])
        yield from (finding.line for finding in follower.findings(recorded))
        for record in group:
            for text in _problems(record, instances if record.score is not None else 0):
                yield f"step {record.step}, completion {record.index}: {text}"
        if not missing:
            pending.append(recorded)
        if len(pending) == _GROUPS_PER_CALL:
            yield from credit_problems(pending, facts)
            pending.clear()
        if not own_loop:
            yield from _text_problems(recorded, manifest, parsed)
            yield from _truncation_problems(recorded, manifest.config["generation"], ends)
            yield from step_number_problems(step, facts.trained, manifest.of_rule.all_told)
    yield from credit_problems(pending, facts)


def _replay(directory: Path, manifest: Manifest, parsed: ParsedTexts) -> Replay:
    """The replay of a run by its records alone; third-party hosts are asked for what holds of every one."""
    host, search = manifest.of_host, AsRecorded()
    population = manifest.config.get("search", {}).get("population_size")
    reading: Reading = partial(parsed.text, config=manifest.config)
    if not host.calm:
        search = OfAnyHost()
    elif host.own_loop:
        # Its texts are held against its records by recomputation.
        search, reading = AdmittedAsRecorded(), lambda text: Proposal("", "")
    elif population is None:
        search = AsRecorded(undecided=AsRecorded.undecided | {"stagnation"})
    else:
        search = AsRecorded(SearchSettings(population_size=population))
    return Replay(search, recorded_start(directory, search), manifest.facts, reading=reading)


def _text_problems(recorded: RecordedGroup, manifest: Manifest, parsed: ParsedTexts) -> Iterator[str]:
    exposures = manifest.of_host.exposures
    for record, text in zip(recorded.group, recorded.generation.completions, strict=True):
        where = f"step {record.step}, completion {record.index}"
        for problem in answer_problems(record, text, manifest.config, parsed):
            yield f"{where}: {problem}"
        is_due = record.score is not None and bool(exposures)
        if exposures is not None and (record.exposure is not None) is not is_due:
            yield f"{where}: exposure {record.exposure} with score {record.score}"


def _truncation_problems(
    recorded: RecordedGroup, generation: Mapping[str, Any], ends: set[int]
) -> Iterator[str]:
    """Yield completions whose tokens say otherwise whether they were cut off at the limit.

    ``ends`` collects the last tokens of completions that are shorter than the limit.
    """
    limit = generation.get("max_completion_tokens")
    for record, completion in zip(recorded.group, recorded.completions, strict=True):
        ids, expected = completion.ids, None
        if completion.request is not None:
            expected = completion.request.finish_reason == "length"
        elif limit is not None and ids and len(ids) < limit:
            ends.add(ids[-1])
            expected = False
        elif limit is not None and len(ids) == limit and ends:
            expected = ids[-1] not in ends
        if expected not in (None, record.truncated):
            yield f"step {record.step}, completion {record.index}: truncated is not what its tokens say"


def _outcome_problems(group: Group) -> Iterator[str]:
    if len({record.archive_size for record in group}) > 1:
        yield f"step {group[0].step}: its completions have different archives"
    for record in group:
        where = f"step {record.step}, completion {record.index}"
        if (record.score is not None) != (record.outcome is Outcome.VALID):
            yield f"{where}: outcome {record.outcome.value} with score {record.score}"
        if (record.archive_event is ArchiveEvent.INVALID) != (record.score is None):
            yield f"{where}: archive event {record.archive_event.value} with score {record.score}"


def _operator_problems(
    heuristics: Sequence[HeuristicRecord], steps: Sequence[StepRecord], host: str
) -> Iterator[str]:
    known = operators_of_host(host)
    if known is None:
        return
    for step in steps:
        if step.operator not in known:
            yield f"step {step.step}: host {host} has no operator {step.operator}"
    for heuristic in heuristics:
        if heuristic.operator is not None and heuristic.operator not in known:
            yield f"{HEURISTICS}: host {host} has no operator {heuristic.operator}"


def _prompt_problems(
    group: Sequence[CompletionRecord], step: StepRecord, generation: Mapping[str, Any]
) -> Iterator[str]:
    """Yield contradictions between a prompt's length, its truncation and the run's limit (D26).

    ``generation`` holds the generation settings. Only a tokenizer can check that the truncated tokens are
    those of the text (recompute).
    """
    limit, cut = generation.get("max_prompt_tokens"), step.prompt_tokens_cut
    # Runs older than the setting refused long prompts.
    setting = "send whole" if generation.get("backend") == "api" else generation.get("long_prompts", "refuse")
    longest = max(record.prompt_tokens for record in group)
    if cut and (cut < 0 or setting != "cut" or longest != limit):
        yield (
            f"step {step.step}: {cut} prompt tokens cut, {longest} left, limit {limit} (setting: {setting})"
        )
    elif limit is not None and longest > limit and setting != "send whole":
        yield f"step {step.step}: {longest} tokens of a prompt were read, its limit is {limit}"


def _sampler_problems(step: StepRecord, generation: Mapping[str, Any]) -> Iterator[str]:
    """Yield a step that a trained run by a server could not have gone on with."""
    if generation.get("backend") != "server" or step.mapping is None:
        return
    limit, difference = generation.get("server", {}).get("max_difference", 0.0), step.sampler_difference
    if difference is UNSET or not 0.0 <= difference <= limit:
        told = "absent" if difference is UNSET else difference
        yield f"step {step.step}: sampler_difference is {told}, the run ends where it is not 0 to {limit}"


def _store_problems(
    heuristics: list[HeuristicRecord], config: Mapping[str, Any], parsed: ParsedTexts
) -> Iterator[str]:
    """Yield heuristics whose id is not that of their code, and a seed that is not the built-in problem's."""
    problem = PROBLEMS.get(str(config["problem"]))
    for line, heuristic in enumerate(heuristics, start=1):
        where = f"{HEURISTICS}:{line}"
        if heuristic.id != parsed.programs.setdefault(heuristic.code, heuristic.id):
            yield f"{where}: the id is not the one that equal code has elsewhere"
        if heuristic.operator is None:
            key = (str(config["problem"]), str(config["split"]), heuristic.code)
            if parsed.scores.setdefault(key, heuristic.score) != heuristic.score:
                yield f"{where}: score {heuristic.score}, elsewhere the same program has {parsed.scores[key]}"
            seed = problem.seed if problem else heuristic
            if line > 1 or (heuristic.idea, heuristic.code) != (seed.idea, seed.code):
                yield f"{where}: it is not the seed heuristic of {config['problem']}"
            if (heuristic.step, heuristic.index) != (0, 0):
                yield f"{where}: a seed heuristic has step and index 0"


# The scores of the instances, where a run's host asks for them: their mean is the score, everywhere.


def _heuristic_problems(heuristics: Sequence[HeuristicRecord], asked: bool) -> Iterator[str]:
    instances = _count(heuristics[0]) if heuristics else 0
    if bool(instances) is not asked:
        wanted = "them" if asked else "none"
        mismatch = f"the seed has {instances} instance scores, the host asks for {wanted}"
        yield f"{HEURISTICS}: {mismatch}"
        return
    for heuristic in heuristics:
        for text in _problems(heuristic, instances):
            yield f"{HEURISTICS}: step {heuristic.step}, completion {heuristic.index}: {text}"


def _count(record: CompletionRecord | HeuristicRecord) -> int:
    return 0 if record.instance_scores is UNSET else len(record.instance_scores)


def _problems(record: CompletionRecord | HeuristicRecord, due: int) -> Iterator[str]:
    if _count(record) != due:
        yield f"{_count(record)} instance scores, where {due} are due"
    elif record.instance_scores is not UNSET and mean_score(record.instance_scores) != record.score:
        mean = mean_score(record.instance_scores)
        yield f"score is {record.score}, the mean of its instance scores is {mean}"


def database_problems(directory: Path, manifest: Manifest) -> Iterator[str]:
    """Yield contradictions of a program database with its run's heuristics and last step.

    The assignment of programs to islands is left to the host, by recomputation.
    """
    kind = manifest.of_host.database
    if kind in (None, "none") and not (directory / DATABASE).exists():
        return
    if kind == "none":
        yield f"{DATABASE}: the run's host has no database"
        return
    database = read_database(directory)
    scores = {h.id: h.score for h in read_records(directory / HEURISTICS, HeuristicRecord)}
    ids = {identity for island in database.islands for identity in island}
    ids |= {identity for _, identity in database.waiting}
    if unknown := sorted(ids - set(scores)):
        yield f"{DATABASE}: program {unknown[0]} is not a heuristic of this run"
        return
    (*_, last) = read_records(directory / STEPS, StepRecord)
    size_and_best: tuple[object, ...] = (len(ids), max((scores[identity] for identity in ids), default=None))
    is_archive = size_and_best == (last.archive_size, last.frontier_after)
    if database.groups != last.step + 1 or (kind == "archive" and not is_archive):
        yield f"{DATABASE}: it is not the database after the last step"


def batch_problems(directory: Path, manifest: Manifest) -> Iterator[str]:
    """Yield groups dropped out of turn, and steps out of turn or on other tokens than their groups have."""
    size, redraws = manifest.of_rule.groups_per_step, manifest.of_rule.redraws or 0
    if not manifest.facts.trained or size is None:
        return
    if type(size) is not int or size < 1 or type(redraws) is not int:
        yield f"the learning rule takes {size} groups for a step and redraws {redraws}: give whole numbers"
        return
    learner, pending_tokens, taken, redrawn = manifest.config.get("learner", {}), 0, 0, 0
    # The number of credited tokens of a part follows from a tokenizer alone (recompute).
    credits_whole_texts = learner.get("credit", "both") == "both"
    # A file that ends before the other is already a problem of the records.
    recorded = zip(read_groups(directory), read_records(directory / STEPS, StepRecord), strict=False)
    for group, step in recorded:
        is_dropped = bool(step.zero_advantage) and redrawn < redraws
        if is_dropped is not (step.dropped is not UNSET):
            yield f"step {step.step}: its group is {'not ' if is_dropped else ''}dropped against the settings"
        redrawn = redrawn + 1 if is_dropped else 0
        taken += not is_dropped
        pending_tokens += 0 if is_dropped else _loss_tokens(group, step, learner)
        is_due = not is_dropped and taken % size == 0
        expected = pending_tokens if is_due and step.not_finite is not True else 0
        pending_tokens = 0 if is_due else pending_tokens
        tokens = step.training_tokens
        if tokens != expected and (credits_whole_texts or not expected or not 0 <= tokens <= expected):
            yield f"step {step.step}: training_tokens is {tokens}, its completions have {expected}"


def _loss_tokens(group: Group, step: StepRecord, learner: dict[str, Any]) -> int:
    if step.zero_advantage and learner.get("zero_advantage") == "skip":
        return 0
    excluded = learner.get("truncated") == "exclude"
    return sum(record.completion_tokens for record in group if not (excluded and record.truncated))


def pair_problems(directory: Path, manifest: Manifest) -> Iterator[str]:
    """Yield contradictions of a run's preference pairs, each derived again from the completions.

    A run whose learning rule uses no pairs must have no file of them.
    """
    if not (manifest.facts.trained and manifest.of_rule.pairs):
        if (directory / PREFERENCES).exists():
            yield f"{PREFERENCES}: the run's rule learns from no pairs"
        return
    try:
        rounds = _PairRounds(recorded_rounds(manifest.config))
    except ConfigError as error:
        yield f"config: {error}"
        return
    recorded = (
        read_records(directory / PREFERENCES, PreferenceRecord),
        read_groups(directory),
        read_records(directory / STEPS, StepRecord),
    )
    for line, (record, group, step) in enumerate(zip_longest(*recorded), start=1):
        if record is None or group is None or step is None or record.step != step.step:
            yield f"{PREFERENCES}:{line}: it does not hold the steps of the run, one line each"
            return
        problems = [*_entry_problems(record, group), *rounds.problems(record, group, step)]
        yield from (f"{PREFERENCES}:{line}: {problem}" for problem in problems)


def _entry_problems(record: PreferenceRecord, group: Group) -> Iterator[str]:
    for pair in record.pairs:
        for index in (pair.chosen, pair.rejected):
            if not 0 <= index < len(group):
                yield f"step {record.step} has no completion {index}: restore the file"
                return
    if record.pairs != entries_of(group):
        yield f"the pairs of step {record.step} are not the ones that its completions make"


class _PairRounds:
    """The pairs so far as (score of the chosen completion, tokens), and the scores since the last round."""

    def __init__(self, settings: RoundSettings) -> None:
        self._settings = settings
        self._pairs: list[tuple[float, int]] = []
        self._scores: list[float] = []
        self._groups = 0

    def problems(self, record: PreferenceRecord, group: Group, step: StepRecord) -> Iterator[str]:
        """Add a group's pairs, and yield the contradictions of its round of training."""
        self._groups += 1
        self._scores += distinct_scores(group)
        for pair in entries_of(group):
            tokens = group[pair.chosen].completion_tokens + group[pair.rejected].completion_tokens
            self._pairs.append((pair.chosen_score, tokens))
        expected = self._expected_round()
        if (expected is None) != (record.round is None):
            yield f"step {record.step}: a round is {'missing' if expected else 'recorded that was not due'}"
        elif expected is not None and record.round is not None:
            threshold, tokens_by_pair = expected
            yield from self._round_problems(record.round, threshold, tokens_by_pair, step)
        if record.round is None and step.training_tokens:
            yield f"step {record.step} was trained without a round"

    def _expected_round(self) -> tuple[float, list[int]] | None:
        """The threshold of a round, and the tokens of each pair above it; None where there is no round."""
        if self._groups % self._settings.finetuning_frequency:
            return None
        threshold = self._settings.threshold(self._scores)
        self._scores = []
        if threshold is None:
            return None
        tokens_by_pair = [tokens for score, tokens in self._pairs if score >= threshold]
        return (threshold, tokens_by_pair) if tokens_by_pair else None

    def _round_problems(
        self, recorded: PreferenceRound, threshold: float, tokens_by_pair: list[int], step: StepRecord
    ) -> Iterator[str]:
        kept = len(tokens_by_pair)
        steps_per_epoch = -(-self._settings.batches(kept) // self._settings.gradient_accumulation_steps)
        # The settings' count leaves out an epoch's last incomplete step, so training may end before the last
        # steps of the last epoch.
        all_steps = steps_per_epoch * self._settings.num_train_epochs
        steps = min(self._settings.steps(kept), all_steps)
        counts = (recorded.threshold, recorded.collected, recorded.kept, recorded.optimizer_steps)
        if counts != (threshold, len(self._pairs), kept, steps):
            yield f"the round of step {step.step} is not the one that its pairs give"
        most = self._settings.num_train_epochs * sum(tokens_by_pair)
        if step.training_tokens > most or (steps == all_steps and step.training_tokens != most):
            yield f"step {step.step}: training_tokens is {step.training_tokens}, its pairs have {most}"
        if not (0 <= recorded.accuracy <= 1 and isfinite(recorded.margin)):
            numbers = f"accuracy {recorded.accuracy} and margin {recorded.margin}"
            yield f"the round of step {step.step} has {numbers}"


def missing_code(facts: RunFacts) -> Iterator[str]:
    """Yield why a trained run's mapping or normalizer is not available: one line for the run."""
    try:
        if facts.trained:
            find_mapping(facts.mapping)
            find_normalizer(facts.normalizer)
    except ConfigError as error:
        yield str(error)


def credit_problems(groups: Sequence[RecordedGroup], facts: RunFacts) -> Iterator[str]:
    """Yield components, rewards and advantages that are not those of the run's condition."""
    if not groups:
        return
    try:
        problems = list(_credit_differences(groups, facts))
    except (IllFormedGroupError, MappingError) as error:
        problems = [f"step {groups[0].step.step}: {error}"]
    if problems and len(groups) > 1:
        # A run computes credit group by group: only a group alone gives its exact problems.
        for group in groups:
            yield from credit_problems([group], facts)
    else:
        yield from problems


def _credit_differences(groups: Sequence[RecordedGroup], facts: RunFacts) -> Iterator[str]:
    for recorded, credit in zip(groups, _credit_due(groups, facts), strict=True):
        for record, values in zip(recorded.group, credit, strict=True):
            for field, expected in zip(("components", "reward", "advantage"), values, strict=True):
                value = getattr(record, field)
                if not agrees(value, expected):
                    which = f"step {record.step}, completion {record.index}"
                    line = recorded.lines[0] + record.index
                    yield Difference(COMPLETIONS, line, which, field, value, expected).finding.line


def _credit_due(groups: Sequence[RecordedGroup], facts: RunFacts) -> Iterator[list[tuple[Any, Any, Any]]]:
    """Components, reward and advantage of every completion; one call for all groups is faster."""
    if not facts.trained:
        yield from ([(None, None, None)] * len(recorded.group) for recorded in groups)
        return
    credit = rewards_of(find_mapping(facts.mapping), batch_of([recorded.group for recorded in groups]))
    normalizer = find_normalizer(facts.normalizer)
    advantages = advantages_by_group(normalizer, credit.reward, credit.components).tolist()
    components = {name: values.tolist() for name, values in credit.components.items()}
    for number, rewards in enumerate(credit.reward.tolist()):
        yield [
            ({name: rows[number][index] for name, rows in components.items()}, reward, advantage)
            for index, (reward, advantage) in enumerate(zip(rewards, advantages[number], strict=True))
        ]


def step_number_problems(step: StepRecord, trained: bool, reports_all_numbers: bool) -> Iterator[str]:
    """Yield what a step says of loss, KL, gradient norm and tokens that no training gives."""
    where = f"step {step.step}"
    numbers = (step.loss, step.kl, step.grad_norm)
    # A learning rule may leave out some of them; those that it reports have to be finite.
    reported = numbers if reports_all_numbers else [n for n in numbers if n is not None]
    if trained and step.training_tokens and not all(n is not None and isfinite(n) for n in reported):
        yield f"{where}: a trained step has no finite loss, KL or gradient norm"
    if not (trained and step.training_tokens) and (numbers != (None,) * 3 or step.training_tokens):
        yield f"{where}: nothing was trained, and there is a loss, KL, gradient norm or token"
    if step.grad_norm is not None and step.grad_norm < 0:
        yield f"{where}: grad_norm is negative"
