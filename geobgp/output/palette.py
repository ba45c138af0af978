"""Colours and classes: one set of ramps and one rule for classes, shared by rasters, maps and figures.

The ramps are curves in OKLab, walked at equal perceptual steps from light (low) to dark (high), so that they
stay in order in print, in grey and for colour-blind eyes. No plotting library is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from geobgp.errors import DataError, option
from geobgp.style import QUANTILE, Style
from geobgp.text import number, rounded

if TYPE_CHECKING:
    import xarray as xr

#: What a decade is divided at, the finest division first; breaks are these numbers times a power of ten.
ROUND_NUMBERS: Final = (
    (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8),
    (1, 1.5, 2, 3, 5, 7),
    (1, 2, 3, 5),
    (1, 2, 5),
    (1, 3),
    (1,),
)
#: From the first break to the last there is this factor at least, so that little variation has few colours.
LEAST_RANGE: Final = 4.0
#: Breaks of round classes, at most.
MOST_BREAKS: Final = 9
#: Quantiles of the values between which round breaks lie; the first and the last class hold the rest.
_INNER: Final = (0.05, 0.998)
#: Values within this factor of each other differ by rounding noise only.
_ALIKE: Final = 1.02
#: An uncertainty within this factor is the same everywhere.
_EVERYWHERE: Final = 1.05
#: Where the land varies (its middle 80 % by a factor of two), no class should hold more of it than this.
_MOST_IN_ONE: Final = 0.6
#: Probabilities of the breaks at quantiles: closer together towards the top, where the hot spots are.
BREAK_PROBABILITIES: Final = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95, 0.99)
#: Breaks of the classes for probabilities.
PROBABILITY_BREAKS: Final = (0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99)
#: Breaks of the classes for shares of land.
COVERAGE_BREAKS: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 0.999)
#: Breaks of the classes for ratios: the same in every map, even about 1 on the scale of factors.
RATIO_BREAKS: Final = (0.5, 0.67, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0)
#: Probabilities of the breaks for differences, among their sizes; the first is the width of the middle class.
DIFFERENCE_PROBABILITIES: Final = (0.25, 0.6, 0.85, 0.97)

# Lightness, chroma and hue (degrees) in OKLCh at equal distances along each curve.
_CURVES: Final = {
    "intensity": (
        (0.975, 0.045, 100), (0.87, 0.12, 82), (0.73, 0.17, 52),
        (0.58, 0.19, 25), (0.42, 0.16, 355), (0.24, 0.09, 315),
    ),
    "uncertainty": (
        (0.975, 0.025, 120), (0.85, 0.075, 160), (0.70, 0.095, 190),
        (0.54, 0.095, 220), (0.38, 0.10, 255), (0.22, 0.06, 280),
    ),
    "probability": (
        (0.97, 0.010, 260), (0.85, 0.05, 255), (0.71, 0.10, 265),
        (0.56, 0.16, 285), (0.41, 0.18, 300), (0.25, 0.11, 310),
    ),
    "signed": (
        (0.30, 0.11, 255), (0.55, 0.12, 240), (0.80, 0.06, 225), (0.97, 0.005, 100),
        (0.80, 0.09, 65), (0.57, 0.17, 35), (0.32, 0.12, 20),
    ),
}  # fmt: skip
RAMPS: Final = tuple(_CURVES)
#: Outlines of hot spots, by what became of them; "" of maps without time.
HOTSPOT_COLOURS: Final = {
    "": "#8a1f4b", "first": "#8a1f4b", "new": "#c8500a", "persistent": "#8a1f4b", "intensifying": "#a50f15",
    "diminishing": "#6a51a3", "sporadic": "#2070b4", "former": "#636363",
}  # fmt: skip
_STEPS: Final = 513


@dataclass(frozen=True, eq=False)
class Classes:
    """Classes of a quantity, in order, with their colours.

    A value belongs to the first class whose upper break is not below it, as in a discrete ramp of QGIS.

    Attributes
    ----------
    breaks : (k - 1,) array
        Inner breaks, ascending; class i is ``breaks[i - 1] < value <= breaks[i]``.
    colours : (k, 3) uint8 array
        One colour per class.
    units : str
        Unit of the values, "" when there is none.
    names : tuple of str
        What the classes are called, where it is not by their breaks.
    """

    breaks: np.ndarray
    colours: np.ndarray
    units: str = ""
    names: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Number of classes."""
        return len(self.colours)

    @property
    def hex(self) -> list[str]:
        """Colours as "#rrggbb"."""
        return [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in self.colours.tolist()]

    def index(self, values: np.ndarray) -> np.ndarray:
        """Return the class of each value, -1 where it is NaN."""
        values = np.asarray(values)
        return np.where(np.isnan(values), -1, np.searchsorted(self.breaks, values, side="left"))

    def break_labels(self) -> list[str]:
        """Return the breaks with as many digits as tell them apart."""
        text = [number(b, 6) for b in self.breaks]
        for digits in range(7, 18):
            if len(set(text)) == len(text):
                break
            text = [number(b, digits) for b in self.breaks]
        return text

    def labels(self) -> list[str]:
        """Return a label for each class, without units; no two are alike."""
        if self.names:
            return list(self.names)
        if self.n == 1:
            return ["all values"]
        text = self.break_labels()
        middle = [f"{a} – {b}" for a, b in pairwise(text)]
        return [f"≤ {text[0]}", *middle, f"> {text[-1]}"]


