"""Figures of checks: what was observed in blocks that were left out, against what was predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.inference.mixture import interval_in, within
from geobgp.output import plots
from geobgp.output.plot_parts import INK, QUIET, SHORE, hide_spines, map_size

if TYPE_CHECKING:
    import pandas as pd

    from geobgp.checks.crossval import CrossValidation


def plot_cross_validation(checked: CrossValidation, axes: Any = None) -> Any:
    """Draw observed against predicted numbers, the map of scores, and the PIT values.

    Parameters
    ----------
    checked : CrossValidation
    axes : three Axes, optional
        By default those of a new figure.
    """
    if axes is None:
        import matplotlib.pyplot as plt

        wide, tall = map_size(checked.domain, height=3.6, beside=1.0)
        ratios = [3.6, wide, 2.9]
        size = (sum(ratios), max(tall, 3.4))
        axes = plt.subplots(1, 3, figsize=size, width_ratios=ratios, layout="constrained")[1]
    left, middle, right = axes
    draw_counts(left, checked.blocks, checked.interval)
    _draw_scores(middle, checked)
    draw_pit(right, checked.pit)
    for ax in (left, right):
        hide_spines(ax, "right", "top")
    return axes


def draw_counts(ax: Any, blocks: pd.DataFrame, interval: float) -> None:
    """Draw observed against expected numbers with their predictive intervals; those outside are red."""
    ends = interval_in(blocks, "predicted")
    assert ends is not None
    # A single interval may reach far beyond all others: it is cut off.
    top = max(float(blocks["observed"].max()), float(np.quantile(blocks[ends.high], 0.8)), 1.0)
    expected = np.minimum(blocks["expected"], 1.04 * top)
    # Square roots, in which Poisson noise is equally wide everywhere.
    ax.set_xscale("function", functions=(_root, np.square))
    ax.set_yscale("function", functions=(_root, np.square))
    ax.plot([0, 1.05 * top], [0, 1.05 * top], color=QUIET, linewidth=1, linestyle=":")
    ax.vlines(expected, blocks[ends.low], blocks[ends.high], color=SHORE, linewidth=1, alpha=0.3)
    colours = np.where(~within(blocks["pit"], interval), "#d1495b", SHORE).tolist()
    ax.scatter(expected, blocks["observed"], s=13, color=colours, zorder=3)
    ticks = _ticks(top)
    for axis, name in ((ax.xaxis, "expected events"), (ax.yaxis, "observed events")):
        axis.set_ticks(ticks)
        axis.set_label_text(name)
    ax.set_xlim(0, 1.05 * top)
    ax.set_ylim(0, 1.05 * top)
    ax.minorticks_off()
    ax.set_title("Blocks left out", fontsize=12, loc="left")


def _draw_scores(ax: Any, checked: CrossValidation) -> None:
    b = checked.blocks
    held = checked.block_of >= 0
    values = np.full(len(held), np.nan)
    values[held] = b["score"].to_numpy()[checked.block_of[held]]
    limit = max(1.0, float(np.nanquantile(np.abs(values), 0.9)))
    plots.show_cells(
        checked.domain,
        np.clip(values, -limit, limit),
        ax=ax,
        ramp="signed",
        limits=(-limit, limit),
        label="nats above one rate",
        scale_bar=False,
    )
    ax.set_title("Held-out score of blocks", fontsize=12, loc="left")


def draw_pit(ax: Any, pit: np.ndarray) -> None:
    """Draw the histogram of PIT values, and how far level ones stray."""
    n = len(pit)
    ax.hist(pit, bins=np.linspace(0, 1, 11), color=INK, alpha=0.75, edgecolor="white")
    spread = 2.58 * np.sqrt(0.09 * n)
    ax.axhspan(max(n / 10 - spread, 0.0), n / 10 + spread, color=QUIET, alpha=0.15, linewidth=0, zorder=0)
    ax.axhline(n / 10, color=QUIET, linewidth=1, linestyle=":")
    ax.set_title("Randomised PIT", fontsize=12, loc="left")
    ax.set_xlabel("predicted chance of fewer events")
    ax.set_ylabel("blocks")


def _root(values: Any) -> Any:
    return np.sqrt(np.maximum(values, 0.0))


def _ticks(top: float) -> list[float]:
    """Return a few round numbers, spread out evenly in square roots."""
    wanted = np.square(np.linspace(0, np.sqrt(top), 6))[1:]
    out = [0.0]
    for value in wanted:
        power = 10.0 ** np.floor(np.log10(value))
        out.append(float(min((k * power for k in (1, 2, 3, 5, 10)), key=lambda v: abs(v - value))))
    return sorted({v for v in out if v <= 1.05 * top})
