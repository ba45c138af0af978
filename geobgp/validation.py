"""What an argument may be: rules, the decorator that checks them, and registries of named classes."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import operator
import os
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from geobgp.errors import DataError, GeobgpError, option
from geobgp.files import frame_of, is_possible, unmasked

# -- Validators: what an argument may be, checked at every public door in one way and told in one kind of message --
# A `Rule` says in words what a value must be, and returns it as it is used inside. `validated` puts rules before a
# function:
#
# >>> @validated(n=whole(1), kind=choice("mean", "sum"))
# ... def draw(n, kind="mean"):
# ...     return n, kind
# >>> draw(3.0)
# Traceback (most recent call last):
# ...
# geobgp.errors.DataError: n must be a whole number of at least 1; found 3.0.
# >>> draw(3, kind="median")
# Traceback (most recent call last):
# ...
# geobgp.errors.DataError: kind must be 'mean' or 'sum'; found 'median'.
#
# What is the argument's default passes as it is. NumPy's numbers are numbers; words, NaN, True and False are none.


F = TypeVar("F", bound=Callable[..., Any])

#: Letters of a wrong value that a message shows.
_SHOWN = 60


@dataclass(frozen=True)
class Rule:
    """What a value must be.

    Attributes
    ----------
    words : str
        "a positive number": what follows "must be".
    take : callable
        Returns the value as it is used, or raises TypeError, ValueError or OverflowError.
    error : subclass of GeobgpError
    remedy : str
    """

    words: str
    take: Callable[[Any], Any]
    error: type[GeobgpError] = DataError
    remedy: str = ""

    def raising(self, error: type[GeobgpError]) -> Rule:
        """Return the same rule with another kind of error."""
        return replace(self, error=error)

    def __call__(self, name: str, value: Any) -> Any:
        """Return the value of an argument as it is used; raise an error that names it if it cannot be."""
        try:
            return self.take(value)
        except GeobgpError:
            raise
        except (TypeError, ValueError, OverflowError):
            raise self.error(
                f"{option(name)} must be {self.words}; found {shown(value)}.",
                option=name,
                found=value,
                remedy=self.remedy,
            ) from None


def shown(value: Any) -> str:
    """Return a value for a message: short ones as Python writes them, others by what they are.

    Examples
    --------
    >>> shown("ten"), shown([]), shown(object()), shown("x" * 99)[-6:]
    ("'ten'", '[]', 'an object', "xx...'")
    """
    if isinstance(value, (str, bytes)) and len(value) > _SHOWN:
        return repr(value[:_SHOWN])[:-1] + "...'"
    if value is None or isinstance(value, (str, bytes, Real)):
        plain = getattr(value, "item", lambda: value)
        return repr(plain())
    if isinstance(value, (list, tuple, dict)) and len(text := repr(value)) <= _SHOWN:
        return text
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def validated(**rules: Rule) -> Callable[[F], F]:
    """Return a decorator that checks the arguments of a function before it begins.

    Parameters
    ----------
    **rules : Rule
        By the name of the argument; the function is given what the rule returns.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        defaults = {name: signature.parameters[name].default for name in rules}

        def checked(*args: Any, **kwargs: Any) -> Any:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:
                return function(*args, **kwargs)  # Python's own words for arguments that are not there
            given = bound.arguments
            for name, rule in rules.items():
                if name in given and given[name] is not defaults[name]:
                    given[name] = rule(name, given[name])
            return function(*bound.args, **bound.kwargs)

        # At home in the function's module, where doctest looks for examples.
        made = types.FunctionType(checked.__code__, function.__globals__, function.__name__, None, checked.__closure__)
        made.__kwdefaults__ = checked.__kwdefaults__
        return cast(F, functools.update_wrapper(made, function))

    return decorate


def check(name: str, value: Any, rule: Rule, default: Any = None) -> Any:
    """Return the value of one argument as it is used; what is the default passes as it is."""
    return value if value is default else rule(name, value)


# -- numbers


def _real(value: Any, missing: bool = False) -> float:
    plain = isinstance(value, Real) and not isinstance(value, bool)
    if not (plain or (getattr(value, "ndim", None) == 0 and getattr(value.dtype, "kind", "") in "iuf")):
        raise TypeError
    number = float(value)
    if math.isnan(number) and not missing:
        raise ValueError
    return number


