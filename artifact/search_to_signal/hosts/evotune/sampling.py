"""Which island a prompt is drawn from, and which programs of it, as EvoTune draws them."""

import numpy as np

from search_to_signal.hosts.evotune.database import Island, IslandDatabase
from search_to_signal.hosts.evotune.settings import EvoTuneSettings
from search_to_signal.numerics import Floats
from search_to_signal.search.member import Member

Clusters = dict[float, list[Member]]

# So that no cluster is out of reach, however low its score.
_LEAST = 1e-20


def percentile(database: IslandDatabase, settings: EvoTuneSettings) -> float:
    """The share of the clusters that is drawn from: it falls in line with the batches of groups."""
    batch = database.groups - database.groups % settings.num_cont_rounds
    progress = min(batch / settings.num_rounds, 1.0)
    return settings.initial_percentile - (settings.initial_percentile - settings.final_percentile) * progress


def clusters(island: Island, settings: EvoTuneSettings) -> Clusters:
    """The programs of an island by scaled and rounded score, in order of registration."""
    by_score: Clusters = {}
    for member in island:
        by_score.setdefault(round(settings.score_scale * member.score, 3), []).append(member)
    return by_score


def in_percentile(scores: Floats, share: float, least: int) -> Floats:
    """The scores above the percentile, all where no more than ``least`` would be left."""
    cut = np.percentile(scores, 100 - 100 * share, method="nearest")
    above: Floats = scores[scores > cut]
    return above if len(above) > least else scores


def softmax(logits: Floats, temperature: float) -> Floats:
    """Probabilities (n,), each above 0."""
    weights = np.exp((logits - logits.max()) / temperature) + _LEAST
    probabilities: Floats = weights / weights.sum()
    return probabilities


def shortest_first(programs: list[Member]) -> Floats:
    """(n,) probabilities within a cluster: shorter programs are likelier."""
    lengths = np.array([float(len(member.code)) for member in programs])
    return softmax(-(lengths - lengths.min()) / (lengths.max() + 1e-6), 1.0)


def drawable(clusters_of: Clusters, share: float, settings: EvoTuneSettings) -> tuple[Floats, Floats, int]:
    """The scores that a prompt draws from, their chances in one draw, and how many are drawn."""
    count = min(len(clusters_of), settings.functions_per_prompt)
    scores = np.array(list(clusters_of))
    if not settings.temp_sampling_flag:
        best = np.sort(scores)[::-1][:count]
        return best, np.full(count, 1 / count), count
    scores = in_percentile(scores, share, count)
    return scores, softmax(scores, settings.temp), count


def draw_island(database: IslandDatabase, rng: np.random.Generator) -> int:
    """The island of a prompt: each is as likely."""
    return int(rng.integers(len(database.islands)))


def select_programs(
    database: IslandDatabase, island: int, settings: EvoTuneSettings, rng: np.random.Generator
) -> tuple[Member, ...]:
    """The programs for a prompt, best first: one each of distinct clusters of an island."""
    by_score = clusters(database.islands[island], settings)
    scores, chances, count = drawable(by_score, percentile(database, settings), settings)
    drawn = rng.choice(scores, size=count, replace=False, p=chances)
    members = [_one_of(by_score[float(score)], rng) for score in drawn]
    return tuple(sorted(members, key=lambda member: member.score, reverse=True))


def _one_of(programs: list[Member], rng: np.random.Generator) -> Member:
    return programs[rng.choice(len(programs), p=shortest_first(programs))]


def chance_of(database: IslandDatabase, island: int, member: Member, settings: EvoTuneSettings) -> float:
    """How likely the next prompt shows a program, registered on its island alone; upkeep is left out."""
    by_score = clusters((*database.islands[island], member), settings)
    scores, chances, count = drawable(by_score, percentile(database, settings), settings)
    (own,) = np.nonzero([any(program is member for program in by_score[float(score)]) for score in scores])
    if not len(own):
        return 0.0
    others = np.delete(chances, own[0])
    # Of two draws without replacement: first, or second after any other.
    first = chances[own[0]]
    drawn = first if count == 1 else first + float((others * first / (1 - others)).sum())
    cluster = by_score[float(scores[own[0]])]
    return float(min(drawn, 1.0) * shortest_first(cluster)[-1] / len(database.islands))
