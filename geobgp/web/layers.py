"""Layers of the interactive map: pictures in web Mercator, and the numbers under the cursor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyproj
import scipy.sparse as sp
import shapely
from affine import Affine

from geobgp.errors import DataError, DomainError, option
from geobgp.land.crs import transform_xy
from geobgp.output import palette
from geobgp.output.grids import uncertainty
from geobgp.output.palette import Classes
from geobgp.privacy import hidden_words, shown_words
from geobgp.text import number, rounded
from geobgp.units import RELATIVE_RISK, exceeds, warn_if_far
from geobgp.web.page import pack

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.land.domain import Domain


# -- Layers: the pictures of a web map, each with its classes and its words, and what thresholds they show ---


@dataclass(frozen=True, eq=False)
class Layer:
    """One picture: its classes and its words.

    Attributes
    ----------
    key : str
        What the page's script knows it by.
    name, heading, units : str
        In the list of layers, and above its legend.
    words : str
        What it shows, in the subtitle of the map.
    values : array
        On the grid, NaN off land; with a period first where there are several.
    classes : Classes
    field : str
        The field that holds a probability for the read-out, such as "p0"; "" where it is none.
    chance : str
        What that is the probability of.
    note : str
        What a reader should know of it, below its legend.
    hatched : str
        What hatching means, in the legend; "" where nothing is hatched.
    hidden : str
        Why land is grey, in the legend; "" where no small numbers are hidden.
    """

    key: str
    name: str
    heading: str
    units: str
    words: str
    values: np.ndarray
    classes: Classes
    field: str = ""
    chance: str = ""
    note: str = ""
    hatched: str = ""
    hidden: str = ""

    @property
    def index(self) -> np.ndarray:
        """The class of every cell, -1 off land, all in one line (one for each period)."""
        shape = (*self.values.shape[:-2], -1)
        return self.classes.index(self.values.astype(np.float32)).astype(np.int16).reshape(shape)

    def config(self) -> dict[str, Any]:
        """Return what the page's script needs."""
        # Probabilities are read in per cent.
        factor = 100 if self.field else 1
        labels = replace(self.classes, breaks=self.classes.breaks * factor).labels()
        entries = zip(self.classes.hex, labels, strict=True)
        return {
            "key": self.key,
            # What an address calls it.
            "id": self.field or self.key,
            "heading": self.heading,
            "units": self.units,
            "field": self.field,
            "chance": self.chance,
            "note": self.note,
            "hatched": self.hatched,
            "hidden": self.hidden,
            "classes": [{"colour": colour, "label": label} for colour, label in entries],
        }


def drawn_layer(data: xr.Dataset, units: str) -> Layer:
    """Return the layer of the statistic that is drawn, the mean or the median."""
    variable, statistic = palette.drawn_variable(data), str(data.attrs.get("drawn", "mean"))
    name = f"{statistic.capitalize()} {data[variable].attrs.get('quantity', 'intensity')}"
    words = f"{statistic} {data[variable].attrs.get('quantity', 'intensity')}, {units}"
    return Layer(statistic, name, name, units, words, data[variable].values, palette.classes_in(data, variable))


def uncertainty_layer(data: xr.Dataset) -> Layer:
    """Return the layer of the uncertainty: relative to the mean, or in the map's own unit."""
    values, of_mean = uncertainty(data)
    units = str(data["sd"].attrs.get("units", ""))
    classes = palette.classes_for("cv" if of_mean else "sd", values.astype(np.float32), units)
    note = f"The uncertainty is {classes.names[0]}." if classes.names else ""
    heading = "Relative uncertainty" if of_mean else "Standard deviation"
    words = "standard deviation in per cent of the mean" if of_mean else f"standard deviation, {units}"
    units = "sd / mean, %" if of_mean else units
    return Layer("uncertainty", "Uncertainty", heading, units, words, values, classes, note=note)


def with_legend(layers: list[Layer], posterior: Any) -> list[Layer]:
    """Return layers whose legends say which small numbers are hidden, and why."""
    if not getattr(posterior, "protection", None):
        return layers
    hidden, words = hidden_words(posterior), shown_words(posterior)
    return [replace(layer, note=" ".join(filter(None, (layer.note, words))), hidden=hidden) for layer in layers]