def real(
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
    *,
    what: str = "",
    infinite: bool = False,
    missing: bool = False,
) -> Rule:
    """Return the rule of a number: finite (unless `infinite` may be), and within limits.

    Parameters
    ----------
    above, least, most, below : float
        Limits, the first and the last of which are not themselves allowed.
    what : str
        What it is a number of: "metres".
    infinite, missing : bool
        Whether infinity, or NaN, is taken too.
    """

    def take(value: Any) -> float:
        found = _real(value, missing)
        if math.isnan(found):
            return found
        if not (infinite or math.isfinite(found)) or not (least <= found <= most):
            raise ValueError
        if (above > -math.inf and not found > above) or (below < math.inf and not found < below):
            raise ValueError
        return found

    of = f" of {what}" if what else ""
    if above == 0 and most == below == math.inf:
        return Rule(f"a positive number{of}", take)
    if least > -math.inf and most < math.inf:
        return Rule(f"a number{of} from {least:g} to {most:g}", take)
    named = (("above", above), ("of at least", least), ("of at most", most), ("below", below))
    limits = " and ".join(f"{word} {limit:g}" for word, limit in named if math.isfinite(limit))
    return Rule(f"a number{of} {limits}" if limits else f"a {'' if infinite else 'finite '}number{of}", take)


def whole(least: int = 0, *, what: str = "") -> Rule:
    """Return the rule of a whole number, at least `least`; NumPy's are taken, and none with a point."""

    def take(value: Any) -> int:
        if type(value).__name__ in ("bool", "bool_"):
            raise TypeError
        found = operator.index(value)
        if found < least:
            raise ValueError
        return found

    return Rule(f"a whole number{f' of {what}' if what else ''} of at least {least}", take)


def numbers(rule: Rule, what: str, least: int = 0) -> Rule:
    """Return the rule of several numbers, `least` at least; a single one is taken for a list of one."""

    def take(value: Any) -> tuple[float, ...]:
        if isinstance(value, (str, bytes, Mapping)):
            raise TypeError
        single = isinstance(value, Real) or getattr(value, "ndim", None) == 0
        found = tuple(rule.take(one) for one in ([value] if single else value))
        if len(found) < least:
            raise ValueError
        return found

    return Rule(what, take)


def _steps(value: Any) -> str | dict[str, tuple[float, ...]]:
    """Return how far apart the values are that effects are between."""
    if isinstance(value, str):
        return str(choice("quartiles", "unit").take(value))
    if not isinstance(value, Mapping):
        raise TypeError
    steps = {NAME.take(name): numbers(real(), "a number or two", least=1).take(step) for name, step in value.items()}
    if any(len(step) > 2 or len(set(step)) < len(step) or step == (0.0,) for step in steps.values()):
        raise ValueError
    return steps


STEPS = Rule('"quartiles", "unit", or a step or two different values by covariate', _steps)


def seed_of(rng: Any) -> int:
    """Return a whole number that draws begin with: the number itself, or one that a Generator draws.

    Examples
    --------
    >>> import numpy as np
    >>> seed_of(3), seed_of(np.random.default_rng(0)) == seed_of(np.random.default_rng(0))
    (3, True)
    """
    return int(rng.integers(2**63)) if hasattr(rng, "bit_generator") else int(whole().take(rng))


def _number_or_generator(value: Any) -> Any:
    return value if hasattr(value, "bit_generator") else whole().take(value)


#: Where draws begin: RNG takes one number from a Generator, GENERATOR is for what draws from it.
RNG = Rule("a whole number of at least 0 or a numpy.random.Generator", seed_of)
GENERATOR = Rule(RNG.words, _number_or_generator)


# -- words


def choice(*allowed: Any) -> Rule:
    """Return the rule of one of some words (or True and False)."""

    def take(value: Any) -> Any:
        if not isinstance(value, (str, bool)) or value not in allowed:
            raise ValueError
        return value

    parts = (", ".join(map(repr, part)) for part in (allowed[:-1], allowed[-1:]) if part)
    return Rule(" or ".join(parts), take)


def _flag(value: Any) -> bool:
    if type(value).__name__ not in ("bool", "bool_"):
        raise TypeError
    return bool(value)


