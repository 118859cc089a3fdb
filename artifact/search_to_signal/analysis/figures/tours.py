"""What the search found, on a map: the seed's tour and the best heuristic's on the same instance."""

from matplotlib.figure import Figure

from search_to_signal.analysis.figures.frame import Frame, lines
from search_to_signal.analysis.figures.plot import Plot
from search_to_signal.analysis.figures.style import BLUE, GREY, letter
from search_to_signal.analysis.tables.catalogue import Evidence
from search_to_signal.records.tours import read_tours


def tours_table(evidence: Evidence) -> str:
    """The nodes of both tours in visiting order; raises RunDirectoryError where no tour was recorded."""
    found = read_tours(evidence.results.directory)
    rows = [
        (name, place, node, *found.coordinates[node], tour.score, found.run, evidence.unit)
        for name, tour in (("seed", found.seed), ("best", found.best))
        for place, node in enumerate(tour.order)
    ]
    return lines(("tour", "place", "node", "x", "y", "score", "run", "unit"), rows)


def _draw(figure: Figure, frame: Frame) -> None:
    for axes, which, name in zip(figure.subplots(1, 2), "ab", ("seed", "best"), strict=True):
        own = frame.where(tour=name)
        x, y = own.numbers("x").tolist(), own.numbers("y").tolist()
        axes.plot([*x, x[0]], [*y, y[0]], "-o", color=BLUE, lw=1.0, markersize=2.5)
        axes.plot(x[0], y[0], "s", color=GREY, markersize=6, zorder=0)
        axes.set_aspect("equal")
        axes.set_xticks([])
        axes.set_yticks([])
        title = "The seed" if name == "seed" else f"The best, of {own.rows[0]['run']}"
        letter(axes, which, f"{title}: {own.numbers('score')[0]:.3f}")


def _remark(frame: Frame) -> str:
    seed, best = (frame.where(tour=name).numbers("score")[0] for name in ("seed", "best"))
    unit = frame.rows[0]["unit"]
    return (
        f"Here {unit} is {seed:.4f} with the seed and {best:.4f} with the best; on one instance this shows, "
        "and proves nothing."
    )


TOURS_PLOT = Plot(
    "tours",
    "A tour before and after",
    """One instance of the search's own split, toured by the seed heuristic (a) and by the best heuristic of
    the cohort (b), the first of equal ones; the square is where both start. It is the instance of the
    median gain over the split. Both were built again in isolation after the runs.""",
    tours_table,
    _draw,
    (7.0, 3.4),
    ("core_seeds",),
    remark=_remark,
)
