"""Figures: maps, small maps of periods, checks and comparisons, drawn with matplotlib."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import shapely
from scipy.special import ndtri

from geobgp.errors import DataError, option
from geobgp.inference.mixture import interval_in, probability_of, quantile_words, within
from geobgp.land.crs import point_coordinates
from geobgp.output import palette
from geobgp.output.grids import hatched_cells, hatched_land, relative_uncertainty
from geobgp.output.palette import Classes
from geobgp.output.polygons import cell_patches
from geobgp.privacy import legend
from geobgp.style import Style
from geobgp.text import count, number, percent
from geobgp.validation import as_floats

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.path
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure

    from geobgp.checks.compare import Versus
    from geobgp.checks.crossval import CrossValidation
    from geobgp.checks.excursions import Excursion
    from geobgp.checks.residuals import Curve, Residuals
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior
    from geobgp.prior.harmonic import HarmonicBasis


# -- Parts of figures: cells cut at the shoreline, colour bars with units, scale bars ------------------------


#: Colours of the furniture: shore, water, quiet text, and what stands out.
SHORE, WATER, QUIET, INK = "#33434b", "#e6edf0", "#53646c", "#8a1f4b"


def new_axes(
    ax: matplotlib.axes.Axes | None, figsize: tuple[float, float] = (7.0, 6.0)
) -> matplotlib.axes.Axes:
    """Return the axes given, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=figsize, layout="constrained")[1]


def hide_spines(ax: matplotlib.axes.Axes, *sides: str) -> None:
    """Leave out sides of the frame around axes."""
    for side in sides:
        ax.spines[side].set_visible(False)


def map_size(domain: Domain, height: float = 6.0, beside: float = 1.6) -> tuple[float, float]:
    """Return a figure size that suits the shape of a domain with a colour bar beside it."""
    west, south, east, north = shapely.bounds(domain.geometry)
    ratio = min(max((east - west) / (north - south), 0.5), 2.2)
    return (min(height * ratio, 11.0) + beside, min(height, 11.0 / ratio) + 0.5)


def show_cells(
    domain: Domain,
    node_values: np.ndarray,
    ax: matplotlib.axes.Axes | None = None,
    *,
    classes: Classes | Sequence[float] | None = None,
    ramp: str = "intensity",
    symmetric: bool = False,
    limits: tuple[float, float] | None = None,
    label: str = "",
    title: str = "",
    colour_bar: bool = True,
    scale_bar: bool = True,
    outline: bool = True,
) -> matplotlib.axes.Axes:
    """Draw values on the domain: the primitive behind every map here.

    Parameters
    ----------
    domain : Domain
    node_values : (n_nodes,) array, or (rows, cols) on the grid
        NaN is left blank.
    ax : Axes, optional
        By default a new figure's.
    classes : Classes or sequence of float, optional
        Draw in classes (see `palette.round_classes`), or in those between these numbers; without them
        colours run evenly from the smallest to the largest value.
    ramp : str
        One of `geobgp.output.palette.RAMPS`, where `classes` do not have colours of their own.
    symmetric : bool
        Let zero be the middle of the ramp (use ``ramp="signed"``).
    limits : (float, float), optional
        Values at the ends of the ramp.
    label : str
        Beside the colour bar: what is shown, with its unit.
    title : str
    colour_bar, scale_bar, outline : bool
        Whether to draw them.

    Returns
    -------
    Axes
    """
    from matplotlib.colors import ListedColormap, Normalize
    from matplotlib.patches import PathPatch

    values = np.asarray(node_values, float)
    if values.shape == (domain.n_nodes,):
        values = domain.to_grid(values)
    if values.shape != domain.grid.shape:
        raise DataError(
            f"Values of the shape {values.shape} do not fit the domain: ({domain.n_nodes},) for the nodes or "
            f"{domain.grid.shape} for the grid was expected.",
            found=values.shape,
        )
    if classes is not None and not isinstance(classes, Classes):
        classes = palette.fixed_classes(tuple(classes), ramp=ramp)
    ax = new_axes(ax, map_size(domain))
    west, south, east, north = domain.grid.bounds
    common: dict[str, Any] = {"extent": (west, east, south, north), "interpolation": "nearest", "zorder": 1}
    if classes is not None:
        index = np.where(np.isnan(values), np.nan, classes.index(values))
        shades = ListedColormap(classes.colours / 255)
        image = ax.imshow(index, cmap=shades, norm=Normalize(-0.5, classes.n - 0.5), **common)
        source = class_mappable(classes)
    else:
        shades = ListedColormap(palette.colours(256, ramp) / 255)
        low, high = limits if limits is not None else (np.nanmin(values), np.nanmax(values))
        if symmetric:
            high = max(abs(low), abs(high))
            low = -high
        image = ax.imshow(values, cmap=shades, norm=Normalize(low, high), **common)
        source = image
    shore = land_path(domain.geometry)
    image.set_clip_path(PathPatch(shore, transform=ax.transData))
    if outline:
        ax.add_artist(PathPatch(shore, fill=False, edgecolor=SHORE, linewidth=0.7, zorder=2))
        if domain.barriers is not None:
            draw_lines(ax, domain.barriers)
    if colour_bar and source is not None:
        draw_bar(ax.figure, ax, source, label, classes)
    elif colour_bar and classes is not None:
        draw_swatches(ax, classes, label)
    dress(ax, domain, title=title, scale_bar=scale_bar)
    return ax


