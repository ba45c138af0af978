"""Effects: covariates as columns, numbers or levels, standardised inside and reported in their own units."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from geobgp.data.rasters import RasterSource, blocks_on_land, node_means, open_raster, read_to_nodes
from geobgp.data.sources import Key, Reading, is_shapes
from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.files import as_frame
from geobgp.text import count, listed, number
from geobgp.validation import NAME, SOURCE, either, real

if TYPE_CHECKING:
    import geopandas as gpd
    import xarray as xr

    from geobgp.land.domain import Domain

    Raster: TypeAlias = str | os.PathLike[str] | xr.DataArray
    Covariate: TypeAlias = (
        np.ndarray | Callable[[np.ndarray], np.ndarray] | Raster | "Categorical" | gpd.GeoDataFrame
    )
    Covariates: TypeAlias = Mapping[str, Covariate] | pd.DataFrame


# -- Levels: categorical covariates, as the share of each node's land that belongs to each of their levels ---


#: More levels than this are not taken for levels; whole numbers with no more values than `FEW` may be some.
MOST, FEW = 50, 12
#: What is written behind the path of a raster that could be either.
_USES = ("levels", "numbers")
_LEVEL = either(NAME, real(), words="the name or the code of a level")


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
        The level that all others are compared with; by default the most common one.

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

    def __post_init__(self) -> None:
        SOURCE("source", self.source)
        if self.reference is not None:
            _LEVEL("reference", self.reference)


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
    dtype = getattr(value, "dtype", None)
    if dtype is None and isinstance(value, list | tuple):
        dtype = np.asarray(value).dtype
    if dtype is None or hasattr(value, "dims"):
        return False
    return isinstance(dtype, pd.CategoricalDtype) or (
        not pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_datetime64_any_dtype(dtype)
    )


def level_shares(value: Any, domain: Domain, name: str) -> pd.DataFrame:
    """Return the share of every node's land that belongs to each level, a column each; NaN where none is known.

    Parameters
    ----------
    value : Categorical, array or path with ``|levels``
    domain : Domain
    name : str
        Of the covariate, for messages.
    """
    source = split_use(value.source if isinstance(value, Categorical) else value)[0]
    if isinstance(source, str | os.PathLike) or hasattr(source, "dims"):
        return _of_raster(source, domain, name)
    if isinstance(source, pd.DataFrame):
        return _of_table(source, domain, name)
    values = pd.Series(np.asarray(source, dtype=object).ravel())
    if len(values) != domain.n_nodes:
        raise DataError(
            f"The covariate {name!r} is one level per node, {domain.n_nodes:,}; found {len(values):,}.",
            option="covariates",
            found=len(values),
        )
    return indicators(values, name)


def indicators(values: pd.Series, name: str) -> pd.DataFrame:
    """Return a column per level, 1 where it is the value and 0 where not; NaN where the value is missing."""
    missing = values.isna().to_numpy()
    words = values.map(level_word)
    levels = _ordered(set(words[~missing]), name)
    found = pd.DataFrame({level: (words == level).to_numpy(float) for level in levels})
    found.loc[missing] = np.nan
    return found


def are_codes(source: Any, domain: Domain, name: str) -> bool:
    """Tell whether a raster's values are levels: two whole numbers are. Ask where they may well be codes.

    They may be where it has a colour table, or a few whole values.
    """
    path, use = split_use(source)
    if use is not None:
        return False
    with open_raster(path, None, None) as raster:
        if not raster.whole:
            return False
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


def reference_level(value: Any, levels: Sequence[str], amounts: np.ndarray, name: str) -> int:
    """Return which level the others are compared with: the one that was asked for, or the most common."""
    wanted = getattr(value, "reference", None) if isinstance(value, Categorical) else None
    if wanted is None:
        return int(np.argmax(amounts))
    found = matching_level(wanted, levels)
    if found is None:
        raise DataError(
            f"The covariate {name!r} has no level {wanted!r} on the land; its levels are {listed(levels, MOST)}.",
            option="covariates",
            found=wanted,
            remedy="Give one of these as the reference.",
        )
    return list(levels).index(found)


def _of_table(table: pd.DataFrame, domain: Domain, name: str) -> pd.DataFrame:
    """Return shares that were given."""
    shares = table.rename(columns=level_word).astype(float).reset_index(drop=True)
    values = shares.to_numpy()
    sums = values[np.isfinite(values).all(axis=1)].sum(axis=1)
    wrong = (np.nan_to_num(values) < -1e-9).any() or (np.abs(sums - 1.0) > 1e-6).any()
    if len(shares) != domain.n_nodes or wrong or shares.columns.duplicated().any():
        raise DataError(
            f"The covariate {name!r} is a table of shares: a row for each of {domain.n_nodes:,} nodes, a column for "
            f"each level, rows that add up to 1. Found {len(shares):,} rows of {listed(shares.columns)}.",
            option="covariates",
            found=shares.shape,
        )
    return shares


def _ordered(levels: set[str], name: str) -> list[str]:
    """Return levels in order, numbers by size; refuse what cannot be levels."""
    if not levels:
        raise DataError(f"The covariate {name!r} has no value anywhere.", option="covariates", found=name)
    if len(levels) > MOST:
        raise DataError(
            f"The covariate {name!r} has {len(levels):,} levels; at most {MOST} can have effects of their own.",
            option="covariates",
            found=len(levels),
            remedy="Join some, or give it as numbers.",
        )
    try:
        return sorted(levels, key=float)
    except ValueError:
        return sorted(levels)


def _codes(raster: RasterSource, domain: Domain) -> list[float]:
    """Return the different values of the pixels around the land, up to one more than can be levels."""
    found: set[float] = set()
    for values in blocks_on_land(raster, domain):
        found |= set(np.unique(values[np.isfinite(values)]).tolist())
        if len(found) > MOST:
            break
    return sorted(found)


def _of_raster(source: Any, domain: Domain, name: str) -> pd.DataFrame:
    with open_raster(source, None, None) as raster:
        codes = _codes(raster, domain)
        words = _ordered({level_word(code) for code in codes}, name)
        by_word = {level_word(code): code for code in codes}
        shares = {word: node_means(raster.where(by_word[word]), domain) for word in words}
    table = pd.DataFrame(shares)
    return table.loc[:, table.max() > 0]  # levels of the sea around have no effect on land


# -- Effects: covariates, from whatever they come as, to standardised columns at the nodes -------------------


#: Correlation of two covariates from which on their separate effects are said to be hardly known.
_CORRELATED = 0.98
#: Share of a level that is taken for none, or for all of a node.
_PURE = 1e-9
#: Prior standard deviation of the intercept (around the log of the overall rate) and of the slopes of standardised
#: covariates; and of the log of a level's rate by that of its reference.
FIXED_SD, LEVEL_SD = 10.0, 5.0
#: What the first row of a table of effects is called.
INTERCEPT = "intercept"


@dataclass(frozen=True)
class Term:
    """A fixed effect: the slope of a covariate, or one of its levels compared with the reference level.

    Examples
    --------
    >>> Term("elevation").name, Term("vegetation", "4", "1").name
    ('elevation', 'vegetation 4 (reference: 1)')
    """

    covariate: str
    level: str | None = None
    reference: str | None = None

    @property
    def name(self) -> str:
        """What tables call it."""
        if self.level is None:
            return self.covariate
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
        its reference. "learned": with the hyperparameters.
    """

    covariate: str
    terms: tuple[Term, ...]
    means: np.ndarray
    scales: np.ndarray
    sd: float | Literal["learned"]

    @property
    def prior_sd(self) -> np.ndarray:
        """Prior standard deviations of the effects on the standardised scale, NaN where they are learned.

        That of a level does not depend on the size of cells, as the scale of its shares does.
        """
        sd = np.nan if self.sd == "learned" else self.sd
        return np.array(
            [sd if t.level is None else sd * s for t, s in zip(self.terms, self.scales, strict=True)]
        )


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
    columns: np.ndarray = field(
        default_factory=lambda: np.ones((0, 1)), repr=False, metadata={"stored": False}
    )
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
        """Prior standard deviations of intercept and terms on the standardised scale."""
        return np.concatenate([[FIXED_SD], *(block.prior_sd for block in self.blocks)])

    @property
    def bare(self) -> Effects:
        """The same without rows: what the covariates are, and how they were standardised."""
        return Effects(self.blocks)

    def where(self, covariate: str) -> np.ndarray:
        """Return which of the terms are those of a covariate."""
        return np.array([j for j, term in enumerate(self.terms) if term.covariate == covariate], int)

    def levels(self, covariate: str) -> list[str]:
        """Return all levels of a covariate, the reference first; nothing where it is a number."""
        mine = [term for term in self.terms if term.covariate == covariate and term.level is not None]
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
        missing = [name for name in self.covariates if name not in values]
        if missing:
            raise DataError(
                f"The model has the covariates {listed(self.covariates)}; {missing[0]!r} is not given.",
                option="covariates",
                found=missing,
            )
        told = {name: self._at_places(name, values[name], n) for name in self.covariates}
        own = [
            told[t.covariate] if t.level is None else (told[t.covariate] == t.level).astype(float)
            for t in self.terms
        ]
        return self.standardised(np.array(own, float).reshape(-1, n).T)

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
                    f"The covariate {name!r} is a number; found {given.ravel()[0]!r}.",
                    option="covariates",
                    found=name,
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
        return np.broadcast_to(
            np.array([words[one] for one in given.ravel().tolist()]).reshape(given.shape), (n,)
        )

    # -- levels within a node

    @cached_property
    def _mixtures(self) -> list[np.ndarray]:
        """Which columns are the levels of each covariate of which some node has several."""
        first, out = self.columns[0] if self.columns.ndim == 3 else self.columns, []
        for name in self.covariates:
            which = self.where(name)
            shares = first[:, 1 + which] * self.scales[which] + self.means[which]
            if self.levels(name) and ((shares > _PURE) & (shares < 1.0 - _PURE)).any():
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
            offset += (
                np.log(total) + top - weight @ effect - 0.5 * np.einsum("ij,jk,ik->i", weight, spread, weight)
            )
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
    return named


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
        return {str(c): covariates[c].to_numpy() for c in covariates.columns}
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
    domain, values = reading.domain, dict[Term, np.ndarray]()
    for name, value in named_covariates(covariates, reading.time).items():
        values |= _columns(name, value, reading, like)
    lengths = {len(v) for v in values.values() if v.ndim == 2}
    if len(lengths) > 1:
        raise DataError(
            f"Covariates are given for {' and '.join(str(n) for n in sorted(lengths))} periods: which is it?",
            option="covariates",
            found=sorted(lengths),
        )
    shape = (*lengths, domain.n_nodes)
    own = (
        np.stack([np.broadcast_to(v, shape) for v in values.values()], axis=-1)
        if values
        else np.ones((*shape, 0))
    )
    if like is not None:
        return Effects(like.blocks, like.standardised(own))
    weight = np.broadcast_to(
        domain.node_areas / (domain.node_areas.sum() * (shape[0] if lengths else 1)), shape
    )
    means = np.array([np.sum(weight * own[..., j]) for j in range(len(values))])
    scales = np.array([np.sqrt(np.sum(weight * (own[..., j] - m) ** 2)) for j, m in enumerate(means)])
    for term, mean, scale in zip(values, means, scales, strict=True):
        if not scale > 1e-10 * abs(mean):
            where = "everywhere and always" if lengths else "on all of the land"
            raise DataError(
                f"The covariate {term.name!r} is {number(mean)} {where}; it cannot be told from the intercept.",
                option="covariates",
                found=term.name,
                remedy="Leave it out.",
            )
    effects = Effects.of(list(values), means, scales)
    columns = effects.standardised(own)
    _warn_correlated(effects.names, columns[..., 1:].reshape(weight.size, len(values)), weight.ravel())
    return replace(effects, columns=columns)


