"""Parts of figures: cells cut at the shoreline, colour bars with units, scale bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely

from geobgp.errors import DataError
from geobgp.output import palette
from geobgp.output.contours import cell_patches
from geobgp.output.grids import hatched_cells
from geobgp.output.palette import Classes
from geobgp.text import number

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.path

    from geobgp.land.domain import Domain

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
