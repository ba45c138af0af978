"""Domain: a grid, the land on it, and the nodes on which counts, features and results live."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyproj
import scipy.sparse as sp
import shapely
from scipy.sparse.csgraph import connected_components

from geobgp.errors import DataError, DomainError, option
from geobgp.land import pieces as _pieces
from geobgp.land.bridges import BridgeLines, Bridges, join_nodes
from geobgp.land.crs import as_given, ground_areas, place_coordinates
from geobgp.land.grid import Grid, pairs, round_down
from geobgp.land.pieces import Corners
from geobgp.land.polygons import Land, land_polygons
from geobgp.linalg.blas import frozen
from geobgp.text import count, number, percent
from geobgp.validation import ARRAY, AXES, FLAG, SOURCE, TEXT, a, as_floats, real, validated

if TYPE_CHECKING:
    import geopandas as gpd
    import matplotlib.axes

    from geobgp.land.water import Water

_CELL = real(above=0.0).raising(DomainError)
_SHARE = real(least=0.0, below=1.0).raising(DomainError)


@dataclass(frozen=True, eq=False, repr=False)
class Domain:
    """Land on a grid: the nodes are the connected pieces of land within cells.

    Make one with `Domain.from_polygons`. A river or barrier that crosses a cell divides it into two nodes,
    so that nothing passes between them; a cell that is land throughout is one node.

    Attributes
    ----------
    grid : Grid
        The cells, in a projected system in metres.
    geometry : shapely geometry
        Land minus water, in the grid's CRS.
    barriers : shapely geometry or None
        Lines that nothing passes, in the grid's CRS.
    min_coverage : float
        Pieces under this share of a cell join a neighbouring piece.
    coverage : (rows, cols) array
        Land fraction of each cell, exact: its sum times `cell_size`² is the planar area of `geometry`.
    cell_area : (rows, cols) array
        True ground area of each whole cell in m² (the projection's areal scale taken out).
    node_rows, node_cols : (n,) int arrays
        Each node's cell.
    node_areas : (n,) array
        True ground area of each node's land in m² (square units for a local domain).
    components : (n,) int array
        Label of the connected land (island, side of a river) that each node belongs to.
    notes : tuple of str
        What was repaired or left out on the way here.
    water_geometry : shapely geometry or None
        The water that was given, in the grid's CRS: nobody lives there.
    bridges : Bridges or None
        Nodes that bridges join; `components` are those of the land alone.
    """

    grid: Grid
    geometry: shapely.Geometry
    barriers: shapely.Geometry | None
    min_coverage: float
    coverage: np.ndarray = field(repr=False)
    cell_area: np.ndarray = field(repr=False)
    node_rows: np.ndarray = field(repr=False)
    node_cols: np.ndarray = field(repr=False)
    node_areas: np.ndarray = field(repr=False)
    components: np.ndarray = field(repr=False)
    notes: tuple[str, ...]
    pieces: _pieces.Pieces = field(repr=False)
    piece_node: np.ndarray = field(repr=False)
    main_piece: np.ndarray = field(repr=False)
    water_geometry: shapely.Geometry | None = field(default=None, repr=False)
    bridges: Bridges | None = field(default=None, repr=False)

    @classmethod
    @validated(cell_size=_CELL, min_coverage=_SHARE)
    def from_polygons(
        cls,
        land: gpd.GeoDataFrame | gpd.GeoSeries | shapely.Geometry | str | Path,
        *,
        water: gpd.GeoDataFrame | gpd.GeoSeries | shapely.Geometry | str | Path | None = None,
        barriers: gpd.GeoDataFrame | gpd.GeoSeries | shapely.Geometry | str | Path | None = None,
        bridges: gpd.GeoDataFrame | gpd.GeoSeries | shapely.Geometry | str | Path | None = None,
        cell_size: float,
        crs: Any = None,
        min_coverage: float = 0.02,
    ) -> Domain:
        """Make a domain from land, minus water, cut by barriers.

        Parameters
        ----------
        land, water : GeoDataFrame, GeoSeries, shapely geometry or path
            Polygons. Invalid ones are repaired, and `notes` says so.
        barriers : the same, of lines
            Rivers, fences or roads of no width that nothing passes.
        bridges : the same, of lines
            Bridges, tunnels or ferries: each stretch over water whose two ends are on land joins them, the
            better the wider (a column ``width`` or ``width_m`` in metres; else one cell) and shorter it is.
        cell_size : float
            Side of a cell in metres (in the coordinates' own unit for ``crs="local"``).
        crs : optional
            None keeps a metric one that the land has, or chooses a UTM zone or an equal-area projection; anything that
            pyproj takes, projected and in metres; "local" for planar coordinates with no place on Earth.
        min_coverage : float
            Pieces of land under this share of a cell join the largest piece they touch; those that touch
            none are left out and counted in `notes`.

        Examples
        --------
        >>> import shapely
        >>> square = shapely.box(0, 0, 1, 1)
        >>> river = shapely.box(-1, 0.52, 2, 0.53)
        >>> domain = Domain.from_polygons(square, water=river, cell_size=0.1, crs="local")
        >>> domain.n_nodes, domain.n_components
        (110, 2)
        """
        return cls.from_land(land_polygons(land, water, barriers, crs, bridges), cell_size, min_coverage)

    @classmethod
    @validated(land=a("Land"), cell_size=_CELL, min_coverage=_SHARE)
    def from_land(cls, land: Land, cell_size: float, min_coverage: float = 0.02) -> Domain:
        """Make a domain from land that has been read, on cells of any size."""
        bounds = shapely.bounds(land.geometry)
        extent = float(np.ptp(bounds.reshape(2, 2), axis=0).max())
        if cell_size > extent:
            raise DomainError(
                f"{option('cell_size')} is {cell_size:g} but the land is only {number(extent, 6)} across.",
                option="cell_size",
                found=cell_size,
                remedy=f"Use a smaller one, for example {round_down(extent / 100):g}.",
            )
        return cls.from_geometry(
            land.geometry,
            Grid.from_bounds(tuple(bounds), cell_size, land.crs),
            barriers=land.barriers,
            water_geometry=land.water,
            bridges=land.bridges,
            min_coverage=min_coverage,
            notes=tuple(land.notes),
        )

    @classmethod
    @validated(min_coverage=_SHARE)
    def from_geometry(
        cls,
        geometry: shapely.Geometry,
        grid: Grid,
        *,
        barriers: shapely.Geometry | None = None,
        water_geometry: shapely.Geometry | None = None,
        bridges: BridgeLines | None = None,
        min_coverage: float = 0.02,
        notes: tuple[str, ...] = (),
    ) -> Domain:
        """Make a domain from clean land in the CRS of a given grid; `from_polygons` ends here."""
        in_cells = _pieces.on_lattice(grid.shapes_to_cells(geometry))
        lines = None if barriers is None else grid.shapes_to_cells(barriers)
        pieces = _pieces.cut(in_cells, lines, grid.shape)
        piece_node, main, left_out = _pieces.join_small(pieces, min_coverage)
        if len(main) == 0:
            raise DomainError(
                f"No land is left: {len(pieces.cell)} pieces of land, all smaller than min_coverage = "
                f"{min_coverage:g} of a cell of {grid.cell_size:g}.",
                option="cell_size",
                found=grid.cell_size,
                remedy=f"Use a smaller {option('cell_size')} or min_coverage.",
            )
        if left_out.any():
            unit, words = (1.0, "square units") if grid.crs is None else (1e6, "km²")
            area, land = pieces.area[left_out].sum() * grid.cell_size**2 / unit, shapely.area(geometry) / unit
            note = (
                f"{count(left_out.sum(), 'piece')} of land under {percent(min_coverage)} of a cell, touching "
                f"no other land, left out ({number(area, 3)} of {number(land, 6)} {words}); smaller cells keep them."
            )
            notes = _with(notes, note)
        rows, cols = np.divmod(pieces.cell[main], grid.shape[1])
        cell_area = ground_areas(grid)
        used = piece_node >= 0
        areas = np.bincount(
            piece_node[used], pieces.area[used] * cell_area.ravel()[pieces.cell[used]], minlength=len(main)
        )
        a, b = piece_node[pieces.first], piece_node[pieces.second]
        a, b = a[a >= 0], b[a >= 0]
        graph = sp.coo_array((np.ones(len(a)), (a, b)), shape=(len(main), len(main)))
        labels = connected_components(graph, directed=False)[1]
        domain = cls(
            grid=grid,
            geometry=geometry,
            barriers=barriers,
            min_coverage=min_coverage,
            coverage=frozen(pieces.coverage),
            cell_area=frozen(cell_area),
            node_rows=frozen(rows),
            node_cols=frozen(cols),
            node_areas=frozen(areas),
            components=frozen(labels),
            notes=notes,
            pieces=pieces,
            piece_node=frozen(piece_node),
            main_piece=frozen(main),
            water_geometry=water_geometry,
        )
        if bridges is None:
            return domain
        joined, more = join_nodes(domain, bridges)
        return replace(domain, bridges=joined, notes=_with(notes, *more))

    @property
    def crs(self) -> pyproj.CRS | None:
        """The grid's CRS; None for a local domain."""
        return self.grid.crs

    @property
    def cell_size(self) -> float:
        """Side of a cell in metres."""
        return self.grid.cell_size

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.node_areas)

    @property
    def n_components(self) -> int:
        """Number of pieces of land that nothing connects: islands, sides of rivers."""
        return int(self.components.max()) + 1

    @cached_property
    def planar_areas(self) -> np.ndarray:
        """Area (n,) of each node's land on the plane of the CRS; `node_areas` are those on the ground."""
        used = self.piece_node >= 0
        cells = np.bincount(self.piece_node[used], self.pieces.area[used], self.n_nodes)
        return frozen(cells * self.cell_size**2)

    @property
    def area_unit(self) -> tuple[float, str]:
        """Area by which intensities are reported, in square units of the CRS, and its name."""
        return (1.0, "unit area") if self.crs is None else (1e6, "km²")

    @property
    def length_unit(self) -> tuple[float, str]:
        """Length by which lengthscales are reported, in units of the CRS, and its name."""
        return (1.0, "unit") if self.crs is None else (1e3, "km")

    @cached_property
    def node_points(self) -> np.ndarray:
        """Coordinates (n, 2) of a point on each node's own land: the cell's centre where that is on it."""
        u, v = self.node_cols + 0.5, self.node_rows + 0.5
        off = np.flatnonzero(~self.holds_centre)
        inside = shapely.get_coordinates(shapely.point_on_surface(self.pieces.polygon[self.main_piece[off]]))
        u[off], v[off] = inside[:, 0], inside[:, 1]
        return frozen(np.column_stack(self.grid.from_cells(u, v)))

    @cached_property
    def holds_centre(self) -> np.ndarray:
        """Tell which nodes hold the centre of their cell, clear of shore and barriers."""
        polygon = self.pieces.polygon[self.main_piece]
        out = np.ones(self.n_nodes, bool)
        cut = np.flatnonzero(~self._node_whole)
        u, v = self.node_cols[cut] + 0.5, self.node_rows[cut] + 0.5
        shapely.prepare(polygon[cut])
        out[cut] = shapely.contains_properly(polygon[cut], shapely.points(u, v))
        return frozen(out)

    @cached_property
    def _node_whole(self) -> np.ndarray:
        return np.array([p is None for p in self.pieces.polygon[self.main_piece]], bool)

    def content_hash(self) -> str:
        """Return a hash of all that the nodes and the operator depend on."""
        digest = hashlib.blake2b(digest_size=20)
        digest.update(repr((self.grid.shape, tuple(self.grid.affine)[:6], self.min_coverage)).encode())
        digest.update(("" if self.crs is None else self.crs.to_wkt()).encode())
        digest.update(shapely.to_wkb(self.geometry))
        digest.update(b"" if self.barriers is None else shapely.to_wkb(self.barriers))
        digest.update(b"" if self.bridges is None else self.bridges.given.to_wkb())
        digest.update(self.node_areas.tobytes())
        return digest.hexdigest()

    def nodes_hash(self) -> str:
        """Return a hash of the nodes alone, where they are and how large: counts on them are of this domain."""
        digest = hashlib.blake2b(digest_size=20)
        digest.update(repr((self.grid.shape, tuple(self.grid.affine)[:6])).encode())
        for values in (self.node_rows, self.node_cols, self.node_areas):
            digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()

    def locate(self, coords: Any) -> Any:
        """Return the node on whose land each place lies, -1 off land.

        Parameters
        ----------
        coords : (k, 2) array, GeoDataFrame or GeoSeries
            Easting and northing in the domain's CRS, or points in any, whose index the result (a Series) then has.
        """
        given = coords if hasattr(coords, "geometry") else pairs(coords)
        return as_given(self.node_at(place_coordinates(given, self.crs, self.grid.bounds)), coords)

    def node_at(self, coords: np.ndarray) -> np.ndarray:
        """Return the node on whose land each of (k, 2) coordinates in the domain's CRS lies, -1 off land."""
        piece = self._piece_at(pairs(coords))
        return np.where(piece >= 0, self.piece_node[piece], -1)

    def _piece_at(self, coords: np.ndarray) -> np.ndarray:
        rows, cols, inside = self.grid.cell_of(coords[:, 0], coords[:, 1])
        start = self._first_piece
        cell = rows * np.int64(self.grid.shape[1]) + cols
        # Whole cells and cells without land are settled by one look-up.
        piece = np.where(inside, self._single_piece[cell], -1)
        cut = np.flatnonzero(piece == -2)
        count = start[cell[cut] + 1] - start[cell[cut]]
        at = np.repeat(cut, count)
        candidate = start[cell[at]] + np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
        u, v = self.grid.to_cells(coords[at, 0], coords[at, 1])
        hit = shapely.intersects_xy(self._prepared[candidate], u, v)
        piece[cut] = -1
        # Backwards, so that on a shared edge the first candidate stays.
        piece[at[hit][::-1]] = candidate[hit][::-1]
        return piece

    @cached_property
    def _first_piece(self) -> np.ndarray:
        return np.searchsorted(self.pieces.cell, np.arange(self.grid.n_cells + 1))

    @cached_property
    def _single_piece(self) -> np.ndarray:
        """The piece of each whole cell, -1 for cells without land, -2 for cells that must be looked into."""
        count = np.diff(self._first_piece)
        out = np.where(count > 0, -2, -1)
        whole = self.pieces.whole.ravel()
        out[whole] = self._first_piece[:-1][whole]
        return out

    @cached_property
    def _prepared(self) -> np.ndarray:
        polygons = self.pieces.polygon
        shapely.prepare(polygons)
        return polygons

    @validated(max_distance=real(least=0.0, infinite=True))
    def nearest(self, coords: np.ndarray, max_distance: float) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each coordinate, the node with the nearest land and the distance to it.

        The node is -1 and the distance infinite where no land lies within `max_distance` (metres).
        """
        coords = pairs(coords)
        node = self.node_at(coords)
        distance = np.where(node >= 0, 0.0, np.inf)
        off = np.flatnonzero((node < 0) & np.isfinite(coords).all(axis=1))
        if len(off) and max_distance > 0:
            tree, owner = self._shore_tree
            points = shapely.points(np.column_stack(self.grid.to_cells(coords[off, 0], coords[off, 1])))
            (which, found), gap = tree.query_nearest(
                points, max_distance=max_distance / self.cell_size, return_distance=True, all_matches=False
            )
            node[off[which]] = owner[found]
            distance[off[which]] = gap * self.cell_size
        return node, distance

    @validated(places=SOURCE)
    def distance_to(self, places: Any) -> np.ndarray:
        """Return the length of the shortest way over land from each node to the nearest of some places.

        Ways go around water and barriers, and over bridges. Where no way leads to a place it is NaN, with a warning.
        The distance is within two percent of the exact one, or one cell where that is more.

        Parameters
        ----------
        places : path, GeoDataFrame, GeoSeries or (k, 2) array
            Points, lines or polygons; an array holds coordinates in the domain's CRS. Places off land are left out, but
            for those within two cells of it.

        Returns
        -------
        (n_nodes,) array
            In units of the CRS: metres, unless the domain is local.

        Examples
        --------
        >>> domain = Domain.from_polygons(shapely.box(0, 0, 3, 1), cell_size=1, crs="local")
        >>> domain.distance_to([[0.5, 0.5]]).round(6).tolist()
        [0.0, 1.0, 2.0]
        """
        from geobgp.land.distance import distances_over_land

        return distances_over_land(self, places)

    @cached_property
    def _shore_tree(self) -> tuple[shapely.STRtree, np.ndarray]:
        """Pieces that water can be next to, and their nodes."""
        whole = np.pad(self.pieces.whole, 1)
        inner = whole.copy()
        for dr in (-1, 0, 1):
            for dc in (-1, 0, 1):
                inner &= np.roll(whole, (dr, dc), (0, 1))
        outer = ~inner[1:-1, 1:-1].ravel()[self.pieces.cell] & (self.piece_node >= 0)
        at = np.flatnonzero(outer)
        return shapely.STRtree(self._piece_polygons(at)), self.piece_node[at]

    def _piece_polygons(self, at: np.ndarray) -> np.ndarray:
        out = self.pieces.polygon[at]
        whole = np.array([p is None for p in out], bool)
        row, col = np.divmod(self.pieces.cell[at][whole], self.grid.shape[1])
        out[whole] = shapely.box(col, row, col + 1, row + 1)
        return out

    def polygon_of(self, nodes: np.ndarray) -> np.ndarray:
        """Return the land of nodes as polygons (multipolygons where small pieces have joined) in the CRS."""
        nodes = np.asarray(nodes, np.int64).ravel()
        order = np.argsort(self.piece_node, kind="stable")
        sorted_node = self.piece_node[order]
        left = np.searchsorted(sorted_node, nodes, "left")
        count = np.searchsorted(sorted_node, nodes, "right") - left
        slot = np.repeat(np.arange(len(nodes)), count)
        piece = order[left[slot] + np.arange(len(slot)) - np.repeat(np.cumsum(count) - count, count)]
        parts = self._piece_polygons(piece)
        out = np.full(len(nodes), None, object)
        single = count == 1
        out[single] = parts[single[slot]]
        for k in np.flatnonzero(count > 1):
            out[k] = shapely.union_all(parts[slot == k])
        return self.grid.shapes_from_cells(out)

    @cached_property
    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """The small pieces of land that are no node's, as polygons in the CRS, and the node nearest to each."""
        shapes = self._piece_polygons(np.flatnonzero(self.piece_node < 0))
        if len(shapes) == 0:
            return shapes, np.zeros(0, np.int64)
        tree, owner = self._shore_tree
        (which, nearest) = tree.query_nearest(shapes, all_matches=False)
        return self.grid.shapes_from_cells(shapes[which]), owner[nearest]

    def interpolation(self, coords: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        """Return a sparse (k, n_nodes) matrix that takes node values to coordinates, and which are on land.

        Bilinear between the centres of the four surrounding cells, using only land that is connected to the
        coordinate's own within those four cells; the weights of the others are shared out. Rows off land are
        empty.
        """
        coords = pairs(coords)
        own = self._piece_at(coords)
        inside = (own >= 0) & (self.piece_node[own] >= 0)
        at = np.flatnonzero(inside)
        u, v = self.grid.to_cells(coords[at, 0], coords[at, 1])
        row, piece, weight = self._corners.weights(own[at], u, v)
        matrix = sp.csr_array((weight, (at[row], self.piece_node[piece])), shape=(len(coords), self.n_nodes))
        matrix.sum_duplicates()
        total = np.asarray(matrix.sum(axis=1)).ravel()
        scale = sp.diags_array(1.0 / np.where(total > 0, total, 1.0))
        return sp.csr_array(scale @ matrix), inside

    @property
    def inland_corners(self) -> np.ndarray:
        """Corners (rows + 1, cols + 1) whose four cells are whole and open to each other."""
        return self._corners.inland

    @cached_property
    def _corners(self) -> Corners:
        return Corners.of(self.pieces, self._single_piece)

    @cached_property
    def water(self) -> Water:
        """The water around and between the land; see `geobgp.land.water.water_around`."""
        from geobgp.land.water import water_around

        return water_around(self)

    @validated(fill=real(infinite=True, missing=True))
    def to_grid(self, values: np.ndarray, fill: float = np.nan) -> np.ndarray:
        """Return node values as (rows, cols), cells with several nodes averaged by land; `fill` off land."""
        values = as_floats("values", values, (self.n_nodes,))
        used = self.piece_node >= 0
        cell, node = self.pieces.cell[used], self.piece_node[used]
        area = self.pieces.area[used]
        size = self.grid.n_cells
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.bincount(cell, area * values[node], size) / np.bincount(cell, area, size)
        single = np.bincount(cell, minlength=size)[cell] == 1
        mean[cell[single]] = values[node[single]]
        land = np.zeros(size, bool)
        land[cell] = True
        return np.where(land, mean, fill).reshape(self.grid.shape)

    # -- what a domain says of itself, in words, as a table and as a figure

    def facts(self) -> dict[str, str]:
        """Return what the domain is, line by line: what each number is, and the number in words."""
        unit, name = self.area_unit
        rows, cols = self.grid.shape
        return {
            "grid": f"{rows} x {cols} cells of {number(self.cell_size)} {'units' if self.crs is None else 'm'}",
            "nodes": f"{self.n_nodes:,}",
            "separate parts of land": f"{self.n_components:,}",
            "land area": f"{number(self.node_areas.sum() / unit, 6)} {name}",
            **({} if self.bridges is None else {"bridges": f"{len(self.bridges.first):,}"}),
            "CRS": "local" if self.crs is None else ":".join(self.crs.to_authority() or (self.crs.name,)),
        }

    def report(self) -> str:
        """Return the domain's facts and notes as text."""
        return "\n".join(f"{name}: {value}" for name, value in self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        return [*self.facts().items(), *(("note", note) for note in self.notes)]

    def __repr__(self) -> str:
        return f"Domain({', '.join(f'{name}: {value}' for name, value in self.facts().items())})"

    def _repr_html_(self) -> str:
        from html import escape

        body = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in self._rows())
        return f"<table><caption>Domain</caption>{body}</table>"

    @validated(ax=AXES, values=ARRAY, title=TEXT, label=TEXT, colour_bar=FLAG, scale_bar=FLAG, cells=FLAG)
    def plot(
        self,
        ax: matplotlib.axes.Axes | None = None,
        values: Any = None,
        *,
        classes: int | Sequence[float] | None = None,
        cmap: Any = None,
        vmin: float | None = None,
        vmax: float | None = None,
        label: str | None = None,
        title: str | None = None,
        colour_bar: bool = True,
        scale_bar: bool = True,
        cells: bool | None = None,
    ) -> matplotlib.axes.Axes:
        """Draw the land, the cells and the shoreline; or one value for every node, as a map cut at the shoreline.

        Parameters
        ----------
        ax : Axes, optional
            By default a new figure's.
        values : (n_nodes,) array or (rows, cols) on the grid, optional
            Numbers to be drawn; NaN is left blank. Without them the pieces of land have shades of their own.
        classes : int or sequence of float, optional
            How many classes there are, or the breaks between them. By default colours run evenly from `vmin` to `vmax`.
        cmap : optional
            "intensity", "uncertainty", "probability" or "signed"; a colour map of matplotlib; or a list of colours.
        vmin, vmax : float, optional
            Values at the ends of the colours; by default the smallest and the largest. With ``cmap="signed"`` and
            neither of them 0 is in the middle.
        label : str, optional
            Beside the colour bar: what is shown, with its unit.
        title : str, optional
        colour_bar, scale_bar : bool
            Whether to draw them.
        cells : bool, optional
            Without values: draw the edges of the cells; by default where there are at most 80 along the longer side.

        Examples
        --------
        >>> import geobgp, shapely
        >>> domain = geobgp.Domain.from_polygons(shapely.box(0, 0, 4, 3), cell_size=1, crs="local")
        >>> ax = domain.plot(values=domain.node_areas, classes=[0.5, 0.9], label="area", title="Cells")
        >>> ax.get_title(loc="left")
        'Cells'
        """
        from geobgp.output import figures as plots

        if values is None:
            asked = {"classes": classes, "cmap": cmap, "vmin": vmin, "vmax": vmax, "label": label}
            _refuse(asked, "is for values, and none are given", "Give a number for every node as values.")
            return plots.plot_domain(self, ax, title=title, cells=cells, scale_bar=scale_bar)
        _refuse({"cells": cells}, "is for land without values", "Leave it out, or the values.")
        return plots.plot_values(
            self,
            values,
            ax,
            classes=classes,
            cmap=cmap,
            vmin=vmin,
            vmax=vmax,
            label=label or "",
            title=title or "",
            colour_bar=colour_bar,
            scale_bar=scale_bar,
        )


def _refuse(asked: dict[str, Any], why: str, remedy: str) -> None:
    """Raise an error that names the first option that was given."""
    for name, value in asked.items():
        if value is not None:
            raise DataError(f"{option(name)} {why}.", option=name, found=value, remedy=remedy)


def _with(notes: tuple[str, ...], *more: str) -> tuple[str, ...]:
    """Return notes and those that are new: a domain that was stored has its own already."""
    return (*notes, *(note for note in more if note not in notes))
