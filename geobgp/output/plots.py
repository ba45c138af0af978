"""Figures with matplotlib: axes in, axes out."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import ndtri

from geobgp.errors import DataError, option
from geobgp.inference.mixture import interval_in, probability_of, quantile_words
from geobgp.land.reproject import point_coordinates
from geobgp.output import palette
from geobgp.output.grids import hatched_land, relative_uncertainty
from geobgp.output.plot_parts import (
    INK,
    QUIET,
    SHORE,
    draw_lines,
    dress,
    grey_land,
    hatch_cells,
    hide_spines,
    land_path,
    length_text,
    map_size,
    new_axes,
    show_cells,
)
from geobgp.privacy import legend
from geobgp.style import Style
from geobgp.text import count, number
from geobgp.validate import as_floats

if TYPE_CHECKING:
    import matplotlib.axes

    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior
    from geobgp.prior.harmonic import HarmonicBasis

__all__ = [
    "plot_basis",
    "plot_domain",
    "plot_exceedance",
    "plot_fit",
    "plot_hyperparameters",
    "plot_intensity",
    "plot_posterior",
    "plot_uncertainty",
    "plot_values",
    "show_cells",
]


def plot_intensity(
    posterior: Posterior,
    ax: matplotlib.axes.Axes | None = None,
    *,
    variable: str | None = None,
    points: Any = None,
    title: str | None = None,
    classes: Any = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: Any = None,
    **kwargs: Any,
) -> matplotlib.axes.Axes:
    """Draw a statistic of the intensity as a map, in the same classes and colours as the rasters.

    Parameters
    ----------
    posterior : Posterior
    ax : Axes, optional
        By default a new figure's.
    variable : str, optional
        A variable of `Posterior.intensity`: "mean", "sd", "q50" ("median"), or an end of its interval; by default
        `Posterior.drawn`.
    points : GeoDataFrame, GeoSeries or (n, 2) array, optional
        Drawn on top; an array holds eastings and northings in the domain's CRS.
    title : str, optional
        By default what is shown.
    classes, vmin, vmax, cmap
        Other classes and colours, as for `Posterior.styled`; `classes` may be those of `palette` too.
    **kwargs
        Passed to `show_cells`.
    """
    data = posterior.intensity()
    variable = palette.chosen_variable(data, variable)
    if not isinstance(classes, palette.Classes):
        usual, ramp = palette.classes_in(data, variable), "uncertainty" if variable == "sd" else ""
        asked = _asked(classes, vmin, vmax, cmap, data[variable].values, usual, ramp)
        classes = usual if asked is None else asked
    known = {"mean": "mean", "q50": "median", "sd": "standard deviation"}
    name = known[variable] if variable in known else quantile_words(variable)
    if title is None:
        what = posterior.quantity
        heading = f"{name.capitalize()} of the {what}" if variable == "sd" else f"{what.capitalize()}, {name}"
        title = str(data.attrs["title"]) if variable == palette.drawn_variable(data) else heading
    label = f"{name}, {posterior.units}"
    options: dict[str, Any] = {"classes": classes, "label": label, "title": title} | kwargs
    ax = show_cells(posterior.domain, data[variable].values, ax, **options)
    hatch_unseen(ax, posterior)
    if points is not None:
        draw_points(ax, points, posterior.domain)
    return ax


def plot_uncertainty(
    posterior: Posterior,
    ax: matplotlib.axes.Axes | None = None,
    *,
    kind: Literal["relative", "sd"] = "relative",
    title: str | None = None,
    classes: Any = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: Any = None,
    **kwargs: Any,
) -> matplotlib.axes.Axes:
    """Draw how uncertain the intensity is: sd / mean in per cent, or the sd itself."""
    if kind == "sd":
        look: dict[str, Any] = {"classes": classes, "vmin": vmin, "vmax": vmax, "cmap": cmap}
        return plot_intensity(posterior, ax, variable="sd", title=title, **look, **kwargs)
    if kind != "relative":
        raise DataError(f'{option("kind")} is "relative" or "sd"; found {kind!r}.', option="kind", found=kind)
    share = relative_uncertainty(posterior.intensity())
    usual = palette.classes_for("cv", share.astype(np.float32))
    asked = _asked(classes, vmin, vmax, cmap, share, usual, "uncertainty")
    classes = usual if asked is None else asked
    heading = "Relative uncertainty" if title is None else title
    options: dict[str, Any] = {"classes": classes, "label": "sd / mean, %", "title": heading} | kwargs
    return hatch_unseen(show_cells(posterior.domain, share, ax, **options), posterior)


def plot_exceedance(
    posterior: Posterior,
    threshold: float,
    ax: matplotlib.axes.Axes | None = None,
    *,
    title: str | None = None,
    classes: Any = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: Any = None,
    **kwargs: Any,
) -> matplotlib.axes.Axes:
    """Draw the probability that the intensity exceeds a threshold."""
    chance = posterior.exceedance(threshold).values
    usual = palette.classes_for("exceedance", chance)
    asked = _asked(classes, vmin, vmax, cmap, chance, usual, "probability")
    classes = usual if asked is None else asked
    if title is None:
        title = f"Probability of more than {number(threshold, 3)} {posterior.units}"
    options: dict[str, Any] = {"classes": classes, "label": "probability", "title": title} | kwargs
    return hatch_unseen(show_cells(posterior.domain, chance, ax, **options), posterior)


def plot_posterior(
    posterior: Posterior,
    ax: matplotlib.axes.Axes | None = None,
    *,
    variable: str | None = None,
    threshold: float | None = None,
    points: Any = None,
    **kwargs: Any,
) -> matplotlib.axes.Axes:
    """Draw a statistic of the intensity, its relative uncertainty, or the probability that it exceeds a threshold."""
    if threshold is not None and variable not in (None, posterior.drawn):
        raise DataError(
            f"{option('threshold')} asks for a probability, {option('variable')} for {variable!r}.",
            option="variable",
            found=variable,
            remedy="Draw one map of each.",
        )
    if threshold is not None:
        ax = plot_exceedance(posterior, threshold, ax, **kwargs)
    elif variable == "uncertainty":
        ax = plot_uncertainty(posterior, ax, **kwargs)
    else:
        return plot_intensity(posterior, ax, variable=variable, points=points, **kwargs)
    if points is not None:
        draw_points(ax, points, posterior.domain)
    return ax


def _asked(
    classes: Any,
    vmin: float | None,
    vmax: float | None,
    cmap: Any,
    values: np.ndarray,
    usual: palette.Classes,
    ramp: str,
) -> palette.Classes | None:
    """Return the classes that were asked for, with the usual breaks where only colours were; None if nothing was."""
    if isinstance(classes, palette.Classes):
        return classes
    if all(v is None for v in (classes, vmin, vmax, cmap)):
        return None
    style = Style.of(classes, vmin, vmax, cmap)
    return palette.styled_classes(style, values, usual.units, usual=usual, ramp=ramp)


def plot_values(
    domain: Domain,
    values: Any,
    ax: matplotlib.axes.Axes | None = None,
    *,
    classes: Any = None,
    cmap: Any = None,
    vmin: float | None = None,
    vmax: float | None = None,
    **kwargs: Any,
) -> matplotlib.axes.Axes:
    """Draw one value for every node; see `Domain.plot`. What else is given goes to `show_cells`."""
    numbers = as_floats("values", values)
    known = numbers[np.isfinite(numbers)]
    if not known.size:
        raise DataError(
            f"{option('values')} hold no finite number to be drawn.", option="values", found=numbers.size
        )
    style = Style.of(classes, vmin, vmax, cmap)
    ramp = style.cmap or "intensity"
    if style.classes is not None:
        made = palette.styled_classes(style, numbers)
        return show_cells(domain, numbers, ax, classes=made, **kwargs)
    low = float(known.min()) if style.vmin is None else style.vmin
    high = float(known.max()) if style.vmax is None else style.vmax
    about_zero = ramp == "signed" and style.vmin is None and style.vmax is None
    return show_cells(domain, numbers, ax, ramp=ramp, limits=(low, high), symmetric=about_zero, **kwargs)


def hatch_unseen(ax: matplotlib.axes.Axes, posterior: Posterior) -> matplotlib.axes.Axes:
    """Hatch the land where nobody is exposed or hardly any event gets reported, and say so; returns the axes."""
    nodes, words = hatched_land(posterior)
    hatch_cells(ax, posterior.domain, nodes, f"hatched: {words}")
    if posterior.protection:
        grey_land(ax, posterior.domain)
        told = "\n".join(filter(None, (ax.get_xlabel(), textwrap.fill(legend(posterior, "Grey"), 60))))
        ax.set_xlabel(told, fontsize=10, loc="left", color=QUIET)
    return ax


def draw_points(ax: matplotlib.axes.Axes, points: Any, domain: Domain) -> None:
    """Draw points on a map of a domain."""
    coords = point_coordinates(points, domain.crs)[0]
    size = float(np.clip(4000 / max(len(coords), 1), 1.5, 18))
    ax.scatter(
        coords[:, 0],
        coords[:, 1],
        s=size,
        c="#0e2a36",
        linewidths=0.3,
        edgecolors="white",
        alpha=0.75,
        zorder=4,
    )


def plot_hyperparameters(posterior: Posterior, axes: Any = None) -> Any:
    """Draw what the fit learned about lengthscale and standard deviation, with their intervals.

    Parameters
    ----------
    posterior : Posterior
    axes : two Axes, optional
        By default those of a new figure.

    Returns
    -------
    array of two Axes
    """
    if axes is None:
        import matplotlib.pyplot as plt

        axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")[1]
    facts = posterior.summary()
    named = (("lengthscale", "Lengthscale"), ("sd", "Standard deviation of the log-intensity"))
    for ax, (key, name) in zip(np.ravel(axes), named, strict=True):
        _density(ax, facts[key], name)
    return axes


def _density(ax: matplotlib.axes.Axes, fact: Any, name: str) -> None:
    """Draw a log-normal density through a value and its interval; on a log axis it is one per unit of the log."""
    ends = interval_in(fact)
    assert ends is not None
    value, low, high, unit = (fact[key] for key in ("value", ends.low, ends.high, "unit"))
    width = float(ndtri(probability_of(ends.high)) - ndtri(probability_of(ends.low)))
    spread = math.log(high / low) / width if fact["learned"] else 0.0
    shown = f"{number(value, 3)} {unit}".strip()
    ax.set_xlabel(f"{name} ({unit})" if unit else name, fontsize=11)
    ax.set_yticks([])
    hide_spines(ax, "left", "right", "top")
    ax.axvline(value, color=INK, linewidth=1.6)
    if not (math.isfinite(spread) and spread > 0):
        ax.set_title(f"{shown} (given)", fontsize=11, loc="left", color=SHORE)
        return
    x = value * np.exp(np.linspace(-3.5, 3.5, 400) * spread)
    logarithmic = high / low > 8
    y = np.exp(-0.5 * (np.log(x / value) / spread) ** 2) * (1.0 if logarithmic else value / x)
    ax.plot(x, y, color=SHORE, linewidth=1.4)
    ax.fill_between(x, y, where=(x >= low) & (x <= high), color=INK, alpha=0.18, linewidth=0)
    ax.set_ylim(0, None)
    text = f"{shown} ({ends.words} interval {number(low, 3)} – {number(high, 3)})"
    ax.set_title(text, fontsize=11, loc="left", color=SHORE)
    if logarithmic:
        ax.set_xscale("log")


def plot_fit(posterior: Posterior, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
    """Draw how far the objective was from its final value, round by round, on a logarithmic scale.

    The objective is the ELBO plus the log-prior of the hyperparameters; a straight line down is steady
    convergence.
    """
    trace = np.asarray(posterior.fit.elbo_trace, float)
    if trace.size == 0:
        raise DataError("The fit has no record of its rounds, so there is nothing to draw.")
    from matplotlib.ticker import MaxNLocator

    ax = new_axes(ax, (6.5, 3.8))
    rounds = np.arange(1, len(trace) + 1)
    gap = np.abs(trace[-1] - trace)
    # What is left at the end is rounding.
    floor = 1e-9 * max(abs(float(trace[-1])), 1.0)
    shown = gap > floor
    ax.plot(rounds[shown], gap[shown], color=INK, linewidth=1.6, marker="o", markersize=4)
    if shown.any():
        ax.set_yscale("log")
    ax.set_xlim(0.5, len(trace) + 0.5)
    ax.set_xlabel("round", fontsize=11)
    ax.set_ylabel("below the final value (nats)", fontsize=11)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(axis="y", color="#dde3e6", linewidth=0.6)
    hide_spines(ax, "right", "top")
    state = "" if posterior.converged else ", not converged"
    final = f"{posterior.elbo:,.1f}".replace("-", "−")
    ax.set_title(
        f"ELBO {final} after {count(len(trace), 'round')}{state}", fontsize=11, loc="left", color=SHORE
    )
    return ax


def plot_domain(
    domain: Domain,
    ax: matplotlib.axes.Axes | None = None,
    *,
    title: str | None = None,
    cells: bool | None = None,
    scale_bar: bool = True,
) -> matplotlib.axes.Axes:
    """Draw a domain: land, shoreline, barriers, and the cells where they are large enough to see.

    Land that nothing connects (islands, sides of rivers) has shades of its own.

    Parameters
    ----------
    domain : Domain
    ax : Axes, optional
        By default a new figure's.
    title : str, optional
        By default the number of cells and nodes.
    cells : bool, optional
        Draw the edges of the cells; by default when there are at most 80 along the longer side.
    scale_bar : bool
        Whether to draw it.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.colors import ListedColormap, Normalize
    from matplotlib.patches import PathPatch

    ax = new_axes(ax, map_size(domain, beside=0.3))
    west, south, east, north = domain.grid.bounds
    # Neighbouring labels get shades far apart; the largest land is the first.
    size = np.bincount(domain.components, domain.node_areas)
    rank = np.empty(len(size), np.int64)
    rank[np.argsort(-size)] = np.arange(len(size))
    shades = np.array([[0.78, 0.83, 0.71], [0.93, 0.84, 0.64], [0.72, 0.80, 0.87], [0.88, 0.74, 0.70],
                       [0.80, 0.75, 0.86], [0.90, 0.90, 0.72]])  # fmt: skip
    label = np.full(domain.grid.shape, np.nan)
    label[domain.node_rows, domain.node_cols] = rank[domain.components] % len(shades)
    shore = land_path(domain.geometry)
    image = ax.imshow(
        label, extent=(west, east, south, north), interpolation="nearest", zorder=1,
        cmap=ListedColormap(shades), norm=Normalize(-0.5, len(shades) - 0.5),
    )  # fmt: skip
    image.set_clip_path(PathPatch(shore, transform=ax.transData))
    rows, cols = domain.grid.shape
    if cells if cells is not None else max(rows, cols) <= 80:
        at_x = west + np.arange(cols + 1) * domain.cell_size
        at_y = south + np.arange(rows + 1) * domain.cell_size
        lines = [[(x, south), (x, north)] for x in at_x] + [[(west, y), (east, y)] for y in at_y]
        grid = LineCollection(lines, colors="white", linewidths=0.5, zorder=2)
        ax.add_collection(grid)
        grid.set_clip_path(PathPatch(shore, transform=ax.transData))
    ax.add_artist(PathPatch(shore, fill=False, edgecolor=SHORE, linewidth=0.8, zorder=3))
    if domain.barriers is not None:
        draw_lines(ax, domain.barriers)
    unit = "units" if domain.crs is None else "m"
    if title is None:
        parts = f" in {domain.n_components:,} separate pieces of land" if domain.n_components > 1 else ""
        title = f"{domain.n_nodes:,} nodes{parts}, cells of {domain.cell_size:g} {unit}"
    dress(ax, domain, title=title, scale_bar=scale_bar)
    return ax