def round_classes(values: np.ndarray, *, ramp: str = "intensity", units: str = "") -> Classes:
    """Return classes between round numbers, at about equal factors: the usual ones of everything positive.

    The breaks cover a factor of `LEAST_RANGE` at least: a map that varies by less has few of the colours. Of values
    that vary by much more the breaks lie farther apart, so that there are `MOST_BREAKS` at most.

    Parameters
    ----------
    values : array
        Any shape; NaN and infinite values are left out. Where some are negative the classes are those of
        `linear_classes`.
    ramp, units
        As for `quantile_classes`.

    Examples
    --------
    >>> round_classes(np.array([1.3, 1.4, 1.5, 1.6])).labels()
    ['≤ 0.6', '0.6 – 0.8', '0.8 – 1', '1 – 1.2', '1.2 – 1.5', '1.5 – 2', '2 – 2.5', '2.5 – 3', '> 3']
    >>> round_classes(np.geomspace(0.1, 1000, 500)).breaks.tolist()
    [0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0]
    """
    values = _finite(values)
    if (values < 0).any():
        return linear_classes(values, ramp=ramp, units=units)
    breaks = _round_breaks(values[values > 0])
    return Classes(breaks, colours(len(breaks) + 1, ramp), units)


def linear_classes(values: np.ndarray, *, ramp: str = "intensity", units: str = "") -> Classes:
    """Return classes of even widths between round numbers: of what varies by differences, such as temperatures.

    Parameters
    ----------
    values, ramp, units
        As for `round_classes`.

    Examples
    --------
    >>> linear_classes(np.linspace(-4.0, 11.0, 200)).breaks.tolist()
    [-2.0, 0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    >>> linear_classes(np.full(3, -4.0)).labels()
    ['all values']
    """
    values = _finite(values)
    low, high = np.quantile(values, _INNER)
    if not high > low:
        return Classes(np.empty(0), colours(1, ramp), units)
    # The smallest of 1, 2, 2.5 and 5 times a power of ten that gives no more than `MOST_BREAKS`.
    power = 10.0 ** math.floor(math.log10((high - low) / MOST_BREAKS))
    step = next(k * power for k in (1, 2, 2.5, 5, 10) if (high - low) / (k * power) <= MOST_BREAKS)
    numbers = np.arange(math.ceil(low / step), math.floor(high / step) + 1)
    breaks = np.array([rounded(float(k * step), 12) for k in numbers])
    return Classes(breaks, colours(len(breaks) + 1, ramp), units)


def _finite(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, float)
    values = values[np.isfinite(values)]
    if values.size == 0:
        raise DataError("No finite value to make classes of; the field is empty or all NaN.")
    return values


