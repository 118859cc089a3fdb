"""How long the runs of a layer are, as notes of tables and captions of figures say it."""

from collections.abc import Callable, Mapping

from search_to_signal.analysis.comparable import at_one_horizon, groups_of, in_groups
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.tables.cells import NoTableError


def horizon_note(results: Results, layer: str) -> str:
    """One sentence; layers without runs of their own stand on the cohort. Raises as the layer does."""
    return f"Horizon: {_OWN.get(layer, _cohort)(results)}."


def _cohort(results: Results) -> str:
    return groups_of(results.cohort)


def _restart(results: Results) -> str:
    again, live = groups_of(results.restart), groups_of(results.cohort)
    if again == live:
        return live
    try:
        cut = at_one_horizon((*results.restart, *results.cohort))
    except NoTableError:
        return f"restarts of {again} and live runs of {live}, not compared"
    return f"restarts of {again} and live runs of {live}, compared over the first {len(cut[0].groups)}"


def _breadth(results: Results) -> str:
    cells = {name: groups_of(runs) for name, runs in results.breadth.items()}
    if len(set(cells.values())) == 1:
        return next(iter(cells.values()))
    return ", ".join(f"{groups} in {name}" for name, groups in cells.items())


def _anchor(results: Results) -> str:
    budgets = in_groups(budget.groups for budget in results.contract.budgets)
    return f"online runs of {_cohort(results)}, Frozen to its budgets of {budgets}"


def _api(results: Results) -> str:
    return groups_of(results.api)


_OWN: Mapping[str, Callable[[Results], str]] = {
    "restart": _restart,
    "breadth": _breadth,
    "anchor": _anchor,
    "api": _api,
}