def plot_basis(basis: HarmonicBasis, k: int = 15, axes: Any = None, *, constants: bool = False) -> Any:
    """Draw the first k features, each with its number and wavelength; blue is negative, red positive.

    Parameters
    ----------
    basis : HarmonicBasis
    k : int
        How many.
    axes : array of Axes, optional
        By default those of a new figure.
    constants : bool
        Draw the constant features too, of which every piece of land has one under a Neumann condition.

    Returns
    -------
    array of Axes
    """
    values = np.asarray(basis.eigenvalues, float)
    varying = np.flatnonzero(values > 1e-9 * values[-1])
    shown = np.arange(len(values)) if constants or not len(varying) else varying
    shown = shown[: max(int(k), 0)]
    if not len(shown):
        raise DataError(f"At least one feature is drawn; {k} were asked for.", option="k", found=k)
    domain = basis.domain
    if axes is None:
        import matplotlib.pyplot as plt

        across = min(len(shown), 5)
        down = math.ceil(len(shown) / across)
        width, height = map_size(domain, 2.3, 0.1)
        axes = plt.subplots(
            down, across, figsize=(width * across, height * down), layout="constrained", squeeze=False
        )[1]
    for ax in np.ravel(axes)[len(shown) :]:
        ax.set_axis_off()
    for j, ax in zip(shown, np.ravel(axes), strict=False):
        show_cells(
            domain, basis.features[:, j], ax, ramp="signed", symmetric=True, colour_bar=False, scale_bar=False
        )
        flat = values[j] <= 1e-9 * values[-1]
        wave = "constant" if flat else length_text(2 * math.pi / math.sqrt(values[j]), domain)
        ax.set_title(f"{j + 1}: {wave}", fontsize=10, loc="left")
    return axes