FLAG = Rule("True or False", _flag)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # half a surrogate pair, from bytes that are no UTF-8, cannot be written
    return value


def _name(value: Any) -> str:
    if not _text(value).strip():
        raise ValueError
    return value


TEXT = Rule("text that can be written as UTF-8", _text)
#: The name of a column, or of a layer.
NAME = Rule("a name", _name)


def names(what: str = "names", n: int | None = None, least: int = 0) -> Rule:
    """Return the rule of several names: `n` if that is given, or `least` at least."""

    def take(value: Any) -> tuple[str, ...]:
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
            raise TypeError
        found = tuple(_name(one) for one in value)
        if (n is not None and len(found) != n) or len(found) < least:
            raise ValueError
        return found

    return Rule(what, take)


def _path(value: Any) -> Any:
    if not os.fspath(value) or not is_possible(value):
        raise ValueError
    return value


PATH = Rule("the path of a file or folder", _path)


# -- arrays and objects


def as_floats(name: str, value: Any, shape: tuple[int, ...] | None = None) -> Any:
    """Return an argument as an array of floats (of a shape, if given); words, objects and ragged lists are none.

    What is masked, or missing, is NaN.
    """
    import numpy as np

    try:
        if value is None or isinstance(value, bool):
            raise TypeError
        array = np.asarray(_plain_numbers(value))
        if array.dtype.kind in "USMmc" or (array.dtype.kind == "O" and any(isinstance(v, str) for v in array.flat)):
            raise TypeError
        array = np.asarray(array, float)
    except (TypeError, ValueError):
        raise DataError(f"{option(name)} must be numbers; found {shown(value)}.", option=name, found=value) from None
    if shape is not None and array.shape != shape:
        raise DataError(
            f"{option(name)} must have the shape {shape}; found {array.shape}.", option=name, found=array.shape
        )
    return array


def _plain_numbers(value: Any) -> Any:
    """Return masked arrays, lists of them, and pandas' own kinds of numbers as NumPy has them."""
    if isinstance(value, (list, tuple)):
        return [unmasked(one) for one in value]
    if type(getattr(value, "dtype", None)).__module__.startswith("pandas") and hasattr(value, "to_numpy"):
        kind = getattr(value.dtype, "kind", "O")
        return value.to_numpy(float, na_value=float("nan")) if kind in "iufb" else value.to_numpy()
    return unmasked(value)


def in_rows_of(name: str, value: Any, rows: Any) -> Any:
    """Return a Series or table whose labels are those of other rows in their order; anything else as it is.

    Parameters
    ----------
    name : str
        Of the argument.
    value
        Or a mapping of names to values.
    rows : int, or a Series or table
        What has a value each: so many nodes, which are labelled from 0 on; or a table. Rows without labels decide
        nothing.

    Examples
    --------
    >>> import pandas as pd
    >>> in_rows_of("effort", pd.Series([0.2, 0.7], index=[1, 0]), 2).tolist()
    [0.7, 0.2]
    """
    import pandas as pd

    if isinstance(value, Mapping):
        return {key: in_rows_of(name, one, rows) for key, one in value.items()}
    labels = pd.RangeIndex(rows) if isinstance(rows, Integral) else getattr(rows, "index", None)
    if not isinstance(value, (pd.Series, pd.DataFrame)) or not isinstance(labels, pd.Index):
        return value
    own = value.index
    if len(own) != len(labels) or own.equals(labels):
        return value
    if own.is_unique and labels.is_unique and own.isin(labels).all():
        return value.loc[labels]
    what = f"the nodes, 0 to {len(labels) - 1:,}" if isinstance(rows, Integral) else "the rows that it belongs to"
    raise DataError(
        f"The index of {option(name)} ({', '.join(map(repr, own[:3].tolist()))}, ...) is not that of {what}: "
        "which value is whose?",
        option=name,
        found=own[:3].tolist(),
        remedy="Give it that index; or, if it is in the right order, without one: to_numpy().",
    )


#: Between these numbers can be computed with: their squares, and products of a few, neither overflow nor vanish.
LEAST, MOST = 1e-100, 1e100
#: Counts beyond these are no longer whole numbers.
MOST_EVENTS = 1e15


