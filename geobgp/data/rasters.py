"""Reading rasters: means and sums over nodes, exactly by area."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

import numpy as np
import pyproj
import shapely
from affine import Affine

from geobgp.errors import CRSError, DataError, InputWarning, warn
from geobgp.files import open_raster_file, remember_read
from geobgp.land.crs import check_place, transform_xy
from geobgp.land.pieces import cover, split_with_owner
from geobgp.text import count, number, percent

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.land.domain import Domain


# -- Where rasters come from: files that GDAL reads, and xarray.DataArrays -----------------------------------


#: Magnitudes above this are nodata whether or not the file says so: many hide an undeclared -3.4e38.
HUGE = 1e37


@dataclass(frozen=True)
class RasterSource:
    """One band, from a file or an array.

    Attributes
    ----------
    shape : (int, int)
    affine : Affine
        From (column, row) of pixels' corners to coordinates; any orientation.
    crs : pyproj.CRS or None
    reader : callable
        Takes top, left, bottom, right; returns values.
    nodata : float or None
        A further value that means missing.
    name : str
        For messages.
    whole, coloured : bool
        Whether its values are of a type of whole numbers, and whether it has a colour table: they may be codes.
    unit : str
        Of its values, where it says so.
    categories : callable
        Returns what codes are called, of those that have a name.
    """

    shape: tuple[int, int]
    affine: Affine
    crs: pyproj.CRS | None
    reader: Any
    nodata: float | None
    name: str
    whole: bool = False
    coloured: bool = False
    unit: str = ""
    categories: Callable[[], dict[float, str]] = dict

    def where(self, value: float) -> RasterSource:
        """Return the same raster with 1 where it has a value, 0 where another, NaN where none."""

        def reader(top: int, left: int, bottom: int, right: int) -> np.ndarray:
            values = self.read(top, left, bottom, right)
            return np.where(np.isnan(values), np.nan, values == value)

        return replace(self, reader=reader, nodata=None)

    def read(self, top: int, left: int, bottom: int, right: int) -> np.ndarray:
        """Return rows top:bottom, columns left:right as float64, NaN where there is no data."""
        values = np.asarray(self.reader(top, left, bottom, right), float)
        with np.errstate(invalid="ignore"):
            missing = ~(np.abs(values) < HUGE)
            if self.nodata is not None:
                missing |= np.isclose(values, self.nodata, rtol=1e-6, atol=0)
        return np.where(missing, np.nan, values)


@contextmanager
def open_raster(source: Any, band: int | None, nodata: float | None) -> Iterator[RasterSource]:
    """Open one band of a path or a DataArray; None is the only one, or that named in ``"path|band=2"``."""
    if isinstance(source, str | os.PathLike):
        import rasterio
        from rasterio.windows import Window

        path, band = split_band(source, band)
        try:
            opened = open_raster_file(path)
        except rasterio.errors.RasterioIOError as error:
            raise DataError(f"{path} cannot be read as a raster: {error}") from error
        remember_read(path)
        with opened as src:
            band = _one_band(path, band, src.descriptions, f"Name one: '{path}|band=1'.")
            scale, offset = src.scales[band - 1], src.offsets[band - 1]

            def reader(top: int, left: int, bottom: int, right: int) -> np.ndarray:
                window = Window(left, top, right - left, bottom - top)
                values = src.read(band, window=window, masked=True)
                known = values.astype(float).filled(np.nan)
                return known * scale + offset

            crs = None if src.crs is None else pyproj.CRS.from_wkt(src.crs.to_wkt())
            read_band = band
            coloured = src.colorinterp[band - 1] == rasterio.enums.ColorInterp.palette
            whole = src.dtypes[band - 1].startswith(("int", "uint")) and scale == 1 and float(offset).is_integer()
            yield RasterSource(
                src.shape, src.transform, crs, reader, nodata, path, whole, coloured, src.units[band - 1] or "",
                lambda: _categories(src, read_band),
            )  # fmt: skip
        return
    import rioxarray  # noqa: F401
    import xarray as xr

    if not isinstance(source, xr.DataArray):
        raise DataError(f"A raster is a path or an xarray.DataArray; found {type(source).__name__}.")
    name = str(source.name or "the array")
    try:
        array = source.transpose(..., source.rio.y_dim, source.rio.x_dim)
        affine, crs_found = array_transform(source, source.rio.x_dim, source.rio.y_dim), source.rio.crs
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{name} has no spatial dimensions that rioxarray can find: {error}") from error
    values = array.values
    if values.ndim == 3:
        labels = source[array.dims[0]].values.tolist() if array.dims[0] in source.coords else [None] * len(values)
        band = _one_band(name, band, labels, f"Take one: array.isel({array.dims[0]}=0).")
        values = values[band - 1]
    if values.ndim != 2:
        raise DataError(f"{name} has {array.ndim} dimensions; a raster has two, or three with bands first.")
    whole = values.dtype.kind in "iu"
    values = values.astype(float)
    own = source.rio.nodata
    if own is not None and np.isfinite(own):
        values = np.where(np.isclose(values, float(own), rtol=1e-6, atol=0), np.nan, values)
    crs = None if crs_found is None else pyproj.CRS.from_wkt(crs_found.to_wkt())
    shape = (values.shape[0], values.shape[1])
    unit = str(source.attrs.get("units") or "")
    yield RasterSource(
        shape, affine, crs, lambda t, a, b, c: values[t:b, a:c], nodata, name, whole, False, unit,
        lambda: _flags(source.attrs),
    )  # fmt: skip


def split_band(source: str | os.PathLike[str], band: int | None = None) -> tuple[str, int | None]:
    """Return a raster's path and the band that it names, if it names one.

    Examples
    --------
    >>> split_band("people.tif|band=2"), split_band("people.tif")
    (('people.tif', 2), ('people.tif', None))
    """
    path, mark, named = os.fspath(source).rpartition("|band=")
    if not mark:
        return os.fspath(source), band
    if not named.isdigit():
        raise DataError(f"A band is named by its number, from 1: {path}|band=1; found {named!r}.")
    return path, int(named)


def _flags(attributes: Mapping[str, Any]) -> dict[float, str]:
    """Return what codes are called by the CF conventions.

    Examples
    --------
    >>> _flags({"flag_values": [1, 4], "flag_meanings": "wood heath"})
    {1.0: 'wood', 4.0: 'heath'}
    """
    codes, words = attributes.get("flag_values", ()), str(attributes.get("flag_meanings", "")).split()
    return {float(code): word for code, word in zip(np.ravel(codes), words, strict=False)}


def _categories(opened: Any, band: int) -> dict[float, str]:
    """Return what the codes of a band are called, by its category names or its attribute table.

    GDAL writes both into a virtual raster, from whatever format they are read.
    """
    import rasterio.shutil

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "names.vrt"
        rasterio.shutil.copy(opened, path, driver="VRT")
        whole = ElementTree.fromstring(path.read_bytes())
    found = whole.find(f"VRTRasterBand[@band='{band}']")
    if found is None:
        return {}
    names = {float(k): one.text for k, one in enumerate(found.findall("CategoryNames/Category"))}
    if not names and (table := found.find("GDALRasterAttributeTable")) is not None:
        fields = [
            (one.findtext("Name", "").strip().lower(), one.findtext("Type"), one.findtext("Usage"))
            for one in table.findall("FieldDefn")
        ]
        rows = [[cell.text for cell in row.findall("F")] for row in table.findall("Row")]
        name = _first([field[2] == _NAME for field in fields], [field[1] == _TEXT for field in fields])
        code = _first([field[2] in _CODES for field in fields], [field[0] in _CODED for field in fields])
        if name is not None:
            names = {float(k if code is None else row[code] or "nan"): row[name] for k, row in enumerate(rows)}
    return {code: text.strip() for code, text in names.items() if text and text.strip()}


#: GDAL's numbers for columns of an attribute table: of names, of text, of values; and what columns of codes are called.
_NAME, _TEXT, _CODES, _CODED = "2", "2", ("5", "3"), ("value", "code", "class")


def _first(best: list[bool], good: list[bool]) -> int | None:
    """Return the first column that is the best choice, else the first that is a good one."""
    return next((wanted.index(True) for wanted in (best, good) if any(wanted)), None)


def _one_band(name: str, band: int | None, labels: Sequence[Any], remedy: str) -> int:
    """Return the number, from 1, of the band that was asked for or is the only one."""
    if band is None and len(labels) == 1:
        return 1
    if band is not None and 1 <= band <= len(labels):
        return band
    bands = ", ".join(str(k) if label in (None, "", k) else f"{k} ({label})" for k, label in enumerate(labels, 1))
    asked = "which is meant?" if band is None else f"band {band} was asked for."
    raise DataError(f"{name} has {count(len(labels), 'band')}: {bands}; {asked}", found=len(labels), remedy=remedy)


def array_transform(data: xr.DataArray | xr.Dataset, x_dim: Hashable, y_dim: Hashable) -> Affine:
    """Return the transform of an array: the stored one if it fits the coordinates, else from them."""
    x, y = (np.asarray(data[d].values, float) if d in data.coords else None for d in (x_dim, y_dim))
    text = data.coords["spatial_ref"].attrs.get("GeoTransform") if "spatial_ref" in data.coords else None
    stored = None if text is None else Affine.from_gdal(*(float(t) for t in str(text).split()))
    if stored is not None:
        if x is None or y is None or stored.b or stored.d:
            return stored
        slack = 1e-6 * abs(stored.a)
        fits = [(x, stored.a, stored.c), (y, stored.e, stored.f)]
        if all(np.allclose(v, start + step * (np.arange(len(v)) + 0.5), 0, slack) for v, step, start in fits):
            return stored
    if x is None or y is None or min(len(x), len(y)) < 2:
        raise DataError(
            "The cell size cannot be determined without coordinates, or from a single row or column; "
            "keep the transform that rioxarray stores in `spatial_ref`."
        )
    dx, dy = (x[-1] - x[0]) / (len(x) - 1), (y[-1] - y[0]) / (len(y) - 1)
    if not (dx and dy and np.allclose(np.diff(x), dx) and np.allclose(np.diff(y), dy)):
        raise DataError("The coordinates of the array are not evenly spaced; a raster needs that.")
    return Affine(dx, 0, x[0] - dx / 2, 0, dy, y[0] - dy / 2)


# -- Pixels: where the land of a domain's nodes lies among the pixels of a raster ----------------------------


#: Largest distance between a node's edge and its image among the pixels, as a share of the edge's length.
STRAIGHT = 1e-5


class ApartError(DataError):
    """A raster and a domain have no place in common."""


def apply_affine(affine: Affine, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return coordinates transformed by an affine map, element by element."""
    return affine.a * x + affine.b * y + affine.c, affine.d * x + affine.e * y + affine.f


