"""What several figures draw alike."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from search_to_signal.analysis.figures.frame import Frame
from search_to_signal.analysis.figures.style import color, dashes, marker, shown, spread_out

_HOLLOW: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 0.8}


def bands(axes: Axes, frame: Frame, column: str) -> None:
    """Mean over seeds as a line, lowest to highest seed as a band, by condition; one row per group."""
    for condition in frame.names("condition"):
        own = frame.where(condition=condition)
        curves = np.array([own.where(seed=seed).numbers(column) for seed in own.names("seed")])
        groups, hue = np.arange(1, curves.shape[1] + 1), color(condition)
        label = f"{shown(condition)} (n = {len(curves)})"
        axes.step(groups, curves.mean(axis=0), dashes(condition), where="post", color=hue, label=label)
        low, high = curves.min(axis=0), curves.max(axis=0)
        axes.fill_between(groups, low, high, color=hue, step="post", alpha=0.13, lw=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=(1, 2, 5, 10)))


def joined(axes: Axes, frame: Frame) -> None:
    """Live (filled) and restarted (open) values of one seed joined by a line, conditions side by side."""
    conditions = frame.names("condition")
    for place, condition in enumerate(conditions):
        own, hue = frame.where(condition=condition), color(condition)
        for seed in own.names("seed"):
            found = [own.where(seed=seed, layer=layer).number() for layer in ("live", "restart")]
            axes.plot((place - 0.17, place + 0.17), found, color=hue, lw=0.7, alpha=0.7)
            axes.plot(place - 0.17, found[0], marker(condition), color=hue)
            axes.plot(place + 0.17, found[1], marker(condition), color=hue, **_HOLLOW)
    axes.set_xticks([])
    axes.set_xlim(-0.5, max(len(conditions), 1) - 0.5)


def dots(axes: Axes, frame: Frame, column: str = "value") -> None:
    """Every seed as an open marker and their mean as a bar, conditions side by side."""
    conditions = frame.names("condition")
    for place, condition in enumerate(conditions):
        dodged(axes, frame.where(condition=condition), place, condition, column)
    axes.set_xticks([])
    axes.set_xlim(-0.5, max(len(conditions), 1) - 0.5)


def dodged(axes: Axes, frame: Frame, place: float, condition: str, column: str = "value") -> None:
    """The seeds of one condition as open markers at a place, their mean as a bar if none is missing."""
    values = frame.known(column).numbers(column)
    if len(values):
        x = place + np.array(spread_out(len(values), 0.09))
        axes.plot(x, values, marker(condition), color=color(condition), **_HOLLOW)
        mean, ends = frame.mean(column), (place - 0.07, place + 0.07)
        axes.plot(ends, (mean, mean), color=color(condition), lw=2)
