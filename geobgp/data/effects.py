"""Effects: covariates as columns, numbers or levels, standardised inside and reported in their own units."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from scipy.interpolate import BSpline
from scipy.sparse import csr_array

from geobgp.data.rasters import RasterSource, blocks_on_land, node_means, open_raster, read_to_nodes
from geobgp.data.sources import Key, Reading, are_numbers, is_shapes
from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.files import as_frame, kind_of, unmasked
from geobgp.land.regions import name_column
from geobgp.text import count, listed, number
from geobgp.validation import (
    COVARIATE,
    LEVEL_NAMES,
    NAME,
    SOURCE,
    as_floats,
    either,
    in_rows_of,
    real,
    refuse_huge,
    whole,
)

if TYPE_CHECKING:
    import geopandas as gpd
    import xarray as xr

    from geobgp.land.domain import Domain

    Raster: TypeAlias = str | os.PathLike[str] | xr.DataArray
    Covariate: TypeAlias = np.ndarray | Callable[[np.ndarray], np.ndarray] | Raster | "Categorical" | gpd.GeoDataFrame
    Covariates: TypeAlias = Mapping[str, Covariate] | pd.DataFrame


# -- Levels: categorical covariates, as the share of each node's land that belongs to each of their levels ---


#: More levels than this are not taken for levels; whole numbers with no more values than `FEW` may be some.
MOST, FEW = 50, 12
#: What is written behind the path of a raster that could be either.
_USES = ("levels", "numbers")
_LEVEL = either(NAME, real(), words="the name or the code of a level")
_SPLINES = whole(least=4)


@dataclass(frozen=True, eq=False)
class Categorical:
    """A covariate of which each value is a level with an effect of its own, and not a number with a slope.

    Text and pandas' categories are levels by themselves. A path says the same with ``"landuse.tif|levels"``.

    Parameters
    ----------
    source : array, raster, path or DataFrame
        One value per node, or a raster with a code per pixel, or a table with the share of each node's land that
        belongs to each level, a column each.
    reference : str or number, optional
        The level that all others are compared with, its name or code; by default the most common one.
    names : mapping of code to str, optional
        What levels are called; by default what the raster calls them, by its attribute table or category names.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 3, 1), cell_size=1, crs="local")
    >>> shares = level_shares(Categorical(np.array([1, 2, 1])), domain, "soil")
    >>> shares.columns.tolist(), shares["2"].tolist()
    (['1', '2'], [0.0, 1.0, 0.0])
    """

    source: Any
    reference: Any = None
    names: Mapping[Any, str] | None = None

    def __post_init__(self) -> None:
        SOURCE("source", self.source)
        if self.reference is not None:
            _LEVEL("reference", self.reference)
        if self.names is not None:
            LEVEL_NAMES("names", self.names)


def split_use(source: Any) -> tuple[Any, str | None]:
    """Return a raster's path, and whether it says that its values are levels or numbers.

    Examples
    --------
    >>> split_use("soil.tif|band=2|levels"), split_use("dem.tif")
    (('soil.tif|band=2', 'levels'), ('dem.tif', None))
    """
    if isinstance(source, str | os.PathLike):
        path, mark, use = os.fspath(source).rpartition("|")
        if mark and use in _USES:
            return path, use
    return source, None


def is_categorical(value: Any) -> bool:
    """Tell whether a covariate's values are levels: it says so, or they are text or categories."""
    if isinstance(value, Categorical) or split_use(value)[1] == "levels":
        return True
    if isinstance(value, list | tuple):
        return not are_numbers(value)
    dtype = getattr(value, "dtype", None)
    if dtype is None or hasattr(value, "dims"):
        return False
    if isinstance(dtype, pd.CategoricalDtype):
        return True
    return not (pd.api.types.is_datetime64_any_dtype(dtype) or are_numbers(value))


def level_shares(value: Any, domain: Domain, name: str, most: int = MOST) -> pd.DataFrame:
    """Return the share of every node's land that belongs to each level, a column each; NaN where none is known.

    Parameters
    ----------
    value : Categorical, array or path with ``|levels``
    domain : Domain
    name : str
        Of the covariate, for messages.
    """
    named = value.names if isinstance(value, Categorical) else None
    if named:
        table = level_shares(replace(value, names=None), domain, name, most)
        called = {level_word(code): str(word) for code, word in named.items()}
        _check_named(table, called, name)
        return _renamed(table, called)
    source = split_use(value.source if isinstance(value, Categorical) else value)[0]
    if isinstance(source, str | os.PathLike) or hasattr(source, "dims"):
        return _of_raster(source, domain, name, most)
    if isinstance(source, pd.DataFrame):
        return _of_table(source, domain, name)
    values = pd.Series(np.asarray(source, dtype=object).ravel())
    if len(values) != domain.n_nodes:
        raise DataError(
            f"The covariate {name!r} is one level per node, {domain.n_nodes:,}; found {len(values):,}.",
            option="covariates",
            found=len(values),
        )
    return indicators(values, name, most)


def _check_named(table: pd.DataFrame, names: Mapping[str, str], name: str) -> None:
    """Tell of codes that no land has, where some levels on land are left without a name."""
    levels = list(map(str, table.columns))
    codes = {called: code for code, called in table.attrs.get("names", {}).items()}
    either = {*levels, *(codes[level] for level in levels if level in codes)}
    stray = [code for code in names if code not in either]
    bare = [level for level in levels if level not in names and codes.get(level, "") not in names]
    if stray and bare:
        warn(
            InputWarning(
                f"The covariate {name!r} has names for {count(len(stray), 'code')} that no land has, {listed(stray, 5)}"
                f", and none for its {count(len(bare), 'level')} {listed(bare, 5)}.",
                option="covariates",
                found=stray,
                remedy="Name levels by their codes.",
            )
        )


