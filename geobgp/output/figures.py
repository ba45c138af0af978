"""Figures: maps, small maps of periods, checks and comparisons, drawn with matplotlib."""

from __future__ import annotations

import math
import subprocess
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import shapely
from scipy.special import ndtri, pdtrik

from geobgp.errors import DataError, option
from geobgp.files import replacing
from geobgp.inference.mixture import interval_in, probability_of, quantile_words, within
from geobgp.land.crs import point_coordinates
from geobgp.land.regions import name_column, near_domain
from geobgp.output import palette
from geobgp.output.grids import View, hatched_cells, uncertainty
from geobgp.output.palette import Classes
from geobgp.output.polygons import cell_patches, polygonal
from geobgp.privacy import legend
from geobgp.style import Style
from geobgp.summary import latent_name
from geobgp.text import number, percent
from geobgp.units import exceeds
from geobgp.validation import as_floats

if TYPE_CHECKING:
    import geopandas as gpd
    import matplotlib.axes
    import matplotlib.path
    import pandas as pd
    from matplotlib.figure import Figure

    from geobgp.checks.compare import Versus
    from geobgp.checks.crossval import CrossValidation
    from geobgp.checks.excursions import Excursion
    from geobgp.checks.residuals import Curve, Residuals
    from geobgp.checks.variogram import Variogram
    from geobgp.data.delays import Delays
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior
    from geobgp.prior.harmonic import HarmonicBasis


# -- Parts of figures: cells cut at the shoreline, colour bars with units, scale bars ------------------------


#: Colours of the furniture: shore, water, quiet text, and what stands out.
SHORE, WATER, QUIET, INK = "#33434b", "#e6edf0", "#53646c", "#8a1f4b"
#: Behind periods that are nowcasts.
NOWCAST = "#f2e3c4"