def refuse_huge(name: str, values: Any, what: str, most: float = MOST) -> None:
    """Refuse numbers that are too large to compute with; NaN passes.

    Parameters
    ----------
    name : str
        The option at fault.
    values : array
    what : str
        "The column 'x'": where they are, for the message.
    most : float
    """
    import numpy as np

    with np.errstate(invalid="ignore"):
        huge = np.abs(values) > most
    if huge.any():
        largest = float(np.abs(np.asarray(values)[huge]).max())
        raise DataError(
            f"{what}: numbers as large as {largest:.1e} are too large to compute with.",
            option=name,
            found=largest,
            remedy="Write them in a larger unit, and leave out codes that mean no data.",
        )


def a(*kinds: str, words: str = "") -> Rule:
    """Return the rule of an object of one of geobgp's classes, by their names: no class need be loaded for it.

    Examples
    --------
    >>> a("Domain", "Grid")("domain", 3)
    Traceback (most recent call last):
    ...
    geobgp.errors.DataError: domain must be a Domain or a Grid; found 3.
    """

    def take(value: Any) -> Any:
        if not any(base.__name__ in kinds for base in type(value).__mro__):
            raise TypeError
        return value

    return Rule(words or " or ".join(f"a {kind}" for kind in kinds), take)


def either(*rules: Rule, words: str = "") -> Rule:
    """Return the rule of what one of several rules takes; the first that does decides."""

    def take(value: Any) -> Any:
        for rule in rules:
            try:
                return rule.take(value)
            except (TypeError, ValueError, OverflowError):
                continue
        raise ValueError

    return Rule(words or " or ".join(rule.words for rule in rules), take)


# -- Arguments: the rules of what geobgp's own functions take, by name; `geobgp.validation` makes them ---------


_SPAN = "between=('2015-01', '2020-12')"

# -- numbers and words


def _probabilities(value: Any) -> tuple[float, ...]:
    found: tuple[float, ...] = numbers(real(above=0.0, below=1.0), "").take(value)
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
INTERVAL = real(least=0.5, below=1.0)
LEVELS = numbers(real(), "one or more finite numbers", least=1)
_THRESHOLDS = numbers(real(), "a list of finite numbers")


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
#: Hot spots that an output shows.
HOTSPOTS = either(FLAG, a("GeoDataFrame"), words="a table from posterior.hotspots(...), or True or False")


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


UNITS = Rule('units such as "per 100,000", or None', lambda value: value if value is None else TEXT.take(value))

# -- data


def _array(value: Any) -> Any:
    if not (hasattr(value, "__array__") or isinstance(value, (list, tuple))) or getattr(value, "ndim", 1) == 0:
        raise TypeError
    return value


