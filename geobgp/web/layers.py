"""Layers: the pictures of a web map, each with its classes and its words, and what thresholds they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.errors import DataError, option
from geobgp.output import palette
from geobgp.output.grids import relative_uncertainty
from geobgp.output.palette import Classes
from geobgp.privacy import hidden_words, shown_words
from geobgp.text import number, rounded
from geobgp.units import warn_if_far

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.land.domain import Domain


@dataclass(frozen=True, eq=False)
class Layer:
    """One picture: its classes and its words.

    Attributes
    ----------
    key : str
        What the page's script knows it by.
    name, heading, units : str
        In the list of layers, and above its legend.
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
    return Layer(statistic, name, name, units, data[variable].values, palette.classes_in(data, variable))


def uncertainty_layer(data: xr.Dataset) -> Layer:
    """Return the layer of the relative uncertainty."""
    values = relative_uncertainty(data)
    classes = palette.classes_for("cv", values.astype(np.float32))
    note = f"The uncertainty is {classes.names[0]}." if classes.names else ""
    words = "Uncertainty", "Relative uncertainty", "sd / mean, %"
    return Layer("uncertainty", *words, values, classes, note=note)


def with_legend(layers: list[Layer], posterior: Any) -> list[Layer]:
    """Return layers whose legends say which small numbers are hidden, and why."""
    if not getattr(posterior, "protection", None):
        return layers
    hidden, told = hidden_words(posterior), shown_words(posterior)
    return [
        replace(layer, note=" ".join(filter(None, (layer.note, told))), hidden=hidden) for layer in layers
    ]


def chance_layer(
    values: np.ndarray, threshold: float, units: str, field: str, span: tuple[float, float], interval: str
) -> Layer:
    """Return the layer of the probability of exceeding a threshold; that no place comes near it is warned of.

    `span` is the lowest and the highest number of the map's intervals, whose probability `interval` says.
    """
    text = number(threshold, 3)
    classes = palette.classes_for("exceedance", values.astype(np.float32))
    words = f"% for more than {text} {units}"
    note = warn_if_far(threshold, units, (float(np.nanmin(values)), float(np.nanmax(values))), span, interval)
    name = f"Probability > {text}"
    return Layer("exceedance", name, name, words, values, classes, field, f"probability > {text}", note)


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

    `data` is the intensity that the map shows, of all periods.
    """
    if "quantity" in data["mean"].attrs:
        return 1.0
    if posterior.drawn == "median":
        return rounded(float(posterior.overall), 2)
    return overall(posterior.domain, data["mean"].values)


def overall(domain: Domain, mean: np.ndarray) -> float:
    """Return the mean over all land (and all periods), rounded to two digits."""
    weight = np.where(np.isfinite(mean), domain.coverage * domain.cell_area, 0.0)
    return rounded(np.sum(np.where(weight > 0, mean, 0.0) * weight) / weight.sum(), 2)