def _round_breaks(values: np.ndarray) -> np.ndarray:
    """Return round numbers between which positive values lie."""
    if not values.size:
        return np.empty(0)
    low, high = np.quantile(values, _INNER)
    candidates = [_round_numbers(some, low, high) for some in ROUND_NUMBERS]
    decades = candidates[-1]
    candidates += [decades[::k] for k in range(2, len(decades) // MOST_BREAKS + 2)]
    k = next(k for k, some in enumerate(candidates) if len(some) <= MOST_BREAKS)
    breaks = candidates[k]
    varies = np.quantile(values, 0.9) >= 2 * np.quantile(values, 0.1)
    while varies and k > 0 and _shares(values, breaks).max() > _MOST_IN_ONE:
        # A long tail has taken the breaks away from where the land is: closer ones, where they tell most apart.
        k -= 1
        starts = range(max(len(candidates[k]) - MOST_BREAKS, 0) + 1)
        breaks = max((candidates[k][i : i + MOST_BREAKS] for i in starts), key=lambda b: _entropy(values, b))
    if values.max() < _ALIKE * values.min():
        # No break divides what differs by rounding noise.
        breaks = breaks[(breaks < values.min() / _ALIKE) | (breaks > values.max() * _ALIKE)]
    return breaks


def _round_numbers(parts: tuple[float, ...], low: float, high: float) -> np.ndarray:
    """Return the round numbers between two others; a range of less than `LEAST_RANGE` is widened on both sides."""
    decades = range(math.floor(math.log10(low)) - 2, math.ceil(math.log10(high)) + 3)
    numbers = np.array([float(f"{part}e{power}") for power in decades for part in parts])
    inside = numbers[(numbers > low) & (numbers < high)]
    if len(inside) > 1 and inside[-1] >= LEAST_RANGE * inside[0]:
        return inside
    middle, half = math.sqrt(low * high), math.sqrt(max(LEAST_RANGE, high / low))
    first = np.searchsorted(numbers, middle / half, side="right") - 1
    last = np.searchsorted(numbers, middle * half, side="left")
    return numbers[first : last + 1]


def _shares(values: np.ndarray, breaks: np.ndarray) -> np.ndarray:
    """Return the share of the values that each class holds."""
    return np.bincount(np.searchsorted(breaks, values), minlength=len(breaks) + 1) / len(values)


def _entropy(values: np.ndarray, breaks: np.ndarray) -> float:
    share = _shares(values, breaks)
    return float(-np.sum(share * np.log(np.where(share > 0, share, 1.0))))


def quantile_classes(
    values: np.ndarray,
    *,
    probabilities: tuple[float, ...] = BREAK_PROBABILITIES,
    ramp: str = "intensity",
    units: str = "",
) -> Classes:
    """Return classes at rounded quantiles of the finite values.

    Parameters
    ----------
    values : array
        Any shape; NaN and infinite values are left out.
    probabilities : tuple of float
        At which quantiles the breaks lie; breaks that are the same to three digits become one.
    ramp : str
        One of `RAMPS`.
    units : str
        Unit of the values, for legends.

    Examples
    --------
    >>> quantile_classes(np.arange(101.0), probabilities=(0.25, 0.5, 0.75)).labels()
    ['≤ 25', '25 – 50', '50 – 75', '> 75']
    """
    values = _finite(values)
    exact = np.unique(np.quantile(values, probabilities))
    breaks = exact
    for digits in (2, 3):
        breaks = np.array([rounded(b, digits) for b in exact])
        if len(np.unique(breaks)) == len(exact):
            break
    breaks = np.unique(breaks)
    breaks = breaks[(breaks >= values.min()) & (breaks < values.max())]
    return Classes(breaks, colours(len(breaks) + 1, ramp), units)


def fixed_classes(breaks: tuple[float, ...], *, ramp: str, units: str = "") -> Classes:
    """Return classes with given inner breaks."""
    return Classes(np.asarray(breaks, float), colours(len(breaks) + 1, ramp), units)


def ratio_classes(units: str = "") -> Classes:
    """Return the classes of a ratio of two maps or of a relative risk: `RATIO_BREAKS`, lightest about 1.

    Examples
    --------
    >>> ratio_classes().labels()[3:6]
    ['0.8 – 0.9', '0.9 – 1.1', '1.1 – 1.25']
    """
    return fixed_classes(RATIO_BREAKS, ramp="signed", units=units)


def signed_classes(values: np.ndarray, units: str = "") -> Classes:
    """Return classes that lie evenly about zero, at rounded quantiles of the values' sizes.

    Examples
    --------
    >>> signed_classes(np.linspace(-10.0, 10.0, 201)).breaks.tolist()
    [-9.7, -8.5, -6.0, -2.5, 2.5, 6.0, 8.5, 9.7]
    """
    size = np.abs(np.asarray(values, float))
    one_side = quantile_classes(size, probabilities=DIFFERENCE_PROBABILITIES).breaks
    one_side = one_side[one_side > 0]
    if not len(one_side):
        # All alike: a class of its own around zero, so that the sign is shown.
        one_side = np.array([rounded(max(float(np.nanmax(size)) / 2, 1e-12), 2)])
    return fixed_classes((*(-one_side[::-1]), *one_side), ramp="signed", units=units)


def excursion_classes(names: tuple[str, ...] = ("surely below", "not sure", "surely above")) -> Classes:
    """Return the three classes of an excursion: -1 surely below, 0 not sure, 1 surely above."""
    shades = colours(7, "signed")[[1, 3, 5]]
    return Classes(np.array([-0.5, 0.5]), shades, names=names)


def classes_for(name: str, values: np.ndarray, units: str = "") -> Classes:
    """Return the classes for a variable of the posterior by its name: the same in rasters, maps and figures.

    Examples
    --------
    >>> classes_for("exceedance_2", np.array([0.1, 0.7])).n
    8
    """
    if name == "excursion":
        return excursion_classes()
    if name.startswith("ratio"):
        return ratio_classes(units)
    if name.startswith("difference"):
        return signed_classes(values, units)
    if name.startswith(("exceedance", "probability")):
        return fixed_classes(PROBABILITY_BREAKS, ramp="probability", units=units)
    if name == "coverage":
        return fixed_classes(COVERAGE_BREAKS, ramp="uncertainty", units=units)
    if name in ("sd", "cv", "uncertainty"):
        return uncertainty_classes(values, "%" if name == "cv" else units)
    return round_classes(values, units=units)


def uncertainty_classes(values: np.ndarray, units: str = "") -> Classes:
    """Return the classes of an uncertainty: one, with a sentence, where it is about the same everywhere.

    Examples
    --------
    >>> uncertainty_classes(np.array([65.665, 65.687, 65.692, 65.693]), "%").labels()
    ['about 66 % everywhere']
    """
    known = _finite(values)
    if 0 < known.max() <= _EVERYWHERE * known.min():
        about = " ".join(filter(None, ("about", number(float(np.median(known)), 2), units, "everywhere")))
        return Classes(np.empty(0), colours(1, "uncertainty"), units, (about,))
    return round_classes(known, ramp="uncertainty", units=units)


def classes_in(data: xr.Dataset, name: str) -> Classes:
    """Return the classes for a variable of a dataset; mean and quantiles share those of the statistic that is drawn."""
    own = data[name]
    units = str(own.attrs.get("units", ""))
    if name == "excursion" and "legend" in own.attrs:
        return excursion_classes(tuple(str(own.attrs["legend"]).split("; ")))
    level = name == "mean" or (name[:1] == "q" and name[1:].replace("_", "").replace(".", "").isdigit())
    source = own
    if level:
        source = data[next(v for v in (drawn_variable(data), "mean", name) if v in data)]
    if name.startswith("difference_q") and "difference" in data:
        source = data["difference"]
    values = source.values.astype(np.float32)
    if level and own.attrs.get("quantity") == "relative risk":
        usual = ratio_classes(units)
    elif level and data.attrs.get("scale") == "linear":
        usual = linear_classes(values, units=units)
    else:
        usual = classes_for(name, values, units)
    asked = Style.in_attrs(own.attrs) if level else None
    return usual if asked is None else styled_classes(asked, values, units, usual=usual)


def drawn_variable(data: xr.Dataset) -> str:
    """Return the variable of a posterior's dataset that maps show; see `Posterior.drawn`."""
    return "q50" if data.attrs.get("drawn") == "median" else "mean"


def chosen_variable(data: xr.Dataset, name: str | None) -> str:
    """Return the variable of a posterior's dataset that was named, or the one that maps show where none was."""
    variable = drawn_variable(data) if name is None else "q50" if name == "median" else name
    if variable not in data:
        raise DataError(
            f"{option('variable')} is one of {', '.join(map(str, data.data_vars))}; found {name!r}.",
            option="variable",
            found=name,
        )
    return variable


def styled_classes(
    style: Style, values: np.ndarray, units: str = "", *, usual: Classes | None = None, ramp: str = ""
) -> Classes:
    """Return the classes that were asked for.

    Parameters
    ----------
    style : Style
    values : array
        What is shown, for what the style leaves open.
    units : str
    usual : Classes, optional
        Those of a style that names colours only; by default `round_classes`. Where they are about 1, as those of a
        ratio are, even classes are even on the scale of factors.
    ramp : str
        Where the style names none.

    Examples
    --------
    >>> styled_classes(Style.of(classes=4, vmin=0, vmax=8), np.arange(9.0)).labels()
    ['≤ 2', '2 – 4', '4 – 6', '> 6']
    >>> chances = fixed_classes(PROBABILITY_BREAKS, ramp="probability")
    >>> styled_classes(Style.of(cmap="magma"), np.array([0.3, 0.4]), usual=chances).labels() == chances.labels()
    True
    """
    ratio = usual is not None and tuple(usual.breaks) == RATIO_BREAKS
    ramp = style.cmap or ramp or ("signed" if ratio else "intensity")
    if isinstance(style.classes, tuple):
        return fixed_classes(style.classes, ramp=ramp, units=units)
    n = style.classes
    if n == QUANTILE:
        return quantile_classes(values, ramp=ramp, units=units)
    assert not isinstance(n, str)
    if style.vmin is None and style.vmax is None:
        if n is None:
            made = usual if usual is not None else round_classes(values)
            return Classes(made.breaks, colours(made.n, ramp), units, made.names)
        shares = tuple(np.linspace(0.0, 1.0, n + 1)[1:-1])
        return quantile_classes(values, probabilities=shares, ramp=ramp, units=units)
    known = np.asarray(values, float)[np.isfinite(values)]
    low = float(known.min()) if style.vmin is None else style.vmin
    high = float(known.max()) if style.vmax is None else style.vmax
    space = np.geomspace if ratio and low > 0 else np.linspace
    exact = space(low, max(high, np.nextafter(low, np.inf)), (n or len(BREAK_PROBABILITIES) + 1) + 1)[1:-1]
    breaks = exact
    for digits in range(3, 16):
        breaks = np.array([rounded(b, digits) for b in exact])
        if len(np.unique(breaks)) == len(exact):
            break
    return fixed_classes(tuple(np.unique(breaks)), ramp=ramp, units=units)


def colours(n: int, ramp: str = "intensity") -> np.ndarray:
    """Return n colours (n, 3) uint8 at equal perceptual distances along a ramp, light (low) to dark (high).

    Examples
    --------
    >>> colours(3).shape
    (3, 3)
    """
    if n < 1:
        raise DataError(f"A ramp has at least one colour; {n} were asked for.", option="n", found=n)
    at = np.linspace(0.0, 1.0, n) if n > 1 else np.array([0.5])
    if ramp not in _CURVES:
        return _between_colours(at, ramp)
    lab = _even_curve(ramp)
    where = np.linspace(0.0, 1.0, len(lab))
    picked = np.column_stack([np.interp(at, where, lab[:, k]) for k in range(3)])
    return np.round(np.clip(_oklab_to_srgb(picked), 0, 1) * 255).astype(np.uint8)


def _between_colours(at: np.ndarray, cmap: str) -> np.ndarray:
    """Return colours at shares of the way through a list of them, or through a colour map of matplotlib."""
    if "#" in cmap:
        stops = np.array([[int(c.strip()[k : k + 2], 16) for k in (1, 3, 5)] for c in cmap.split(",")], float)
        where = np.linspace(0.0, 1.0, len(stops))
        return np.round(np.column_stack([np.interp(at, where, stops[:, k]) for k in range(3)])).astype(np.uint8)
    import matplotlib

    if cmap not in matplotlib.colormaps:
        raise DataError(
            f"No colour map is called {cmap!r}; there are {', '.join(RAMPS)}, and matplotlib's, such as 'viridis'.",
            option="cmap",
            found=cmap,
        )
    return np.round(matplotlib.colormaps[cmap](at)[:, :3] * 255).astype(np.uint8)


@lru_cache(maxsize=len(_CURVES))
def _even_curve(ramp: str) -> np.ndarray:
    """OKLab coordinates of a ramp at equal steps of perceptual distance."""
    stops = np.array(_CURVES[ramp], float)
    hue = np.unwrap(np.radians(stops[:, 2]))
    lab = np.column_stack([stops[:, 0], stops[:, 1] * np.cos(hue), stops[:, 1] * np.sin(hue)])
    curve = _into_gamut(_through(lab, _STEPS))
    # Walk it at a constant pace; a signed ramp has its lightest colour, zero, in the middle.
    length = np.r_[0.0, np.cumsum(np.linalg.norm(np.diff(curve, axis=0), axis=1))]
    middle = length[np.argmax(curve[:, 0])] if ramp == "signed" else length[-1] / 2
    even = np.interp(np.linspace(0, 1, _STEPS), [0, 0.5, 1], [0, middle, length[-1]])
    return np.column_stack([np.interp(even, length, curve[:, k]) for k in range(3)])


def _through(stops: np.ndarray, n: int) -> np.ndarray:
    """Return n points of the monotone cubic curve through evenly spaced stops (k, 3) (Fritsch & Carlson)."""
    slope = np.diff(stops, axis=0)
    # Harmonic means of neighbouring slopes where they agree in sign, flat where not.
    both = slope[:-1] * slope[1:]
    mean = np.divide(2 * both, slope[:-1] + slope[1:], out=np.zeros_like(both), where=both > 0)
    tangent = np.vstack([slope[:1], mean, slope[-1:]])
    at = np.linspace(0, len(slope), n)
    k = np.minimum(at.astype(int), len(slope) - 1)
    t = (at - k)[:, None]
    return (
        (1 + 2 * t) * (1 - t) ** 2 * stops[k]
        + t * (1 - t) ** 2 * tangent[k]
        + t**2 * (3 - 2 * t) * stops[k + 1]
        + t**2 * (t - 1) * tangent[k + 1]
    )


def _into_gamut(lab: np.ndarray) -> np.ndarray:
    """Take chroma away, no more than needed, until every colour can be shown."""
    low, high = np.zeros(len(lab)), np.ones(len(lab))

    def shown(share: np.ndarray) -> np.ndarray:
        rgb = _oklab_to_srgb(lab * np.column_stack([np.ones(len(lab)), share, share]))
        return np.all((rgb >= -1e-9) & (rgb <= 1 + 1e-9), axis=1)

    fits = shown(high)
    for _ in range(40):
        middle = (low + high) / 2
        good = shown(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    share = np.where(fits, 1.0, low)
    return lab * np.column_stack([np.ones(len(lab)), share, share])


def _oklab_to_srgb(lab: np.ndarray) -> np.ndarray:
    """OKLab (Ottosson 2020) to gamma-encoded sRGB; out-of-range values are kept for gamut tests."""
    l, a, b = lab[:, 0], lab[:, 1], lab[:, 2]  # noqa: E741
    long = (l + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (l - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (l - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = np.column_stack(
        [
            4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
            -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
            -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
        ]
    )
    curve = 1.055 * np.abs(linear) ** (1 / 2.4) - 0.055
    return np.where(linear > 0.0031308, curve, 12.92 * linear)