def chance_layer(
    values: np.ndarray,
    threshold: float,
    quantity: str,
    units: str,
    field: str,
    span: tuple[float, float],
    interval: str,
) -> Layer:
    """Return the layer of the probability of exceeding a threshold; that no place comes near it is warned of.

    `span` is the lowest and the highest number of the map's intervals, whose probability `interval` says.
    """
    text = number(threshold, 3)
    classes = palette.classes_for("exceedance", values.astype(np.float32))
    event = exceeds(quantity, threshold, units)
    note = warn_if_far(threshold, units, (float(np.nanmin(values)), float(np.nanmax(values))), span, interval)
    name = f"Probability > {text}"
    return Layer(
        "exceedance", name, name, f"probability (%) that {event}", f"probability that {event}", values, classes, field,
        f"probability > {text}", note,
    )  # fmt: skip


def chosen_thresholds(
    threshold: float | bool | None, thresholds: Sequence[float] | None, default: float
) -> list[float]:
    """Return the thresholds to show, ascending: those given, or the default one; none if `threshold` is False.

    Examples
    --------
    >>> chosen_thresholds(None, None, 0.3), chosen_thresholds(False, (), 0.3), chosen_thresholds(None, [2, 1], 0.3)
    ([0.3], [], [1.0, 2.0])
    """
    many = [] if thresholds is None else np.atleast_1d(np.asarray(thresholds, float)).tolist()
    one = [] if threshold is None or isinstance(threshold, bool) else [float(threshold)]
    if many and (one or threshold is False):
        raise DataError(
            f"Both {option('threshold')} and {option('thresholds')} were given.",
            option="thresholds",
            found=[*one, *many],
            remedy=f"Give all of them as {option('thresholds')}.",
        )
    if many or one:
        return sorted(set(many + one))
    return [] if threshold is False else [default]


def default_threshold(posterior: Any, data: xr.Dataset) -> float:
    """Return the threshold where none was asked for: 1 of a ratio, else the mean over all land, or over the exposed.

    `data` is what the map shows, of all periods.
    """
    if data["mean"].attrs.get("quantity") == RELATIVE_RISK:
        return 1.0
    if posterior.drawn == "median":
        return rounded(float(posterior.overall), 2)
    return overall(posterior.domain, data["mean"].values)


def overall(domain: Domain, mean: np.ndarray) -> float:
    """Return the mean over all land (and all periods), rounded to two digits."""
    weight = np.where(np.isfinite(mean), domain.coverage * domain.cell_area, 0.0)
    return rounded(np.sum(np.where(weight > 0, mean, 0.0) * weight) / weight.sum(), 2)


# -- Numbers: what the map's read-out shows, cell by cell, as codes of the very digits that are shown --------


#: Significant digits of every number.
DIGITS: Final = 3
_TOO_LARGE: Final = 65535
# Codes in a power of ten, and how many powers there is room for beside none, zero and too large.
_DECADE: Final = 9 * 10 ** (DIGITS - 1)
_DECADES: Final = (_TOO_LARGE - 2) // _DECADE
# Where some numbers are negative, their codes count down from the largest; so far up go the others.
_HALF: Final = _TOO_LARGE // 2
#: Bytes that a number takes at least, about; with it a hopeless attempt is not made.
_BYTES: Final = 0.5