def _renamed(table: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Return levels under other names, those of one name together; the table keeps what was renamed."""
    before = table.attrs.get("names", {})
    codes = {called: code for code, called in before.items()}
    called = [names.get(str(level), names.get(codes.get(str(level), ""), str(level))) for level in table.columns]
    out = table.set_axis(called, axis=1).T.groupby(level=0, sort=False).sum(min_count=1).T
    out.attrs["names"] = {**before, **names}
    return out


def indicators(values: pd.Series, name: str, most: int = MOST) -> pd.DataFrame:
    """Return a column per level, 1 where it is the value and 0 where not; NaN where the value is missing."""
    missing = values.isna().to_numpy()
    words = values.map(level_word)
    levels = _ordered(set(words[~missing]), name, most)
    columns = pd.DataFrame({level: (words == level).to_numpy(float) for level in levels})
    columns.loc[missing] = np.nan
    return columns


def are_codes(source: Any, domain: Domain, name: str) -> bool:
    """Tell whether a raster's values are levels: two whole numbers are. Ask where they may well be codes.

    They are where it has names for them, and may be where it has a colour table, or a few whole values.
    """
    path, use = split_use(source)
    if use is not None:
        return False
    with open_raster(path, None, None) as raster:
        if not raster.whole:
            return False
        if raster.categories():
            return True
        found = _codes(raster, domain)
        if not raster.coloured and not 2 < len(found) <= FEW:
            return len(found) == 2
    why = "it has a colour table" if raster.coloured else f"they are {count(len(found), 'whole number')}"
    shown = path if isinstance(path, str | os.PathLike) else "x"
    levels, numbers = (
        option("covariates", f"'{name}={shown}|{use}'", python=python)
        for use, python in (("levels", f"Categorical({shown!r})"), ("numbers", repr(f"{shown}|numbers")))
    )
    raise DataError(
        f"Are the values of the covariate {name!r} levels (as of land use) or numbers (as of elevation)? In "
        f"{raster.name} {why}.",
        option="covariates",
        found=name,
        remedy=f"Say so: {levels} for levels, {numbers} for numbers.",
    )


def level_word(value: Any) -> str:
    """Return what a level is called; whole numbers have no point.

    Examples
    --------
    >>> level_word(3.0), level_word("heath ")
    ('3', 'heath')
    """
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value).strip()


def matching_level(value: Any, levels: Sequence[str]) -> str | None:
    """Return the level that a value means: the same word, or the same number; None where there is none.

    Examples
    --------
    >>> matching_level(4, ["1", "4"]), matching_level("4.0", ["1", "4"]), matching_level("Wood", ["wood"])
    ('4', '4', None)
    """
    word = level_word(value)
    if word in levels:
        return word
    try:
        same = [level for level in levels if float(level) == float(word)]
    except ValueError:
        return None
    return same[0] if len(same) == 1 else None


def reference_level(value: Any, shares: pd.DataFrame, amounts: np.ndarray, name: str) -> int:
    """Return which level the others are compared with: the one that was asked for, or the most common."""
    wanted = getattr(value, "reference", None) if isinstance(value, Categorical) else None
    if wanted is None:
        return int(np.argmax(amounts))
    levels = list(map(str, shares.columns))
    wanted = shares.attrs.get("names", {}).get(level_word(wanted), wanted)
    level = matching_level(wanted, levels)
    if level is None:
        raise DataError(
            f"The covariate {name!r} has no level {wanted!r} on the land; its levels are {listed(levels, MOST)}.",
            option="covariates",
            found=wanted,
            remedy="Give one of these as the reference.",
        )
    return levels.index(level)


def _of_table(table: pd.DataFrame, domain: Domain, name: str) -> pd.DataFrame:
    """Return shares that were given."""
    shares = table.rename(columns=level_word).reset_index(drop=True)
    with suppress(TypeError, ValueError):  # words
        shares = shares.astype(float)
    values = shares.select_dtypes("number").to_numpy()
    sums = values[np.isfinite(values).all(axis=1)].sum(axis=1)
    wrong = (np.nan_to_num(values) < -1e-9).any() or (np.abs(sums - 1.0) > 1e-6).any()
    wrong = wrong or values.shape != shares.shape or shares.columns.duplicated().any()
    if len(shares) != domain.n_nodes or wrong:
        raise DataError(
            f"The covariate {name!r} is a table of shares: a row for each of {domain.n_nodes:,} nodes, a column for "
            f"each level, rows that add up to 1. Found {len(shares):,} rows of {listed(shares.columns)}.",
            option="covariates",
            found=shares.shape,
        )
    return shares


def _ordered(levels: set[str], name: str, most: int = MOST) -> list[str]:
    """Return levels in order, numbers by size; refuse what cannot be levels."""
    if not levels:
        raise DataError(f"The covariate {name!r} has no value anywhere.", option="covariates", found=name)
    if len(levels) > most:
        groups = (
            ""
            if most > MOST
            else f", or give it as a group: {option('covariates', f'{name}=...|group', python='Group(...)')}"
        )
        raise DataError(
            f"The covariate {name!r} has {len(levels):,} levels; at most {most} can have effects of their own.",
            option="covariates",
            found=len(levels),
            remedy=f"Join some{groups}, or give it as numbers.",
        )
    try:
        return sorted(levels, key=float)
    except ValueError:
        return sorted(levels)


def _codes(raster: RasterSource, domain: Domain, most: int = MOST) -> list[float]:
    """Return the different values of the pixels around the land, up to one more than can be levels."""
    codes: set[float] = set()
    for values in blocks_on_land(raster, domain):
        codes |= set(np.unique(values[np.isfinite(values)]).tolist())
        if len(codes) > most:
            break
    return sorted(codes)


def _of_raster(source: Any, domain: Domain, name: str, most: int = MOST) -> pd.DataFrame:
    with open_raster(source, None, None) as raster:
        codes = _codes(raster, domain, most)
        words = _ordered({level_word(code) for code in codes}, name, most)
        decimals = [code for code in codes if code != round(code)]
        if decimals:
            warn(
                InputWarning(
                    f"The covariate {name!r} is of levels, and the values of {raster.name} are decimals, such as "
                    f"{number(decimals[0])}: each of its {count(len(codes), 'value')} has an effect of its own.",
                    option="covariates",
                    found=len(codes),
                    remedy=f"Of amounts such as elevation give the path alone: {option('covariates')}.",
                )
            )
        by_word = {level_word(code): code for code in codes}
        shares = {word: node_means(raster.where(by_word[word]), domain) for word in words}
        names = {level_word(code): called for code, called in raster.categories().items()}
    table = pd.DataFrame(shares)
    table = table.loc[:, table.max() > 0]  # levels of the sea around have no effect on land
    return _renamed(table, names) if names else table


# -- Kinds of covariates: curves, groups, interactions, distances ---------------------------------------------


@dataclass(frozen=True, eq=False)
class Smooth:
    """A covariate whose effect is a curve: a straight line, and as much of a departure from it as the data ask for.

    The curve is a cubic spline on quantiles of the covariate over the land. The standard deviation τ of the departure
    is learned with the hyperparameters; it has a prior that prefers a straight line, P(τ > 1) = 0.01. A path says the
    same with ``"rain.tif|smooth"``.

    Parameters
    ----------
    source : array, callable, raster, path, polygons or Distance
        Numbers, as for a covariate with a slope; over periods too.
    k : int
        How many splines there are, at least 4: how fine the curve can be.

    Examples
    --------
    >>> Smooth("rain.tif").k
    20
    """

    source: Any
    k: int = 20

    def __post_init__(self) -> None:
        COVARIATE("source", self.source)
        _SPLINES("k", self.k)


@dataclass(frozen=True, eq=False)
class Group:
    """A covariate whose values are groups, such as districts or clinics, with an effect each around zero.

    The effects are independent and normal; their standard deviation τ is learned with the hyperparameters. With the
    districts that counts are of it is the unstructured part of a Besag-York-Mollié model. A path says the same with
    ``"districts.tif|group"``.

    Parameters
    ----------
    source : array, raster, path, polygons or DataFrame
        One group per node, a raster with a code per pixel, polygons with a column of names, or a table of shares.

    Examples
    --------
    >>> Group(np.array(["east", "west"])).source.tolist()
    ['east', 'west']
    """

    source: Any

    def __post_init__(self) -> None:
        SOURCE("source", self.source)


@dataclass(frozen=True)
class Interaction:
    """The effect of a covariate that depends on another one: the products of their columns.

    Parameters
    ----------
    first, second : str
        Names of two other covariates of the model: slopes, levels, curves or groups. With a curve or a group the
        products have a standard deviation of their own, which is learned.

    Examples
    --------
    >>> Interaction("rain", "slope").first
    'rain'
    """

    first: str
    second: str

    def __post_init__(self) -> None:
        NAME("first", self.first)
        NAME("second", self.second)


@dataclass(frozen=True, eq=False)
class Distance:
    """A covariate that is the distance over land to the nearest of some places; see `Domain.distance_to`.

    With a curve, ``Smooth(Distance("pumps.gpkg"))``, it asks whether the risk falls with the distance from a source. A
    path says the same with ``"pumps.gpkg|distance|smooth"``.

    Parameters
    ----------
    places : path, GeoDataFrame, GeoSeries or (k, 2) array
        Points, lines or polygons.

    Examples
    --------
    >>> Distance(np.array([[0.0, 0.0]])).places.shape
    (1, 2)
    """

    places: Any

    def __post_init__(self) -> None:
        SOURCE("places", self.places)


#: Kinds of covariates that a name can stand for, by what is written behind a path.
Kind: TypeAlias = Categorical | Smooth | Group | Interaction | Distance
#: Levels of a group, and columns of all covariates, at most.
MOST_GROUPS, MOST_COLUMNS = 300, 400


def parsed_kind(value: Any) -> Any:
    """Return the kind of covariate that is written behind a path; anything else as it is.

    Examples
    --------
    >>> parsed_kind("rain.tif|smooth").source, parsed_kind("soil.tif|band=2|group").source
    ('rain.tif', 'soil.tif|band=2')
    >>> parsed_kind("pumps.gpkg|distance|smooth").source
    Distance(places='pumps.gpkg')
    """
    if not isinstance(value, str):
        return value
    path, mark, use = value.rpartition("|")
    if not mark:
        return value
    if use == "interaction":
        names = [name.strip() for name in path.split(",")]
        if len(names) != 2:
            raise DataError(
                f"An interaction is of two covariates; found {path!r}.",
                option="covariates",
                found=path,
                remedy="Name them: 'both=rain,slope|interaction'.",
            )
        return Interaction(*names)
    if use == "smooth":
        return Smooth(parsed_kind(path))
    return {"group": Group, "distance": Distance}.get(use, lambda _: value)(path)


def source_of(value: Any) -> Any:
    """Return what a kind of covariate is read from; anything else as it is."""
    return value.source if isinstance(value, Smooth | Group) else value


def with_source(kind: Any, source: Any) -> Any:
    """Return a kind of covariate that is read from something else; None is of what is read as it is."""
    if kind is None or isinstance(kind, Interaction):
        return kind or source
    return replace(kind, source=source)


@dataclass(frozen=True, eq=False)
class Spline:
    """The departures of a curve from a straight line: columns with independent weights of one standard deviation.

    Attributes
    ----------
    knots : (k + 4,) array
        Of cubic B-splines; beyond the ends the curve goes on as a straight line.
    turn : (k, k - 2) array
        From B-splines to columns, which have no mean and no slope over the land, and together a variance of one.
    """

    knots: np.ndarray = field(repr=False)
    turn: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, values: np.ndarray, weight: np.ndarray, k: int) -> Spline:
        """Return the columns of values whose weights add up to one."""
        order = np.argsort(values)
        below = np.cumsum(weight[order]) - 0.5 * weight[order]
        low, high = float(values.min()), float(values.max())
        inner = np.unique(np.interp(np.linspace(0.0, 1.0, k - 2)[1:-1], below, values[order]))
        close = 1e-6 * (high - low)
        inner = inner[(inner > low + close) & (inner < high - close)]
        inner = inner[np.r_[True, np.diff(inner) > close]] if len(inner) else inner
        knots = np.concatenate([[low] * 4, inner, [high] * 4])
        at = np.array([knots[j + 1 : j + 4].mean() for j in range(len(knots) - 4)])
        # Second differences of the weights, which are zero on straight lines.
        slopes = np.diff(np.eye(len(at)), axis=0) / np.diff(at)[:, None]
        second = np.diff(slopes, axis=0)
        turn = second.T @ np.linalg.inv(second @ second.T)
        raw = cls(knots, turn).values(values)
        lines = np.column_stack([np.ones(len(values)), values - values @ weight])
        fit = np.linalg.solve(lines.T @ (weight[:, None] * lines), lines.T @ (weight[:, None] * raw))
        turn = turn - np.column_stack([np.ones(len(at)), at - values @ weight]) @ fit
        size = float(np.sum(weight @ (raw - lines @ fit) ** 2))
        return cls(knots, turn / np.sqrt(size))

    def values(self, x: np.ndarray) -> np.ndarray:
        """Return the columns (..., k - 2) at values of the covariate."""
        flat = np.ravel(np.asarray(x, float))
        low, high = self.knots[0], self.knots[-1]
        inside = np.clip(flat, low, high)
        out = np.asarray(BSpline.design_matrix(inside, self.knots, 3) @ self.turn)
        beyond = flat - inside
        if beyond.any():
            slope = BSpline(self.knots, self.turn, 3).derivative()
            out += beyond[:, None] * slope(inside)
        return out.reshape(*np.shape(x), -1)


# -- Effects: covariates, from whatever they come as, to standardised columns at the nodes -------------------


#: Correlation of two covariates from which on their separate effects are said to be hardly known.
_CORRELATED = 0.98
#: Standardised part of a covariate in a sum that another one follows from, from which on it is named.
_PART = 0.1
#: Share of a covariate's variance within groups, up to which it does not vary within them.
_WITHIN = 1e-6
#: Share of a level that is taken for none, or for all of a node.
_PURE = 1e-9
#: Prior standard deviation of the intercept (around the log of the overall rate) and of the slopes of standardised
#: covariates; and of the log of a level's rate by that of its reference.
FIXED_SD, LEVEL_SD = 10.0, 5.0
#: What the first row of a table of effects is called.
INTERCEPT = "intercept"


@dataclass(frozen=True)
class Term:
    """A fixed effect: the slope of a covariate, one of its levels compared with the reference level, or another part.

    Examples
    --------
    >>> Term("elevation").name, Term("vegetation", "4", "1").name
    ('elevation', 'vegetation 4 (reference: 1)')
    """

    covariate: str
    level: str | None = None
    reference: str | None = None
    part: str | None = None

    @property
    def name(self) -> str:
        """What tables call it."""
        if self.level is None:
            return self.covariate if self.part is None else f"{self.covariate} {self.part}"
        return f"{self.covariate} {self.level} (reference: {self.reference})"


@dataclass(frozen=True, eq=False)
class Block:
    """The columns of one covariate: what they are, how they were standardised, and the prior of their effects.

    Attributes
    ----------
    covariate : str
    terms : tuple of Term
        A slope, or the levels but for the reference.
    means, scales : (k,) arrays
        A term's standardised value is (own value - mean) / scale; that of a level is its share of the node's land.
    sd : float or "learned"
        Prior standard deviation: of the slope of the standardised covariate, or of the log of a level's rate by that of
        its reference. "learned": with the hyperparameters; of a curve that of what departs from the straight line.
    kind : "fixed", "smooth", "group" or "interaction"
    spline : Spline, optional
        Of a curve, whose first term is the straight line.
    parents : tuple of str
        The two covariates of an interaction.
    unit : str
        Of a number, where its source says so.
    """

    covariate: str
    terms: tuple[Term, ...]
    means: np.ndarray
    scales: np.ndarray
    sd: float | Literal["learned"]
    kind: Literal["fixed", "smooth", "group", "interaction"] = "fixed"
    spline: Spline | None = None
    parents: tuple[str, ...] = ()
    unit: str = ""

    @property
    def learned(self) -> np.ndarray:
        """Which terms have a standard deviation that is learned."""
        out = np.full(len(self.terms), self.sd == "learned")
        if self.kind == "smooth":
            out[0] = False
        return out

    @property
    def prior_sd(self) -> np.ndarray:
        """Prior standard deviations of the effects on the standardised scale; one where they are learned.

        That of a level does not depend on the size of cells, as the scale of its shares does.
        """
        if self.sd == "learned":
            return np.where(self.learned, 1.0, FIXED_SD)
        return np.array(
            [self.sd if t.level is None else self.sd * s for t, s in zip(self.terms, self.scales, strict=True)]
        )

    @property
    def rate(self) -> float:
        """Rate of the exponential prior of a standard deviation that is learned: curves prefer to be straight."""
        return -math.log(0.01) if self.kind == "smooth" else -math.log(0.05) / 3.0


class Linearised(NamedTuple):
    """The fixed effects about given coefficients: columns (n_nodes, 1 + k), and what is added to them at each node."""

    columns: np.ndarray
    offset: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Effects:
    """The fixed effects: what each covariate is called, how it was standardised, and its column at the nodes.

    Attributes
    ----------
    blocks : tuple of Block
        One for each covariate, without the intercept.
    columns : (n_nodes, 1 + k) or (n_periods, n_nodes, 1 + k) array
        A column of ones and the standardised values, block by block; without rows where only the blocks are known.
    offset : (n_nodes,) array, optional
        What is added at each node to columns that have been linearised, and are held.
    """

    blocks: tuple[Block, ...] = ()
    columns: np.ndarray = field(default_factory=lambda: np.ones((0, 1)), repr=False, metadata={"stored": False})
    offset: np.ndarray | None = field(default=None, repr=False, metadata={"stored": False})

    @classmethod
    def of(cls, terms: Sequence[Term], means: Any, scales: Any, columns: np.ndarray | None = None) -> Effects:
        """Return effects with a block for each covariate; the terms of one follow each other."""
        means, scales = np.asarray(means, float), np.asarray(scales, float)
        blocks: list[Block] = []
        start = 0
        for covariate, group in groupby(terms, lambda term: term.covariate):
            own = tuple(group)
            here = slice(start, start := start + len(own))
            sd = FIXED_SD if own[0].level is None else LEVEL_SD
            blocks.append(Block(covariate, own, means[here], scales[here], sd))
        return cls(tuple(blocks)) if columns is None else cls(tuple(blocks), columns)

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """Slopes and levels, without the intercept."""
        return tuple(term for block in self.blocks for term in block.terms)

    @cached_property
    def means(self) -> np.ndarray:
        """The terms' means over the land, (k,)."""
        return np.concatenate([np.zeros(0), *(block.means for block in self.blocks)])

    @cached_property
    def scales(self) -> np.ndarray:
        """The terms' standard deviations over the land, (k,)."""
        return np.concatenate([np.zeros(0), *(block.scales for block in self.blocks)])

    @property
    def names(self) -> tuple[str, ...]:
        """What tables call the terms."""
        return tuple(term.name for term in self.terms)

    @property
    def covariates(self) -> tuple[str, ...]:
        """What was given, each once."""
        return tuple(block.covariate for block in self.blocks)

    @property
    def prior_sd(self) -> np.ndarray:
        """Prior standard deviations of intercept and terms on the standardised scale; one where they are learned."""
        return np.concatenate([[FIXED_SD], *(block.prior_sd for block in self.blocks)])

    @cached_property
    def learned(self) -> dict[str, np.ndarray]:
        """The columns of each covariate that share a standard deviation to be learned; the first is the intercept's."""
        out: dict[str, np.ndarray] = {}
        start = 1
        for block in self.blocks:
            if block.learned.any():
                out[block.covariate] = start + np.flatnonzero(block.learned)
            start += len(block.terms)
        return out

    @property
    def rates(self) -> tuple[float, ...]:
        """Rates of the exponential priors of these standard deviations."""
        return tuple(self.block(name).rate for name in self.learned)

    def sd_at(self, learned: Sequence[float]) -> np.ndarray:
        """Return the prior standard deviations at those that have been learned."""
        out = self.prior_sd
        for sd, columns in zip(learned, self.learned.values(), strict=True):
            out[columns] *= sd
        return out

    def block(self, covariate: str) -> Block:
        """Return the block of a covariate."""
        return next(block for block in self.blocks if block.covariate == covariate)

    @property
    def bare(self) -> Effects:
        """The same without rows: what the covariates are, and how they were standardised."""
        return Effects(self.blocks)

    def where(self, covariate: str) -> np.ndarray:
        """Return which of the terms are those of a covariate."""
        return np.array([j for j, term in enumerate(self.terms) if term.covariate == covariate], int)

    def levels(self, covariate: str) -> list[str]:
        """Return all levels of a covariate, the reference first; nothing where it is a number."""
        mine = [term for term in self.terms if term.covariate == covariate]
        if mine and self.block(covariate).kind == "group":
            return [str(term.part) for term in mine]
        mine = [term for term in mine if term.level is not None]
        return [str(mine[0].reference), *(str(term.level) for term in mine)] if mine else []

    def standardise(self, values: Mapping[str, Any], n: int) -> np.ndarray:
        """Return (n, 1 + k): a column of ones and the standardised terms at n places, from what is there.

        Parameters
        ----------
        values : mapping of covariate to number, level or (n,) array
            One serves all places.
        n : int
        """
        values = {str(name): values[name] for name in values}
        own_names = [block.covariate for block in self.blocks if not block.parents]
        missing = [name for name in own_names if name not in values]
        if missing:
            raise DataError(
                f"The model has the covariates {listed(own_names)}; {missing[0]!r} is not given.",
                option="covariates",
                found=missing,
            )
        given = {name: self._at_places(name, values[name], n) for name in own_names}
        columns: dict[str, np.ndarray] = {}
        for block in self.blocks:
            if block.parents:
                own = products(*(columns[name] for name in block.parents))
            elif block.spline is not None:
                own = np.column_stack([given[block.covariate], block.spline.values(given[block.covariate])])
            else:
                told = given[block.covariate]
                words = [term.level or term.part for term in block.terms]
                own = np.column_stack([told if w is None else (told == w).astype(float) for w in words])
            columns[block.covariate] = (own - block.means) / block.scales
        return np.column_stack([np.ones(n), *columns.values()])

    def standardised(self, own: np.ndarray) -> np.ndarray:
        """Return (..., n, 1 + k): a column of ones, and the terms' own values (..., n, k) standardised."""
        return np.concatenate([np.ones((*own.shape[:-1], 1)), (own - self.means) / self.scales], axis=-1)

    def _at_places(self, name: str, value: Any, n: int) -> np.ndarray:
        """Return a covariate at n places: numbers, or words of its levels."""
        known, given = self.levels(name), np.asarray(value, dtype=object)
        if given.shape not in ((), (1,), (n,)):
            raise DataError(
                f"The covariate {name!r} has the shape {given.shape}; there are {n:,} places.",
                option="covariates",
                found=given.shape,
                remedy="Give one value for all places, or one for each.",
            )
        if not known:
            try:
                return np.broadcast_to(given.astype(float), (n,))
            except (TypeError, ValueError) as error:
                raise DataError(
                    f"The covariate {name!r} is a number; found {given.ravel()[0]!r}.", option="covariates", found=name
                ) from error
        words = {one: matching_level(one, known) for one in dict.fromkeys(given.ravel().tolist())}
        unknown = [one for one, word in words.items() if word is None]
        if unknown:
            raise DataError(
                f"The covariate {name!r} has no level {unknown[0]!r}; its levels are {listed(known, MOST)}.",
                option="covariates",
                found=unknown,
                remedy="Give one of these.",
            )
        return np.broadcast_to(np.array([words[one] for one in given.ravel().tolist()]).reshape(given.shape), (n,))

    # -- levels within a node

    @cached_property
    def _mixtures(self) -> list[np.ndarray]:
        """Which columns are the levels of each covariate of which some node has several."""
        first, out = self.columns[0] if self.columns.ndim == 3 else self.columns, []
        for name in self.covariates:
            which = self.where(name)
            shares = first[:, 1 + which] * self.scales[which] + self.means[which]
            if (
                self.block(name).kind == "fixed"
                and self.levels(name)
                and ((shares > _PURE) & (shares < 1.0 - _PURE)).any()
            ):
                out.append(which)
        return out

    @property
    def mixes(self) -> bool:
        """Whether some node has several levels of a covariate, so that its log-rate is no sum of effects."""
        return self.offset is None and bool(self._mixtures)

    def linearised(self, mean: np.ndarray, covariance: np.ndarray | None = None) -> Linearised:
        """Return the columns about coefficients, with which each node expects the mean rate over its land.

        A node with the shares s of levels with the effects β has the rate Σ s_l exp(β_l), and expects Σ s_l exp(a_l) of
        it, with a = mean + variance / 2. About that it is as one effect Σ c_l β_l and an offset, with
        c_l = s_l exp(a_l) / Σ_k s_k exp(a_k). Where several covariates have levels, their shares are taken as
        independent within a node.

        Parameters
        ----------
        mean : (1 + k,) array
            Of the coefficients on the standardised scale, intercept first; more after them are not looked at.
        covariance : (1 + k, 1 + k) array, optional
            Theirs; by default they are certain.

        Examples
        --------
        >>> terms = (Term("veg", "wood", "heath"),)
        >>> effects = Effects.of(terms, [0.0], [1.0], np.array([[1.0, 0.0], [1.0, 0.4]]))
        >>> columns, offset = effects.linearised(np.array([0.0, np.log(8.0)]))
        >>> np.exp(columns @ [0.0, np.log(8.0)] + offset).round(6).tolist()  # 0.6 + 0.4 x 8
        [1.0, 3.8]
        """
        if not self.mixes:
            return Linearised(self.columns)
        columns, offset = self.columns.copy(), np.zeros(self.columns.shape[-2])
        first = self.columns[0] if self.columns.ndim == 3 else self.columns
        for which in self._mixtures:
            shift, scale = self.means[which], self.scales[which]
            shares = np.clip(first[:, 1 + which] * scale + shift, 0.0, 1.0)
            effect, spread = mean[1 + which] / scale, np.zeros((len(which), len(which)))
            if covariance is not None:
                spread = covariance[np.ix_(1 + which, 1 + which)] / np.outer(scale, scale)
            size = effect + 0.5 * np.diagonal(spread)
            top = max(float(size.max()), 0.0)
            each = shares * np.exp(size - top)
            total = np.maximum(1.0 - shares.sum(axis=1), 0.0) * np.exp(-top) + each.sum(axis=1)
            weight = each / total[:, None]
            columns[..., 1 + which] = (weight - shift) / scale
            offset += np.log(total) + top - weight @ effect - 0.5 * np.einsum("ij,jk,ik->i", weight, spread, weight)
        return Linearised(columns, offset)

    def own_units(self, mean: np.ndarray, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of intercept and slopes in the covariates' own units."""
        turn = self.to_own_units(len(mean))
        return turn @ mean, np.diag(turn @ cov @ turn.T)

    def to_own_units(self, k: int) -> np.ndarray:
        """Return the (k, k) matrix from standardised effects, the last k, to the covariates' own units.

        Effects beyond those of the covariates, such as a season's, have no other unit.
        """
        known = 1 + len(self.scales)
        turn = np.eye(max(k, known))
        turn[:known, :known] = np.diag(np.r_[1.0, 1.0 / self.scales])
        turn[0, 1:known] = -self.means / self.scales
        return turn[-k or len(turn) :, -k or len(turn) :]


def named_covariates(covariates: Covariates | None, time: Any = None) -> dict[str, Any]:
    """Return covariates by name; the columns of a table are one each.

    A GeoDataFrame of polygons gives every column with its polygons, and with their dates in the column `time`; a
    DataFrame one value per node.
    """
    named = _named(as_frame(covariates, "covariates"), time)
    refuse_intercept(named, "covariates")
    return {name: parsed_kind(value) for name, value in named.items()}


def refuse_intercept(names: Iterable[Any], what: str) -> None:
    """Refuse a name that tables give to something else."""
    if any(str(name).strip().lower() == INTERCEPT for name in names):
        raise DataError(
            f"One of {option(what)} is called {INTERCEPT!r}, as the effect that every model has.",
            option=what,
            found=INTERCEPT,
            remedy="Give it another name.",
        )


def _named(covariates: Covariates | None, time: Any) -> dict[str, Any]:
    if not isinstance(covariates, pd.DataFrame):
        return {str(name): value for name, value in dict(covariates or {}).items()}
    if not hasattr(covariates, "geometry") or getattr(covariates, "active_geometry_name", None) is None:
        return {str(c): covariates[c] for c in covariates.columns}
    shape = covariates.geometry.name
    kinds = set(covariates.geom_type.dropna()) - {"Polygon", "MultiPolygon"}
    if kinds:
        raise DataError(
            f"Covariates of a GeoDataFrame are those of polygons; found {', '.join(sorted(kinds))}.",
            option="covariates",
            found=sorted(kinds),
            remedy="Give the areas that the values hold for, or a raster.",
        )
    dates = [time] if isinstance(time, str) and time in covariates.columns else []
    return {str(c): covariates[[c, *dates, shape]] for c in covariates.columns if c not in (shape, *dates)}


def fixed_effects(covariates: Covariates | None, reading: Reading, like: Effects | None = None) -> Effects:
    """Return the fixed effects of a model: an intercept and the standardised covariates.

    Parameters
    ----------
    covariates : mapping of name to array, callable, raster or polygons; or a DataFrame
        One value per node; or a callable that gets (n, 2) eastings and northings; or a raster or the column of
        polygons, averaged by area. Text is taken for levels, and numbers are with `Categorical` or
        ``"soil.tif|levels"``: all but the most common level have an effect, compared with that one. A node with several
        levels has the mean rate over its land. Rasters of two whole values are levels; where there are a few more,
        or a colour table, and nothing is said, it is an error. Numbers may change: a (n_periods, n_nodes) array, a list
        (or a mapping by the periods' labels) with one for each period, or polygons with a row for each period. They are
        standardised over all periods, so that an effect is the same in each of them.
    reading : Reading
        The land, the periods, and what to do where there is no value.
    like : Effects, optional
        Those on all land, of which this is a part: levels and standardisation are theirs.
    """
    domain, read = reading.domain, dict[str, dict[Term, np.ndarray]]()
    named = named_covariates(covariates, reading.time)
    for name, value in named.items():
        if not isinstance(value, Interaction):
            read[name] = _columns(name, value, reading, like)
    lengths = {len(v) for values in read.values() for v in values.values() if v.ndim == 2}
    if len(lengths) > 1:
        raise DataError(
            f"Covariates are given for {' and '.join(str(n) for n in sorted(lengths))} periods: which is it?",
            option="covariates",
            found=sorted(lengths),
        )
    shape = (*lengths, domain.n_nodes)
    weight = np.broadcast_to(domain.node_areas / (domain.node_areas.sum() * (shape[0] if lengths else 1)), shape)
    blocks, columns = list[Block](), dict[str, np.ndarray]()
    where = "everywhere and always" if lengths else "on all of the land"
    for name, values in read.items():
        own = np.stack([np.broadcast_to(v, shape) for v in values.values()], axis=-1)
        known = None if like is None else like.block(name)
        block = known or _block(name, named[name], tuple(values), own, weight, where, domain)
        if block.spline is not None:
            own = np.concatenate([own, block.spline.values(own[..., 0])], axis=-1)
        blocks.append(block)
        columns[name] = (own - block.means) / block.scales
    crossed = named if like is None else {b.covariate: Interaction(*b.parents) for b in like.blocks if b.parents}
    for name, value in crossed.items():
        if isinstance(value, Interaction):
            own = products(*(columns[one] for one in _parents(name, value, columns)))
            known = None if like is None else like.block(name)
            block = known or _interaction_block(name, value, blocks, own, weight, where)
            blocks.append(block)
            columns[name] = (own - block.means) / block.scales
    effects = Effects(tuple(blocks), np.concatenate([np.ones((*shape, 1)), *columns.values()], axis=-1))
    if len(effects.terms) > MOST_COLUMNS:
        sizes = listed([f"{b.covariate} ({len(b.terms)})" for b in blocks])
        raise DataError(
            f"The covariates have {len(effects.terms):,} columns together: {sizes}; at most {MOST_COLUMNS} can have "
            "effects of their own.",
            option="covariates",
            found=len(effects.terms),
            remedy="Join groups, give curves fewer splines (k), or leave an interaction out.",
        )
    if like is None:
        straight = np.flatnonzero([t.part is None for t in effects.terms])
        standard = effects.columns[..., 1 + straight].reshape(weight.size, len(straight))
        owners = np.array([block.covariate for block in blocks for _ in block.terms], dtype=object)[straight]
        warn_correlated([effects.terms[j] for j in straight], owners, standard, weight.ravel())
        _warn_by_group(effects, straight, domain.node_areas)
    return effects


def products(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return all products of two sets of columns (..., a) and (..., b), (..., a b)."""
    out = first[..., :, None] * second[..., None, :]
    return out.reshape(*out.shape[:-2], -1)


def _refuse_constant(terms: Sequence[Term], means: np.ndarray, scales: np.ndarray, where: str) -> None:
    for term, mean, scale in zip(terms, means, scales, strict=True):
        if not scale > 1e-10 * max(abs(mean), 1e-300):
            raise DataError(
                f"The covariate {term.name!r} is {number(mean)} {where}; it cannot be separated from the intercept.",
                option="covariates",
                found=term.name,
                remedy="Leave it out.",
            )


def _moments(own: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    means = np.tensordot(weight, own, weight.ndim)
    return means, np.sqrt(np.tensordot(weight, (own - means) ** 2, weight.ndim))


def _block(
    name: str, value: Any, terms: tuple[Term, ...], own: np.ndarray, weight: np.ndarray, where: str, domain: Domain
) -> Block:
    """Return the block of a covariate from its own values at the nodes."""
    if isinstance(value, Group):
        k = len(terms)
        return Block(name, terms, np.zeros(k), np.ones(k), "learned", "group")
    means, scales = _moments(own, weight)
    _refuse_constant(terms, means, scales, where)
    if terms[0].level is not None:
        return Block(name, terms, means, scales, LEVEL_SD)
    unit = _unit(source_of(value), domain)
    if not isinstance(value, Smooth):
        return Block(name, terms, means, scales, FIXED_SD, unit=unit)
    x = own[..., 0].ravel()
    different = len(np.unique(x))
    if different < 4:
        raise DataError(
            f"The covariate {name!r} has but {different} different values; a curve needs four or more.",
            option="covariates",
            found=different,
            remedy="Give it as levels, or as a straight line.",
        )
    spline = Spline.of(x, weight.ravel(), min(value.k, different))
    q = spline.turn.shape[1]
    parts = tuple(Term(name, part=f"curve {j + 1}") for j in range(q))
    return Block(
        name,
        terms + parts,
        np.r_[means, np.zeros(q)],
        np.r_[scales, np.ones(q)],
        "learned",
        "smooth",
        spline,
        unit=unit,
    )


def _unit(value: Any, domain: Domain) -> str:
    """Return the unit of a number, where its source says so."""
    if isinstance(value, Distance):
        return "" if domain.crs is None else "m"
    if isinstance(value, Mapping | list | tuple) and len(value):
        value = next(iter(value.values() if isinstance(value, Mapping) else value))
    path = isinstance(value, str | os.PathLike)
    if hasattr(value, "dims") or (path and kind_of(os.fspath(value)) not in ("vector", "parquet")):
        with open_raster(split_use(value)[0], None, None) as raster:
            return raster.unit
    return ""


def _parents(name: str, value: Interaction, columns: Mapping[str, Any]) -> tuple[str, str]:
    """Return the covariates of an interaction, which are others of the model."""
    for one in (value.first, value.second):
        if one not in columns:
            raise DataError(
                f"The interaction {name!r} is of {value.first!r} and {value.second!r}; there is no covariate {one!r}.",
                option="covariates",
                found=one,
                remedy="Give both as covariates too.",
            )
    if value.first == value.second:
        raise DataError(
            f"The interaction {name!r} is of {value.first!r} with itself.",
            option="covariates",
            found=value.first,
            remedy=f"For a curve give {option('covariates', f'{value.first}=...|smooth', python='Smooth(...)')}.",
        )
    return value.first, value.second


def _interaction_block(
    name: str, value: Interaction, blocks: Sequence[Block], own: np.ndarray, weight: np.ndarray, where: str
) -> Block:
    parents = [next(b for b in blocks if b.covariate == one) for one in (value.first, value.second)]
    pairs = [f"{a.name} x {b.name}" for a in parents[0].terms for b in parents[1].terms]
    terms = tuple(Term(name, part=None if len(pairs) == 1 else pair) for pair in pairs)
    means, scales = _moments(own, weight)
    learned = any(parent.sd == "learned" for parent in parents)
    if not learned:
        _refuse_constant(terms, means, scales, where)
    return Block(
        name, terms, means, np.where(scales > 1e-10, scales, 1.0), "learned" if learned else FIXED_SD,
        "interaction", None, (value.first, value.second),
    )  # fmt: skip


def _columns(name: str, value: Any, reading: Reading, like: Effects | None) -> dict[Term, np.ndarray]:
    """Return a covariate's columns in its own units: one, or the share of each level but the reference."""
    grouped = isinstance(value, Group) or (like is not None and like.block(name).kind == "group")
    curved, value = isinstance(value, Smooth), as_frame(source_of(value), "covariates")
    if grouped:
        return _group_columns(name, value, reading, like)
    _refuse_dates(name, value)
    if is_shapes(value) and reading.is_dated(value):
        frame, table = reading.by_period("covariates", value, lambda rows: as_floats("covariates", rows[name]))
        found = reading.means(Key("covariates", name), frame, table.T).T
        return {Term(name): np.array([_one(name, row, reading) for row in found])}
    parts = reading.parts("covariates", value)
    if parts is not None:
        each = [_at_nodes(name, part, reading, None, moving=True) for part in parts]
        return {Term(name): np.array([_one(name, one, reading) for one in each])}
    known = like.levels(name) if like is not None else [] if curved else None
    found = _at_nodes(name, value, reading, known)
    if not isinstance(found, pd.DataFrame):
        return {Term(name): _one(name, found, reading)}
    if curved:
        raise DataError(
            f"The covariate {name!r} has levels, {listed(list(found), 4)}; a curve is of numbers.",
            option="covariates",
            found=name,
            remedy="Give it as levels, or as a group.",
        )
    if known:  # of all land, the reference first
        _refuse_unknown(name, found, known, reading)
        shares = np.column_stack([found.get(level, np.zeros(len(found))) for level in known[1:]]).astype(float)
        shares[found.isna().any(axis=1)] = np.nan
        shares = reading.filled(Key("covariates", name), shares)
        return {Term(name, level, known[0]): shares[:, k] for k, level in enumerate(known[1:])}
    shares = reading.filled(Key("covariates", name), found.to_numpy(float))
    common = reference_level(value, found, reading.domain.node_areas @ shares, name)
    if (shares[:, common] >= 1.0 - 1e-12).all():
        raise DataError(
            f"The covariate {name!r} has one level on all land, {found.columns[common]!r}; it cannot be separated "
            "from the intercept.",
            option="covariates",
            found=name,
            remedy="Leave it out.",
        )
    return {
        Term(name, str(level), str(found.columns[common])): shares[:, k]
        for k, level in enumerate(found.columns)
        if k != common
    }


def _group_columns(name: str, value: Any, reading: Reading, like: Effects | None) -> dict[Term, np.ndarray]:
    """Return the share of each group, a column each."""
    known = None if like is None else like.levels(name)
    if reading.parts("covariates", value) is not None:
        raise DataError(
            f"The covariate {name!r} is given for each period; groups are the same in all of them.",
            option="covariates",
            found=name,
            remedy="Give one for all periods.",
        )
    found = _at_nodes(name, value, reading, known, groups=True)
    groups = known or list(found.columns)
    if known:
        _refuse_unknown(name, found, known, reading)
    if len(groups) < 2:
        raise DataError(
            f"The covariate {name!r} has one group on all of the land, {groups[0]!r}; it cannot be separated from the "
            "intercept.",
            option="covariates",
            found=name,
            remedy="Leave it out.",
        )
    shares = np.column_stack([found.get(one, np.zeros(len(found))) for one in groups]).astype(float)
    shares[found.isna().any(axis=1)] = np.nan
    shares = reading.filled(Key("covariates", name), shares)
    return {Term(name, part=one): shares[:, k] for k, one in enumerate(groups)}


def _refuse_unknown(name: str, found: pd.DataFrame, known: Sequence[str], reading: Reading) -> None:
    """Refuse levels without an effect, unless this is a part of the land, on which cells may be finer."""
    unknown = [str(level) for level in found.columns if level not in known]
    if unknown and reading.usual is None:
        raise DataError(
            f"The covariate {name!r} has no level {unknown[0]!r}; its levels are {listed(known, MOST)}.",
            option="covariates",
            found=unknown,
            remedy="Give these: say what codes are called with Categorical(..., names={1: ...}).",
        )


def _one(name: str, values: Any, reading: Reading) -> np.ndarray:
    """Return a number at each node, without gaps."""
    if isinstance(values, pd.DataFrame):
        raise DataError(
            f"The covariate {name!r} has levels; those that change from period to period are numbers.",
            option="covariates",
            found=name,
            remedy="Give an indicator for each level.",
        )
    n = reading.domain.n_nodes
    if values.shape != (n,):
        raise DataError(
            f"The covariate {name!r} is one value per node, {n:,}; found the shape {values.shape}.",
            option="covariates",
            found=values.shape,
        )
    refuse_huge("covariates", np.where(np.isinf(values), np.nan, values), f"The covariate {name!r}")
    return reading.filled(Key("covariates", name), values[:, None])[:, 0]


def _at_nodes(
    name: str, value: Any, reading: Reading, known: list[str] | None, *, moving: bool = False, groups: bool = False
) -> Any:
    """Return a covariate at the nodes, NaN where it has no value: numbers, or a table of the shares of levels.

    Parameters
    ----------
    name : str
    value
    reading : Reading
    known : list of str, optional
        The levels that it has on all land, none where it is a number; None where that is to be found out.
    moving : bool
        Whether it changes from period to period: it is a number then, if it has but two values too.
    groups : bool
        Whether its values are groups, whatever they look like.
    """
    domain, value = reading.domain, as_frame(value, "covariates")
    if isinstance(value, Distance):
        return domain.distance_to(value.places)
    if groups and not is_shapes(value):
        value = value if isinstance(value, Categorical) else Categorical(value)
    most = MOST_GROUPS if groups else MOST
    if is_shapes(value):
        column: Any = column_of(name, value, reading.time, groups)
        if not (groups or is_categorical(column)):
            return reading.means(Key("covariates", name), value, as_floats("covariates", column)[:, None])[:, 0]
        table = indicators(column.reset_index(drop=True), name, most)
        return pd.DataFrame(reading.means(Key("covariates", name), value, table.to_numpy()), columns=list(table))
    if callable(value):
        return as_floats("covariates", value(domain.node_points))
    value = in_rows_of("covariates", value, domain.n_nodes)
    if isinstance(value, Categorical):
        value = replace(value, source=in_rows_of("covariates", unmasked(value.source), domain.n_nodes))
    raster = isinstance(value, (str, os.PathLike)) or hasattr(value, "dims")
    if not raster and not is_categorical(value):
        return np.array(as_floats("covariates", value))
    levels = bool(known) or is_categorical(value)
    out: Any = reading.nothing()
    with reading.apart():
        if raster and not levels and known is None:
            levels = are_codes(value, domain, name) and not moving
        out = level_shares(value, domain, name, most) if levels else read_to_nodes(split_use(value)[0], domain, "mean")
    return pd.DataFrame({level: out for level in known}) if known and isinstance(out, np.ndarray) else out


def column_of(name: str, frame: gpd.GeoDataFrame, time: Any, groups: bool) -> pd.Series:
    """Return the column of polygons that a covariate is: the only one, or that of its name; of groups their names."""
    columns = [c for c in frame.columns if c not in (frame.geometry.name, time)]
    same = [c for c in columns if str(c).strip().lower() == name.strip().lower()]
    if groups and len(same) != 1 and (named := name_column(frame)) is not None:
        same = [named]
    if len(columns) != 1 and len(same) != 1:
        raise DataError(
            f"The polygons of the covariate {name!r} have {count(len(columns), 'column')}"
            + (f": {listed(columns)}. Which is meant?" if columns else ", and hold no values."),
            option="covariates",
            found=[str(c) for c in columns],
            remedy="Call the covariate as the column is called, or give polygons with that column alone.",
        )
    return frame[same[0] if same else columns[0]]


def _refuse_dates(name: str, value: Any) -> None:
    """Refuse dates as a covariate, which would be numbers of billionths of a second."""
    columns = [value[c] for c in value.columns if c == name] if isinstance(value, pd.DataFrame) else [value]
    if any(getattr(getattr(column, "dtype", None), "kind", "") in ("m", "M") for column in columns):
        raise DataError(
            f"The covariate {name!r} holds dates.",
            option="covariates",
            found=name,
            remedy="Make a number of it, such as days since an event, or levels, such as the season.",
        )


def by_name(effects: Effects, own: np.ndarray) -> dict[str, Any]:
    """Return covariates from the terms' own values at the nodes (n_nodes, k): numbers, or shares of levels."""
    out: dict[str, Any] = {}
    first = own[0] if own.ndim == 3 else own  # levels are the same in all periods
    for name in effects.covariates:
        which, levels, block = effects.where(name), effects.levels(name), effects.block(name)
        shares = first[:, which]
        if block.parents:
            out[name] = Interaction(*block.parents)
        elif block.kind == "group":
            out[name] = Group(pd.DataFrame(shares, columns=levels))
        elif block.spline is not None:
            out[name] = Smooth(own[..., which[0]], len(block.spline.turn))
        elif levels:
            rest = np.maximum(1.0 - shares.sum(axis=1), 0.0)
            out[name] = Categorical(pd.DataFrame(np.column_stack([rest, shares]), columns=levels), levels[0])
        else:
            out[name] = own[..., which[0]]
    return out


def warn_correlated(
    terms: Sequence[Term],
    owners: np.ndarray,
    standard: np.ndarray,
    weight: np.ndarray,
    what: Literal["covariate", "confounder"] = "covariate",
) -> None:
    """Warn of covariates of which one says what another one says, or several others (or levels) together."""
    names = [term.name for term in terms]
    correlation = (standard * weight[:, None]).T @ standard
    rows, cols = np.nonzero(np.triu(np.abs(correlation) > _CORRELATED, 1))
    for i, j in zip(rows, cols, strict=True):
        warn(
            InputWarning(
                f"The {what}s {names[i]!r} and {names[j]!r} have a correlation of "
                f"{correlation[i, j]:.4f}: the data can hardly tell their effects apart, and their "
                "coefficients are uncertain.",
                option=f"{what}s",
                found=float(correlation[i, j]),
                remedy="Leave one out, or combine them.",
            )
        )
    alone = np.flatnonzero(~np.isin(np.arange(len(names)), np.r_[rows, cols]))
    for j in sorted(alone, key=lambda j: terms[j].level is not None):
        others = alone[owners[alone] != owners[j]]
        share = np.linalg.lstsq(correlation[np.ix_(others, others)], correlation[others, j], rcond=None)[0]
        if len(others) > 1 and share @ correlation[others, j] > _CORRELATED**2:
            parts = others[np.abs(share) > _PART]
            these = {owners[i]: f"the levels of {owners[i]!r}" if terms[i].level else repr(owners[i]) for i in parts}
            warn(
                InputWarning(
                    f"The {what} {owners[j]!r} follows from {', '.join(these.values())} together: the data can "
                    "hardly tell their effects apart, and their coefficients are uncertain.",
                    option=f"{what}s",
                    found=[owners[j], *these],
                    remedy="Leave one of them out.",
                )
            )
            return


def _warn_by_group(effects: Effects, straight: np.ndarray, areas: np.ndarray) -> None:
    """Warn of slopes and levels that do not vary within the groups of another covariate."""
    columns = effects.columns[..., 1:]
    first, mean = (columns[0], columns.mean(axis=0)) if columns.ndim == 3 else (columns, columns)
    weight = areas / areas.sum()
    for block in effects.blocks:
        if block.kind != "group" or not len(straight):
            continue
        shares = csr_array(first[:, effects.where(block.covariate)])  # which are the same in all periods
        weighted = shares.T.multiply(weight).tocsr()
        sums = weighted @ mean[:, straight]
        between = np.einsum("ij,ij->j", sums, np.linalg.lstsq((weighted @ shares).toarray(), sums, rcond=None)[0])
        same = [effects.names[j] for j in straight[between > 1.0 - _WITHIN]]  # columns have a variance of one
        if same:
            one = len(same) == 1
            what = f"covariate {same[0]!r} does" if one else f"covariates {listed(same)} do"
            whose = "its effect" if one else "their effects"
            warn(
                InputWarning(
                    f"The {what} not vary within the groups of {block.covariate!r}: only differences between these "
                    f"{count(len(block.terms), 'group')} can tell {whose} from those of the groups, "
                    "with little certainty where groups are few.",
                    option="covariates",
                    found=same,
                    remedy=f"Leave {block.covariate!r} out, or what does not vary within it, unless groups are many.",
                )
            )