def _source(value: Any) -> Any:
    value = frame_of(value)
    if isinstance(value, (bytes, Mapping, set)) or not (
        isinstance(value, Iterable) or any(hasattr(value, name) for name in ("__fspath__", "geom_type", "columns"))
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
                _covariate(part)
    return value


def _covariate(value: Any) -> Any:
    if not (callable(value) or any(hasattr(value, name) for name in ("source", "places", "second"))):
        _source(value)
    return value


def _values(value: Any) -> Any:
    if not (isinstance(value, Mapping) or hasattr(value, "columns")):
        raise TypeError
    return value


def _table(value: Any) -> Any:
    value = frame_of(value)
    if not (hasattr(value, "columns") and hasattr(value, "iloc")):
        raise TypeError
    return value


TABLE = Rule("a table, a DataFrame or GeoDataFrame", _table)
#: Values of covariates at places.
VALUES = Rule("values by name: a mapping or a table", _values)
ARRAY = Rule("an array of numbers", _array)
#: Shapes, tables, rasters or numbers; what reads them says more.
SOURCE = Rule("a path, a table, shapes or an array", _source)


def _sources(value: Any) -> Any:
    if isinstance(value, Mapping) and not hasattr(value, "dims"):
        for one in value.values():
            _source(one)
        return value
    return _source(value)


#: The same, or one for each period by its label.
SOURCES = Rule("a path, a table, shapes or an array, or a mapping of periods to these", _sources)


def _level_names(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError
    return value


COVARIATE = Rule("a raster, an array, a function, polygons, or a kind of covariate", _covariate)
#: What levels are called, by their codes.
LEVEL_NAMES = Rule("a mapping of codes to names", _level_names)
COVARIATES = Rule(
    "covariates by name, each a raster, an array, a function or polygons; or a table of them", _covariates
)


def _per_level(one: Rule) -> Callable[[Any], Any]:
    """Return what takes a value, or a mapping of levels of precision to such values."""

    def take(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return one.take(value)
        if not value:
            raise ValueError
        return {_name(level): one.take(given) for level, given in value.items()}

    return take


def _places(value: Any) -> Any:
    value = _source(value)
    if isinstance(value, str) and not Path(value).exists():
        word = value.lower()
        if word != _DRAWN and difflib.get_close_matches(word, [_DRAWN], 1, _ALIKE):
            raise DataError(
                f"{option('places')} is {value!r}, and there is no such file; did you mean {_DRAWN!r}?",
                option="places",
                found=value,
                remedy=f"Give {option('places', _DRAWN)}, or the path of areas.",
            )
    return value


#: What stands for cells drawn around places, and from which likeness on another word is taken for a slip of it.
_DRAWN, _ALIKE = "voronoi", 0.75
#: Areas that are the places of events, and the columns with their keys.
PLACES = Rule(
    "a path, polygons, points, 'voronoi', or a mapping of levels to these", _per_level(Rule(SOURCE.words, _places))
)
KEYS = Rule("a column's name, or a mapping of levels to such names", _per_level(NAME))

#: Dates, weights.
COLUMN_OR_VALUES = Rule(
    "a column's name or a value for each row",
    lambda value: NAME.take(value) if isinstance(value, str) else _array(value),
)


def _span(value: Any) -> tuple[Any, Any]:
    if isinstance(value, str):
        value = value.split("/")
    first, last = value
    return first, last


def _day(value: Any) -> str:
    text = str(value).strip()
    return text[:10] if len(text) > 10 and text[4:5] == "-" and text[10] in "T " else text


def _every(value: Any) -> Any:
    if isinstance(value, str):
        return NAME.take(value)
    return value if type(value).__name__ == "Periods" else _array(value)


#: A first and a last period.
SPAN = Rule("a first and a last date", _span, remedy=f"Such as {option('between', '2015-01/2020-12', python=_SPAN)}.")
DAY = Rule("a date, such as 2020-12-31", _day)
EVERY = Rule("'day', 'week', 'epiweek', 'month', 'quarter', 'year', a list of edges, or Periods", _every)


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
    "a number of processes of at least 1, or None", lambda value: value if value is None else whole(1).take(value)
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
    if not found or not all(isinstance(one, (str, Integral, date)) or type(one).__name__ in dated for one in found):
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


# -- Open families: classes that are stored under their own name, and found again by it ----------------------


T = TypeVar("T")


class Family(Generic[T]):
    """Classes of one kind by name: kernels, bases, likelihoods.

    Parameters
    ----------
    noun : str
        What a member is, for messages.

    Examples
    --------
    >>> animals: Family[object] = Family("animal")
    >>> class Cat: ...
    >>> animals.add(Cat)
    >>> animals.name_of(Cat()), animals.find("Cat") is Cat
    ('Cat', True)
    """

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self._members: dict[str, type[T]] = {}

    def add(self, cls: type[T]) -> None:
        """Register a class under its own name; a class that is defined again takes its old self's place."""
        known = self._members.get(cls.__name__, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise DataError(
                f"There is a {self.noun} {cls.__name__!r} already, in {known.__module__}.",
                remedy="Give yours another name.",
            )
        self._members[cls.__name__] = cls

    def name_of(self, member: T) -> str:
        """Return the name that an object is stored under, or say that it has none."""
        name = type(member).__name__
        if self._members.get(name) is not type(member):
            raise DataError(
                f"The {self.noun} {name!r} is not registered, so that it could not be read again.",
                found=name,
                remedy=f"Derive it from geobgp's own {self.noun} class.",
            )
        return name

    def find(self, name: str) -> type[T]:
        """Return the class that was stored under a name."""
        if name not in self._members:
            raise DataError(
                f"Unknown {self.noun} {name!r} in a stored file; known are {', '.join(self._members)}.",
                found=name,
                remedy="Import the module that defines it first.",
            )
        return self._members[name]