@dataclass(frozen=True)
class Decimals:
    """Numbers of three significant digits as codes: 0 for none, 1 for zero, 65535 for too large.

    Attributes
    ----------
    lowest : int
        The power of ten of code 2, which stands for 1.00 times it.
    signed : bool
        Whether some numbers are negative: the code of -x is 65535 less that of x.

    Examples
    --------
    >>> decimals = Decimals(lowest=-2)
    >>> decimals.encode(np.array([np.nan, 0, 0.01, 0.0123456, 0.9996]))
    array([   0,    1,    2,   25, 1802], dtype=uint16)
    >>> decimals.decode(np.array([25, 1802])).tolist()
    [0.0123, 1.0]
    """

    lowest: int
    signed: bool = False

    @classmethod
    def holding(cls, *arrays: np.ndarray) -> Decimals:
        """Return decimals that hold all values; if their sizes span too much, those around the middle."""
        sizes = [np.abs(a[(a != 0) & np.isfinite(a)]) for a in arrays]
        signed = any((a < 0).any() for a in arrays)
        decades = _DECADES // 2 if signed else _DECADES
        powers = np.concatenate([np.floor(np.log10(a)) for a in sizes]) if sizes else np.empty(0)
        if not powers.size:
            return cls(0)
        low, high = powers.min(), powers.max()
        return cls(int(low if high - low < decades else np.median(powers) - decades // 2), signed)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return codes as uint16; values are rounded as `geobgp.text.rounded` does, half-way cases too."""
        values = np.asarray(values, float)
        if self.signed:
            sizes = np.minimum(replace(self, signed=False).encode(np.abs(values)), _HALF).astype(np.int64)
            codes = np.where((values < 0) & (sizes > 1), _TOO_LARGE - sizes, sizes)
            return np.where(np.isposinf(values), _TOO_LARGE, codes).astype(np.uint16)
        codes = np.where(np.isnan(values), 0, 1)
        codes[np.isposinf(values)] = _TOO_LARGE
        with np.errstate(invalid="ignore"):
            held = (values > 0) & np.isfinite(values)
        some = values[held]
        power = np.floor(np.log10(some))
        digits = _scaled(some, power)
        # The logarithm may be off by its last bit at a power of ten.
        power += np.where(digits >= 10**DIGITS, 1, np.where(digits < 10 ** (DIGITS - 1), -1, 0))
        digits = _scaled(some, power)
        whole = np.round(digits)
        for i in np.flatnonzero(np.abs(digits - np.floor(digits) - 0.5) < 1e-6):
            whole[i] = np.round(_scaled(rounded(float(some[i]), DIGITS), power[i]))
        code = 2 + (power - self.lowest) * _DECADE + whole - 10 ** (DIGITS - 1)
        codes[held] = np.where(code < 2, 1, np.minimum(code, _TOO_LARGE))
        return codes.astype(np.uint16)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return numbers, NaN for none; what the page's script does."""
        if self.signed:
            negative = (codes > _HALF) & (codes < _TOO_LARGE)
            sizes = np.where(negative, _TOO_LARGE - codes.astype(np.int64), codes)
            return np.where(negative, -1.0, 1.0) * replace(self, signed=False).decode(sizes)
        power, digits = np.divmod(codes.astype(np.int64) - 2, _DECADE)
        power, digits = power + self.lowest - DIGITS + 1, digits + 10 ** (DIGITS - 1)
        text = [f"{d}e{p}" for d, p in zip(digits.ravel().tolist(), power.ravel().tolist(), strict=True)]
        numbers = np.array(text, dtype=np.str_).astype(float).reshape(codes.shape)
        known = [codes == 0, codes == 1, codes == _TOO_LARGE]
        return np.select(known, [np.nan, 0.0, np.inf], numbers)


def _scaled(values: Any, power: Any) -> Any:
    """Return values with their digits before the point; in two steps, since a power may be out of range."""
    half = np.trunc((DIGITS - 1 - power) / 2)
    return values * 10.0**half * 10.0 ** (DIGITS - 1 - power - half)


def chance_codes(p: np.ndarray) -> np.ndarray:
    """Return probabilities as codes: 0 for none, else thousandths plus 1.

    Between 10 % and 90 % they are whole percentages, elsewhere tenths of them; 0 and 1000 thousandths stand for
    less than 0.1 % and more than 99.9 %.

    Examples
    --------
    >>> chance_codes(np.array([np.nan, 0.0004, 0.0126, 0.4449, 0.9994])) - 1.0
    array([  -1.,    0.,   13.,  440., 1000.])
    """
    with np.errstate(invalid="ignore"):
        tenths = np.round(1000 * p)
        shown = np.where((tenths >= 100) & (tenths <= 900), 10 * np.round(100 * p), tenths)
        shown = np.where(p < 0.001, 0, np.where(p > 0.999, 1000, shown))
    return np.where(np.isnan(p), 0, shown + 1).astype(np.uint16)


def is_chance(name: str) -> bool:
    """Return whether a field holds a probability: "p", "p0", "p1", ..."""
    return name[:1] == "p"


@dataclass(frozen=True, eq=False)
class Numbers:
    """The numbers of all cells with land, packed.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns of numbers.
    row, col : int
        Of the grid, where they begin.
    block : int
        1: each number is a cell's own. k: it is the average, by land, of k x k cells.
    decimals : Decimals
    arrays : mapping of str to str
        From `geobgp.web.page.pack`; "p", "p0", ... in `chance_codes`, all others in `decimals`.
    """

    shape: tuple[int, int]
    row: int
    col: int
    block: int
    decimals: Decimals
    arrays: Mapping[str, str]

    @classmethod
    def of(cls, domain: Domain, fields: Mapping[str, np.ndarray], max_bytes: int) -> Numbers:
        """Return the numbers of fields on the domain's grid; averages only where cells would take too much.

        Fields are (rows, cols), or (periods, rows, cols); the first one says where there are numbers.
        """
        first = next(iter(fields))
        known = np.isfinite(fields[first])
        periods = known.shape[:-2]
        land = np.where(known.any(axis=0) if periods else known, domain.coverage * domain.cell_area, 0.0)
        rows, cols = np.nonzero(land)
        row, col = int(rows.min()), int(cols.min())
        box = np.s_[row : rows.max() + 1, col : cols.max() + 1]
        n = len(rows) * len(fields) * math.prod(periods)
        block = max(math.ceil(math.sqrt(_BYTES * n / max_bytes)), 1)
        while True:
            cut = {name: _averages(values[(..., *box)], land[box], block) for name, values in fields.items()}
            decimals = Decimals.holding(*(values for name, values in cut.items() if not is_chance(name)))
            arrays = {}
            for name, values in cut.items():
                codes = chance_codes(values) if is_chance(name) else decimals.encode(values)
                # Periods lie one below the other, each in one line.
                arrays[name] = pack(codes.reshape(*periods, -1) if periods else codes)
            n_rows, n_cols = cut[first].shape[-2:]
            made = cls((n_rows, n_cols), row, col, block, decimals, arrays)
            if made.size <= max_bytes or max(made.shape) == 1:
                return made
            block = max(block + 1, math.ceil(block * math.sqrt(made.size / max_bytes)))

    @property
    def size(self) -> int:
        """Bytes they take in the page."""
        return sum(map(len, self.arrays.values()))

    def config(self) -> dict[str, Any]:
        """Return what the page's script needs beside the arrays."""
        return {
            "rows": self.shape[0], "cols": self.shape[1], "row": self.row, "col": self.col,
            "block": self.block, "lowest": self.decimals.lowest, "digits": DIGITS,
            **({"signed": True} if self.decimals.signed else {}),
        }  # fmt: skip


def _averages(values: np.ndarray, weights: np.ndarray, block: int) -> np.ndarray:
    """Return weighted averages of block x block values; NaN where there is no value with a weight."""
    if block == 1:
        return values
    at = [np.arange(0, n, block) for n in values.shape[-2:]]

    def total(array: np.ndarray) -> np.ndarray:
        return np.add.reduceat(np.add.reduceat(array, at[0], axis=-2), at[1], axis=-1)

    weights = np.where(np.isfinite(values), weights, 0.0)
    with np.errstate(invalid="ignore"):
        return total(np.where(weights > 0, values, 0.0) * weights) / total(weights)


# -- Patches: where a place of a web map lies among the cells, by polynomials that the page's script evaluates --
# The script has no projections. Over each patch of the picture the cell coordinates are smooth: their values at a
# few Chebyshev places give them everywhere in it.


#: Largest error of a position, in cells.
TOLERANCE: Final = 1e-4
#: Chebyshev places along each side of a patch.
KNOTS: Final = 8
#: Patches along each side of the picture at most.
MAX_PATCHES: Final = 16
_DECIMALS: Final = 6


@dataclass(frozen=True, eq=False)
class Patches:
    """Cell coordinates over the unit square, which stands for the picture, from its north-west corner.

    Attributes
    ----------
    values : (2, k, n, k, n) array
        Column and row (in units of cells, from the grid's north-west corner) at the knots: patch and knot
        southward, patch and knot eastward.
    """

    values: np.ndarray

    @classmethod
    def over(cls, plane: Plane) -> Patches:
        """Return patches as few as hold the tolerance over all of the land's rows and columns.

        Where even the most of them do not, positions are NaN: nothing is read there.
        """
        grid = plane.domain.grid
        rows, cols = np.nonzero(plane.domain.coverage > 0)

        def exact(s: np.ndarray, t: np.ndarray) -> np.ndarray:
            x = plane.west + s * plane.shape[1] * plane.pixel
            y = plane.north - t * plane.shape[0] * plane.pixel
            return np.stack(grid.to_cells(*plane.from_plane(x, y)))

        n, k = KNOTS, 1
        while True:
            along = ((np.arange(k)[:, None] + _patch_knots(n)) / k).ravel()
            made = cls(np.round(exact(*np.meshgrid(along, along)), _DECIMALS).reshape(2, k, n, k, n))
            # Twice as many places, and none of them a knot.
            between = (np.arange(2 * n * k) + 0.5) / (2 * n * k)
            s, t = np.meshgrid(between, between)
            u, v = exact(s, t)
            with np.errstate(invalid="ignore"):
                wanted = (u > cols.min()) & (u < cols.max() + 1) & (v > rows.min()) & (v < rows.max() + 1)
                off = wanted & ~(np.abs(made.at(s, t) - (u, v)).max(axis=0) <= TOLERANCE)
            if not off.any():
                return made
            if 2 * k > MAX_PATCHES:
                wrong = off.reshape(k, 2 * n, k, 2 * n).any(axis=(1, 3))
                return cls(np.where(wrong[:, None, :, None], np.nan, made.values))
            k *= 2

    def at(self, s: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (2, ...) column and row at shares (s, t) of the way east and south; what the script does."""
        k, n = self.values.shape[1:3]
        s, t = np.broadcast_arrays(np.asarray(s, float), np.asarray(t, float))
        east, south = (np.clip((k * share.ravel()).astype(np.int64), 0, k - 1) for share in (s, t))
        across, down = _weights(k * s.ravel() - east, n), _weights(k * t.ravel() - south, n)
        knots = self.values[:, south, :, east, :]
        return np.einsum("pi,pcij,pj->cp", down, knots, across).reshape(2, *s.shape)

    def config(self) -> dict[str, Any]:
        """Return what the page's script needs."""
        k, n = self.values.shape[1:3]
        return {
            "count": k,
            "knots": n,
            "cols": self.values[0].ravel().tolist(),
            "rows": self.values[1].ravel().tolist(),
        }


def _patch_knots(n: int) -> np.ndarray:
    """Chebyshev places on [0, 1], the ends among them."""
    return (1 - np.cos(np.pi * np.arange(n) / (n - 1))) / 2


def _weights(z: np.ndarray, n: int) -> np.ndarray:
    """Return (p, n) weights of the knots at places of [0, 1]: the barycentric formula."""
    sign = np.where(np.arange(n) % 2, -1.0, 1.0)
    sign[[0, -1]] /= 2
    gap = z[:, None] - _patch_knots(n)
    hit = gap == 0
    share = sign / np.where(hit, 1.0, gap)
    share = np.where(hit.any(axis=1, keepdims=True), hit, share)
    return share / share.sum(axis=1, keepdims=True)


# -- The picture's plane: where each pixel of a web map lies on the domain, and the shoreline on the map -----
# A map on Earth is drawn in spherical Mercator (EPSG:3857), in one piece: longitudes go on beyond 180
# degrees where the domain crosses the antimeridian. A local domain is drawn in its own plane.


#: Radius of EPSG:3857's sphere in metres.
RADIUS = 6378137.0
#: Latitude at which the web's Mercator square ends.
MAX_LATITUDE = 85.0511287798
#: At most this many pixels stand for the side of one cell.
MAX_OVERSAMPLING = 4.0
#: Up to this many pixels every one is transformed exactly.
EXACT_PIXELS = 100_000
_MAX_VERTICES = 100_000
_FINER = 4
_Transform = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Plane:
    """Pixels of a web map over a domain.

    Attributes
    ----------
    domain : Domain
    shape : (int, int)
        Rows and columns of pixels.
    west, north : float
        Outer corner of the first pixel, in metres of Mercator (or the local unit).
    pixel : float
        Side of a pixel in the same unit.
    longitude : float
        Of the middle of the domain; longitudes are given within 180 degrees of it. Not used if local.
    oversampling : float
        Pixels along the side of a cell, about; under 1 when not every cell has a pixel.
    """

    domain: Domain
    shape: tuple[int, int]
    west: float
    north: float
    pixel: float
    longitude: float
    oversampling: float

    @classmethod
    def over(cls, domain: Domain, max_pixels: int) -> Plane:
        """Return the plane over all land, as fine as `max_pixels` and `MAX_OVERSAMPLING` allow."""
        longitude = 0.0 if domain.crs is None else _middle_longitude(domain)
        bare = cls(domain, (1, 1), 0.0, 0.0, 1.0, longitude, 1.0)
        rows, cols = np.nonzero(domain.coverage > 0)
        u = np.linspace(cols.min(), cols.max() + 1, 129)
        v = np.linspace(rows.min(), rows.max() + 1, 129)
        x, y = bare.to_plane(*domain.grid.from_cells(*np.meshgrid(u, v)))
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise DomainError(
                f"The domain ({domain.crs.name if domain.crs else 'local'}) reaches a pole or goes beyond "
                "its CRS, where a web map cannot show it.",
                remedy="Use the rasters in QGIS instead.",
            )
        # The size of a cell on the plane, in the middle of the domain.
        du = np.hypot(np.diff(x, axis=1), np.diff(y, axis=1)) / (u[1] - u[0])
        dv = np.hypot(np.diff(x, axis=0), np.diff(y, axis=0)) / (v[1] - v[0])
        cell = math.sqrt(float(np.median(du)) * float(np.median(dv)))
        width, height = float(np.ptp(x)), float(np.ptp(y))
        oversampling = min(MAX_OVERSAMPLING, math.sqrt(max_pixels * cell**2 / (width * height)))
        pixel = cell / oversampling
        shape = (max(math.ceil(height / pixel - 1e-9), 1), max(math.ceil(width / pixel - 1e-9), 1))
        return cls(domain, shape, float(x.min()), float(y.max()), pixel, longitude, oversampling)

    @property
    def local(self) -> bool:
        """Whether the plane is the domain's own."""
        return self.domain.crs is None

    @property
    def bounds(self) -> list[list[float]]:
        """South-west and north-east corner as [latitude, longitude]; [northing, easting] if local."""
        east = self.west + self.shape[1] * self.pixel
        south = self.north - self.shape[0] * self.pixel
        (w, s), (e, n) = self.to_degrees(self.west, south), self.to_degrees(east, self.north)
        return [[float(s), float(w)], [float(n), float(e)]]

    @cached_property
    def _to_degrees(self) -> pyproj.Transformer:
        return pyproj.Transformer.from_crs(self.domain.crs, 4326, always_xy=True)

    def to_plane(self, easting: np.ndarray, northing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coordinates on the plane of coordinates in the domain's CRS."""
        if self.local:
            return np.asarray(easting, float), np.asarray(northing, float)
        lon, lat = transform_xy(self._to_degrees, easting, northing)
        lon = self.longitude + np.mod(lon - self.longitude + 180.0, 360.0) - 180.0
        lat = np.clip(lat, -MAX_LATITUDE, MAX_LATITUDE)
        return RADIUS * np.radians(lon), RADIUS * np.arcsinh(np.tan(np.radians(lat)))

    def from_plane(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coordinates in the domain's CRS of coordinates on the plane."""
        if self.local:
            return x, y
        lon, lat = self.to_degrees(x, y)
        return transform_xy(self._to_degrees, lon, lat, inverse=True)

    def to_degrees(self, x: np.ndarray | float, y: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Return longitudes (which may pass 180) and latitudes; local coordinates stay as they are."""
        if self.local:
            return np.asarray(x, float), np.asarray(y, float)
        return np.degrees(np.asarray(x) / RADIUS), np.degrees(np.arctan(np.sinh(np.asarray(y) / RADIUS)))

    @cached_property
    def land(self) -> shapely.Geometry:
        """The domain's land on the plane; long edges are divided, since they bend."""
        return self._project(self.domain.geometry)

    def _project(self, geometry: shapely.Geometry) -> shapely.Geometry:
        if self.local:
            return geometry
        cut = shapely.segmentize(geometry, 8 * self.domain.cell_size)
        return shapely.transform(cut, lambda xy: np.column_stack(self.to_plane(xy[:, 0], xy[:, 1])))

    def in_degrees(self, shapes: np.ndarray) -> np.ndarray:
        """Return polygons in the domain's CRS in degrees, in one piece beyond 180 too, right to a thousandth pixel."""
        digits = max(math.ceil(-math.log10((self.pixel if self.local else math.degrees(self.pixel / RADIUS)) / 1e3)), 0)

        def moved(xy: np.ndarray) -> np.ndarray:
            return np.round(np.column_stack(self.to_degrees(*self.to_plane(xy[:, 0], xy[:, 1]))), digits)

        return np.asarray(shapely.transform(shapes, moved))

    def cells(self) -> np.ndarray:
        """Return, for each pixel, the cell (row * columns + column) whose value it shows, -1 for none.

        A pixel shows a cell if a quarter of it is land, so that thin rivers stay lines and do not fray.
        A node whose cell would then have no pixel gets the one that its own point lies in, so that small
        islands are not lost.
        """
        from rasterio.features import rasterize

        grid = self.domain.grid

        def where(col: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return self.from_plane(self.west + col * self.pixel, self.north - row * self.pixel)

        rows, cols = np.arange(self.shape[0]) + 0.5, np.arange(self.shape[1]) + 0.5
        east, north = transform_pixels(where, rows, cols, tolerance=0.02 * grid.cell_size)
        at_row, at_col, inside = grid.cell_of(east, north)
        cell = np.where(inside, at_row * np.int64(grid.shape[1]) + at_col, -1)
        has_land = np.append(self.domain.coverage.ravel() > 0, False)
        cell = np.where(has_land[cell], cell, -1)
        fine = _FINER * np.array(self.shape)
        affine = Affine(self.pixel / _FINER, 0, self.west, 0, -self.pixel / _FINER, self.north)
        land = rasterize([self.land], tuple(fine.tolist()), transform=affine, dtype=np.uint8)
        share = land.reshape(self.shape[0], _FINER, self.shape[1], _FINER).sum(axis=(1, 3), dtype=np.uint8)
        out = np.where(share >= 0.25 * _FINER**2, cell, -1)
        shown = np.bincount(out[out >= 0], minlength=grid.n_cells) > 0
        of_node = self.domain.node_rows * np.int64(grid.shape[1]) + self.domain.node_cols
        lost = ~shown[of_node]
        x, y = self.to_plane(*self.domain.node_points[lost].T)
        row = np.clip((self.north - y) / self.pixel, 0, self.shape[0] - 1).astype(np.int64)
        col = np.clip((x - self.west) / self.pixel, 0, self.shape[1] - 1).astype(np.int64)
        free = out[row, col] < 0
        out[row[free], col[free]] = of_node[lost][free]
        return out

    def shoreline(self) -> list[list[list[float]]]:
        """Return the outline of the land as lines of [longitude, latitude], right well within a pixel."""
        lines = [shapely.boundary(self.domain.geometry)]
        if self.domain.barriers is not None:
            lines.append(self.domain.barriers)
        return self.outline(shapely.geometrycollections(lines), 0.05)

    def outline(self, lines: shapely.Geometry, tolerance: float = 0.2) -> list[list[list[float]]]:
        """Return lines in the domain's CRS as lists of [longitude, latitude].

        Parameters
        ----------
        lines : geometry
            Lines, or a collection of them.
        tolerance : float
            How far they may be off, in pixels; more where they have very many vertices.
        """
        whole = shapely.get_parts(shapely.get_parts(self._project(lines)))
        tolerance *= self.pixel
        simple = shapely.simplify(whole, tolerance, preserve_topology=False)
        while shapely.get_num_coordinates(simple).sum() > _MAX_VERTICES:
            tolerance *= 2
            simple = shapely.simplify(whole, tolerance, preserve_topology=False)
        simple = simple[~shapely.is_empty(simple)]
        xy, owner = shapely.get_coordinates(simple, return_index=True)
        lon, lat = self.to_degrees(xy[:, 0], xy[:, 1])
        step = self.pixel if self.local else math.degrees(self.pixel / RADIUS)
        digits = max(math.ceil(-math.log10(step / 100)), 0)
        points = np.round(np.column_stack([lon, lat]), digits)
        ends = np.searchsorted(owner, np.arange(1, len(simple)))
        return [part.tolist() for part in np.split(points, ends) if len(part)]


def _middle_longitude(domain: Domain) -> float:
    """Longitude of the middle of the land, right across the antimeridian too."""
    to_degrees = pyproj.Transformer.from_crs(domain.crs, 4326, always_xy=True)
    sample = domain.node_points[:: max(domain.n_nodes // 2000, 1)]
    lon = np.radians(transform_xy(to_degrees, sample[:, 0], sample[:, 1])[0])
    return math.degrees(math.atan2(float(np.nanmean(np.sin(lon))), float(np.nanmean(np.cos(lon)))))


def transform_pixels(
    transform: _Transform, rows: np.ndarray, cols: np.ndarray, *, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``transform(col, row)`` for every pair of evenly spaced rows and columns.

    Parameters
    ----------
    transform : callable
        Takes arrays of columns and rows, returns two arrays of coordinates.
    rows, cols : (r,) and (c,) arrays
        Evenly spaced, ascending.
    tolerance : float
        Largest error allowed, in units of the coordinates returned; checked between the points of the
        lattice, which is refined until it holds.

    Returns
    -------
    two (r, c) arrays

    Examples
    --------
    >>> rows, cols = np.arange(3.0), np.arange(4.0)
    >>> x, y = transform_pixels(lambda col, row: (2 * col, row), rows, cols, tolerance=0.1)
    >>> x[0]
    array([0., 2., 4., 6.])
    """
    step = 32
    while len(rows) * len(cols) > EXACT_PIXELS and step >= 4:
        across, down = _knots(cols, step), _knots(rows, step)
        x, y = transform(*np.meshgrid(across, down))
        middle_x, middle_y = transform(*np.meshgrid((across[:-1] + across[1:]) / 2, (down[:-1] + down[1:]) / 2))
        if np.isfinite(x).all() and np.isfinite(y).all():
            error = max(_midpoint_error(x, middle_x), _midpoint_error(y, middle_y))
            if error <= tolerance:
                left, right = _hats(rows, down), _hats(cols, across)
                return left @ (right @ x.T).T, left @ (right @ y.T).T
        step //= 2
    grid_cols, grid_rows = np.meshgrid(cols, rows)
    return transform(grid_cols, grid_rows)


def _knots(values: np.ndarray, step: int) -> np.ndarray:
    """Evenly spaced knots over the values, about every `step` of them."""
    return np.linspace(values[0], values[-1], max(int(np.ceil((len(values) - 1) / step)), 1) + 1)


def _midpoint_error(knots: np.ndarray, middle: np.ndarray) -> float:
    mean = (knots[:-1, :-1] + knots[1:, :-1] + knots[:-1, 1:] + knots[1:, 1:]) / 4
    error = float(np.abs(mean - middle).max())
    return error if np.isfinite(error) else np.inf


def _hats(values: np.ndarray, knots: np.ndarray) -> sp.csr_array:
    """Linear interpolation from knots to values as a sparse matrix."""
    at = np.clip((values - knots[0]) / (knots[-1] - knots[0]) * (len(knots) - 1), 0, len(knots) - 1)
    low = np.minimum(at.astype(np.int64), len(knots) - 2)
    share = at - low
    row = np.arange(len(values))
    return sp.csr_array(
        (np.r_[1 - share, share], (np.r_[row, row], np.r_[low, low + 1])), shape=(len(values), len(knots))
    )