@dataclass(frozen=True)
class PixelLink:
    """From the coordinates of a domain to the pixels of a raster.

    Attributes
    ----------
    there : pyproj.Transformer or None
        To the raster's CRS; None where it is the domain's.
    affine : Affine
        From pixels' columns and rows to the raster's coordinates.
    west : float or None
        The raster's least longitude; None where its CRS is not geographic.
    """

    there: pyproj.Transformer | None
    affine: Affine
    west: float | None

    @classmethod
    def make(cls, raster: RasterSource, domain: Domain) -> PixelLink:
        """Return the way from a domain to a raster, or say why there is none."""
        if domain.crs is not None and raster.crs is None:
            raise CRSError(
                f"{raster.name} has no CRS, so its place is unknown; the domain is in {domain.crs.name}.",
                remedy="Set it first, for example with array.rio.write_crs(...) or gdal_edit -a_srs.",
            )
        if raster.crs is not None:
            check_place(raster.crs, raster.name)
        if domain.crs is None and raster.crs is not None:
            raise CRSError(
                f"{raster.name} is in {raster.crs.name} but the domain is local, with no place on Earth.",
                remedy="Make the domain with a CRS, or the raster without one.",
            )
        there = None
        if domain.crs is not None and raster.crs is not None and domain.crs != raster.crs:
            there = pyproj.Transformer.from_crs(domain.crs, raster.crs, always_xy=True)
        rows, cols = raster.shape
        corners = apply_affine(raster.affine, np.array([0, 0, cols, cols]), np.array([0, rows, 0, rows]))
        geographic = raster.crs is not None and raster.crs.is_geographic
        return cls(there, raster.affine, float(corners[0].min()) if geographic else None)

    def to_pixels(self, points: np.ndarray, near: np.ndarray | None = None, *, by_area: bool = False) -> np.ndarray:
        """Return fractional columns and rows (k, 2) of coordinates (k, 2) in the domain's CRS.

        Longitudes are taken within a turn from the raster's western edge on, or within half a turn of `near`.
        With `by_area` a pixel of degrees is divided evenly on the ground: its half nearer to the pole begins
        where half of its area lies.
        """
        x, y = points[:, 0], points[:, 1]
        if self.there is not None:
            x, y = transform_xy(self.there, x, y)
        if self.west is not None:
            low = self.west if near is None else near - 180
            x = low + np.mod(x - low, 360.0)
        col, row = apply_affine(~self.affine, x, y)
        if by_area and self.west is not None and self.affine.d == 0:
            whole = np.floor(row)
            edges = self.affine.f + self.affine.e * np.array([whole, whole + 1])
            first, last = np.sin(np.radians(np.clip(edges, -90, 90)))
            row = whole + (np.sin(np.radians(y)) - first) / (last - first)
        return np.column_stack([col, row])

    def longitudes(self, points: np.ndarray) -> np.ndarray | None:
        """Return the longitudes of coordinates in the domain's CRS; None where the raster's has none."""
        if self.west is None:
            return None
        return apply_affine(self.affine, *self.to_pixels(points).T)[0]

    def bend(self, domain: Domain) -> float:
        """Return how far the sides of cells lie from straight lines among the pixels, as a share of them."""
        if self.there is None:
            return 0.0
        at = domain.node_points[:: max(domain.n_nodes // 500, 1)]
        near, out = self.longitudes(at), 0.0
        for side in np.eye(2) * domain.cell_size / 2:
            start, middle, end = (self.to_pixels(at + step, near, by_area=True) for step in (-side, 0 * side, side))
            (a, b), (c, d) = (middle - start).T, (end - start).T
            off = np.abs(a * d - b * c) / (c**2 + d**2)
            if np.isfinite(off).any():
                out = max(out, float(np.nanquantile(off, 0.9)))
        return out


@dataclass(frozen=True, eq=False)
class Outlines:
    """The rings of the nodes' land among the pixels of a raster.

    Attributes
    ----------
    segments : (k, 4) array
        Column and row of both ends; the land is always on the same side.
    owner : (k,) int array
        Each segment's node.
    area : (n_nodes,) array
        In pixels; zero for those that are torn.
    torn : (t,) int array
        Nodes that the raster's projection tears apart or has no place for. They have no segments.
    window : (int, int, int, int)
        Top, left, bottom and right of the pixels that the nodes can meet.
    """

    segments: np.ndarray
    owner: np.ndarray
    area: np.ndarray
    torn: np.ndarray
    window: tuple[int, int, int, int]

    @classmethod
    def make(cls, raster: RasterSource, domain: Domain, link: PixelLink) -> Outlines:
        """Return the outlines of all nodes, bent to the raster's CRS."""
        segments, owner, torn = _bent(domain, link)
        if len(owner) == 0:
            raise ApartError(f"{raster.name} and the domain do not meet: the CRS of one does not reach the other.")
        area = _ring_areas(segments, owner, domain.n_nodes)
        if area.sum() < 0:
            segments, area = segments[:, [2, 3, 0, 1]], -area
        segments, owner, shape = _meeting(segments, owner, raster, link)
        ends = segments.reshape(-1, 2)[:, ::-1]
        first = np.clip(np.floor(ends.min(axis=0, initial=np.inf)), 0, shape).astype(int)
        last = np.clip(np.ceil(ends.max(axis=0, initial=-np.inf)), 0, shape).astype(int)
        if (first >= last).any():
            raise ApartError(f"{raster.name} does not overlap the domain; check its extent and its CRS.")
        window = (int(first[0]), int(first[1]), int(last[0]), int(last[1]))
        return cls(segments, owner, area, torn, window)


def _bent(domain: Domain, link: PixelLink) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return segments among the pixels, the node of each, and the nodes that are torn."""
    land = shapely.normalize(domain.polygon_of(np.arange(domain.n_nodes)))
    if link.there is not None:
        pieces = max(np.ceil(np.sqrt(link.bend(domain) / STRAIGHT)), 1)
        land = shapely.segmentize(land, (1 + 1e-6) * domain.cell_size / pieces)
    parts, node = shapely.get_parts(land, return_index=True)
    rings, part = shapely.get_rings(parts, return_index=True)
    coords, ring = shapely.get_coordinates(rings, return_index=True)
    node = node[part[ring]]
    lon = link.longitudes(domain.node_points)
    pixels = link.to_pixels(coords, None if lon is None else lon[node], by_area=True)
    follows = ring[1:] == ring[:-1]
    segments, owner = np.hstack([pixels[:-1], pixels[1:]])[follows], node[1:][follows]
    bad = ~np.isfinite(segments).all(axis=1)
    if link.there is not None:
        middle = ((coords[:-1] + coords[1:]) / 2)[follows]
        middle = link.to_pixels(middle, None if lon is None else lon[owner], by_area=True)
        off = np.hypot(*(middle - (segments[:, :2] + segments[:, 2:]) / 2).T)
        bad |= ~(off <= 0.05 * np.hypot(*(segments[:, 2:] - segments[:, :2]).T) + 1e-6)
    torn = np.unique(owner[bad])
    keep = ~np.isin(owner, torn)
    return segments[keep], owner[keep], torn


def _ring_areas(segments: np.ndarray, owner: np.ndarray, n: int) -> np.ndarray:
    x0, y0, x1, y1 = segments.T
    return np.bincount(owner, (y1 - y0) * (x0 + x1) / 2, n)


def _meeting(
    segments: np.ndarray, owner: np.ndarray, raster: RasterSource, link: PixelLink
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return segments and owners of nodes that meet the raster, if a turn of the globe on, and its shape."""
    shape, turns = np.array(raster.shape), [np.zeros(4)]
    if link.west is not None:
        turn = np.array([(~link.affine).a, (~link.affine).d]) * 360
        turns += [np.tile(turn, 2), -np.tile(turn, 2)]
        if turn[1] == 0:  # a last column that repeats the first
            shape[1] = min(shape[1], np.ceil(abs(turn[0]) - 1e-6))
    pixels = []
    for step in turns:
        moved = segments + step
        here = np.ones(len(owner), bool)
        for axis in (0, 1):
            low, high = np.full(owner.max() + 1, np.inf), np.full(owner.max() + 1, -np.inf)
            np.minimum.at(low, owner, moved[:, axis])
            np.maximum.at(high, owner, moved[:, axis])
            here &= ((high > 0) & (low < shape[1 - axis]))[owner]
        pixels.append((moved[here], owner[here]))
    return np.concatenate([s for s, _ in pixels]), np.concatenate([o for _, o in pixels]), shape


# -- Rasters in: covariates as means over each node's land, and amounts of which the land takes its share ----


#: Pixels that are read at a time.
_BLOCK = 2_000_000
#: People off the land are told from this share on.
LEFT_OUT = 0.01
#: Values that stand for no data in files that do not say so: the largest of their type, nines, and what cannot be.
_NO_DATA = frozenset(
    [float(kind(2**bits - 1)) for bits in (7, 8, 15, 16, 31, 32) for kind in (np.float32, np.float64)]
    + [float(kind(10**n - 1)) for n in range(3, 10) for kind in (np.float32, np.float64)]
)
_NO_AMOUNT_AT_ALL = 1e15
#: How many times the next largest value the largest must be, held by several pixels, to be told of.
_FAR_BEYOND = 100.0
#: Shares of a pixel or a node, and of a total, that are no more than rounding errors.
_NO_AREA, _NO_AMOUNT = 1e-9, 1e-12
#: Pixels that are kept of a raster, for what lies in regions; of more, several are taken together.
MOST_KEPT = 4_000_000


def read_to_nodes(
    source: str | os.PathLike[str] | xr.DataArray,
    domain: Domain,
    how: Literal["mean", "sum"] = "mean",
    *,
    band: int | None = None,
    nodata: float | None = None,
) -> np.ndarray:
    """Return a raster's values at the nodes, from any CRS, resolution and orientation.

    Pixels and nodes are overlaid exactly where raster and domain share a CRS. Otherwise the nodes' edges are
    bent to the raster's CRS, true to a hundred-thousandth of a cell.

    Parameters
    ----------
    source : path or xarray.DataArray
        Anything that GDAL reads, or an array that rioxarray knows the CRS of. Of several bands, one is named
        after the path: ``"people.tif|band=2"``.
    domain : Domain
        Whose nodes are filled.
    how : {"mean", "sum"}
        "mean": area-weighted mean over the node's land (covariates). "sum": the raster holds amounts (people
        per pixel), taken to be spread evenly over each pixel; a node gets the share of each pixel that its
        land covers, and what lies off the land is left out. A warning says how much that is, if it is over
        1 % of what the pixels that touch land hold.
    band : int, optional
        Which band, from 1; needed only where there are several.
    nodata : float, optional
        A value to be read as missing, besides the file's own nodata, masks and magnitudes over 1e37.

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
    if how not in ("mean", "sum"):
        raise DataError(f'how is "mean" or "sum"; found {how!r}.')
    with open_raster(source, band, nodata) as raster:
        return _read(raster, domain, PixelLink.make(raster, domain), how)[0]


@dataclass(frozen=True, eq=False)
class Pixels:
    """The pixels of a raster around the land, kept so that any piece of it can be read.

    Attributes
    ----------
    values : (rows, columns) array
        NaN where there are no data.
    affine : Affine
        From columns and rows to coordinates.
    crs : pyproj.CRS or None
    """

    values: np.ndarray
    affine: Affine
    crs: pyproj.CRS | None

    def over(self, domain: Domain, shapes: np.ndarray, node: np.ndarray, *, amounts: bool) -> np.ndarray:
        """Return what pixels hold within polygons on the domain's plane, or their mean there; NaN without data.

        Parameters
        ----------
        domain : Domain
        shapes : array of polygons
        node : int array
            The node whose land each is a piece of.
        amounts : bool
            Whether to add up or to average.
        """
        rows, cols = self.values.shape
        source = RasterSource(
            (rows, cols), self.affine, self.crs, lambda t, a, b, c: self.values[t:b, a:c], None, "the raster"
        )
        land: Any = _Shapes(domain, shapes, node)
        try:
            link = PixelLink.make(source, land)
            outlines = Outlines.make(source, land, link)
        except ApartError:
            return np.full(len(shapes), np.nan)
        value, known, tally = _overlay(source, link, outlines, amounts)
        if not amounts:
            value = np.divide(value, known, out=np.zeros(len(value)), where=known > 0)
        else:
            value = np.where(value > _NO_AMOUNT * tally.taken, value, 0.0)
        # A piece that the raster's projection tears apart has no outline, and so no area.
        return np.where(known > _NO_AREA * np.maximum(outlines.area, 1e-300), value, np.nan)


class _Shapes:
    """Pieces of land, as `Outlines` wants the nodes of a domain."""

    def __init__(self, domain: Domain, shapes: np.ndarray, node: np.ndarray) -> None:
        self.crs, self.cell_size, self.n_nodes = domain.crs, domain.cell_size, len(shapes)
        self.node_points = domain.node_points[node]
        self._shapes = shapes

    def polygon_of(self, nodes: np.ndarray) -> np.ndarray:
        return np.asarray(self._shapes[nodes], dtype=object)


def read_with_pixels(
    source: str | os.PathLike[str] | xr.DataArray, domain: Domain, how: Literal["mean", "sum"]
) -> tuple[np.ndarray, Pixels]:
    """Return what `read_to_nodes` does, and the pixels around the land."""
    with open_raster(source, None, None) as raster:
        link = PixelLink.make(raster, domain)
        out, outlines = _read(raster, domain, link, how)
        pixels = _kept(raster, domain, link, outlines, amounts=how == "sum")
    if how == "mean":
        return out, pixels
    islets, node = domain.left_out
    if len(islets):
        # What is on land too small to be a node is at the node nearest by.
        more = np.nan_to_num(pixels.over(domain, islets, node, amounts=True))
        more = np.bincount(node, more, domain.n_nodes)
        out = np.where(more > 0, np.nan_to_num(out) + more, out)
    return out, pixels


def _kept(raster: RasterSource, domain: Domain, link: PixelLink, outlines: Outlines, *, amounts: bool) -> Pixels:
    """Return the pixels around the land, blocks of them as one where they are very many."""
    top, left, bottom, right = outlines.window
    if len(domain.left_out[0]):
        with suppress(ApartError):
            islets: Any = _Shapes(domain, *domain.left_out)
            more = Outlines.make(raster, islets, link).window
            top, left = min(top, more[0]), min(left, more[1])
            bottom, right = max(bottom, more[2]), max(right, more[3])
    side = max(int(np.ceil(np.sqrt((bottom - top) * (right - left) / MOST_KEPT))), 1)
    height = max(_BLOCK // (right - left) // side, 1) * side
    parts = []
    for start in range(top, bottom, height):
        values = raster.read(start, left, min(start + height, bottom), right)
        parts.append(values if side == 1 else _together(values, side, amounts))
    values = np.concatenate(parts)
    single = values.astype(np.float32)
    exact = np.array_equal(single, values, equal_nan=True)
    (west, north), by = apply_affine(raster.affine, left, top), raster.affine  # type: ignore[arg-type]
    affine = Affine(side * by.a, side * by.b, float(west), side * by.d, side * by.e, float(north))
    return Pixels(single if exact else values, affine, raster.crs)


def _together(values: np.ndarray, side: int, amounts: bool) -> np.ndarray:
    """Return sums or means of blocks of pixels; NaN where none of them has data."""
    rows, cols = (-(-n // side) for n in values.shape)
    padded = np.full((rows * side, cols * side), np.nan)
    padded[: values.shape[0], : values.shape[1]] = values
    blocks = padded.reshape(rows, side, cols, side)
    known = np.isfinite(blocks).sum(axis=(1, 3))
    total = np.nansum(blocks, axis=(1, 3))
    return np.where(known > 0, total if amounts else total / np.maximum(known, 1), np.nan)


def node_means(raster: RasterSource, domain: Domain) -> np.ndarray:
    """Return the mean of an open raster over each node's land; NaN where it has no data."""
    return _read(raster, domain, PixelLink.make(raster, domain), "mean")[0]


def blocks_on_land(raster: RasterSource, domain: Domain) -> Iterator[np.ndarray]:
    """Yield the values of an open raster around the land, block by block."""
    top, left, bottom, right = Outlines.make(raster, domain, PixelLink.make(raster, domain)).window
    height = max(_BLOCK // max(right - left, 1), 1)
    for start in range(top, bottom, height):
        yield raster.read(start, left, min(start + height, bottom), right)


def _read(
    raster: RasterSource, domain: Domain, link: PixelLink, how: Literal["mean", "sum"]
) -> tuple[np.ndarray, Outlines]:
    """Return means or checked amounts at the nodes, NaN where there are no data, and the nodes' outlines."""
    outlines = Outlines.make(raster, domain, link)
    value, known, tally = _integrals(raster, domain, link, outlines, amounts=how == "sum")
    if how == "sum":
        _check(tally, raster.name)
        value = np.where(value > _NO_AMOUNT * tally.taken, value, 0.0)
    else:
        value = np.divide(value, known, out=np.zeros(len(value)), where=known > 0)
    return np.where(known > _NO_AREA * outlines.area, value, np.nan), outlines


def _integrals(
    raster: RasterSource, domain: Domain, link: PixelLink, outlines: Outlines, amounts: bool
) -> tuple[np.ndarray, np.ndarray, _Tally]:
    """Return the integrals of `_overlay`, those of torn nodes by points."""
    value, known, tally = _overlay(raster, link, outlines, amounts)
    if len(outlines.torn):
        more = _by_points(raster, domain, link, outlines.torn, amounts)
        value, known = value + more[0], known + more[1]
    return value, known, tally


# -- pixels and nodes overlaid exactly


@dataclass
class _Tally:
    """What the pixels that touch land hold: on the land, off it, and how many are negative."""

    taken: float = 0.0
    left_out: float = 0.0
    negative: int = 0
    lowest: float = 0.0
    #: The largest value and the next, how many pixels hold the former.
    highest: float = 0.0
    second: float = 0.0
    n_highest: int = 0

    def add(self, values: np.ndarray, share: np.ndarray) -> None:
        self.taken += float(values @ share)
        self.left_out += float(values @ (1 - share))
        self.negative += int((values < 0).sum())
        self.lowest = min(self.lowest, float(values.min(initial=0.0)))
        top = float(values.max(initial=0.0))
        held = self.n_highest if self.highest >= top else 0
        smaller = float(values.max(initial=0.0, where=values < max(top, self.highest)))
        others = (smaller, self.second, min(top, self.highest) if top != self.highest else 0.0)
        self.highest, self.second = max(top, self.highest), max(others)
        self.n_highest = held + int((values == self.highest).sum())

    @property
    def strange(self) -> bool:
        """Whether the largest value is far beyond all others and yet held by several pixels."""
        return self.n_highest > 1 and self.highest > _FAR_BEYOND * self.second > 0

    @property
    def marks_nothing(self) -> bool:
        """Whether the largest value is one that files use where they have no data, and stands out."""
        usual = self.highest in _NO_DATA or self.highest > _NO_AMOUNT_AT_ALL
        return usual and self.n_highest > 1 and self.highest > 2.0 * self.second > 0


def _overlay(
    raster: RasterSource, link: PixelLink, outlines: Outlines, amounts: bool
) -> tuple[np.ndarray, np.ndarray, _Tally]:
    """Return the integrals over each node of the values and of where they are known, and what was met.

    By Green's theorem the integral over a node is that of the running sums along the rows over its outline;
    the work follows the length of the outlines in pixels. Pixels off the land are set to zero first, so that
    nothing they hold enters the running sums.
    """
    n, tally = len(outlines.area), _Tally()
    value, known = np.zeros(n), np.zeros(n)
    top, left, bottom, right = outlines.window
    width, height = right - left, max(_BLOCK // (right - left), 1)
    low, high = (f(outlines.segments[:, 1], outlines.segments[:, 3]) for f in (np.minimum, np.maximum))
    for start in range(top, bottom, height):
        stop = min(start + height, bottom)
        values = raster.read(start, left, stop, right)
        here = np.flatnonzero((high > start) & (low < stop))
        if len(here) == 0 or np.isnan(values).all():
            continue
        parts, source = split_with_owner(outlines.segments[here] - [left, start, left, start])
        middle = (parts[:, :2] + parts[:, 2:]) / 2
        inside = (middle[:, 1] > 0) & (middle[:, 1] < stop - start)
        parts, middle, owner = parts[inside], middle[inside], outlines.owner[here[source[inside]]]
        parts[:, ::2], middle[:, 0] = np.clip(parts[:, ::2], 0, width), np.clip(middle[:, 0], 0, width)
        share = cover(parts, (stop - start, width))[0]
        on = (share > _NO_AREA) & np.isfinite(values)
        tally.add(values[on], share[on])
        weight = on.astype(float)
        if not amounts and link.west is not None:
            cols, rows = np.meshgrid(np.arange(left, right) + 0.5, np.arange(start, stop) + 0.5)
            weight *= np.cos(np.radians(apply_affine(link.affine, cols, rows)[1]))
        col = np.minimum(middle[:, 0].astype(np.int64), width - 1)
        at = middle[:, 1].astype(np.int64) * width + col
        for total, field in ((value, np.where(on, values, 0.0) * weight), (known, weight)):
            before = np.zeros_like(field)
            np.cumsum(field[:, :-1], axis=1, out=before[:, 1:])
            running = before.ravel()[at] + field.ravel()[at] * (middle[:, 0] - col)
            total += np.bincount(owner, (parts[:, 3] - parts[:, 1]) * running, n)
    return value, known, tally


def _check(tally: _Tally, name: str) -> None:
    """Refuse negative amounts and those that mean no data; tell of strange ones, and what lies off the land."""
    if tally.negative:
        raise DataError(
            f"{name} is to hold amounts, but {count(tally.negative, 'pixel')} on this land "
            f"{'is' if tally.negative == 1 else 'are'} negative, down to {number(tally.lowest)}.",
            found=tally.negative,
            remedy="If that means no data, declare it as nodata in the file, for example with gdal_edit "
            "-a_nodata; otherwise put zero there.",
        )
    if tally.marks_nothing or tally.strange:
        text = (
            f"{count(tally.n_highest, 'pixel')} of {name} on this land hold {number(tally.highest, 6)}, far beyond all "
            f"others, which reach {number(tally.second, 6)}"
        )
        remedy = (
            f"If that means no data, declare it as nodata in the file, for example with gdal_edit -a_nodata "
            f"{tally.highest:.10g}"
        )
        if tally.marks_nothing:
            raise DataError(
                f"{text}: such a number is used where there are no data.",
                found=tally.n_highest,
                remedy=f"{remedy}; otherwise put the amount there.",
            )
        warn(InputWarning(f"{text}.", found=tally.n_highest, remedy=f"{remedy}."))
    touched = tally.taken + tally.left_out
    name = Path(name).name  # warnings stand in reports, and these travel
    if tally.left_out > LEFT_OUT * touched:
        warn(
            InputWarning(
                f"The pixels of {name} that touch this domain's land hold {number(touched)}; "
                f"{number(tally.left_out)} of that ({percent(tally.left_out / touched, 1)}) lie off the land "
                "and are left out, a pixel's amount being spread evenly over it.",
                found=tally.left_out,
                remedy="If those parts of pixels are water, so that all of it belongs on the land, use a finer raster.",
            )
        )


# -- points on the nodes' land look up their pixel


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
            node = domain.node_at(coords)
            on = node >= 0
            # A node may own slivers in a neighbouring cell, which come in another part: add up all first.
            parts.append((node[on], coords[on], side**-2))
            total += np.bincount(node[on], minlength=domain.n_nodes) / side**2
    for node, coords, each in parts:
        yield node, each * domain.node_areas[node] / total[node], coords
    empty = np.flatnonzero(total == 0)
    if len(empty):
        yield empty, domain.node_areas[empty], domain.node_points[empty]


def _by_points(
    raster: RasterSource, domain: Domain, link: PixelLink, nodes: np.ndarray, amounts: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `_overlay` does for nodes that the raster's projection tears apart, by points on land."""
    value, known = np.zeros(domain.n_nodes), np.zeros(domain.n_nodes)
    for node, weight, coords in _samples(domain):
        mine = np.isin(node, nodes)
        at, w, near = coords[mine], weight[mine], link.longitudes(coords[mine])
        values = _values_at(raster, link.to_pixels(at))
        on = np.isfinite(values)
        amount = np.where(on, values * w, 0.0)
        if amounts:  # a pixel's value by its density on the plane
            pixels = _pixels_per_area(link, at, near, 1e-3 * domain.cell_size)
            amount = np.where(on, amount * pixels, 0.0)
            amount *= (domain.planar_areas / domain.node_areas)[node[mine]]
        value += np.bincount(node[mine], amount, domain.n_nodes)
        known += np.bincount(node[mine], np.where(on, w, 0.0), domain.n_nodes)
    return value, known


def _pixels_per_area(link: PixelLink, at: np.ndarray, near: np.ndarray | None, step: float) -> np.ndarray:
    """Return the number of pixels per unit of area on the domain's plane, around points."""
    here, sides = link.to_pixels(at, near, by_area=True), []
    for move in np.eye(2) * step:
        ahead, behind = (link.to_pixels(at + m, near, by_area=True) - here for m in (move, -move))
        # One of them may lie across the edge of the raster's projection.
        sides.append(np.where((np.hypot(*ahead.T) < np.hypot(*behind.T))[:, None], ahead, -behind))
    (a, b), (c, d) = sides[0].T, sides[1].T
    return np.abs(a * d - b * c) / step**2


def _values_at(raster: RasterSource, pixels: np.ndarray) -> np.ndarray:
    """Return the values of the pixels that fractional columns and rows lie in; NaN outside."""
    rows, cols = raster.shape
    x, y = pixels.T
    with np.errstate(invalid="ignore"):
        inside = (x >= 0) & (x < cols) & (y >= 0) & (y < rows)
    col, row = np.where(inside, x, 0).astype(np.int64), np.where(inside, y, 0).astype(np.int64)
    out = np.full(len(pixels), np.nan)
    if inside.any():
        # One strip at a time: the points may lie far apart in a raster that does not fit into memory.
        left, right = col[inside].min(), col[inside].max() + 1
        height = max(_BLOCK // int(right - left), 1)
        for start in range(int(row[inside].min()), int(row[inside].max()) + 1, height):
            here = np.flatnonzero(inside & (row >= start) & (row < start + height))
            if len(here):
                values = raster.read(start, int(left), min(start + height, rows), int(right))
                out[here] = values[row[here] - start, col[here] - left]
    return out