def class_mappable(classes: Classes) -> Any:
    """Return what a colour bar of classes is made of; None for one or two classes and for those with names."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap

    if classes.n <= 2 or classes.names:
        return None
    norm = BoundaryNorm(classes.breaks, classes.n, extend="both")
    return ScalarMappable(norm, ListedColormap(classes.colours / 255))


def draw_bar(figure: Any, axes: Any, source: Any, label: str, classes: Classes | None = None) -> None:
    """Draw a colour bar beside axes, or beside several of them together."""
    bar = figure.colorbar(source, ax=axes, shrink=0.75, aspect=22, pad=0.02, spacing="uniform")
    bar.set_label(label, fontsize=11)
    bar.outline.set_linewidth(0.5)
    if classes is not None:
        bar.set_ticks(classes.breaks.tolist(), labels=classes.break_labels())
    bar.ax.tick_params(labelsize=10, length=2)


def hatch_cells(ax: matplotlib.axes.Axes, domain: Domain, which: np.ndarray, label: str = "") -> None:
    """Hatch the land of some nodes, and say below the map what that means, if a label is given.

    Parameters
    ----------
    ax : Axes
    domain : Domain
    which : (n_nodes,) bool array
    label : str
    """
    from matplotlib.patches import PathPatch

    patches = cell_patches(hatched_cells(domain, which), domain.grid.affine) if which.any() else []
    if not patches:
        return
    hatched = PathPatch(
        land_path(shapely.multipolygons(patches)),
        facecolor="none",
        edgecolor=SHORE,
        hatch="////",
        linewidth=0.0,
        zorder=1.5,
    )
    ax.add_artist(hatched)
    hatched.set_clip_path(PathPatch(land_path(domain.geometry), transform=ax.transData))
    if label:
        ax.set_xlabel(label, fontsize=10, loc="left", color=QUIET)


def grey_land(ax: matplotlib.axes.Axes, domain: Domain) -> None:
    """Draw all land grey, under its numbers: it is seen where they are hidden."""
    from matplotlib.patches import PathPatch

    ax.add_artist(PathPatch(land_path(domain.geometry), facecolor="#bdbdbd", linewidth=0.0, zorder=0.5))


def draw_swatches(ax: matplotlib.axes.Axes, classes: Classes, label: str) -> None:
    """Draw a legend instead of a colour bar, for one or two classes and for those with names."""
    from matplotlib.patches import Patch

    patches = [Patch(facecolor=c, label=text) for c, text in zip(classes.hex, classes.labels(), strict=True)]
    ax.legend(handles=patches[::-1], title=label, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def dress(ax: matplotlib.axes.Axes, domain: Domain, *, title: str = "", scale_bar: bool = True) -> None:
    """Give axes the look of a map: no ticks, equal scale, room around the land, a scale bar."""
    west, south, east, north = shapely.bounds(domain.geometry)
    margin = 0.03 * max(east - west, north - south)
    ax.set_xlim(west - margin, east + margin)
    ax.set_ylim(south - margin, north + margin)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_facecolor(WATER)
    hide_spines(ax, *ax.spines)
    if title:
        ax.set_title(title, fontsize=13, loc="left")
    if scale_bar:
        draw_scale_bar(ax, domain)


def draw_scale_bar(ax: matplotlib.axes.Axes, domain: Domain) -> None:
    """Draw a bar of a round length in the corner with the most water."""
    from matplotlib.patheffects import withStroke

    west, east = ax.get_xlim()
    south, north = ax.get_ylim()
    unit = domain.length_unit[0]
    length = _round_length(0.25 * (east - west) / unit) * unit
    pad = 0.03 * max(east - west, north - south)
    height = 3 * pad
    # Each corner's share of land under the bar.
    corners = [(x, y) for y in (south + pad, north - pad - height) for x in (west + pad, east - pad - length)]
    boxes = [shapely.box(x, y, x + length, y + height) for x, y in corners]
    covered = shapely.area(shapely.intersection(domain.geometry, boxes))
    x, y = corners[int(np.argmin(np.round(covered / covered.max(), 3) if covered.max() > 0 else covered))]
    halo = [withStroke(linewidth=3, foreground="white")]
    ax.plot([x, x + length], [y + 0.3 * pad] * 2, color=SHORE, linewidth=2.2, solid_capstyle="butt", zorder=5,
            path_effects=halo)  # fmt: skip
    text = length_text(length, domain)
    ax.text(x + length / 2, y + 0.6 * pad, text, ha="center", va="bottom", fontsize=10, color=SHORE, zorder=5,
            path_effects=halo)  # fmt: skip


def length_text(length: float, domain: Domain) -> str:
    """Return a length in the domain's unit, with its name."""
    unit, name = domain.length_unit
    shown = number(length / unit, 3)
    return f"{shown} {name if name != 'unit' or shown == '1' else 'units'}"


