"""The pictures of report.html, as data URLs; drawn without a window and without pyplot."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from geobgp.output import figures as plots
from geobgp.output.figures import INK, hide_spines, map_size
from geobgp.web.page import data_url

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from geobgp.checks.crossval import CrossValidation
    from geobgp.checks.residuals import Residuals
    from geobgp.output.grids import View
    from geobgp.posterior import Posterior
    from geobgp.summary import FitRecord

_DPI = 130


def new_figure(size: tuple[float, float]) -> Figure:
    """Return a figure without a window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def done(figure: Figure) -> str:
    """Return a figure as a data URL."""
    out = io.BytesIO()
    # savefig would draw everything twice.
    figure.canvas.print_png(out, metadata={"Software": None})  # type: ignore[attr-defined]
    return data_url(out.getvalue(), "image/png")


def drawn(view: View, **how: Any) -> str:
    """Return a map of a posterior, or small maps of its periods; `how` is of `geobgp.output.figures.plot`."""
    if view.periods is None:
        figure = new_figure(map_size(view.domain))
        plots.plot(view, figure.subplots(), **how)
        return done(figure)
    n = math.ceil(view.n / plots.panel_step(view.n))
    return done(plots.plot(view, new_figure(plots.panel_size(view.domain, n)), **how | {"title": ""}))


def level(view: View) -> str:
    """Return the level of each period, and the events in it."""
    return done(plots.plot_level(view, new_figure(plots.LEVEL_SIZE)))


def delays(posterior: Posterior) -> str:
    """Return how long events take to be reported."""
    figure = new_figure((6.4, 3.2))
    plots.plot_delays(posterior.delays, figure.subplots())  # type: ignore[arg-type]
    return done(figure)


def hyperparameters(posterior: Posterior) -> str:
    """Return the densities of lengthscale and standard deviation."""
    figure = new_figure((9.6, 2.7))
    plots.plot_hyperparameters(posterior, axes=figure.subplots(1, 2))
    return done(figure)


def ladder(tried: Sequence[FitRecord]) -> str:
    """Return the gain of the fits that were compared, by number of nodes, a line for each prior and shore."""
    figure = new_figure((5.4, 3.0))
    ax = figure.subplots()
    kinds = list(dict.fromkeys((r.prior, r.water) for r in tried))
    for k, kind in enumerate(kinds):
        mine = sorted((r.nodes, r.gain) for r in tried if (r.prior, r.water) == kind)
        ax.plot(*zip(*mine, strict=True), marker="o", markersize=4, linewidth=1.2, label=", ".join(kind), color=f"C{k}")
    kept = [(r.nodes, r.gain) for r in tried if r.kept]
    if kept:
        ax.plot(*zip(*kept, strict=True), marker="o", markersize=10, color=INK, fillstyle="none", linestyle="none")
    ax.set_xscale("log")
    nodes = sorted({r.nodes for r in tried})
    ax.set_xticks(nodes, [f"{n:,}" for n in nodes])
    ax.minorticks_off()
    ax.set_xlabel("nodes")
    ax.set_ylabel("gain in nats")
    ax.legend(frameon=False, fontsize=8)
    hide_spines(ax, "right", "top")
    return done(figure)


def validation(checked: CrossValidation) -> str:
    """Return observed against predicted numbers of held-out blocks, their scores on the map, and the PIT values."""
    wide, tall = map_size(checked.domain, height=3.6, beside=1.0)
    ratios = [3.6, wide, 2.9]
    figure = new_figure((sum(ratios), max(tall, 3.4)))
    plots.plot(checked, figure.subplots(1, 3, width_ratios=ratios))
    return done(figure)


def residuals(found: Residuals) -> str:
    """Return the residual map, pairs of events and lurking variables."""
    figure = new_figure(plots.layout(found)[0])
    plots.plot(found, figure)
    return done(figure)
