"""Figures of residuals: the residual map, lurking variables, and pairs of events against simulations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.output.plot_parts import INK, QUIET, SHORE, hide_spines, map_size, show_cells
from geobgp.text import number

if TYPE_CHECKING:
    from geobgp.checks.pearson import Curve, Residuals

#: Variables that are drawn at most, those least explained first.
MOST_VARIABLES = 4


def shown_variables(found: Residuals) -> list[str]:
    """Return the variables that are drawn: all of few, of many those that the fit explains least."""
    names = sorted(found.lurking, key=lambda name: found.lurking[name].outside)[:MOST_VARIABLES]
    return [name for name in found.lurking if name in names]


def layout(found: Residuals) -> tuple[tuple[float, float], int]:
    """Return the size of the figure and how many rows the curves take beside the map."""
    curves = 1 + len(shown_variables(found))
    rows = (curves + 1) // 2
    wide, tall = map_size(found.domain, height=4.4, beside=1.0)
    return (wide + 7.2, max(tall, 2.5 * rows)), rows


def plot_residuals(found: Residuals, figure: Any = None) -> Any:
    """Draw the residual map, and beside it pairs of events and lurking variables with 95 % bands of simulations.

    Parameters
    ----------
    found : Residuals
    figure : Figure, optional
        By default a new one.

    Returns
    -------
    list of Axes
        The map, the pairs, and the variables.
    """
    size, rows = layout(found)
    if figure is None:
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=size, layout="constrained")
    grid = figure.add_gridspec(rows, 3, width_ratios=[size[0] - 7.2, 3.6, 3.6])
    left = figure.add_subplot(grid[:, 0])
    values = found.pearson[found.square]
    limit = max(3.0, float(np.abs(values).max()))
    show_cells(
        found.domain,
        values,
        left,
        ramp="signed",
        limits=(-limit, limit),
        label="Pearson residual",
        scale_bar=False,
    )
    scale, unit = found.domain.length_unit
    left.set_title(f"Residuals in squares of {number(found.side / scale, 3)} {unit}", fontsize=11, loc="left")
    axes = [figure.add_subplot(grid[k // 2, 1 + k % 2]) for k in range(1 + len(shown_variables(found)))]
    _draw(axes[0], found.pairs, scale, f"distance ({unit})", "pairs / expected", "Pairs of events")
    axes[0].axhline(1.0, color=QUIET, linewidth=1, linestyle=":")
    for ax, name in zip(axes[1:], shown_variables(found), strict=True):
        place = name in ("easting", "northing")
        words = f"{name} ({unit})" if place else name
        _draw(ax, found.lurking[name], scale if place else 1.0, words, "observed − expected", f"Along {name}")
        ax.axhline(0.0, color=QUIET, linewidth=1, linestyle=":")
    return [left, *axes]


def _draw(ax: Any, curve: Curve, scale: float, along: str, what: str, title: str) -> None:
    ax.fill_between(curve.at / scale, curve.low, curve.high, color=SHORE, alpha=0.2, linewidth=0)
    ax.plot(curve.at / scale, curve.observed, color=INK, linewidth=1.5)
    ax.set_xlabel(along)
    ax.set_ylabel(what)
    ax.set_title(title, fontsize=11, loc="left")
    ax.ticklabel_format(axis="x", useOffset=False, style="plain")
    hide_spines(ax, "right", "top")
