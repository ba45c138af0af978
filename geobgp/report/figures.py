"""The pictures of report.html, as data URLs; drawn without a window and without pyplot."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.output import plots
from geobgp.output.plot_parts import INK, QUIET, SHORE, hide_spines, map_size
from geobgp.web.embed import data_url

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from geobgp.checks.residuals import Checks
    from geobgp.posterior import Posterior
    from geobgp.summary import Rung

_DPI = 130


def _new(size: tuple[float, float]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _done(figure: Figure) -> str:
    out = io.BytesIO()
    # savefig would draw everything twice.
    figure.canvas.print_png(out, metadata={"Software": None})  # type: ignore[attr-defined]
    return data_url(out.getvalue(), "image/png")


def _map(posterior: Posterior, draw: Any) -> str:
    figure = _new(map_size(posterior.domain))
    draw(figure.subplots())
    return _done(figure)


def intensity(posterior: Posterior) -> str:
    """Return the map of the mean."""
    return _map(posterior, lambda ax: plots.plot_intensity(posterior, ax=ax, title="Mean intensity"))


def uncertainty(posterior: Posterior) -> str:
    """Return the map of the relative uncertainty."""
    return _map(posterior, lambda ax: plots.plot_uncertainty(posterior, ax=ax))


def exceedance(posterior: Posterior, threshold: float) -> str:
    """Return the map of the probability of exceeding a threshold."""
    return _map(posterior, lambda ax: plots.plot_exceedance(posterior, threshold, ax=ax))


def hyperparameters(posterior: Posterior) -> str:
    """Return the densities of lengthscale and standard deviation."""
    figure = _new((9.6, 2.7))
    plots.plot_hyperparameters(posterior, axes=figure.subplots(1, 2))
    return _done(figure)


def ladder(tried: Sequence[Rung]) -> str:
    """Return the gain of the fits that were compared, by number of nodes, a line for each prior and shore."""
    figure = _new((5.4, 3.0))
    ax = figure.subplots()
    kinds = list(dict.fromkeys((r.prior, r.water) for r in tried))
    for k, kind in enumerate(kinds):
        mine = sorted((r.nodes, r.gain) for r in tried if (r.prior, r.water) == kind)
        ax.plot(
            *zip(*mine, strict=True),
            marker="o",
            markersize=4,
            linewidth=1.2,
            label=", ".join(kind),
            color=f"C{k}",
        )
    kept = [(r.nodes, r.gain) for r in tried if r.kept]
    if kept:
        ax.plot(
            *zip(*kept, strict=True), marker="o", markersize=10, color=INK, fillstyle="none", linestyle="none"
        )
    ax.set_xscale("log")
    nodes = sorted({r.nodes for r in tried})
    ax.set_xticks(nodes, [f"{n:,}" for n in nodes])
    ax.minorticks_off()
    ax.set_xlabel("nodes")
    ax.set_ylabel("gain in nats")
    ax.legend(frameon=False, fontsize=8)
    hide_spines(ax, "right", "top")
    return _done(figure)


def blocks(posterior: Posterior, checks: Checks) -> str:
    """Return observed against expected, the residuals on the map, and the PIT values."""
    wide, tall = map_size(posterior.domain, height=3.6, beside=1.0)
    figure = _new((3.6 + wide + 2.9, max(tall, 3.4)))
    left, middle, right = figure.subplots(1, 3, width_ratios=[3.6, wide, 2.9])
    _scatter(left, checks)
    residual = checks.blocks["residual"].to_numpy()[checks.block_of]
    limit = max(3.0, float(np.abs(residual).max()))
    plots.show_cells(
        posterior.domain,
        residual,
        ax=middle,
        ramp="signed",
        limits=(-limit, limit),
        label="Pearson residual",
        scale_bar=False,
    )
    middle.set_title("Residuals", fontsize=12, loc="left")
    right.hist(checks.blocks["pit"], bins=np.linspace(0, 1, 11), color=INK, alpha=0.75, edgecolor="white")
    right.axhline(len(checks.blocks) / 10, color=QUIET, linewidth=1, linestyle=":")
    right.set_title("Randomised PIT", fontsize=12, loc="left")
    right.set_xlabel("probability of fewer events")
    right.set_ylabel("blocks")
    for ax in (left, right):
        hide_spines(ax, "right", "top")
    return _done(figure)


def _scatter(ax: Any, checks: Checks) -> None:
    b = checks.blocks
    top = max(float(b["observed"].max()), float(b["q95"].max()), 1.0)
    # Square roots, in which Poisson noise is equally wide everywhere.
    ax.set_xscale("function", functions=(_root, np.square))
    ax.set_yscale("function", functions=(_root, np.square))
    ax.plot([0, 1.05 * top], [0, 1.05 * top], color=QUIET, linewidth=1, linestyle=":")
    ax.vlines(b["expected"], b["q05"], b["q95"], color=SHORE, linewidth=1, alpha=0.3)
    outside = (b["pit"] < 0.05) | (b["pit"] > 0.95)
    ax.scatter(
        b["expected"], b["observed"], s=13, color=np.where(outside, "#d1495b", SHORE).tolist(), zorder=3
    )
    ax.set_xlim(0, 1.05 * top)
    ax.set_ylim(0, 1.05 * top)
    ticks = _ticks(top)
    ax.set_xticks(ticks)
    ax.set_yticks(ticks)
    ax.minorticks_off()
    ax.set_xlabel("expected events")
    ax.set_ylabel("observed events")
    ax.set_title("Blocks", fontsize=12, loc="left")


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