def _round_length(length: float) -> float:
    """Return the largest of 1, 2, 5 times a power of ten that is at most `length`."""
    power = 10.0 ** math.floor(math.log10(length))
    return max(k * power for k in (1, 2, 5) if k * power <= length * (1 + 1e-9))


def draw_lines(ax: matplotlib.axes.Axes, lines: shapely.Geometry, **style: Any) -> None:
    """Draw lines such as barriers."""
    from matplotlib.collections import LineCollection

    parts = [shapely.get_coordinates(p) for p in shapely.get_parts(shapely.get_parts(lines))]
    look: dict[str, Any] = {"colors": "#b3261e", "linewidths": 1.0, "zorder": 3} | style
    ax.add_collection(LineCollection(parts, **look))


def land_path(geometry: shapely.Geometry) -> matplotlib.path.Path:
    """Return polygons as one path, holes running the other way round."""
    from matplotlib.path import Path

    polygons = shapely.get_parts(geometry)
    rings, owner = shapely.get_rings(polygons, return_index=True)
    xy, ring = shapely.get_coordinates(rings, return_index=True)
    first = np.r_[True, ring[1:] != ring[:-1]]
    last = np.r_[ring[1:] != ring[:-1], True]
    # Twice the signed area of each ring; the first ring of a polygon is its outside.
    step = xy[:-1, 0] * xy[1:, 1] - xy[1:, 0] * xy[:-1, 1]
    signed = np.bincount(ring[:-1][~last[:-1]], step[~last[:-1]], len(rings))
    outside = np.r_[True, owner[1:] != owner[:-1]]
    turn = (signed > 0) != outside
    ends = np.flatnonzero(last)
    starts = np.flatnonzero(first)
    at = np.arange(len(xy))
    flip = turn[ring]
    at = np.where(flip, starts[ring] + ends[ring] - at, at)
    codes = np.where(first, Path.MOVETO, np.where(last, Path.CLOSEPOLY, Path.LINETO)).astype(np.uint8)
    return Path(xy[at], codes)


