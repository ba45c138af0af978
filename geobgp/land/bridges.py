"""Bridges: lines that join what water or barriers part, and the nodes that they join."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely

from geobgp.errors import DomainError, GeometryError, option
from geobgp.files import read_vector
from geobgp.land.pieces import PRECISION
from geobgp.text import count

if TYPE_CHECKING:
    from geobgp.land.domain import Domain

#: Columns that may hold a bridge's width.
_WIDTHS = ("width", "width_m")
#: A stretch that ends this close to land, in cells, ends on land.
_REACH = 0.1
#: How far beside a barrier, in cells, the two sides of a crossing are looked up.
_BESIDE = 1e-3


@dataclass(frozen=True, eq=False)
class BridgeLines:
    """Bridges as they were given.

    Attributes
    ----------
    lines : (k,) object array
        LineStrings and MultiLineStrings in the domain's CRS.
    width : (k,) array
        Width of each in units of the CRS; NaN stands for one cell.
    row : (k,) int array
        The row of the source that each came from.
    """

    lines: np.ndarray
    width: np.ndarray
    row: np.ndarray

    def to_wkb(self) -> bytes:
        """Return lines, widths and rows as bytes."""
        head = np.column_stack([self.width, self.row.astype(float)]).tobytes()
        return len(self.row).to_bytes(8, "little") + head + shapely.to_wkb(shapely.geometrycollections(self.lines))

    @classmethod
    def from_wkb(cls, data: bytes) -> BridgeLines:
        """Rebuild what `to_wkb` wrote."""
        n = int.from_bytes(data[:8], "little")
        head = np.frombuffer(data[8 : 8 + 16 * n]).reshape(n, 2)
        lines = shapely.get_parts(shapely.from_wkb(data[8 + 16 * n :]))
        return cls(lines, head[:, 0].copy(), head[:, 1].astype(np.int64))


@dataclass(frozen=True, eq=False)
class Bridges:
    """Pairs of nodes that bridges join.

    Attributes
    ----------
    given : BridgeLines
    first, second : (b,) int array
        The nodes at the two ends of each stretch over water.
    length : (b,) array
        Length of each stretch in units of the CRS.
    conductance : (b,) array
        Width / length, the length at least that of a cell: what the land's own nodes have between them.
    """

    given: BridgeLines
    first: np.ndarray = field(repr=False)
    second: np.ndarray = field(repr=False)
    length: np.ndarray = field(repr=False)
    conductance: np.ndarray = field(repr=False)


def bridge_table(source: Any) -> tuple[Any, np.ndarray | None]:
    """Return a source of bridges with its rows numbered from 0, and their widths if it has any.

    Parameters
    ----------
    source : GeoDataFrame, GeoSeries, shapely geometry, list of geometries, or path
        Widths are in a numeric column ``width`` or ``width_m``, in metres (in the coordinates' own unit for a
        local domain); a row without one is one cell wide.
    """
    if isinstance(source, (str, Path)):
        source = read_vector(source, "bridges")
    if not hasattr(source, "reset_index"):
        return source, None
    source = source.reset_index(drop=True)
    names = [name for name in _WIDTHS if name in getattr(source, "columns", ())]
    if not names:
        return source, None
    values = source[names[0]]
    try:
        width = values.to_numpy(float, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise GeometryError(
            f"bridges: the column {names[0]} must hold numbers; found {values.dtype}.", option="bridges"
        ) from error
    wrong = np.flatnonzero(~(np.isnan(width) | ((width > 0) & np.isfinite(width))))
    if len(wrong):
        raise GeometryError(
            f"bridges: widths must be positive; found {width[wrong[0]]:g} in row {wrong[0]}.",
            option="bridges",
            found=float(width[wrong[0]]),
            remedy="Leave a width that is not known empty: it is then one cell.",
        )
    return source, width


def join_nodes(domain: Domain, given: BridgeLines) -> tuple[Bridges, tuple[str, ...]]:
    """Return the nodes that bridges join, and notes on lines that join none.

    Each stretch over water whose two ends are on land joins the nodes at its ends; a crossing of a barrier on
    land joins the nodes on its two sides.

    Raises
    ------
    DomainError
        If no line joins two pieces of land.
    """
    h = domain.cell_size
    parts, line = shapely.get_parts(given.lines, return_index=True)
    parts = domain.grid.shapes_to_cells(parts)
    tables = [_over_water(domain, parts), _over_barriers(domain, parts)]
    part, first, second, length = (np.concatenate(x) for x in zip(*tables, strict=True))
    joins = (first >= 0) & (second >= 0) & (first != second)
    owner, first, second, length = line[part[joins]], first[joins], second[joins], h * length[joins]
    idle = np.setdiff1d(given.row, given.row[owner])
    rows = ", ".join(map(str, idle[:10])) + (f" and {len(idle) - 10} more" if len(idle) > 10 else "")
    which = f"({'row' if len(idle) == 1 else 'rows'} {rows})"
    if len(owner) == 0:
        raise DomainError(
            f"bridges: {count(len(idle), 'line')}, but none joins two pieces of land {which}.",
            option="bridges",
            remedy=f"Each must lead over water with both ends on land; else leave {option('bridges')} out.",
        )
    notes = (f"bridges: {count(len(idle), 'line joins', 'lines join')} no two pieces of land {which}",)
    width = np.where(np.isnan(given.width), h, given.width)[owner]
    bridges = Bridges(given, first, second, length, width / np.maximum(length, h))
    return bridges, notes if len(idle) else ()


def _over_water(domain: Domain, parts: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return (part, node, node, length) of stretches over water; -1 for an end that is off land."""
    tree, _ = domain._shore_tree
    part, piece = tree.query(parts, predicate="intersects")
    stretches: list[np.ndarray] = []
    for k, each in enumerate(parts):
        land = shapely.union_all(tree.geometries[piece[part == k]], grid_size=PRECISION)
        stretches.append(shapely.get_parts(shapely.line_merge(shapely.difference(each, land))))
    owner = np.repeat(np.arange(len(parts)), [len(s) for s in stretches])
    stretch = np.concatenate([*stretches, np.empty(0, object)])
    middle = _coordinates(domain, shapely.line_interpolate_point(stretch, 0.5, normalized=True))
    # What is left over inner land, far from all water, is no water.
    wet = np.flatnonzero((shapely.length(stretch) > PRECISION) & (domain.node_at(middle) < 0))
    owner, stretch = owner[wet], stretch[wet]
    ends = [
        domain.nearest(_coordinates(domain, shapely.get_point(stretch, k)), _REACH * domain.cell_size)[0]
        for k in (0, -1)
    ]
    return owner, ends[0], ends[1], shapely.length(stretch)


def _over_barriers(domain: Domain, parts: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return (part, node, node, length) of crossings of barriers."""
    if domain.barriers is None:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    crossing = shapely.intersection(parts, domain.grid.shapes_to_cells(domain.barriers))
    places, part = shapely.get_coordinates(crossing, return_index=True)
    along = shapely.line_locate_point(parts[part], shapely.points(places))
    sides = [
        domain.node_at(_coordinates(domain, shapely.line_interpolate_point(parts[part], along + step)))
        for step in (-_BESIDE, _BESIDE)
    ]
    return part, sides[0], sides[1], np.zeros(len(part))


def _coordinates(domain: Domain, points: np.ndarray) -> np.ndarray:
    u, v = shapely.get_coordinates(points).T
    return np.column_stack(domain.grid.from_cells(u, v))