def new_axes(ax: matplotlib.axes.Axes | None, figsize: tuple[float, float] = (7.0, 6.0)) -> matplotlib.axes.Axes:
    """Return the axes given, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=figsize, layout="constrained")[1]


def plain(text: Any) -> str:
    r"""Return a text that matplotlib writes as it is, dollar signs too, in place of setting it as mathematics.

    Examples
    --------
    >>> plain("5 $ to 10 $")
    '5 \\$ to 10 \\$'
    """
    return str(text).replace("$", r"\$")


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
    bar.set_label(plain(label), fontsize=11)
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
        ax.set_title(plain(title), fontsize=13, loc="left")
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


# -- One verb: `plot` draws whatever can be drawn ------------------------------------------------------------


def plot(shown: Any, *args: Any, **kwargs: Any) -> Any:
    """Draw a posterior (over periods a small map of each), a domain, features, a check or a comparison.

    Parameters
    ----------
    shown : Posterior, View, Domain, HarmonicBasis, CrossValidation, Residuals, Excursion, Versus or Variogram
    *args, **kwargs
        Of the function that draws it: first the axes (or the figure, where there are several), by default new ones.

    Returns
    -------
    Axes, several of them, or a Figure of several maps
    """
    for kind in type(shown).__mro__:
        if (draw := _PLOTS.get(kind.__name__)) is not None:
            return globals()[draw](shown, *args, **kwargs)
    raise DataError(f"A {type(shown).__name__} is nothing to draw.", found=type(shown).__name__)


#: What draws each class, by its name: the classes themselves lie above this module.
_PLOTS: Final = {
    "Posterior": "plot_posterior", "View": "plot_posterior", "Domain": "plot_domain", "HarmonicBasis": "plot_basis",
    "CrossValidation": "plot_cross_validation", "Residuals": "plot_residuals", "Excursion": "plot_excursion",
    "Versus": "plot_versus", "Variogram": "plot_variogram",
}  # fmt: skip


# -- A posterior: one map, or small maps of its periods under one legend -------------------------------------


#: Inches of the figure of the level.
LEVEL_SIZE = (9.6, 5.2)
#: Small maps of a figure, unless periods are named.
MAX_PANELS = 24


@dataclass(frozen=True, eq=False)
class DrawnMap:
    """What is drawn of a posterior: values on the grid (of each period), their classes and their words."""

    values: np.ndarray
    classes: Classes
    label: str
    title: str

    @classmethod
    def of(
        cls,
        view: View,
        variable: str | None = None,
        threshold: float | None = None,
        *,
        classes: Any = None,
        vmin: float | None = None,
        vmax: float | None = None,
        cmap: Any = None,
    ) -> DrawnMap:
        """Return a statistic, the uncertainty, or the probability of exceeding a threshold, in classes asked for."""
        posterior, data = view.posterior, view.data
        units, what, ramp = posterior.units, posterior.quantity, ""
        if threshold is not None and variable not in (None, posterior.drawn):
            raise DataError(
                f"{option('threshold')} asks for a probability, {option('variable')} for {variable!r}.",
                option="variable",
                found=variable,
                remedy="Draw one map of each.",
            )
        if threshold is not None:
            values, ramp = view.exceedance(threshold), "probability"
            usual = palette.classes_for("exceedance", values)
            label = "probability" if view.n == 1 else f"probability that {exceeds(what, threshold, '')}"
            title = f"Probability that {exceeds(what, threshold, units)}"
        elif variable == "uncertainty":
            values, of_mean = uncertainty(data)
            ramp, title = "uncertainty", "Relative uncertainty" if of_mean else "Standard deviation"
            usual = palette.classes_for("cv" if of_mean else "sd", values.astype(np.float32), units)
            label = "sd / mean, %" if of_mean else f"standard deviation, {units}"
        else:
            name = palette.chosen_variable(data, variable)
            values, usual = data[name].values, palette.classes_in(data, name)
            named = {"mean": "mean", "q50": "median", "sd": "standard deviation"}
            words = named[name] if name in named else quantile_words(name)
            label, title = f"{words}, {units}", f"{what.capitalize()}, {words}"
            if name == "sd":
                ramp, title = "uncertainty", f"{words.capitalize()} of the {what}"
            if name == palette.drawn_variable(data):
                title = str(data.attrs["title"])
        return cls(values, _asked(classes, vmin, vmax, cmap, values, usual, ramp), label, title)


def _asked(
    classes: Any, vmin: float | None, vmax: float | None, cmap: Any, values: np.ndarray, usual: Classes, ramp: str
) -> Classes:
    """Return the classes that were asked for, with the usual breaks where only colours were."""
    if isinstance(classes, Classes):
        return classes
    if all(v is None for v in (classes, vmin, vmax, cmap)):
        return usual
    style = Style.of(classes, vmin, vmax, cmap)
    return palette.styled_classes(style, values, usual.units, usual=usual, ramp=ramp)


def plot_posterior(
    shown: Posterior | View,
    ax: Any = None,
    *,
    variable: str | None = None,
    threshold: float | None = None,
    points: Any = None,
    title: str | None = None,
    label: str | None = None,
    classes: Any = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: Any = None,
    forecast: Posterior | None = None,
    periods: Sequence[Any] | None = None,
    columns: int | None = None,
    hotspots: gpd.GeoDataFrame | None = None,
    **kwargs: Any,
) -> Any:
    """Draw a statistic, its relative uncertainty, or the probability of exceeding a threshold, as the rasters show it.

    Parameters
    ----------
    shown : Posterior or View
    ax : Axes, or Figure where there are periods, optional
        By default a new one.
    variable : str, optional
        A variable of `Posterior.intensity`: "mean", "sd", "q50" ("median"), or an end of its interval; or
        "uncertainty" (sd / mean, %). By default `Posterior.drawn`.
    threshold : float, optional
        Draw the probability of more than this, in the map's units, instead.
    points : GeoDataFrame, GeoSeries or (n, 2) array, optional
        Drawn on top of a single map; an array holds eastings and northings in the domain's CRS.
    title, label : str, optional
        Above the map, and beside the colour bar; by default what is shown, with its unit.
    classes, vmin, vmax, cmap
        Other classes and colours, as for `Posterior.styled`; `classes` may be those of `palette` too.
    forecast : Posterior, optional
        Of the periods that follow; marked as such.
    periods : sequence, optional
        Which are drawn, by label, number or date; by default all; of many every second, third, ... so that there are
        `MAX_PANELS` at most.
    columns : int, optional
        Small maps beside each other.
    hotspots : GeoDataFrame, optional
        From `Posterior.hotspots`: outlined, each in its period.
    **kwargs
        Of a single map, passed to `show_cells`.

    Returns
    -------
    Axes, or a Figure of several periods
    """
    view = View.of(shown, forecast)
    field = DrawnMap.of(view, variable, threshold, classes=classes, vmin=vmin, vmax=vmax, cmap=cmap)
    field = field if label is None else replace(field, label=label)
    if view.periods is not None:
        return _panels(view, field, ax, title, periods, columns, hotspots)
    named: dict[str, Any] = {"label": field.label, "title": field.title if title is None else title}
    ax = show_cells(view.domain, field.values, ax, classes=field.classes, **named, **kwargs)
    nodes, words = view.hatched
    hatch_cells(ax, view.domain, nodes, f"hatched: {words}")
    if view.posterior.protection:
        grey_land(ax, view.domain)
        caption = textwrap.fill(legend(view.posterior, "Grey"), 60)
        ax.set_xlabel("\n".join(filter(None, (ax.get_xlabel(), caption))), fontsize=10, loc="left", color=QUIET)
    if points is not None:
        draw_points(ax, points, view.domain)
    if hotspots is not None:
        draw_hotspots(ax, hotspots)
    return ax


def draw_points(ax: matplotlib.axes.Axes, points: Any, domain: Domain) -> None:
    """Draw points on a map of a domain."""
    x, y = point_coordinates(points, domain.crs)[0].T
    size = float(np.clip(4000 / max(len(x), 1), 1.5, 18))
    ax.scatter(x, y, s=size, c="#0e2a36", linewidths=0.3, edgecolors="white", alpha=0.75, zorder=4)


def _panels(
    view: View,
    field: DrawnMap,
    figure: Figure | None,
    title: str | None,
    periods: Sequence[Any] | None,
    columns: int | None,
    hotspots: gpd.GeoDataFrame | None,
) -> Figure:
    """Draw a small map of each period, all under one legend."""
    which = _chosen(view, periods)
    across = _across(view.domain, len(which), columns)
    if figure is None:
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=panel_size(view.domain, len(which), columns), layout="constrained")
    grid = np.ravel(figure.subplots(math.ceil(len(which) / across), across, squeeze=False))
    for ax in grid[len(which) :]:
        ax.set_axis_off()
    # How many letters of a heading fit above a map, beside the legend.
    letters = max(int((figure.get_figwidth() - 1.2) / across * 72 / (0.62 * 10)), 4)
    for k, ax in zip(which, grid, strict=False):
        show_cells(view.domain, field.values[k], ax, classes=field.classes, colour_bar=False, scale_bar=False)
        hatch_cells(ax, view.domain, view.hatched[0][k])
        if view.posterior.protection:
            grey_land(ax, view.domain)
        if hotspots is not None:
            draw_hotspots(ax, hotspots[hotspots["period"] == view.labels[k]])
        heading = textwrap.fill(f"{view.labels[k]}{view.marks[k]}", letters, break_long_words=False)
        ax.set_title(heading, fontsize=10, loc="left", style="italic" if view.marks[k] else "normal")
    bar = class_mappable(field.classes)
    if bar is not None:
        draw_bar(figure, grid.tolist(), bar, field.label, field.classes)
    else:
        draw_swatches(grid[across - 1], field.classes, field.label)
    if title is None:
        title = str(view.data.attrs.get("title", ""))
        if periods is None and len(which) < view.n and view.fitted is not None:
            title += f"; {len(which)} of {view.n} {view.fitted.noun}s"
    below = [f"hatched: {view.hatched[1]}"] if view.hatched[1] else []
    below += [legend(view.posterior, "Grey")] if view.posterior.protection else []
    if below:
        figure.supxlabel("\n".join(below), fontsize=10, x=0.01, ha="left", color=QUIET)
    if title:
        figure.suptitle(plain(title), fontsize=13, x=0.01, ha="left")
    return figure


def panel_size(domain: Domain, n: int, columns: int | None = None) -> tuple[float, float]:
    """Return the size of a figure of n small maps."""
    wide, tall = map_size(domain, 2.1, 0.1)
    across = _across(domain, n, columns)
    height = math.ceil(n / across) * tall * min(1.0, 14.8 / (across * wide))
    return min(across * wide + 1.2, 16.0), height + 0.6


def _across(domain: Domain, n: int, columns: int | None) -> int:
    """Return how many maps stand beside each other, so that the whole is somewhat wider than tall."""
    wide, tall = map_size(domain, 2.1, 0.1)
    return columns or (n if n <= 4 else min(n, max(2, round(math.sqrt(n * 1.6 * tall / wide)))))


def panel_step(n: int) -> int:
    """Return which of n periods are drawn: every one, or every second, third, ..."""
    return math.ceil(n / MAX_PANELS)


def _chosen(view: View, periods: Sequence[Any] | None) -> list[int]:
    if periods is None:
        # Every k-th, back from the last.
        return list(range(view.n - 1, -1, -panel_step(view.n)))[::-1]
    if not len(periods):
        raise DataError("At least one period is drawn; none was named.", option="periods", found=0)
    assert view.fitted is not None
    ahead = dict(zip(view.labels[view.n_fitted :], range(view.n_fitted, view.n), strict=True))
    return [ahead[p] if p in ahead else view.fitted.find(p) for p in periods]


def plot_level(view: View, figure: Figure | None = None) -> Figure:
    """Draw the level of each period with its interval; below, the numbers of events expected, predicted and observed.

    A map of shares or values has no such numbers, and the level alone is drawn.

    Parameters
    ----------
    view : View
        Of a posterior with periods, and of a forecast after it, which is drawn broken.
    figure : Figure, optional
        By default a new one.
    """
    table = view.level
    seen = "observed" in table and bool(table["observed"].notna().any())
    level, expected, predicted = (interval_in(table, of) for of in ("level", "expected", "predicted"))
    assert level is not None
    if figure is None:
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=LEVEL_SIZE, layout="constrained")
    axes = np.ravel(figure.subplots(1 if expected is None else 2, 1, sharex=True, squeeze=False))
    at, known = np.arange(view.n), view.n_fitted
    pieces = [(slice(0, known), "-", 0.22)]
    if view.n > known:
        pieces.append((slice(max(known - 1, 0), view.n), "--", 0.11))
    marker = "o" if view.n <= 40 else None
    late = np.flatnonzero(view.posterior.nowcast)
    for piece, style, shade in pieces:
        part = table.iloc[piece]
        for ax, of, line in zip(axes, (level, expected), ("level", "expected"), strict=False):
            assert of is not None
            ax.fill_between(at[piece], part[of.low], part[of.high], color=INK, alpha=shade, linewidth=0)
            ax.plot(at[piece], part[line], style, color=INK, linewidth=1.6, marker=marker, markersize=3)
    titles = [f"The level of each period, with its {level.words} interval"]
    if expected is not None and predicted is not None:
        axes[1].vlines(at, table[predicted.low], table[predicted.high], color=SHORE, linewidth=1.0, alpha=0.6)
        bars = "observed (bars), " if seen else ""
        if seen and len(late) and "final" in table:
            bars = "so far (bars), not reported yet (dotted), "
        titles.append(
            f"Events {bars}expected (line, {expected.words} interval) and predicted (strokes, {predicted.words})"
        )
    if seen:
        axes[1].bar(at, table["observed"], width=0.8, color="#b9c6cc", label="observed", zorder=0)
        if len(late) and "final" in table:
            so_far, rest = table["observed"].iloc[late], (table["final"] - table["observed"]).iloc[late]
            axes[1].bar(late, rest, 0.8, so_far, fill=False, edgecolor=QUIET, linestyle=":", linewidth=0.8, zorder=0.5)
    for ax, title, label in zip(axes, titles, (f"level, {view.posterior.units}", "events"), strict=False):
        ax.set_title(plain(title), fontsize=11, loc="left", color=SHORE)
        ax.set_ylabel(plain(label), fontsize=9)
        if bool((table[level.low] >= 0).all()):
            ax.set_ylim(bottom=0)
        ax.grid(axis="y", color="#dde3e6", linewidth=0.6)
        ax.set_axisbelow(True)
        hide_spines(ax, "right", "top")
        if view.n > known:
            ax.axvline(known - 0.5, color=QUIET, linewidth=0.8, linestyle=":")
        if len(late):
            ax.axvspan(late[0] - 0.5, late[-1] + 0.5, color=NOWCAST, alpha=0.35, linewidth=0, zorder=-1)
    if view.n > known:
        place: Any = ("data", "axes fraction")
        axes[0].annotate("forecast", (known - 0.4, 0.97), xycoords=place, fontsize=9, color=QUIET, va="top")
    if len(late):
        axes[0].annotate(
            "nowcast", (late[0] - 0.4, 0.97), xycoords=("data", "axes fraction"), fontsize=9, color=QUIET, va="top"
        )
    ticks = np.unique(np.linspace(0, view.n - 1, min(view.n, 9)).round().astype(int))
    axes[-1].set_xticks(ticks, [view.labels[k] for k in ticks], fontsize=9)
    return figure


def plot_delays(delays: Delays, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
    """Draw delay distributions with their 90 % intervals: the share of events that is reported within so many days.

    Parameters
    ----------
    delays : Delays
    ax : Axes, optional
        By default a new figure's.
    """
    ax = new_axes(ax, (6.4, 3.6))
    longest = max(curve.quantile(0.995) for curve in delays.curves)
    n = len(delays.curves)
    shades = [INK] if n == 1 else [tuple(colour / 255) for colour in palette.colours(n + 1)[1:]]
    for curve, name, colour in zip(delays.curves, delays.groups, shades, strict=True):
        days = np.arange(min(max(longest, 7) + 1, len(curve.share)))
        low, high = (end[: len(days)] for end in curve.interval())
        ax.fill_between(days, low, high, step="post", color=colour, alpha=0.2, linewidth=0)
        ax.step(days, curve.share[: len(days)], where="post", color=colour, linewidth=1.6, label=plain(name) or None)
    ax.set_ylim(0.0, 1.02)
    ax.set_xlim(left=0)
    ax.set_xlabel("days from event to report", fontsize=9)
    ax.set_ylabel("share reported", fontsize=9)
    ax.set_title(f"Delays, as of {delays.as_of}, with 90 % intervals", fontsize=11, loc="left", color=SHORE)
    ax.grid(axis="y", color="#dde3e6", linewidth=0.6)
    ax.set_axisbelow(True)
    hide_spines(ax, "right", "top")
    if delays.by:
        ax.legend(title=plain(delays.by), frameon=False, fontsize=9)
    return ax


# -- Regions: caterpillar, funnel, a map that shows where it is unsure ----------------------------------------


#: Rows of a caterpillar that have a name of their own at most.
_MOST_NAMES = 150
#: Limits of a funnel: the probabilities that a rate which is like all others lies within.
FUNNEL = (0.95, 0.998)
_HIGHER, _LOWER, _EITHER = INK, "#2070b4", "#7b8a91"


def plot_ranks(table: pd.DataFrame, ax: matplotlib.axes.Axes | None = None, *, title: str | None = None) -> Any:
    """Draw a caterpillar: the rate of every region with its interval, from the highest down, and its rank.

    Regions whose rate is above (below) the reference with 95 % are red (blue).

    Parameters
    ----------
    table : DataFrame
        From `Posterior.ranks`.
    ax : Axes, optional
        By default a new figure's, as tall as the regions need.
    title : str, optional
    """
    main = "rate" if "rate" in table else "mean"
    ends, places = interval_in(table, main), interval_in(table, "rank")
    if ends is None or places is None:
        raise DataError(
            "A caterpillar plot shows rates or means with their ranks, and this table has none.",
            option="regions",
            found=list(map(str, table.columns)),
            remedy="Pass regions, or what posterior.ranks(regions) returns.",
        )
    shown = table[table[main].notna()].sort_values(main, kind="stable")
    hidden = len(table) - len(shown)
    if not len(shown):
        raise DataError("No region has a rate that may be shown.", option="regions", found=len(table))
    small = len(shown) > 40
    ax = new_axes(ax, (7.6, 1.4 + (0.15 if small else 0.24) * min(max(len(shown), 4), 2 * _MOST_NAMES)))
    at = np.arange(len(shown))
    chance = shown["p_above"].to_numpy(float)
    colours = np.where(chance >= 0.95, _HIGHER, np.where(chance <= 0.05, _LOWER, _EITHER))
    ax.hlines(at, shown[ends.low], shown[ends.high], color=colours, linewidth=1.6)
    ax.scatter(shown[main], at, c=colours, s=18, zorder=3)
    reference = table.attrs.get("reference")
    if reference is not None:
        ax.axvline(reference, color=SHORE, linewidth=0.9, linestyle="--", zorder=0)
    column = name_column(shown)
    names = [plain(name) for name in (shown.index if column is None else shown[column])]
    if len(shown) <= _MOST_NAMES:
        ax.set_yticks(at, names, fontsize=7 if small else 9)
        words = [
            f"{number(row['rank'], 3)} ({number(row[places.low], 3)} – {number(row[places.high], 3)})"
            for _, row in shown.iterrows()
        ]
        beside = ax.secondary_yaxis("right")
        beside.set_yticks(at, words, fontsize=6.5 if small else 8, color=QUIET)
        beside.tick_params(length=0)
        beside.spines["right"].set_visible(False)
        beside.set_ylabel(f"rank, {places.words} interval", fontsize=9, color=QUIET)
    else:
        ax.set_yticks([])
        ax.set_ylabel(f"{len(shown):,} regions", fontsize=9)
    ax.set_ylim(-0.7, len(shown) - 0.3)
    if main == "rate":
        ax.set_xlim(left=0)
    more = f"; {hidden} without a rate are left out" if hidden else ""
    ax.set_xlabel(plain(f"{table.attrs.get('units', 'rate')}, {ends.words} interval{more}"), fontsize=9)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color="#dde3e6", linewidth=0.6)
    ax.set_axisbelow(True)
    hide_spines(ax, "right", "top", "left")
    usual = f"{str(table.attrs.get('quantity', 'rate')).capitalize()} of regions"
    ax.set_title(plain(usual if title is None else title), fontsize=12, loc="left", color=SHORE)
    return ax


def plot_funnel(
    posterior: Posterior, table: pd.DataFrame, ax: matplotlib.axes.Axes | None = None, *, title: str | None = None
) -> Any:
    """Draw a funnel: the observed rate of every region against its exposure, with limits about the rate of all.

    A region whose rate is that of all lies within the limits with 95 and 99.8 %: those of Poisson counts, widened by
    the overdispersion that the model has learned. A line leads from the observed rate to the model's.

    Parameters
    ----------
    posterior : Posterior
    table : DataFrame
        From `Posterior.totals`, with ``observed``.
    ax : Axes, optional
        By default a new figure's.
    title : str, optional
    """
    exposure, observed, modelled = _funnel_points(posterior, table)
    some = np.isfinite(observed) & (exposure > 0)
    if not some.any():
        raise DataError(
            "No region has a number of observed events that may be shown.", option="regions", found=len(table)
        )
    ax = new_axes(ax, (7.6, 5.0))
    factor, overall = posterior.shown.factor, posterior.overall
    across = np.geomspace(exposure[some].min() / 1.4, exposure[some].max() * 1.4, 300)
    spread = math.sqrt(overdispersion_of(posterior))
    for chance, style in zip(FUNNEL, ("-", "--"), strict=True):
        low, high = funnel_limits(overall * across / factor, chance, spread)
        for end in (low, high):
            ax.plot(across, factor * end / across, style, color=SHORE, linewidth=1.0)
        ax.plot([], [], style, color=SHORE, linewidth=1.0, label=f"{percent(chance, 1).replace('.0', '')} limits")
    ax.axhline(overall, color=SHORE, linewidth=0.8, linestyle=":", label=f"all: {number(overall, 3)}")
    low, high = (ends[some] for ends in funnel_limits(overall * exposure / factor, FUNNEL[1], spread))
    rate = factor * observed / np.where(exposure > 0, exposure, np.nan)
    beyond = np.where(observed[some] > high, _HIGHER, np.where(observed[some] < low, _LOWER, _EITHER))
    ax.vlines(exposure[some], rate[some], modelled[some], color="#b9c6cc", linewidth=0.9, zorder=1)
    ax.scatter(exposure[some], rate[some], c=beyond, s=22, zorder=3, label="observed")
    ax.scatter(exposure[some], modelled[some], s=14, zorder=2, facecolor="white", edgecolor=QUIET, label="the model's")
    if (column := name_column(table)) is not None:
        names = np.asarray(table[column], object)
        for k in np.flatnonzero(some)[beyond != _EITHER][:12]:
            at = (exposure[k], rate[k])
            ax.annotate(plain(names[k]), at, (5, 3), textcoords="offset points", fontsize=8, color=INK)
    words = {"area": posterior.domain.area_unit[1], "population": "people", "expected": "expected cases"}
    ax.set_xscale("log")
    ax.set_xlabel(words.get(posterior.exposure_kind, "exposure") + (", those seen" if _has_effort(table) else ""))
    ax.set_ylabel(plain(posterior.units))
    top = float(np.nanmax(np.concatenate([rate[some], modelled[some]])))
    ax.set_ylim(0, 1.15 * max(top, overall))
    ax.grid(axis="y", color="#dde3e6", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.legend(frameon=False, fontsize=8)
    hide_spines(ax, "right", "top")
    ax.set_title("Observed rates and chance" if title is None else plain(title), fontsize=12, loc="left", color=SHORE)
    return ax


def _has_effort(table: pd.DataFrame) -> bool:
    return "reported" in table


def _funnel_points(posterior: Posterior, table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the exposure behind what gets reported, the events observed, and the model's rates, by region."""
    if not posterior.is_summed or posterior.exposure_kind == "risk":
        raise DataError(
            f"A funnel is of numbers of events among known exposures; this map is of a {posterior.quantity}.",
            option="regions",
            remedy="Use plot_regions or, for a comparison of regions, plot_ranks.",
        )
    if "observed" not in table:
        raise DataError(
            "A funnel is of observed numbers of events, and this table has none.",
            option="regions",
            found=list(map(str, table.columns)),
            remedy="Pass regions that cut none of the cells or areas that were counted, or posterior.totals(regions, "
            "points=...).",
        )
    name = next(name for name in ("exposure", "land_km2", "land_area") if name in table)
    exposure = table[name].to_numpy(float)
    expected = table["expected"].to_numpy(float)
    modelled = posterior.shown.factor * expected / np.where(exposure > 0, exposure, np.nan)
    if _has_effort(table):
        with np.errstate(divide="ignore", invalid="ignore"):
            exposure = np.nan_to_num(exposure * table["reported"].to_numpy(float) / expected)
    return exposure, table["observed"].to_numpy(float), modelled