# -- Figures with matplotlib: axes in, axes out --------------------------------------------------------------


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


# -- Figures of checks: what was observed in blocks that were left out, against what was predicted -----------


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
    show_cells(
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


# -- Figures of what is compared: a map with a threshold, a map with another map -----------------------------


def plot_excursion(
    found: Excursion, ax: matplotlib.axes.Axes | None = None, *, title: str | None = None, **kwargs: Any
) -> matplotlib.axes.Axes:
    """Draw the regions that surely lie above and below a threshold, and what is between.

    Parameters
    ----------
    found : Excursion
    ax : Axes, optional
        By default a new figure's.
    title : str, optional
        By default what is shown.
    **kwargs
        Passed to `show_cells`.
    """
    data = found.to_dataset()
    options: dict[str, Any] = {
        "classes": palette.excursion_classes(),
        "label": f"all of it at once, {percent(found.probability)}",
        "title": data.attrs["title"] if title is None else title,
    }
    return show_cells(found.domain, data["excursion"].values, ax, **options | kwargs)


def plot_versus(
    compared: Versus,
    ax: matplotlib.axes.Axes | None = None,
    *,
    variable: str = "ratio",
    title: str | None = None,
    **kwargs: Any,
) -> matplotlib.axes.Axes:
    """Draw one map against another, in the same classes and colours as the rasters.

    Parameters
    ----------
    compared : Versus
    ax : Axes, optional
        By default a new figure's.
    variable : {"ratio", "difference", "increase"}
        The median of the ratio, the mean of the difference (of rates and relative risks its median), or the probability
        of an increase.
    title : str, optional
        By default what is compared.
    **kwargs
        Passed to `show_cells`.
    """
    if variable == "increase":
        values, label = compared.increase(), "probability of an increase"
        classes = palette.classes_for("probability", values.values)
    elif variable == "difference":
        values, label = compared.drawn_difference(), f"{compared.drawn} difference, {compared.units}"
        classes = palette.signed_classes(values.values)
    elif variable == "ratio":
        values, label = compared.ratio((0.5,))["q50"], "ratio, median"
        classes = palette.ratio_classes()
    else:
        raise DataError(
            f'{option("variable")} is "ratio", "difference" or "increase"; found {variable!r}.',
            option="variable",
            found=variable,
        )
    heading = compared.title if title is None else title
    options: dict[str, Any] = {"classes": classes, "label": label, "title": heading}
    ax = show_cells(compared.domain, values.values, ax, **options | kwargs)
    nodes, words = compared.hatched
    hatch_cells(ax, compared.domain, nodes, f"hatched: {words}")
    return ax


# -- Figures of residuals: the residual map, lurking variables, and pairs of events against simulations ------


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
    values = found.at_nodes
    limit = max(3.0, float(np.abs(found.pearson).max()))
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
    parts = "areas" if found.side is None else f"squares of {number(found.side / scale, 3)} {unit}"
    left.set_title(f"Residuals in {parts}", fontsize=11, loc="left")
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


# -- Course: the maps of all periods of a fit, and of a forecast after them, as the outputs over time show them --


@dataclass(frozen=True, eq=False)
class Course:
    """Periods that were fitted, and those of a forecast after them.

    Attributes
    ----------
    fitted : Posterior
    forecast : Posterior, optional
        Of the periods that follow.
    """

    fitted: Posterior
    forecast: Posterior | None = None

    def __post_init__(self) -> None:
        if self.forecast is None:
            return
        end, start = self.fitted.time.edges[-1], self.forecast.time.edges[0]
        if start != end or self.forecast.domain is not self.fitted.domain:
            raise DataError(
                f"A forecast begins where the map ends ({end}), on the same land; found one from {start} on.",
                option="forecast",
                found=str(start),
                remedy=f"Pass {option('forecast', python='forecast=posterior.forecast(...)')}.",
            )

    @property
    def parts(self) -> list[Posterior]:
        """The fit, and the forecast where there is one."""
        return [self.fitted] if self.forecast is None else [self.fitted, self.forecast]

    @property
    def known(self) -> int:
        """How many periods were fitted."""
        return self.fitted.time.n

    @property
    def n(self) -> int:
        """How many periods there are in all."""
        return sum(part.time.n for part in self.parts)

    @cached_property
    def labels(self) -> list[str]:
        """What the periods are called."""
        return [label for part in self.parts for label in part.time.labels]

    @cached_property
    def edges(self) -> np.ndarray:
        """Where periods begin, and where the last one ends, (n + 1,)."""
        return np.concatenate([self.fitted.time.edges, *(p.time.edges[1:] for p in self.parts[1:])])

    @cached_property
    def data(self) -> xr.Dataset:
        """Mean, sd and quantiles on (time, northing, easting)."""
        import xarray as xr

        if self.forecast is None:
            return self.fitted.intensity()
        made = [part.intensity() for part in self.parts]
        joined = xr.concat(
            made, dim="time", data_vars="minimal", coords="minimal", compat="override", join="override"
        )
        return joined.assign_attrs(made[0].attrs)

    @cached_property
    def hatched(self) -> tuple[np.ndarray, str]:
        """The nodes of each period, (n, n_nodes), of which the data say nothing, and why; see `hatched_land`."""
        found = [hatched_land(part) for part in self.parts]
        shape = self.fitted.domain.n_nodes
        nodes = [
            np.broadcast_to(nodes, (part.time.n, shape))
            for part, (nodes, _) in zip(self.parts, found, strict=True)
        ]
        return np.concatenate(nodes), next((words for _, words in found if words), "")

    def exceedance(self, threshold: float) -> np.ndarray:
        """Return the probability of exceeding a threshold, (n, rows, cols)."""
        return np.concatenate([part.exceedance(threshold).values for part in self.parts])

    @cached_property
    def level(self) -> pd.DataFrame:
        """Events and level of every period with their intervals; `forecast` says which are ahead."""
        import pandas as pd

        tables = [part.level().assign(forecast=k > 0) for k, part in enumerate(self.parts)]
        out = pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
        return out.assign(period=self.labels)


# -- Figures over time: small maps of the periods under one legend, and the level from period to period ------


#: Inches of the figure of the level.
LEVEL_SIZE = (9.6, 5.2)
#: Small maps of a figure, unless periods are named.
MAX_PANELS = 24


def plot_periods(
    source: Posterior,
    figure: Figure | None = None,
    *,
    forecast: Posterior | None = None,
    variable: str | None = None,
    threshold: float | None = None,
    periods: Sequence[Any] | None = None,
    columns: int | None = None,
    title: str | None = None,
) -> Figure:
    """Draw a small map of each period, all under one legend.

    Parameters
    ----------
    source : Posterior
    figure : Figure, optional
        By default a new one.
    forecast : Posterior, optional
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
            title += f"; {len(which)} of {course.n} {source.time.noun}s"
    told: Any = source
    below = [f"hatched: {course.hatched[1]}"] if course.hatched[1] else []
    below += [legend(told, "Grey")] if getattr(source, "protection", None) else []
    if below:
        figure.supxlabel("\n".join(below), fontsize=10, x=0.01, ha="left", color=QUIET)
    if title:
        figure.suptitle(title, fontsize=13, x=0.01, ha="left")
    return figure


def panel_size(source: Posterior, n: int, columns: int | None = None) -> tuple[float, float]:
    """Return the size of a figure of n small maps."""
    wide, tall = map_size(source.domain, 2.1, 0.1)
    across = _across(source, n, columns)
    return min(across * wide + 1.2, 16.0), math.ceil(n / across) * tall * min(
        1.0, 14.8 / (across * wide)
    ) + 0.6


def _across(source: Posterior, n: int, columns: int | None) -> int:
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
    return [ahead[p] if p in ahead else course.fitted.time.find(p) for p in periods]


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
