"""Figures over time: small maps of the periods under one legend, and the level from period to period."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.errors import DataError
from geobgp.inference.mixture import interval_in
from geobgp.output import palette
from geobgp.output.course import Course, OverTime
from geobgp.output.grids import relative_uncertainty
from geobgp.output.plot_parts import (
    INK,
    QUIET,
    SHORE,
    class_mappable,
    draw_bar,
    draw_swatches,
    grey_land,
    hatch_cells,
    hide_spines,
    map_size,
    show_cells,
)
from geobgp.privacy import legend
from geobgp.text import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Inches of the figure of the level.
LEVEL_SIZE = (9.6, 5.2)
#: Small maps of a figure, unless periods are named.
MAX_PANELS = 24


def plot_periods(
    source: OverTime,
    figure: Figure | None = None,
    *,
    forecast: OverTime | None = None,
    variable: str | None = None,
    threshold: float | None = None,
    periods: Sequence[Any] | None = None,
    columns: int | None = None,
    title: str | None = None,
) -> Figure:
    """Draw a small map of each period, all under one legend.

    Parameters
    ----------
    source : SpaceTimePosterior
    figure : Figure, optional
        By default a new one.
    forecast : SpaceTimePosterior, optional
        Of the periods that follow; marked as such.
    variable : str, optional
        A variable of `intensity()`, or "uncertainty" (sd / mean, %); by default the mean, or the median of a rate.
    threshold : float, optional
        Draw the probability that the intensity exceeds this, in the map's units, instead.
    periods : sequence, optional
        Which, by label, number or date; by default all; of many every second, third, ... so that there are 24 at most.
    columns : int, optional
        Maps beside each other.
    title : str, optional
        By default the posterior's own.

    Returns
    -------
    Figure
    """
    course = Course(source, forecast)
    values, classes = _field(course, variable, threshold)
    which = _chosen(course, periods)
    across = _across(source, len(which), columns)
    down = math.ceil(len(which) / across)
    if figure is None:
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=panel_size(source, len(which), columns), layout="constrained")
    grid = np.ravel(figure.subplots(down, across, squeeze=False))
    for ax in grid[len(which) :]:
        ax.set_axis_off()
    for k, ax in zip(which, grid, strict=False):
        show_cells(source.domain, values[k], ax, classes=classes, colour_bar=False, scale_bar=False)
        hatch_cells(ax, source.domain, course.hatched[0][k])
        if getattr(source, "protection", None):
            grey_land(ax, source.domain)
        ahead = k >= course.known
        ax.set_title(
            f"{course.labels[k]}{' (forecast)' if ahead else ''}",
            fontsize=10,
            loc="left",
            style="italic" if ahead else "normal",
        )
    label = "sd / mean, %" if threshold is None else f"probability of more than {number(threshold, 3)}"
    if variable != "uncertainty" and threshold is None:
        name = str(palette.chosen_variable(course.data, variable))
        name = {"q50": "median", "sd": "standard deviation"}.get(name, name)
        label = f"{name}, {source.units}"
    bar = class_mappable(classes)
    if bar is not None:
        draw_bar(figure, grid.tolist(), bar, label, classes)
    else:
        draw_swatches(grid[across - 1], classes, label)
    if title is None:
        title = str(course.data.attrs.get("title", ""))
        if periods is None and len(which) < course.n:
            title += f"; {len(which)} of {course.n} {source.periods.noun}s"
    told: Any = source
    below = [f"hatched: {course.hatched[1]}"] if course.hatched[1] else []
    below += [legend(told, "Grey")] if getattr(source, "protection", None) else []
    if below:
        figure.supxlabel("\n".join(below), fontsize=10, x=0.01, ha="left", color=QUIET)
    if title:
        figure.suptitle(title, fontsize=13, x=0.01, ha="left")
    return figure


def panel_size(source: OverTime, n: int, columns: int | None = None) -> tuple[float, float]:
    """Return the size of a figure of n small maps."""
    wide, tall = map_size(source.domain, 2.1, 0.1)
    across = _across(source, n, columns)
    return min(across * wide + 1.2, 16.0), math.ceil(n / across) * tall * min(
        1.0, 14.8 / (across * wide)
    ) + 0.6


def _across(source: OverTime, n: int, columns: int | None) -> int:
    """Return how many maps stand beside each other, so that the whole is somewhat wider than tall."""
    wide, tall = map_size(source.domain, 2.1, 0.1)
    return columns or (n if n <= 4 else min(n, max(2, round(math.sqrt(n * 1.6 * tall / wide)))))


def _field(
    course: Course, variable: str | None, threshold: float | None
) -> tuple[np.ndarray, palette.Classes]:
    """Return a variable, or a probability, in all periods, and its classes in all of them together."""
    if threshold is not None:
        chances = course.exceedance(threshold)
        return chances, palette.classes_for("exceedance", chances)
    if variable == "uncertainty":
        values = relative_uncertainty(course.data)
        return values, palette.classes_for("cv", values.astype(np.float32))
    variable = palette.chosen_variable(course.data, variable)
    return course.data[variable].values, palette.classes_in(course.data, variable)


def _chosen(course: Course, periods: Sequence[Any] | None) -> list[int]:
    if periods is None:
        # Every k-th, back from the last.
        return list(range(course.n - 1, -1, -math.ceil(course.n / MAX_PANELS)))[::-1]
    if not len(periods):
        raise DataError("At least one period is drawn; none was named.", option="periods", found=0)
    ahead = dict(zip(course.labels[course.known :], range(course.known, course.n), strict=True))
    return [ahead[p] if p in ahead else course.fitted.periods.find(p) for p in periods]


def plot_level(course: Course, figure: Figure | None = None) -> Figure:
    """Draw the level of each period with its interval; below, the numbers of events expected, predicted and observed.

    Parameters
    ----------
    course : Course
        A fit, and a forecast after it, which is drawn broken.
    figure : Figure, optional
        By default a new one.
    """
    table = course.level
    seen = "observed" in table and bool(table["observed"].notna().any())
    level, expected, predicted = (interval_in(table, of) for of in ("level", "expected", "predicted"))
    assert level is not None and expected is not None and predicted is not None
    if figure is None:
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=LEVEL_SIZE, layout="constrained")
    axes = np.ravel(figure.subplots(2, 1, sharex=True, squeeze=False))
    at, known = np.arange(course.n), course.known
    pieces = [(slice(0, known), "-"), (slice(max(known - 1, 0), course.n), "--")] if course.n > known else [
        (slice(0, known), "-")
    ]  # fmt: skip
    marker = "o" if course.n <= 40 else None
    for piece, style in pieces:
        part = table.iloc[piece]
        shade = 0.22 if style == "-" else 0.11
        for ax, of, line in ((axes[0], level, "level"), (axes[1], expected, "expected")):
            ax.fill_between(at[piece], part[of.low], part[of.high], color=INK, alpha=shade, linewidth=0)
            ax.plot(at[piece], part[line], style, color=INK, linewidth=1.6, marker=marker, markersize=3)
    axes[1].vlines(at, table[predicted.low], table[predicted.high], color=SHORE, linewidth=1.0, alpha=0.6)
    axes[0].set_ylabel(f"level, {course.fitted.units}", fontsize=9)
    axes[0].set_title(
        f"The level of each period, with its {level.words} interval", fontsize=11, loc="left", color=SHORE
    )
    if seen:
        axes[1].bar(at, table["observed"], width=0.8, color="#b9c6cc", label="observed", zorder=0)
    axes[1].set_ylabel("events", fontsize=9)
    bars = "observed (bars), " if seen else ""
    axes[1].set_title(
        f"Events {bars}expected (line, {expected.words} interval) and predicted (strokes, {predicted.words})",
        fontsize=11,
        loc="left",
        color=SHORE,
    )
    for ax in axes:
        ax.set_ylim(bottom=0)
        ax.grid(axis="y", color="#dde3e6", linewidth=0.6)
        ax.set_axisbelow(True)
        hide_spines(ax, "right", "top")
        if course.n > known:
            ax.axvline(known - 0.5, color=QUIET, linewidth=0.8, linestyle=":")
    if course.n > known:
        axes[0].annotate(
            "forecast",
            (known - 0.4, 0.97),
            xycoords=("data", "axes fraction"),
            fontsize=9,
            color=QUIET,
            va="top",
        )
    ticks = np.unique(np.linspace(0, course.n - 1, min(course.n, 9)).round().astype(int))
    axes[-1].set_xticks(ticks, [course.labels[k] for k in ticks], fontsize=9)
    return figure
