"""Rasters in: covariates as means over each node's land, populations as sums that keep their total."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyproj
import scipy.sparse as sp
from affine import Affine

from geobgp.data.raster_source import RasterSource, open_raster
from geobgp.errors import CRSError, DataError
from geobgp.land.reproject import transform_pixels, transform_xy

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.land.domain import Domain

_BLOCK = 4_000_000


def read_to_nodes(
    source: str | os.PathLike[str] | xr.DataArray,
    domain: Domain,
    how: Literal["mean", "sum", "linear"] = "mean",
    *,
    band: int = 1,
    nodata: float | None = None,
    max_snap: float = 0.0,
) -> np.ndarray:
    """Return a raster's values at the nodes, from any CRS, resolution and orientation.

    Parameters
    ----------
    source : path or xarray.DataArray
        Anything that GDAL reads, or an array that rioxarray knows the CRS of.
    domain : Domain
        Whose nodes are filled.
    how : {"mean", "sum", "linear"}
        "mean": area-weighted mean over the node's land (covariates). "sum": the raster holds amounts
        (people per pixel) and every amount is kept: a pixel that touches the domain's land gives all of its
        value to the land it touches, shared by area; of pixels that do not touch it nothing is taken.
        "linear": as "mean", but values are interpolated linearly between the centres of pixels, which suits
        smooth covariates coarser than the cells.
    band : int
        Which band, from 1.
    nodata : float, optional
        A value to be read as missing, besides the file's own nodata, masks and magnitudes over 1e37.
    max_snap : float
        For "sum": pixels that miss the land by less than this many metres go to the nearest node as well.

    Returns
    -------
    (n_nodes,) array
        NaN where the raster has no data.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain
    >>> from geobgp.output.grids import dataset
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 4, 2), cell_size=1, crs="local")
    >>> field = dataset(domain, {"people": domain.node_areas * 10.0})["people"]
    >>> float(read_to_nodes(field, domain, "sum").sum())
    80.0
    """
    if how not in ("mean", "sum", "linear"):
        raise DataError(f'how is "mean", "sum" or "linear"; found {how!r}.')
    with open_raster(source, band, nodata) as raster:
        link = _Link.make(raster, domain)
        fine = link.per_cell >= 4
        if how == "sum":
            add_up = _sum_fine if fine else _sum_coarse
            return add_up(raster, domain, link, max_snap)
        return _mean_fine(raster, domain, link) if fine else _mean_coarse(raster, domain, link, how)


def _apply(affine: Affine, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return affine.a * x + affine.b * y + affine.c, affine.d * x + affine.e * y + affine.f


# -- where the raster's pixels lie on the domain


@dataclass(frozen=True)
class _Link:
    """Between the pixels of a raster and the coordinates of a domain."""

    forward: pyproj.Transformer | None
    backward: pyproj.Transformer | None
    affine: Affine
    geographic: bool
    per_cell: float
    window: tuple[int, int, int, int]

    @classmethod
    def make(cls, raster: RasterSource, domain: Domain) -> _Link:
        if domain.crs is not None and raster.crs is None:
            raise CRSError(
                f"{raster.name} has no CRS, so its place is unknown; the domain is in {domain.crs.name}. "
                "Set it first, for example with array.rio.write_crs(...) or gdal_edit -a_srs."
            )
        if domain.crs is None and raster.crs is not None:
            raise CRSError(
                f"{raster.name} is in {raster.crs.name} but the domain is local, with no place on Earth; "
                "make the domain with a CRS, or the raster without one."
            )
        forward = backward = None
        if domain.crs is not None and raster.crs is not None and domain.crs != raster.crs:
            forward = pyproj.Transformer.from_crs(raster.crs, domain.crs, always_xy=True)
            backward = pyproj.Transformer.from_crs(domain.crs, raster.crs, always_xy=True)
        geographic = raster.crs is not None and raster.crs.is_geographic
        link = cls(forward, backward, raster.affine, geographic, 1.0, (0, 0, 0, 0))
        west, south, east, north = domain.grid.bounds
        h = domain.cell_size
        across, down = np.linspace(west, east, 65), np.linspace(north, south, 65)
        points = np.column_stack([a.ravel() for a in np.meshgrid(across, down)])
        col, row = link.to_pixels(points)
        seen = np.isfinite(col) & np.isfinite(row)
        if not seen.any():
            raise DataError(
                f"{raster.name} and the domain do not meet: the CRS of one does not reach the other."
            )
        rows, cols = raster.shape
        # A cell may lie between the points that were tried: one spacing of them is the margin.
        margin_c = np.abs(np.diff(np.where(seen, col, np.nan).reshape(65, 65), axis=1))
        margin_r = np.abs(np.diff(np.where(seen, row, np.nan).reshape(65, 65), axis=0))
        slack_c = int(min(np.nanmedian(margin_c), cols)) + 2
        slack_r = int(min(np.nanmedian(margin_r), rows)) + 2
        window = (
            int(np.clip(np.floor(row[seen].min()) - slack_r, 0, rows)),
            int(np.clip(np.floor(col[seen].min()) - slack_c, 0, cols)),
            int(np.clip(np.ceil(row[seen].max()) + slack_r, 0, rows)),
            int(np.clip(np.ceil(col[seen].max()) + slack_c, 0, cols)),
        )
        if window[0] >= window[2] or window[1] >= window[3]:
            raise DataError(f"{raster.name} does not overlap the domain; check its extent and its CRS.")
        # Pixels along a cell's side, from the area that a cell takes up in pixels.
        at = domain.node_points[:: max(domain.n_nodes // 64, 1)]
        corner = [
            np.array(link.to_pixels(at + np.array(d) * h / 2)) for d in ((-1, 0), (1, 0), (0, -1), (0, 1))
        ]
        du, dv = corner[1] - corner[0], corner[3] - corner[2]
        per_cell = float(np.sqrt(np.nanmedian(np.abs(du[0] * dv[1] - du[1] * dv[0]))))
        return cls(forward, backward, raster.affine, geographic, per_cell, window)

    def to_pixels(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return fractional (columns, rows) of coordinates in the domain's CRS."""
        x, y = points[:, 0], points[:, 1]
        if self.backward is not None:
            x, y = transform_xy(self.backward, x, y)
        if self.geographic:
            start = self.affine.c if self.affine.a > 0 else self.affine.c - 360
            x = start + np.mod(x - start, 360.0)
        return _apply(~self.affine, x, y)

    def to_domain(self, cols: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return eastings and northings of fractional pixels."""
        x, y = _apply(self.affine, cols, rows)
        if self.forward is not None:
            x, y = transform_xy(self.forward, x, y)
        return x, y

    def weights(self, cols: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the relative area of pixels."""
        if not self.geographic:
            return np.ones(cols.shape)
        return np.cos(np.radians(_apply(self.affine, cols, rows)[1]))


# -- pixels much smaller than cells: each goes to the node that its centre is on


def _blocks(
    raster: RasterSource, domain: Domain, link: _Link
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (columns, rows, coordinates, values) of pixels with data near the domain, strip by strip."""
    top, left, bottom, right = link.window
    height = max(_BLOCK // (right - left), 1)
    west, south, east, north = domain.grid.bounds
    reach = 2 * domain.cell_size
    for start in range(top, bottom, height):
        stop = min(start + height, bottom)
        values = raster.read(start, left, stop, right)
        if np.isnan(values).all():
            continue
        row, col = np.arange(start, stop) + 0.5, np.arange(left, right) + 0.5
        tolerance = 0.02 * domain.cell_size / link.per_cell
        x, y = transform_pixels(link.to_domain, row, col, tolerance=tolerance)
        with np.errstate(invalid="ignore"):
            near = (x > west - reach) & (x < east + reach) & (y > south - reach) & (y < north + reach)
        near &= ~np.isnan(values)
        r, c = np.nonzero(near)
        yield col[c], row[r], np.column_stack([x[near], y[near]]), values[near]


def _mean_fine(raster: RasterSource, domain: Domain, link: _Link) -> np.ndarray:
    total, weight = np.zeros(domain.n_nodes), np.zeros(domain.n_nodes)
    for cols, rows, coords, values in _blocks(raster, domain, link):
        node = domain.locate(coords)
        on = node >= 0
        w = link.weights(cols[on], rows[on])
        total += np.bincount(node[on], w * values[on], domain.n_nodes)
        weight += np.bincount(node[on], w, domain.n_nodes)
    with np.errstate(invalid="ignore", divide="ignore"):
        out = total / weight
    # Slivers that hold no pixel's centre take the pixel they lie in.
    empty = np.flatnonzero(weight == 0)
    out[empty] = _values_at(raster, link, domain.node_points[empty])[0]
    return out


def _sum_fine(raster: RasterSource, domain: Domain, link: _Link, max_snap: float) -> np.ndarray:
    total, hit = np.zeros(domain.n_nodes), np.zeros(domain.n_nodes, bool)
    for _, _, coords, values in _blocks(raster, domain, link):
        node = _own_or_near(domain, link, coords, max_snap)
        on = node >= 0
        total += np.bincount(node[on], values[on], domain.n_nodes)
        hit[node[on]] = True
    # Slivers that hold no pixel's centre take their share, by area, of the pixel they lie in, from its node.
    empty = np.flatnonzero(~hit)
    value, col, row = _values_at(raster, link, domain.node_points[empty])
    known = np.isfinite(value)
    empty, value, col, row = empty[known], value[known], col[known], row[known]
    total[np.flatnonzero(~hit)[~known]] = np.nan
    if len(empty):
        planar = domain.node_areas[empty] / domain.cell_area[domain.node_rows[empty], domain.node_cols[empty]]
        share = np.minimum(planar * link.per_cell**2, 1.0)
        _, same = np.unique(np.column_stack([col, row]), axis=0, return_inverse=True)
        share /= np.maximum(np.bincount(same.ravel(), share)[same.ravel()], 1.0)
        centre = np.column_stack(link.to_domain(col + 0.5, row + 0.5))
        donor = _own_or_near(domain, link, centre, max_snap)
        given = donor >= 0
        total[empty] += value * share
        total -= np.bincount(donor[given], (value * share)[given], domain.n_nodes)
    return total


def _own_or_near(domain: Domain, link: _Link, coords: np.ndarray, max_snap: float) -> np.ndarray:
    """Return the node that each pixel's centre is on, or that the pixel touches, else -1."""
    node = domain.locate(coords)
    reach = np.sqrt(0.5) * domain.cell_size / link.per_cell + max_snap
    off = np.flatnonzero(node < 0)
    # Only pixels whose cell is within reach of a cell with land need a search.
    from scipy import ndimage

    around = int(np.ceil(reach / domain.cell_size))
    land = np.pad(domain.coverage > 0, around)
    land = ndimage.binary_dilation(land, np.ones((2 * around + 1, 2 * around + 1), bool))
    u, v = domain.grid.to_cells(coords[off, 0], coords[off, 1])
    finite = np.isfinite(u) & np.isfinite(v)
    c = np.where(finite, np.floor(u), -2 * around - 1).astype(np.int64) + around
    r = np.where(finite, np.floor(v), -2 * around - 1).astype(np.int64) + around
    inside = (r >= 0) & (r < land.shape[0]) & (c >= 0) & (c < land.shape[1])
    inside[inside] = land[r[inside], c[inside]]
    off = off[inside]
    if len(off):
        node[off] = domain.nearest(coords[off], reach)[0]
    return node


def _values_at(
    raster: RasterSource, link: _Link, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the values of the pixels that points lie in, and those pixels' columns and rows."""
    if len(points) == 0:
        none = np.empty(0, np.int64)
        return np.empty(0), none, none
    x, y = link.to_pixels(points)
    rows, cols = raster.shape
    inside = (x >= 0) & (x < cols) & (y >= 0) & (y < rows)
    col, row = np.where(inside, x, 0).astype(np.int64), np.where(inside, y, 0).astype(np.int64)
    out = np.full(len(points), np.nan)
    if inside.any():
        # One strip at a time: the points may lie far apart in a raster that does not fit into memory.
        left, right = col[inside].min(), col[inside].max() + 1
        height = max(_BLOCK // int(right - left), 1)
        for start in range(int(row[inside].min()), int(row[inside].max()) + 1, height):
            here = np.flatnonzero(inside & (row >= start) & (row < start + height))
            if len(here):
                values = raster.read(start, int(left), min(start + height, rows), int(right))
                out[here] = values[row[here] - start, col[here] - left]
    return out, col, row


# -- pixels of about a cell or larger: points on each node's land look up their pixel


def _samples(domain: Domain) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (node, weight, coordinates) of points on land; a node's weights add up to its area."""
    whole = domain.coverage > 1 - 1e-9
    parts, total = [], np.zeros(domain.n_nodes)
    for cells, side in ((whole, 8 if domain.n_nodes < 200_000 else 4), (~whole & (domain.coverage > 0), 12)):
        offset = ((np.arange(side) + 0.5) / side - 0.5) * domain.cell_size
        du, dv = (a.ravel() for a in np.meshgrid(offset, offset))
        at_row, at_col = np.nonzero(cells)
        chunk = max(_BLOCK // side**2, 1)
        for start in range(0, len(at_row), chunk):
            east, north = domain.grid.centres(at_row[start : start + chunk], at_col[start : start + chunk])
            coords = np.column_stack([(east[:, None] + du).ravel(), (north[:, None] + dv).ravel()])
            node = domain.locate(coords)
            on = node >= 0
            # A node may own slivers in a neighbouring cell, which come in another part: add up all first.
            parts.append((node[on], coords[on], side**-2))
            total += np.bincount(node[on], minlength=domain.n_nodes) / side**2
    for node, coords, each in parts:
        yield node, each * domain.node_areas[node] / total[node], coords
    empty = np.flatnonzero(total == 0)
    if len(empty):
        yield empty, domain.node_areas[empty], domain.node_points[empty]


def _mean_coarse(raster: RasterSource, domain: Domain, link: _Link, how: str) -> np.ndarray:
    top, left, bottom, right = link.window
    values = raster.read(top, left, bottom, right)
    total, weight = np.zeros(domain.n_nodes), np.zeros(domain.n_nodes)
    for node, w, coords in _samples(domain):
        col, row = link.to_pixels(coords)
        found = _look_up(values, col - left, row - top, how == "linear")
        known = np.isfinite(found)
        total += np.bincount(node[known], w[known] * found[known], domain.n_nodes)
        weight += np.bincount(node[known], w[known], domain.n_nodes)
    with np.errstate(invalid="ignore", divide="ignore"):
        return total / weight


def _look_up(values: np.ndarray, col: np.ndarray, row: np.ndarray, linear: bool) -> np.ndarray:
    rows, cols = values.shape
    inside = (col >= 0) & (col <= cols) & (row >= 0) & (row <= rows)
    out = np.full(len(col), np.nan)
    c, r = col[inside], row[inside]
    own = values[np.minimum(r.astype(np.int64), rows - 1), np.minimum(c.astype(np.int64), cols - 1)]
    if not linear:
        out[inside] = own
        return out
    c, r = np.clip(c - 0.5, 0, cols - 1), np.clip(r - 0.5, 0, rows - 1)
    c0 = np.minimum(c.astype(np.int64), max(cols - 2, 0))
    r0 = np.minimum(r.astype(np.int64), max(rows - 2, 0))
    fc, fr = c - c0, r - r0
    total, weight = np.zeros(len(c)), np.zeros(len(c))
    for dr, wr in ((0, 1 - fr), (1, fr)):
        for dc, wc in ((0, 1 - fc), (1, fc)):
            v = values[np.minimum(r0 + dr, rows - 1), np.minimum(c0 + dc, cols - 1)]
            w = np.where(np.isfinite(v), wr * wc, 0.0)
            total += w * np.where(np.isfinite(v), v, 0.0)
            weight += w
    with np.errstate(invalid="ignore", divide="ignore"):
        # A point in a pixel without data has no data, whatever the pixels around it hold.
        out[inside] = np.where(np.isfinite(own), total / weight, np.nan)
    return out


def _sum_coarse(raster: RasterSource, domain: Domain, link: _Link, max_snap: float) -> np.ndarray:
    top, left, bottom, right = link.window
    values = raster.read(top, left, bottom, right)
    rows, cols = values.shape
    shape = (domain.n_nodes, rows * cols)
    shares = sp.csr_array(shape)
    for node, w, coords in _samples(domain):
        col, row = link.to_pixels(coords)
        with np.errstate(invalid="ignore"):
            c, r = np.floor(col - left), np.floor(row - top)
            inside = (c >= 0) & (c < cols) & (r >= 0) & (r < rows)
        pixel = (r[inside] * cols + c[inside]).astype(np.int64)
        shares = shares + sp.coo_array((w[inside], (node[inside], pixel)), shape=shape).tocsr()
    flat = values.ravel()
    known = np.isfinite(flat)
    weight = np.asarray(shares.sum(axis=0)).ravel()
    amount = np.where(known & (weight > 0), flat, 0.0) / np.where(weight > 0, weight, 1.0)
    out = shares @ amount
    # Pixels that touch land between the points.
    left_over = np.flatnonzero(known & (weight == 0) & (flat != 0))
    r, c = np.divmod(left_over, cols)
    coords = np.column_stack(link.to_domain(c + left + 0.5, r + top + 0.5))
    node = _own_or_near(domain, link, coords, max_snap)
    on = node >= 0
    out += np.bincount(node[on], flat[left_over[on]], domain.n_nodes)
    covered = (shares @ known.astype(float)) > 0
    covered[node[on]] = True
    return np.where(covered, out, np.nan)
