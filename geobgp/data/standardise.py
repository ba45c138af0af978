"""Expected counts: how many cases each area would have if its people fell ill as all people of their age and sex do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from geobgp.errors import DataError, option
from geobgp.text import count as counted
from geobgp.text import listed, number
from geobgp.validation import NAME, TABLE, either, validated
from geobgp.validation import names as some_names

if TYPE_CHECKING:
    import geopandas as gpd

#: The column of expected counts: what `exposure=` takes, as a number of cases and not of people.
EXPECTED = "expected"


@validated(
    cases=TABLE,
    population=TABLE,
    areas=TABLE,
    by=either(NAME, some_names(least=1), words="the name of a column, or a list of them"),
    count=NAME,
    people=NAME,
    area=NAME,
)
def expected_counts(
    cases: pd.DataFrame,
    population: pd.DataFrame,
    by: str | Sequence[str],
    *,
    count: str | None = None,
    people: str = "population",
    area: str | None = None,
    areas: gpd.GeoDataFrame | None = None,
) -> gpd.GeoDataFrame:
    """Return the number of cases that each area would have at the rates of all areas together.

    Indirect standardisation: a stratum's rate is its cases over its people, everywhere; an area's expected number is
    the sum over strata of its people times that rate. Over all areas it adds up to the cases. As `exposure` it makes
    a map of relative risk: how many times the cases that the age and sex of its people explain a place has.

    Parameters
    ----------
    cases : DataFrame
        A row per person with the columns `by`; or per stratum, with a column `count`.
    population : GeoDataFrame or DataFrame
        A row per area and stratum, with the columns `by`, a column `people`, and the area: its polygon, or its name
        in the column `area`.
    by : str or sequence of str
        Columns of the strata, as in ``["age", "sex"]``.
    count : str, optional
        Column of `cases` with the number of cases; by default every row is one.
    people : str
        Column of `population` with the number of people.
    area : str, optional
        Column with the name of the area; by default rows with the same polygon are one area.
    areas : GeoDataFrame, optional
        The polygons, with the column `area`, where `population` is a table without them.

    Returns
    -------
    GeoDataFrame
        A row per area, in the order of their first appearance: `area` if given, ``expected``, the polygon.

    Examples
    --------
    >>> import geopandas as gpd
    >>> from shapely.geometry import box
    >>> west, east = box(0, 0, 1, 1), box(1, 0, 2, 1)
    >>> population = gpd.GeoDataFrame(
    ...     {"age": ["young", "old", "young", "old"], "population": [90, 10, 50, 50]},
    ...     geometry=[west, west, east, east],
    ... )
    >>> cases = pd.DataFrame({"age": ["young"] * 14 + ["old"] * 30})
    >>> expected_counts(cases, population, "age")["expected"].tolist()
    [14.0, 30.0]
    """
    strata = [by] if isinstance(by, str) else list(by)
    _need(cases, [*strata, *([count] if count else [])], "cases")
    _need(population, [*strata, people, *([area] if area else [])], "population")
    living = _amounts(population, people, "population")
    ill = np.ones(len(cases)) if count is None else _amounts(cases, count, "cases")
    if not ill.sum() > 0:
        raise DataError(
            f"There are no cases to share out; found {counted(len(cases), 'row')}.", option="cases", found=len(cases)
        )
    keys = pd.concat([_keys(cases, strata, "cases"), _keys(population, strata, "population")], ignore_index=True)
    codes = keys.groupby(strata, sort=False, observed=True).ngroup().to_numpy()
    n = int(codes.max()) + 1
    of_cases, of_people = codes[: len(cases)], codes[len(cases) :]
    total, lives = np.bincount(of_cases, ill, n), np.bincount(of_people, living, n)
    without = np.flatnonzero((total > 0) & ~(lives > 0))
    if len(without):
        first = keys.iloc[np.flatnonzero(np.isin(codes, without))].drop_duplicates()
        names = [", ".join(f"{c} {v}" for c, v in row.items()) for row in first.to_dict("records")]
        raise DataError(
            f"{number(total[without].sum())} of {number(total.sum())} cases belong to strata in which nobody lives: "
            f"{listed(names, 5)}.",
            option="by",
            found=names,
            remedy="Write the strata in the same way in both tables, and give every stratum of the cases people.",
        )
    rate = np.divide(total, lives, out=np.zeros(n), where=lives > 0)
    frame, place = _areas(population, area, areas)
    frame[EXPECTED] = np.bincount(place, living * rate[of_people], len(frame))
    names = [c for c in (area, EXPECTED) if c is not None]
    return frame[[*names, frame.geometry.name]]


def _need(table: Any, columns: Sequence[str], what: str) -> None:
    """Refuse a table that lacks columns."""
    missing = [c for c in columns if c not in table.columns]
    if missing:
        raise DataError(
            f"{option(what)} has no column {listed(missing)}; there are {listed(table.columns)}.",
            option=what,
            found=missing,
        )


def _amounts(table: pd.DataFrame, column: str, what: str) -> np.ndarray:
    values = pd.to_numeric(table[column], errors="coerce").to_numpy(float)
    bad = int((~np.isfinite(values) | (values < 0)).sum())
    if bad:
        raise DataError(
            f"The column {column!r} of {option(what)} must hold numbers of 0 or more; {bad:,} of "
            f"{counted(len(values), 'value')} {'is' if bad == 1 else 'are'} missing, negative or no number.",
            option=what,
            found=bad,
        )
    return values


def _keys(table: pd.DataFrame, strata: list[str], what: str) -> pd.DataFrame:
    """Return the columns of the strata as they are compared: as text, whole numbers without a point."""
    missing = table[strata].isna().any(axis=1)
    if missing.any():
        raise DataError(
            f"{int(missing.sum()):,} of {counted(len(table), 'row')} of {option(what)} have no "
            f"{' or '.join(strata)}, so that their stratum is unknown.",
            option=what,
            found=int(missing.sum()),
            remedy="Leave them out, or make them a stratum of their own.",
        )
    return pd.DataFrame({c: [_word(v) for v in table[c]] for c in strata})


def _word(value: Any) -> str:
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value).strip()


def _areas(
    population: pd.DataFrame, area: str | None, areas: gpd.GeoDataFrame | None
) -> tuple[gpd.GeoDataFrame, np.ndarray]:
    """Return one row per area with its polygon, and the area of each row of the population."""
    import geopandas as gpd

    if areas is None and not (isinstance(population, gpd.GeoDataFrame) and population.active_geometry_name):
        raise DataError(
            f"{option('population')} has no polygons, so that the areas have no place.",
            option="areas",
            remedy=f"Give them with {option('areas')} and the column {option('area')} that both tables have.",
        )
    if areas is not None:
        if area is None:
            raise DataError(
                f"{option('areas')} need {option('area')}: the column that both tables have.", option="area"
            )
        _need(areas, [area], "areas")
        names = pd.Series([_word(v) for v in areas[area]])
        if names.duplicated().any():
            raise DataError(
                f"{option('areas')} has several polygons called {listed(names[names.duplicated()].unique(), 5)}.",
                option="areas",
                remedy="Dissolve them to one row per area.",
            )
        place = pd.Index(names).get_indexer([_word(v) for v in population[area]])
        stray = sorted({_word(v) for v in population[area].to_numpy()[place < 0]})
        if stray:
            raise DataError(f"{option('areas')} has no polygon for {listed(stray, 5)}.", option="areas", found=stray)
        return areas.reset_index(drop=True).copy(), place
    assert isinstance(population, gpd.GeoDataFrame)
    key = population.geometry.to_wkb() if area is None else population[area].map(_word)
    place, keys = pd.factorize(key)
    first = np.unique(place, return_index=True)[1]
    frame = population.iloc[first].reset_index(drop=True).copy()
    if area is not None:
        same = population.geometry.to_wkb().to_numpy() == population.geometry.to_wkb().to_numpy()[first[place]]
        if not same.all():
            torn = sorted({str(v) for v in np.asarray(keys)[place[~same]]})
            raise DataError(
                f"Rows of one area have different polygons: {listed(torn, 5)}.",
                option="population",
                found=torn,
                remedy=f"Leave {option('area')} out, or give the polygons with {option('areas')}.",
            )
    return frame, place
