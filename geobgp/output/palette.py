"""Colours and classes: one set of ramps and one rule for classes, shared by rasters, maps and figures.

The ramps are curves in OKLab, walked at equal perceptual steps from light (low) to dark (high), so that they
stay in order in print, in grey and for colour-blind eyes. No plotting library is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from geobgp.errors import DataError
from geobgp.style import Style
from geobgp.text import number, rounded

if TYPE_CHECKING:
    import xarray as xr

#: Probabilities of the class breaks: closer together towards the top, where the hot spots are.
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

    def labels(self) -> list[str]:
        """Return a label for each class, without units."""
        if self.names:
            return list(self.names)
        if self.n == 1:
            return ["all values"]
        text = [number(b, 6) for b in self.breaks]
        for digits in range(7, 18):
            if len(set(text)) == len(text):
                break
            text = [number(b, digits) for b in self.breaks]
        middle = [f"{a} – {b}" for a, b in pairwise(text)]
        return [f"≤ {text[0]}", *middle, f"> {text[-1]}"]


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
        At which quantiles the breaks lie; breaks that coincide become one.
    ramp : str
        One of `RAMPS`.
    units : str
        Unit of the values, for legends.

    Examples
    --------
    >>> quantile_classes(np.arange(101.0), probabilities=(0.25, 0.5, 0.75)).labels()
    ['≤ 25', '25 – 50', '50 – 75', '> 75']
    """
    values = np.asarray(values, float)
    values = values[np.isfinite(values)]
    if values.size == 0:
        raise DataError("No finite value to make classes of; the field is empty or all NaN.")
    exact = np.unique(np.quantile(values, probabilities))
    breaks = exact
    for digits in range(2, 8):
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
    ramp = "uncertainty" if name in ("sd", "cv", "uncertainty") else "intensity"
    return quantile_classes(values, ramp=ramp, units=units)


def classes_in(data: xr.Dataset, name: str) -> Classes:
    """Return the classes for a variable of a dataset; quantiles share those of the mean (or the difference)."""
    own = data[name]
    units = str(own.attrs.get("units", ""))
    if name == "excursion" and "legend" in own.attrs:
        return excursion_classes(tuple(str(own.attrs["legend"]).split("; ")))
    like_mean = name[:1] == "q" and name[1:].replace("_", "").replace(".", "").isdigit()
    asked = Style.in_attrs(own.attrs)
    if asked is not None and (like_mean or name == "mean"):
        whole = data.get("mean", own)
        return styled_classes(asked, whole.values, units, ratio=own.attrs.get("quantity") == "relative risk")
    if own.attrs.get("quantity") == "relative risk" and (like_mean or name == "mean"):
        return ratio_classes(units)
    source = data["mean"] if like_mean and "mean" in data else own
    if name.startswith("difference_q") and "difference" in data:
        source = data["difference"]
    return classes_for(name, source.values.astype(np.float32), units)


def styled_classes(
    style: Style, values: np.ndarray, units: str = "", *, ratio: bool = False, ramp: str = ""
) -> Classes:
    """Return the classes that were asked for.

    Parameters
    ----------
    style : Style
    values : array
        What is shown, for what the style leaves open.
    units : str
    ratio : bool
        Whether 1 is the middle: the breaks then lie evenly on the scale of factors.
    ramp : str
        Where the style names none.

    Examples
    --------
    >>> styled_classes(Style.of(classes=4, vmin=0, vmax=8), np.arange(9.0)).labels()
    ['≤ 2', '2 – 4', '4 – 6', '> 6']
    """
    ramp = style.cmap or ramp or ("signed" if ratio else "intensity")
    if isinstance(style.classes, tuple):
        return fixed_classes(style.classes, ramp=ramp, units=units)
    n = style.classes
    if style.vmin is None and style.vmax is None:
        if ratio and n is None:
            return fixed_classes(RATIO_BREAKS, ramp=ramp, units=units)
        shares = BREAK_PROBABILITIES if n is None else tuple(np.linspace(0.0, 1.0, n + 1)[1:-1])
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
        return np.round(np.column_stack([np.interp(at, where, stops[:, k]) for k in range(3)])).astype(
            np.uint8
        )
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