def _columns(name: str, value: Any, reading: Reading, like: Effects | None) -> dict[Term, np.ndarray]:
    """Return a covariate's columns in its own units: one, or the share of each level but the reference."""
    value = as_frame(value, "covariates")
    _refuse_dates(name, value)
    if is_shapes(value) and reading.is_dated(value):
        frame, table = reading.by_period("covariates", value, lambda rows: rows[name].to_numpy(float))
        found = reading.means(frame, table.T).T
        return {Term(name): np.array([_one(name, row, reading) for row in found])}
    parts = reading.parts("covariates", value)
    if parts is not None:
        each = [_at_nodes(name, part, reading, None, moving=True) for part in parts]
        return {Term(name): np.array([_one(name, one, reading) for one in each])}
    known = None if like is None else like.levels(name)
    found = _at_nodes(name, value, reading, known)
    if not isinstance(found, pd.DataFrame):
        return {Term(name): _one(name, found, reading)}
    if known:  # of all land, the reference first
        shares = np.column_stack([found.get(level, np.zeros(len(found))) for level in known[1:]]).astype(
            float
        )
        shares[found.isna().any(axis=1)] = np.nan
        shares = reading.filled(Key("covariates", name), shares)
        return {Term(name, level, known[0]): shares[:, k] for k, level in enumerate(known[1:])}
    shares = reading.filled(Key("covariates", name), found.to_numpy(float))
    common = reference_level(value, list(found.columns), reading.domain.node_areas @ shares, name)
    if (shares[:, common] >= 1.0 - 1e-12).all():
        raise DataError(
            f"The covariate {name!r} has one level on all of the land, {found.columns[common]!r}; it cannot be told "
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
    return reading.filled(Key("covariates", name), values[:, None])[:, 0]


def _at_nodes(
    name: str, value: Any, reading: Reading, known: list[str] | None, *, moving: bool = False
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
    """
    domain, value = reading.domain, as_frame(value, "covariates")
    if is_shapes(value):
        column: Any = next(value[c] for c in value.columns if c not in (value.geometry.name, reading.time))
        if not is_categorical(column):
            return reading.means(value, column.to_numpy(float)[:, None])[:, 0]
        table = indicators(column.reset_index(drop=True), name)
        return pd.DataFrame(reading.means(value, table.to_numpy()), columns=list(table))
    if callable(value):
        return np.asarray(value(domain.node_points), float)
    raster = isinstance(value, (str, os.PathLike)) or hasattr(value, "dims")
    if not raster and not is_categorical(value):
        return np.array(value, float)
    levels = bool(known) or is_categorical(value)
    out: Any = reading.nothing()
    with reading.apart():
        if raster and not levels and known is None:
            levels = are_codes(value, domain, name) and not moving
        out = (
            level_shares(value, domain, name)
            if levels
            else read_to_nodes(split_use(value)[0], domain, "mean")
        )
    return pd.DataFrame({level: out for level in known}) if known and isinstance(out, np.ndarray) else out


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
    for name in effects.covariates:
        which, levels = effects.where(name), effects.levels(name)
        shares = own[:, which]
        if levels:
            rest = np.maximum(1.0 - shares.sum(axis=1), 0.0)
            out[name] = Categorical(pd.DataFrame(np.column_stack([rest, shares]), columns=levels), levels[0])
        else:
            out[name] = shares[:, 0]
    return out


def _warn_correlated(names: tuple[str, ...], standard: np.ndarray, weight: np.ndarray) -> None:
    correlation = (standard * weight[:, None]).T @ standard
    rows, cols = np.nonzero(np.triu(np.abs(correlation) > _CORRELATED, 1))
    for i, j in zip(rows, cols, strict=True):
        warn(
            InputWarning(
                f"The covariates {names[i]!r} and {names[j]!r} have a correlation of "
                f"{correlation[i, j]:.4f}: the data can hardly tell their effects apart, and their "
                "coefficients are uncertain.",
                option="covariates",
                found=float(correlation[i, j]),
                remedy="Leave one out, or combine them.",
            )
        )
