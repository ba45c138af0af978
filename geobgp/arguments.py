"""Arguments: the rules of what geobgp's own functions take, by name; `geobgp.validate` makes them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import date
from numbers import Integral
from typing import Any

from geobgp.errors import DataError, option
from geobgp.validate import NAME, PATH, TEXT, Rule, a, number, numbers, whole

_SPAN = "between=('2015-01', '2020-12')"

# -- numbers and words


def _probabilities(value: Any) -> tuple[float, ...]:
    found: tuple[float, ...] = numbers(number(above=0.0, below=1.0), "").take(value)
    if len(set(found)) < len(found):
        raise ValueError
    return found


#: Quantiles to be reported, each a probability.
PROBABILITIES = Rule(
    "different probabilities strictly between 0 and 1",
    _probabilities,
    remedy="For the interval of 90 % ask for (0.05, 0.95).",
)
#: The probability of intervals.
INTERVAL = number(least=0.5, below=1.0)
LEVELS = numbers(number(), "one or more finite numbers", least=1)
_THRESHOLDS = numbers(number(), "a list of finite numbers")


def _thresholds(value: Any) -> tuple[float, ...]:
    """Return thresholds; two that differ, and would be called the same in files, are refused."""
    found: tuple[float, ...] = _THRESHOLDS.take(value)
    named: dict[str, float] = {}
    for one in found:
        other = named.setdefault(f"{one:g}", one)
        if other != one:
            raise DataError(
                f"The thresholds {other!r} and {one!r} would share one name in files, exceedance_{one:g}.",
                option="thresholds",
                found=(other, one),
                remedy="Leave one out: they differ by less than six digits show.",
            )
    return found


THRESHOLDS = Rule(_THRESHOLDS.words, _thresholds)


def _interval(value: Any) -> tuple[int, int]:
    if isinstance(value, (str, bytes)):
        raise TypeError
    low, high = (whole().take(v) for v in value)
    if low > high:
        raise ValueError
    return low, high


#: Between which numbers suppressed counts lie.
SUPPRESSED = Rule(
    "two whole numbers, the lowest and the highest that a suppressed count can be",
    _interval,
    remedy=f"Such as {option('suppressed', '1-4', python='suppressed=(1, 4)')}.",
)


UNITS = Rule(
    'units such as "per 100,000", or None', lambda value: value if value is None else TEXT.take(value)
)

# -- data


def _array(value: Any) -> Any:
    if (
        not (hasattr(value, "__array__") or isinstance(value, (list, tuple)))
        or getattr(value, "ndim", 1) == 0
    ):
        raise TypeError
    return value


def _source(value: Any) -> Any:
    if isinstance(value, (bytes, Mapping, set)) or not (
        isinstance(value, Iterable)
        or any(hasattr(value, name) for name in ("__fspath__", "geom_type", "columns"))
    ):
        raise TypeError
    if isinstance(value, (str, os.PathLike)):
        return PATH.take(value)
    return value


def _covariates(value: Any) -> Any:
    if not hasattr(value, "columns"):
        if not isinstance(value, Mapping):
            raise TypeError
        for name, one in value.items():
            NAME.take(name)
            for part in one.values() if isinstance(one, Mapping) and not hasattr(one, "dims") else [one]:
                if not (callable(part) or hasattr(part, "source")):
                    _source(part)
    return value


def _values(value: Any) -> Any:
    if not (isinstance(value, Mapping) or hasattr(value, "columns")):
        raise TypeError
    return value


def _table(value: Any) -> Any:
    if not (hasattr(value, "columns") and hasattr(value, "iloc")):
        raise TypeError
    return value


TABLE = Rule("a table, a DataFrame or GeoDataFrame", _table)
#: Values of covariates at places.
VALUES = Rule("values by name: a mapping or a table", _values)
ARRAY = Rule("an array of numbers", _array)
#: Shapes, tables, rasters or numbers; what reads them says more.
SOURCE = Rule("a path, a table, shapes or an array", _source)
COVARIATES = Rule(
    "covariates by name, each a raster, an array, a function or polygons; or a table of them", _covariates
)


TIMES = Rule(
    "a column's name or a date for each row",
    lambda value: NAME.take(value) if isinstance(value, str) else _array(value),
)


def _span(value: Any) -> tuple[Any, Any]:
    if isinstance(value, str):
        value = value.split("/")
    first, last = value
    return first, last


def _every(value: Any) -> Any:
    if isinstance(value, str):
        return NAME.take(value)
    return value if type(value).__name__ == "Periods" else _array(value)


#: A first and a last period.
SPAN = Rule(
    "a first and a last date",
    _span,
    remedy=f"Such as {option('between', '2015-01/2020-12', python=_SPAN)}.",
)
EVERY = Rule("'day', 'week', 'epiweek', 'month', 'quarter', 'year', a list of edges, or Periods", _every)
WEIGHTS = Rule(
    "a column's name or a number for each point",
    lambda value: NAME.take(value) if isinstance(value, str) else _array(value),
)


# -- objects

#: An online basemap; those that are known are told where it is used.
BASEMAP = Rule(
    "the name of a basemap or a folium.TileLayer",
    lambda value: NAME.take(value) if isinstance(value, str) else a("TileLayer").take(value),
)


def _client(value: Any) -> Any:
    return NAME.take(value) if isinstance(value, str) else a("Client").take(value)


CLIENT = Rule("a distributed.Client or the address of a scheduler", _client)
#: Processes; None: one for each core.
JOBS = Rule(
    "a number of processes of at least 1, or None",
    lambda value: value if value is None else whole(1).take(value),
)
DOMAIN = a("Domain")
BASIS = a("Basis", words="a HarmonicBasis or a FullRank")
KERNEL = a("Kernel", words="a kernel such as Matern(1.5)")
POSTERIOR = a("Posterior")


def _axes(value: Any) -> Any:
    if not hasattr(value, "imshow"):
        raise TypeError
    return value


def _several_axes(value: Any) -> Any:
    for one in getattr(value, "flat", value):
        _axes(one)
    return value


#: Where figures are drawn.
AXES = Rule("matplotlib's Axes", _axes)
SEVERAL_AXES = Rule("several of matplotlib's Axes", _several_axes)
FIGURE = a("FigureBase", words="a figure of matplotlib")


def _several_periods(value: Any) -> Any:
    found = [] if isinstance(value, (str, bytes, Mapping)) else list(value)
    dated = {"datetime64"}
    if not found or not all(
        isinstance(one, (str, Integral, date)) or type(one).__name__ in dated for one in found
    ):
        raise ValueError
    return found


#: Periods by their names.
SEVERAL_PERIODS = Rule("a list of periods, each a label, a number or a date", _several_periods)


def _progress(value: Any) -> Any:
    kinds = {base.__name__ for base in type(value).__mro__}
    if not (kinds & {"bool", "bool_", "Progress", "Stage"} or callable(value)):
        raise TypeError
    return value


PROGRESS = Rule("True, False, a Progress, a Stage or a function of the words to tell", _progress)


#: Offices whose rules on small numbers are known; see `geobgp.privacy.RULES`.
OFFICES = ("cdc", "nhs", "ons")


def _min_count(value: Any) -> int | str:
    if isinstance(value, str):
        named = value.strip().lower()
        if named in OFFICES:
            return named
        value = int(named)
    return int(whole().take(value))


MIN_COUNT = Rule(f"a whole number of at least 0, or the rule of an office: {', '.join(OFFICES)}", _min_count)