def overdispersion_of(posterior: Posterior) -> float:
    """Return variance / mean of the counts that were fitted, at one rate everywhere; 1 of Poisson counts."""
    rate = math.log(posterior.overall / posterior.shown.factor)
    exposure = np.asarray(posterior.seen_exposure, float).ravel()
    if posterior.areas is not None:
        exposure = np.asarray(posterior.areas.shares @ np.atleast_2d(posterior.seen_exposure).T).ravel()
    exposure = exposure[exposure > 0]
    mean, variance = posterior.likelihood.moments(np.full(len(exposure), rate), exposure)
    return float(np.sum(variance) / np.sum(mean))


def funnel_limits(mean: np.ndarray, chance: float, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return limits that Poisson counts of these means lie within, smooth between whole numbers.

    `spread` widens them about the mean, but not below zero.

    Examples
    --------
    >>> low, high = funnel_limits(np.array([4.0, 400.0]), 0.95)
    >>> low.round(1).tolist(), high.round(1).tolist()
    ([0.2, 360.8], [7.8, 439.2])
    """
    low, high = (np.nan_to_num(pdtrik(p, mean)) for p in (0.5 - chance / 2, 0.5 + chance / 2))
    return np.maximum(mean + spread * (low - mean), 0.0), np.maximum(mean + spread * (high - mean), 0.0)


def plot_regions(
    posterior: Posterior,
    table: gpd.GeoDataFrame,
    ax: matplotlib.axes.Axes | None = None,
    *,
    variable: str | None = None,
    unsure: str = "hatch",
    title: str | None = None,
    scale_bar: bool = True,
    **look: Any,
) -> Any:
    """Draw regions in classes, and show in the picture where their class is not sure.

    Parameters
    ----------
    posterior : Posterior
    table : GeoDataFrame
        From `Posterior.totals` or `Posterior.ranks`.
    ax : Axes, optional
        By default a new figure's.
    variable : str, optional
        A column with an interval: by default the relative risk, the rate, or the mean.
    unsure : {"hatch", "fade", "ignore"}
        What happens to regions whose interval reaches into another class.
    title : str, optional
    scale_bar : bool
    **look
        Classes and colours, as of `plot_posterior`.
    """
    from matplotlib.collections import PathCollection
    from matplotlib.patches import PathPatch

    shown = next((n for n in ("relative_risk", "rate", "mean") if n in table), "") if variable is None else variable
    ends = interval_in(table, "" if shown in ("expected", "mean") else shown)
    if shown not in table or ends is None:
        raise DataError(
            f"{option('variable')} is a column of numbers with an interval; found {variable!r}.",
            option="variable",
            found=variable,
            remedy="Use one of relative_risk, rate, mean and expected that the table has.",
        )
    values, low, high = (table[name].to_numpy(float) for name in (shown, ends.low, ends.high))
    if not np.isfinite(values).any():
        raise DataError(
            "No region has a number that may be shown: none of them holds land of the map, or all are hidden.",
            option="regions",
            found=len(table),
            remedy="Check the regions' CRS and place, and the rule on small numbers.",
        )
    units = "" if shown == "relative_risk" else "events" if shown == "expected" else posterior.units
    usual = _few_classes(values, low, high, ratio=shown == "relative_risk", units=units)
    asked: list[Any] = [look.get(name) for name in ("classes", "vmin", "vmax", "cmap")]
    classes = _asked(asked[0], asked[1], asked[2], asked[3], values, usual, "")
    index = classes.index(values)
    known = index >= 0
    sure = ~known | _within_class(classes, low, high)
    domain = posterior.domain
    ax = new_axes(ax, map_size(domain, beside=2.2))
    colours = np.full((len(table), 3), 189.0)
    colours[known] = classes.colours[index[known]]
    if unsure == "fade":
        colours[~sure] += 0.65 * (255.0 - colours[~sure])
    paths = [land_path(polygonal(shape)) if not shape.is_empty else None for shape in near_domain(table, domain)]
    shore = PathPatch(land_path(domain.geometry), transform=ax.transData)
    for chosen, hatch in ((sure | (unsure != "hatch"), None), (~sure & (unsure == "hatch"), "////")):
        some = [k for k in np.flatnonzero(chosen) if paths[k] is not None]
        drawn = PathCollection(
            [paths[k] for k in some], facecolors=colours[some] / 255, edgecolors=SHORE, linewidths=0.5, hatch=hatch,
            zorder=1,
        )  # fmt: skip
        ax.add_collection(drawn)
        drawn.set_clip_path(shore)
    ax.add_artist(PathPatch(land_path(domain.geometry), fill=False, edgecolor=SHORE, linewidth=0.7, zorder=2))
    label = f"{shown.replace('_', ' ')}{f', {units}' if units else ''}"
    bar = class_mappable(classes)
    if bar is not None:
        draw_bar(ax.figure, ax, bar, label, classes)
    else:
        draw_swatches(ax, classes, label)
    dress(ax, domain, title=f"Regions: {label}" if title is None else title, scale_bar=scale_bar)
    words = {"hatch": "hatched", "fade": "pale"}.get(unsure)
    below = [f"{words}: the {ends.words} interval reaches into another class"] if words and not sure.all() else []
    below += ["grey: hidden, or nobody is exposed"] if not known.all() else []
    ax.set_xlabel("\n".join(below), fontsize=10, loc="left", color=QUIET)
    return ax


def _within_class(classes: Classes, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return whether each interval lies within one class."""
    return np.asarray(classes.index(low) == classes.index(high))


def _few_classes(values: np.ndarray, low: np.ndarray, high: np.ndarray, *, ratio: bool, units: str) -> Classes:
    """Return classes as fine as at least half of the intervals lie within one; two, where none are."""
    if ratio:
        tried = [palette.ratio_classes()]
        breaks = [np.array(some) for some in ((0.5, 0.8, 1.25, 2.0), (0.67, 1.0, 1.5), (0.8, 1.25), (1.0,))]
    else:
        tried = [palette.round_classes(values, units=units)]
        shares = [tuple(np.arange(1, n) / n) for n in (5, 4, 3, 2)]
        breaks = [palette.quantile_classes(values, probabilities=some).breaks for some in shares]
    # Without the darkest colours, on which no hatching is seen, and the lightest, which look pale.
    ramp = "signed" if ratio else "intensity"
    tried += [Classes(some, palette.colours(len(some) + 3, ramp)[1:-1], units) for some in breaks]
    known = np.isfinite(values)
    return next((one for one in tried if _within_class(one, low[known], high[known]).mean() >= 0.5), tried[-1])


def draw_hotspots(ax: matplotlib.axes.Axes, hotspots: gpd.GeoDataFrame) -> None:
    """Outline hot spots on a map, on a light rim, in the colours of their classes, with their numbers."""
    from matplotlib.patches import PathPatch
    from matplotlib.patheffects import withStroke

    kinds = hotspots["class"] if "class" in hotspots else [""] * len(hotspots)
    for shape, kind, name in zip(hotspots.geometry, kinds, hotspots["hotspot"], strict=True):
        path, colour = land_path(polygonal(shape)), palette.HOTSPOT_COLOURS[kind]
        dashes = (0, (3, 2)) if kind == "former" else "-"
        ax.add_artist(PathPatch(path, fill=False, edgecolor="white", linewidth=3.0, zorder=3.1))
        ax.add_artist(PathPatch(path, fill=False, edgecolor=colour, linewidth=1.5, linestyle=dashes, zorder=3.2))
        ax.annotate(
            plain(name), shapely.get_coordinates(shapely.point_on_surface(shape))[0], fontsize=9, color=colour,
            ha="center", va="center", zorder=5, path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )  # fmt: skip


# -- Periods as a film ---------------------------------------------------------------------------------------


#: Size of the title above each picture of a film, in points.
_FILM_TITLE = 11


def animation(
    view: View,
    path: str | Path,
    *,
    seconds: float = 0.8,
    width: int = 800,
    hotspots: gpd.GeoDataFrame | None = None,
    **how: Any,
) -> Path:
    """Write a film of the periods, a picture for each under one legend: a GIF, or an MP4 where ffmpeg is there.

    Parameters
    ----------
    view : View
    path : path
        Ends in ``.gif`` or ``.mp4``.
    seconds : float
        For each period.
    width : int
        Of the pictures, in pixels.
    hotspots : GeoDataFrame, optional
        Outlined, each in its period.
    **how
        ``variable``, ``threshold``, ``classes``, ... as of `plot_posterior`.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".gif", ".mp4"):
        raise DataError(f"A film is written as .gif or .mp4; found {path.name!r}.", option="path", found=path)
    if kind == ".mp4" and which("ffmpeg") is None:
        raise DataError(
            "MP4 needs the program ffmpeg, which is not there.",
            option="path",
            found=path,
            remedy="Install ffmpeg, or write a .gif.",
        )
    title = how.pop("title", None)
    field = DrawnMap.of(view, **how)
    size = map_size(view.domain)
    dpi = 2 * round(width / size[0] / 2)
    above = plain(field.title if title is None else title)
    frames = []
    for k in range(len(view.labels)):
        canvas: Any = _film_picture(view, field, k, above, (size, dpi), hotspots).canvas
        canvas.draw()
        frames.append(np.asarray(canvas.buffer_rgba())[:, :, :3].copy())
    with replacing(path, parents=True) as temporary:
        (_write_gif if kind == ".gif" else _write_mp4)(temporary, frames, seconds)
    return path


def _film_picture(
    view: View, field: DrawnMap, k: int, title: str, size: tuple[tuple[float, float], int], hotspots: Any
) -> Figure:
    """Return the picture of a period, below the title of all of them and its own name."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure, name = Figure(figsize=size[0], dpi=size[1], layout="constrained"), view.labels[k]
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    show_cells(view.domain, field.values[k], ax, classes=field.classes, label=field.label)
    hatch_cells(ax, view.domain, view.hatched[0][k], f"hatched: {view.hatched[1]}")
    if view.posterior.protection:
        grey_land(ax, view.domain)
    if hotspots is not None:
        draw_hotspots(ax, hotspots[hotspots["period"] == name])
    words = textwrap.fill(title, round(size[0][0] * 72 / (0.58 * _FILM_TITLE)))
    figure.suptitle(words, fontsize=_FILM_TITLE, x=0.02, ha="left", color=QUIET)
    ax.set_title(plain(f"{name}{view.marks[k]}"), fontsize=14, loc="left", fontweight="bold")
    return figure


def _write_gif(path: Path, frames: list[np.ndarray], seconds: float) -> None:
    """Write pictures as a GIF that begins again, all in one set of colours so that none flickers."""
    from PIL import Image

    stacked = np.concatenate([frame[::2, ::2] for frame in frames])
    common = Image.fromarray(stacked).quantize(256, dither=Image.Dither.NONE)
    pictures = [Image.fromarray(frame).quantize(palette=common, dither=Image.Dither.NONE) for frame in frames]
    pictures[0].save(
        path, format="GIF", save_all=True, append_images=pictures[1:], duration=round(1000 * seconds), loop=0
    )


def _write_mp4(path: Path, frames: list[np.ndarray], seconds: float) -> None:
    """Write pictures as an MP4 that every player shows, through ffmpeg."""
    rows, cols = (2 * (n // 2) for n in frames[0].shape[:2])
    command = [
        "ffmpeg", "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{cols}x{rows}",
        "-r", f"{1 / seconds:g}", "-i", "-", "-r", "25", "-pix_fmt", "yuv420p", "-f", "mp4", str(path),
    ]  # fmt: skip
    raw = b"".join(np.ascontiguousarray(frame[:rows, :cols]).tobytes() for frame in frames)
    done = subprocess.run(command, input=raw, capture_output=True, check=False)
    if done.returncode:
        raise DataError(
            f"ffmpeg has failed: {done.stderr.decode(errors='replace').strip()[-300:]}",
            option="path",
            remedy="Write a .gif instead.",
        )


# -- Domains, values of nodes, hyperparameters, features -----------------------------------------------------


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
        raise DataError(f"{option('values')} hold no finite number to be drawn.", option="values", found=numbers.size)
    style = Style.of(classes, vmin, vmax, cmap)
    ramp = style.cmap or "intensity"
    if style.classes is not None:
        classes_of = palette.styled_classes(style, numbers)
        return show_cells(domain, numbers, ax, classes=classes_of, **kwargs)
    low = float(known.min()) if style.vmin is None else style.vmin
    high = float(known.max()) if style.vmax is None else style.vmax
    about_zero = ramp == "signed" and style.vmin is None and style.vmax is None
    return show_cells(domain, numbers, ax, ramp=ramp, limits=(low, high), symmetric=about_zero, **kwargs)


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
    named = (("lengthscale", "Lengthscale"), ("sd", f"Standard deviation of the {latent_name(posterior)}"))
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
    shown = plain(f"{number(value, 3)} {unit}".strip())
    ax.set_xlabel(plain(f"{name} ({unit})" if unit else name), fontsize=11)
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
        axes = plt.subplots(down, across, figsize=(width * across, height * down), layout="constrained", squeeze=False)[
            1
        ]
    for ax in np.ravel(axes)[len(shown) :]:
        ax.set_axis_off()
    for j, ax in zip(shown, np.ravel(axes), strict=False):
        show_cells(domain, basis.features[:, j], ax, ramp="signed", symmetric=True, colour_bar=False, scale_bar=False)
        flat = values[j] <= 1e-9 * values[-1]
        wave = "constant" if flat else length_text(2 * math.pi / math.sqrt(values[j]), domain)
        ax.set_title(f"{j + 1}: {wave}", fontsize=10, loc="left")
    return axes


# -- Figures of checks: what was observed in blocks that were left out, against what was predicted -----------


def plot_variogram(variogram: Variogram, ax: Any = None) -> Any:
    """Draw semivariances by distance, larger where there are more pairs, and the model's with nugget, sill, range."""
    if ax is None:
        ax = new_axes(None, (5.6, 3.8))
    table, fitted = variogram.table, variogram.spatial
    far = 1.05 * max(float(table["distance"].max()), min(fitted.range, 2.0 * float(table["distance"].max())))
    away = np.linspace(0.0, far, 200)
    ax.plot(away, variogram.model(away), color=INK, linewidth=1.5, label="model, on open land", zorder=2)
    sizes = 12.0 + 90.0 * np.sqrt(table["pairs"] / table["pairs"].max())
    ax.scatter(table["distance"], table["semivariance"], s=sizes, color="#d1495b", alpha=0.85, linewidth=0,
        label="pairs of measurements", zorder=3)  # fmt: skip
    for level, words in ((fitted.nugget, "nugget"), (fitted.sill, "sill")):
        ax.axhline(level, color=QUIET, linewidth=1, linestyle=":", zorder=1)
        ax.annotate(f"{words} {number(level)}", (1.0, level), xycoords=("axes fraction", "data"), ha="right",
            xytext=(0, 3), textcoords="offset points", fontsize=9, color=QUIET)  # fmt: skip
    if fitted.range <= far:
        ax.axvline(fitted.range, color=QUIET, linewidth=1, linestyle=":", zorder=1)
        ax.annotate(f"range {number(fitted.range)} {fitted.length_unit}", (fitted.range, 0.0), ha="right", rotation=90,
            xytext=(-3, 4), textcoords="offset points", va="bottom", fontsize=9, color=QUIET)  # fmt: skip
    ax.set(xlim=(-0.01 * far, far), xlabel=f"distance over the plane, {fitted.length_unit}",
        ylabel="semivariance" + ("" if fitted.scale == "value" else f" of the {fitted.scale}"),
        ylim=(0.0, 1.1 * max(fitted.sill, float(table["semivariance"].max()))))  # fmt: skip
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    hide_spines(ax, "right", "top")
    return ax


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
    noun = "" if checked.events == "sites" else checked.events
    draw_counts(left, checked.blocks, checked.interval, noun)
    _draw_scores(middle, checked)
    draw_pit(right, checked.pit, f"fewer {noun}" if noun else "less")
    left.set_title(f"Held-out {checked.what}", fontsize=12, loc="left")
    middle.set_title(f"Held-out score of {checked.what}", fontsize=12, loc="left")
    right.set_ylabel(checked.what)
    for ax in (left, right):
        hide_spines(ax, "right", "top")
    return axes


def draw_counts(ax: Any, blocks: pd.DataFrame, interval: float, noun: str) -> None:
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
    for axis, name in ((ax.xaxis, f"expected {noun}"), (ax.yaxis, f"observed {noun}")):
        axis.set_ticks(ticks)
        axis.set_label_text(name.strip())
    ax.set_xlim(0, 1.05 * top)
    ax.set_ylim(0, 1.05 * top)
    ax.minorticks_off()


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
        label="nats above one level",
        scale_bar=False,
    )


def draw_pit(ax: Any, pit: np.ndarray, lower: str) -> None:
    """Draw the histogram of PIT values, and how far level ones stray."""
    n = len(pit)
    ax.hist(pit, bins=np.linspace(0, 1, 11), color=INK, alpha=0.75, edgecolor="white")
    spread = 2.58 * np.sqrt(0.09 * n)
    ax.axhspan(max(n / 10 - spread, 0.0), n / 10 + spread, color=QUIET, alpha=0.15, linewidth=0, zorder=0)
    ax.axhline(n / 10, color=QUIET, linewidth=1, linestyle=":")
    ax.set_title("Randomised PIT", fontsize=12, loc="left")
    ax.set_xlabel(f"predicted chance of {lower}")


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


#: Ratio of the highest to the lowest ratio of an effect from which on its axis shows powers of ten.
_WIDE = 30.0


def plot_effect(
    curve: pd.DataFrame, values: np.ndarray, name: str, ratio: str | None, ax: matplotlib.axes.Axes | None = None
) -> matplotlib.axes.Axes:
    """Draw the effect of a covariate along its values: median, interval, and a rug of the values on the land.

    Parameters
    ----------
    curve : DataFrame
        With ``value`` and three quantiles, the median in the middle.
    values : array
        What the rug is of.
    name : str
        Of the covariate.
    ratio : str, optional
        What the effect is called where it multiplies.
    """
    ax = new_axes(ax, (6.0, 4.0))
    low, middle, high = (curve[column] for column in curve.columns[1:])
    ax.fill_between(curve["value"], low, high, color=SHORE, alpha=0.2, lw=0)
    ax.plot(curve["value"], middle, color=SHORE)
    ax.axhline(1.0 if ratio else 0.0, color=SHORE, lw=0.6, ls=":")
    foot = np.zeros(len(values))
    ax.plot(values, foot, "|", color=SHORE, ms=6, transform=ax.get_xaxis_transform(), clip_on=False)
    if ratio:
        ax.set_yscale("log")
        _mark_ratios(ax.yaxis, float(np.min(low)), float(np.max(high)))
    ax.set_xlabel(plain(name))
    ax.set_ylabel(f"{ratio or 'difference'} against the average of the land")
    hide_spines(ax, "top", "right")
    return ax


def plot_levels(
    table: pd.DataFrame, name: str, ratio: str | None, ax: matplotlib.axes.Axes | None = None
) -> matplotlib.axes.Axes:
    """Draw the effects of levels or groups below each other, each with its interval; the lowest is at the bottom.

    Parameters
    ----------
    table : DataFrame
        From `effect_levels`: ``level`` and three quantiles; a reference has no interval.
    name : str
        Of the covariate.
    ratio : str, optional
        What the effect is called where it multiplies.
    """
    ax = new_axes(ax, (6.0, 1.4 + 0.22 * min(max(len(table), 4), _MOST_NAMES)))
    at = np.arange(len(table))
    low, middle, high = (table[column] for column in table.columns[1:])
    ax.hlines(at, low, high, color=SHORE, alpha=0.4, linewidth=2.5)
    ax.plot(middle, at, "o", color=SHORE, ms=4)
    ax.axvline(1.0 if ratio else 0.0, color=SHORE, lw=0.6, ls=":")
    if ratio:
        ax.set_xscale("log")
        _mark_ratios(ax.xaxis, float(np.nanmin(low)), float(np.nanmax(high)))
    room = float(ax.get_window_extent().height / ax.figure.dpi)  # inches
    if len(table) <= max(room / 0.13, 1):
        ax.set_yticks(at, [plain(level) for level in table["level"]], fontsize=min(9, 60 * room / max(len(table), 1)))
        ax.set_ylabel(plain(name))
    else:
        ax.set_yticks([])
        ax.set_ylabel(plain(f"{name}, {len(table):,} groups"))
    ax.set_ylim(-0.7, len(table) - 0.3)
    ax.set_xlabel(plain(f"{ratio or 'difference'} against {table.attrs['against']}"))
    ax.tick_params(axis="y", length=0)
    hide_spines(ax, "top", "right")
    return ax


def _mark_ratios(axis: Any, low: float, high: float) -> None:
    """Mark an axis of ratios, which is logarithmic, with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axis.set_major_locator(LogLocator(numticks=7) if high > _WIDE * low else MaxNLocator(6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value, 3)))  # two digits would move 1.05 to 1.1
    axis.set_minor_locator(NullLocator())


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
    variable: str | None = None,
    title: str | None = None,
    **kwargs: Any,
) -> matplotlib.axes.Axes:
    """Draw one map against another, in the same classes and colours as the rasters.

    Parameters
    ----------
    compared : Versus
    ax : Axes, optional
        By default a new figure's.
    variable : {"ratio", "difference", "increase"}, optional
        The median of the ratio, the mean of the difference (of rates and relative risks its median), or the probability
        of an increase. By default the ratio, or the difference of values that can be below zero.
    title : str, optional
        By default what is compared.
    **kwargs
        Passed to `show_cells`.
    """
    variable = compared.main if variable is None else variable
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
        found.domain, values, left, ramp="signed", limits=(-limit, limit), label="Pearson residual", scale_bar=False
    )
    scale, unit = found.domain.length_unit
    parts = "areas" if found.side is None else f"squares of {number(found.side / scale, 3)} {unit}"
    left.set_title(f"Residuals in {parts}", fontsize=11, loc="left")
    axes = [figure.add_subplot(grid[k // 2, 1 + k % 2]) for k in range(1 + len(shown_variables(found)))]
    what, even = ("mean product of residuals", 0.0) if found.events == "sites" else ("pairs / expected", 1.0)
    _draw(axes[0], found.pairs, scale, f"distance ({unit})", what, f"Pairs of {found.events}")
    axes[0].axhline(even, color=QUIET, linewidth=1, linestyle=":")
    for ax, name in zip(axes[1:], shown_variables(found), strict=True):
        place = name in ("easting", "northing")
        words = f"{name} ({unit})" if place else name
        _draw(ax, found.lurking[name], scale if place else 1.0, words, "observed − expected", f"Along {name}")
        ax.axhline(0.0, color=QUIET, linewidth=1, linestyle=":")
    return [left, *axes]


def _draw(ax: Any, curve: Curve, scale: float, along: str, what: str, title: str) -> None:
    ax.fill_between(curve.at / scale, curve.low, curve.high, color=SHORE, alpha=0.2, linewidth=0)
    ax.plot(curve.at / scale, curve.observed, color=INK, linewidth=1.5)
    ax.set_xlabel(plain(along))
    ax.set_ylabel(what)
    ax.set_title(plain(title), fontsize=11, loc="left")
    ax.ticklabel_format(axis="x", useOffset=False, style="plain")
    hide_spines(ax, "right", "top")
