"""Totals: the expected number of events in regions, with intervals from the joint posterior; levels and trends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import sparse
from scipy.special import ndtr, ndtri

from geobgp.data.areas import observed_in
from geobgp.data.counts import Counts, bin_points
from geobgp.data.inputs import Within, check_amounts
from geobgp.data.periods import Periods
from geobgp.errors import DataError
from geobgp.inference.mixture import check_probabilities, quantile_name, quantile_words
from geobgp.land.regions import count_inside, poisson_quantile, read_regions, table
from geobgp.privacy import hide_regions
from geobgp.units import RELATIVE_RISK, RISKS
from geobgp.validation import as_floats, seed_of

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior


# -- Totals: the expected number of events in regions, with intervals from the joint posterior ---------------


#: Share of a region's land that lies in areas with counts, below which its number of events is not known.
COUNTED_LAND = 0.95
#: Shares of a node below this, or this near to 1, are rounding errors of borders.
_SLIVER = 1e-6


def totals(
    posterior: Posterior,
    regions: Any,
    *,
    by: str | None,
    points: Any,
    quantiles: Sequence[float] | None,
    predicted: bool,
    thresholds: Sequence[float],
    n_samples: int,
    rng: int | np.random.Generator,
) -> gpd.GeoDataFrame:
    """Return what regions add up to, or are on average, by period where there are several; see `Posterior.totals`."""
    chances = check_probabilities(posterior.quantiles if quantiles is None else quantiles)
    domain, summed, count = posterior.domain, posterior.is_summed, posterior.n_periods
    if predicted and not summed:
        raise DataError(
            f"Numbers of events are predicted, and this map is of a {posterior.quantity}.", option="predicted"
        )
    frame = read_regions(regions, domain, by=by)
    inside = posterior._within(frame)
    shares, means = inside.shares, posterior.mean_by_period()
    amounts = by_region(posterior, inside, np.ones_like(means))
    per = np.where(amounts > 0, amounts, np.nan)
    sums = region_draws(posterior, inside, n_samples, rng).reshape(n_samples, -1)
    expected = by_region(posterior, inside, means)
    columns: dict[str, np.ndarray] = {}
    if posterior.exposure_kind not in ("area", "observation"):
        columns["exposure"] = amounts
    if summed:
        columns |= observed_inside(posterior, frame, shares, points)
    values, main = (sums, expected) if summed else (sums / per, expected / per)
    columns |= {"expected" if summed else "mean": main, "sd": values.std(axis=0, ddof=1)}
    columns |= {quantile_name(q): np.quantile(values, q, axis=0) for q in chances}
    if summed:
        columns |= rates(posterior, columns, amounts, chances)
    average = 1.0 if posterior.exposure_kind in RISKS else posterior._overall
    columns["p_above"] = np.where(amounts > 0, (sums > average * amounts).mean(axis=0), np.nan)
    if not summed and "exposure" in columns:
        columns["affected"] = expected
        columns |= {f"affected_{quantile_name(q)}": np.quantile(sums, q, axis=0) for q in chances}
    if posterior.effort is not None and summed:
        columns["reported"] = by_region(posterior, inside, means, reported=True)
    if predicted:
        spread = region_draws(posterior, inside, n_samples, rng, reported=True).reshape(n_samples, -1)
        columns |= {f"predicted_{quantile_name(q)}": poisson_quantile(spread, q) for q in chances}
    late = summed and posterior.periods is not None and bool(posterior.nowcast.any())
    if late and "observed" in columns:
        columns |= in_the_end(posterior, inside, columns["observed"], chances, n_samples, rng)
    resting, lines = resting_on(columns), None
    rows = np.tile(np.arange(len(frame)), count)
    if posterior.periods is not None:
        shares = sparse.csr_array(sparse.vstack([shares] * count))
        places = np.arange(len(rows)).reshape(count, -1)
        lines = [*places, *places.T]  # totals of a period, and of a region over all periods
    out = table(frame.iloc[rows].reset_index(drop=True), shares, domain, columns)
    out = hide_regions(out, posterior, inside.shares, list(columns), resting, lines).set_index(frame.index[rows])
    hidden = out["hidden"].to_numpy(bool) if "hidden" in out else np.zeros(len(out), bool)
    for threshold in thresholds:
        above = above_threshold(posterior, inside, threshold, chances, n_samples, rng, f"_{threshold:g}")
        for name, values in above.items():
            out[name] = np.where(hidden, np.nan, values)
    if posterior.periods is not None:
        out = with_periods(out, posterior.periods, np.repeat(np.arange(count), len(frame)))
    if posterior.delays is not None:
        at = list(out.columns).index("start") + 1 if posterior.periods is not None else len(out.columns) - 1
        out.insert(at, "nowcast", np.repeat(posterior.nowcast, len(frame)))
    out.attrs["units"] = posterior.units
    return out


def in_the_end(
    posterior: Posterior,
    inside: Within,
    observed: np.ndarray,
    quantiles: Sequence[float],
    n_samples: int,
    rng: int | np.random.Generator,
) -> dict[str, np.ndarray]:
    """Return how many events of each period and region there will be once all are reported: ``final``, with quantiles.

    They are those observed so far, and a Poisson number of those that are not reported yet.
    """
    seed, shape = seed_of(rng), (n_samples, -1)
    final = region_draws(posterior, inside, n_samples, seed, reported="final").reshape(shape)
    rest = np.maximum(final - region_draws(posterior, inside, n_samples, seed, reported=True).reshape(shape), 0.0)
    ends = {f"final_{quantile_name(q)}": observed + poisson_quantile(rest, q) for q in quantiles}
    return {"final": observed + rest.mean(axis=0)} | ends


def people_above(
    posterior: Posterior,
    regions: Any,
    threshold: float,
    *,
    by: str | None,
    n_samples: int,
    rng: int | np.random.Generator,
) -> gpd.GeoDataFrame:
    """Return how many people (or km²) of regions lie above a threshold; see `Posterior.people_above`."""
    domain, count = posterior.domain, posterior.n_periods
    posterior._limit(threshold)  # what is wrong with it is said first
    frame = read_regions(regions, domain, by=by)
    inside = posterior._within(frame)
    columns = above_threshold(posterior, inside, threshold, posterior.quantiles, n_samples, rng)
    rows = np.tile(np.arange(len(frame)), count)
    shares = inside.shares if count == 1 else sparse.csr_array(sparse.vstack([inside.shares] * count))
    out = table(frame.iloc[rows].reset_index(drop=True), shares, domain, columns).set_index(frame.index[rows])
    if posterior.protection:  # the regions whose totals are hidden
        known = totals(
            posterior, frame, by=None, points=None, quantiles=None, predicted=False, thresholds=(), n_samples=n_samples,
            rng=rng,
        )  # fmt: skip
        hidden = known["hidden"].to_numpy(bool)
        for name in columns:
            out[name] = np.where(hidden, np.nan, out[name])
        out["hidden"], out["why"] = hidden, known["why"].to_numpy()
    if posterior.periods is not None:
        out = with_periods(out, posterior.periods, np.repeat(np.arange(count), len(frame)))
    out.attrs |= {"units": posterior.units, "threshold": float(threshold)}
    return out


def above_threshold(
    posterior: Posterior, inside: Within, threshold: float, chances: Sequence[float], n_samples: int,
    rng: int | np.random.Generator, ending: str = "",
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return how many people (or km²) of regions lie above a threshold, as columns by period and region in one line.

    With `ending`, which says what threshold it is, the columns are those above it alone.
    """
    domain, count = posterior.domain, posterior.n_periods
    limit = posterior._limit(threshold)
    name = counted_in(posterior)
    scale = 1.0 if name not in ("km2", "area") or posterior.exposure_kind == "area" else domain.area_unit[0]
    if name in ("km2", "area") and posterior.exposure_kind == "risk":  # of controls small numbers would be told
        weights = [sparse.csr_array(inside.shares * domain.node_areas)]
    else:
        weights = region_weights(posterior, inside)

    def added(values: np.ndarray) -> np.ndarray:
        """Return sums over regions of values of nodes (draws, periods, nodes), by period and region in one line."""
        each = [(weights[t % len(weights)] @ values[:, t].T).T / scale for t in range(count)]
        return np.concatenate(each, axis=1)

    chance = posterior._exceedance(threshold).reshape(1, count, -1)
    whole = added(np.ones_like(chance))[0]
    sums = np.concatenate(
        [
            added((block.reshape(len(block), count, -1) > limit).astype(float))
            for block in posterior.draws(n_samples, rng)
        ]
    )
    per = np.where(whole > 0, whole, np.nan)
    columns = {} if ending or name in ("km2", "area") else {"exposure": whole}
    if np.isnan(chance).any():
        columns[f"{name}_hidden"] = added(np.isnan(chance).astype(float))[0]
    for key, by_key in ((f"{name}_above", 1.0), ("share_above", per)):
        key += ending
        columns[key] = added(np.nan_to_num(chance))[0] / by_key
        columns |= {f"{key}_{quantile_name(q)}": np.quantile(sums / by_key, q, axis=0) for q in chances}
    least = posterior.protection.min_people
    if least:
        columns = {key: np.where(whole < least, np.nan, v) if key != "exposure" else v for key, v in columns.items()}
    return columns


def counted_in(posterior: Posterior) -> str:
    """Return what is counted above a threshold, as columns are called: people, or land where there are none.

    Controls stand for the people that they are a sample of.
    """
    land = "area" if posterior.domain.crs is None else "km2"
    names = {"population": "people", "expected": "expected_cases", "exposure": "exposure", "risk": "controls"}
    hidden = posterior.exposure_kind == "risk" and posterior.protection
    return land if hidden else names.get(posterior.exposure_kind, land)


def with_periods(frame: Any, periods: Periods, rows: np.ndarray) -> Any:
    """Return a table with the columns ``period`` and ``start`` of the periods that its rows belong to, first."""
    labels = np.array(periods.labels, dtype=object)
    for k, (name, values) in enumerate((("period", labels[rows]), ("start", periods.starts[rows]))):
        frame.insert(k, name if name not in frame else f"{name}_", values)
    return frame


def resting_on(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Return on how many events expected numbers rest, as a Poisson count of as many is sure."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((columns["expected" if "expected" in columns else "mean"] / columns["sd"]) ** 2)


def observed_inside(posterior: Posterior, frame: gpd.GeoDataFrame, shares: Any, points: Any) -> dict[str, np.ndarray]:
    """Return the column ``observed`` of regions, (periods and) regions in one line: the events truly inside each.

    Where the points lie tells: those given, or those that the posterior keeps in memory. Without them the counts of
    nodes tell, but for regions whose border cuts a node with events; and counts by area, of regions made of areas
    that leave out less than 5 % of the region's land.
    What cannot be known is NaN, and there is no such column where that is all.
    """
    if points is None and "observed" in frame:
        return {}
    domain, periods = posterior.domain, posterior.periods
    places = posterior.places if points is None else _placed(points, domain, periods)
    if places is not None:
        if periods is None:
            return {"observed": count_inside(domain, frame, places)}
        of_period = (places[places[:, 3] == t, :3] for t in range(periods.n))
        return {"observed": np.concatenate([count_inside(domain, frame, some) for some in of_period])}
    if posterior.observed is not None:
        found = _of_whole_nodes(np.atleast_2d(posterior.observed), shares)
    elif posterior.areas is not None:
        areas = posterior.areas
        inside = np.where(_covers(shares), areas.values.sum(axis=-1)[..., None], observed_in(areas, frame))
        found = np.where(_counted_land(posterior, shares), inside, np.nan)
        if areas.located is not None:
            found = found + _of_whole_nodes(np.atleast_2d(areas.located), shares)
    else:
        return {}
    return {"observed": found.ravel()} if np.isfinite(found).any() else {}


def _counted_land(posterior: Posterior, shares: Any) -> np.ndarray:
    """Whether (nearly) all the land of each region lies in an area whose events were counted."""
    assert posterior.areas is not None
    land = posterior.domain.node_areas
    counted = np.minimum(np.asarray(posterior.areas.shares.sum(axis=0)).ravel(), 1.0) * land
    return np.asarray(shares @ counted >= COUNTED_LAND * (shares @ land))


def _covers(shares: Any) -> np.ndarray:
    """Whether each region holds all of the land, whatever of its areas lies in water."""
    whole = shares.tocsr(copy=True)
    whole.data = (whole.data >= 1.0 - _SLIVER).astype(float)
    return np.asarray(whole.sum(axis=1)).ravel() == shares.shape[1]


def _of_whole_nodes(observed: np.ndarray, shares: Any) -> np.ndarray:
    """Return the events (periods, nodes) on the nodes of regions; NaN where a border cuts a node that has some."""
    parts = shares.tocsr(copy=True)
    cut = parts.copy()
    cut.data = ((parts.data > _SLIVER) & (parts.data < 1.0 - _SLIVER)).astype(float)
    parts.data = np.round(parts.data)
    unknown = np.asarray((cut @ (observed > 0).T.astype(float)).T) > 0
    return np.where(unknown, np.nan, np.asarray((parts @ observed.T).T))


def rates(
    posterior: Posterior, columns: dict[str, np.ndarray], exposed: np.ndarray, chances: Sequence[float]
) -> dict[str, np.ndarray]:
    """Return rates in the units that are shown, and relative risks where they are of people, with quantiles."""
    kinds = {} if posterior.quantity == RELATIVE_RISK else {"rate": posterior.shown.factor}
    if posterior.exposure_kind in RISKS:
        kinds["relative_risk"] = 1.0
    elif posterior.exposure_kind != "area":
        kinds["relative_risk"] = 1.0 / posterior._overall
    per = np.where(exposed > 0, exposed, np.nan)
    found: dict[str, np.ndarray] = {}
    for name, factor in kinds.items():
        found[name] = factor * columns["expected"] / per
        found |= {f"{name}_{quantile_name(q)}": factor * columns[quantile_name(q)] / per for q in chances}
    return found


def _placed(points: Any, domain: Domain, periods: Periods | None = None) -> np.ndarray:
    """Return easting, northing and weight of points, those off the land as `bin_points` moves them; and the period."""
    own = getattr(points, "periods", None)
    if periods is not None and (own is None or not periods.same_as(own)):
        what = type(points).__name__ if own is None else own.words()
        raise DataError(
            f"Points over time are counted by the periods of the map, {periods.words()}; found {what}.",
            option="points",
            found=what,
            remedy="Count them with bin_points(points, domain, time=..., every=..., keep_coordinates=True).",
        )
    counts = points if isinstance(points, Counts) else bin_points(points, domain, keep_coordinates=True)
    if counts.counted is None:
        raise DataError(
            "These counts do not know where their points lay.",
            option="points",
            remedy="Give the points, or count them with bin_points(..., keep_coordinates=True).",
        )
    return counts.counted


# -- Totals, trends and forecasts over periods, from joint draws of all of them ------------------------------


def region_weights(
    posterior: Posterior, inside: Within, *, reported: bool | Literal["final"] = False
) -> list[sparse.csr_array]:
    """Return what nodes count for within regions, period by period: one for each, or one for all where it stays.

    That is their exposure, or their land where the quantity has none.
    """
    amounts = posterior.amounts
    effort = (posterior.final_effort if reported == "final" else posterior.effort) if reported else None
    changes = amounts.strides[0] or inside.varies or (effort is not None and effort.ndim == 2)
    return [inside.exposure(amounts[t], effort, t) for t in range(posterior.n_periods if changes else 1)]


def by_region(posterior: Posterior, inside: Within, values: np.ndarray, *, reported: bool = False) -> np.ndarray:
    """Return what nodes' values (n_periods, n_nodes), times exposure, add up to by period and region, in one line."""
    weights = region_weights(posterior, inside, reported=reported)
    return np.concatenate([weights[t % len(weights)] @ row for t, row in enumerate(values)])


def region_draws(
    posterior: Posterior,
    inside: Within,
    n_samples: int,
    rng: int | np.random.Generator,
    *,
    reported: bool | Literal["final"] = False,
) -> np.ndarray:
    """Return joint draws of what regions add up to, (n_samples, n_periods, n_regions).

    Parameters
    ----------
    reported : bool or "final"
        Draw means about which the counts that are reported by now, or in the end, are Poisson: with the effort, and
        with the spread of a negative binomial, where there is one.
    """
    count, weights = posterior.n_periods, region_weights(posterior, inside, reported=reported)
    noise, likelihood = np.random.default_rng([seed_of(rng), 1]), posterior.likelihood
    spread = bool(reported) and likelihood.dispersion is not None and posterior.is_summed
    posterior = posterior.as_reported if reported is True else posterior
    out = [np.zeros((0, count, inside.shares.shape[0]))]
    for block in posterior.sample_blocks(n_samples, rng):
        values: Any = likelihood.poisson_rates(block, noise) if spread and posterior.areas is None else block
        values = values.reshape(len(block), count, -1)
        out.append(np.stack([(weights[t % len(weights)] @ values[:, t].T).T for t in range(count)], axis=1))
    sums = np.concatenate(out)
    return np.asarray(likelihood.poisson_rates(sums, noise) if spread and posterior.areas is not None else sums)


def land_draws(posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Return joint draws of the events of all the land, (draws, n_periods): expected, and means of what is counted."""
    everything = Within(sparse.csr_array(np.ones((1, posterior.domain.n_nodes))))
    plain = region_draws(posterior, everything, posterior.n_draws, 0)[:, :, 0]
    if posterior.effort is None and posterior.likelihood.dispersion is None:
        return plain, plain
    return plain, region_draws(posterior, everything, posterior.n_draws, 0, reported=True)[:, :, 0]


def events_by_period(
    posterior: Posterior, quantiles: Sequence[float], draws: tuple[np.ndarray, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the events of all the land by period: observed where it is known, predicted, expected, reported."""
    chances, columns = check_probabilities(quantiles), {}
    if posterior.observed is not None:
        columns["observed"] = posterior.observed.sum(axis=1)
    elif (areas := posterior.areas) is not None:
        located = 0.0 if areas.located is None else areas.located.sum(axis=1)
        events = areas.values.sum(axis=1) + located  # NaN where one is not known
        known = areas.located is not None or areas.covered >= COUNTED_LAND
        columns["observed"] = events if known else np.full(posterior.n_periods, np.nan)
    expected, means = draws
    exposed = posterior.by_period * posterior.mean_by_period()
    columns |= {f"predicted_{quantile_name(q)}": poisson_quantile(means, q) for q in chances}
    columns["expected"] = exposed.sum(axis=1)
    columns |= {f"expected_{quantile_name(q)}": np.quantile(expected, q, axis=0) for q in chances}
    if posterior.effort is not None:
        columns["reported"] = (exposed * posterior.effort).sum(axis=1)
    if posterior.nowcast.any() and "observed" in columns:
        everything = Within(sparse.csr_array(np.ones((1, posterior.domain.n_nodes))))
        columns |= in_the_end(posterior, everything, columns["observed"], chances, posterior.n_draws, 0)
    return columns


def slope_weights(periods: Periods) -> np.ndarray:
    """Return what log-intensities are multiplied by to give the slope of a straight line through them, per year.

    Examples
    --------
    >>> years = Periods.calendar("year", "2018", "2020")
    >>> slope_weights(years).tolist(), float(slope_weights(years) @ [1.0, 3.0, 5.0])
    ([-0.5, 0.0, 0.5], 2.0)
    """
    x = periods.years - periods.years.mean()
    return np.asarray(x / (x @ x))


def change_of(posterior: Posterior) -> tuple[Callable[[np.ndarray], np.ndarray], str, str]:
    """Return what a slope of the linear predictor is told as, what that is called, and its unit.

    That is a relative change of rates and of odds; of values (or their square root) it is the slope itself.
    """
    per, link = posterior.time.per, posterior.link
    if link.ratio is not None:
        of = " of the odds" if link.ratio == "odds ratio" else ""
        return np.expm1, f"relative change{of} per {per}", "1"
    of = {"square": " of the square root", "probit": " of the probit"}.get(link.name, "")
    units = f"{posterior.units} per {per}" if not of else f"per {per}"
    return np.asarray, f"change{of} per {per}", units


def trend_map(
    posterior: Posterior, n_samples: int, rng: int | np.random.Generator
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
    """Return the trend at every node and what the numbers are; see `Posterior.trend`.

    The slope of a Gaussian log-intensity is Gaussian: its mean is exact, its standard deviation that of the draws.
    """
    c = slope_weights(posterior.time)
    n = posterior.domain.n_nodes
    exact, published = (c @ p.moments()[0].reshape(-1, n) for p in (posterior._nodes, posterior._published))
    square, count = np.zeros(n), 0
    for block in posterior.draws(n_samples, rng):
        square += np.square(np.einsum("t,stn->sn", c, block) - exact).sum(axis=0)
        count += len(block)
    mean, sd = published, np.sqrt(square / max(count, 1))
    change, of, units = change_of(posterior)
    ends = {quantile_name(q): float(ndtri(q)) * sd for q in posterior.quantiles[::2]}
    values = {
        "change": change(mean),
        **{name: change(mean + spread) for name, spread in ends.items()},
        "p_increase": ndtr(np.divide(mean, sd, out=np.where(np.isnan(mean), mean, 0.0), where=sd > 0)),
    }
    words = {"change": "median"} | {name: quantile_words(name) for name in ends}
    about: dict[str, dict[str, Any]] = {
        name: {"long_name": f"{of}, {word}", "units": units} for name, word in words.items()
    }
    about["p_increase"] = {"long_name": "probability of an increase", "units": "1"}
    return values, about


def trend_of_regions(
    posterior: Posterior, regions: Any, n_samples: int, rng: int | np.random.Generator
) -> gpd.GeoDataFrame:
    """Return the trend of regions; see `Posterior.trend`."""
    frame = read_regions(None if isinstance(regions, str) and regions == "land" else regions, posterior.domain)
    inside = posterior._within(frame)
    exposed = by_region(posterior, inside, np.ones(posterior.by_period.shape)).reshape(-1, len(frame))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = posterior.link.forward(region_draws(posterior, inside, n_samples, rng) / exposed)
    slopes = np.einsum("t,str->sr", slope_weights(posterior.time), logs)
    change = change_of(posterior)[0]
    columns = {"change": change(np.median(slopes, axis=0))}
    columns |= {quantile_name(q): change(np.quantile(slopes, q, axis=0)) for q in posterior.quantiles[::2]}
    columns["p_increase"] = (slopes > 0).mean(axis=0)
    resting = 1.0 / np.maximum(logs.var(axis=0).max(axis=0), 1e-300)
    frame_of_regions = table(frame, inside.shares, posterior.domain, columns)
    frame_of_regions = hide_regions(frame_of_regions, posterior, inside.shares, list(columns), resting)
    frame_of_regions.attrs["per"] = posterior.time.per
    return frame_of_regions


def steps_ahead(periods: Periods, after: Periods) -> np.ndarray:
    """Return the distance of each period ahead from the one before it, in usual periods."""
    if after.dated != periods.dated or after.every != periods.every or after.edges[0] != periods.edges[-1]:
        raise DataError(
            f"Periods ahead follow the last one without a gap; found {after.words()} after {periods.words()}.",
            option="periods",
            found=after.words(),
            remedy=f"Give a number, such as {periods.n // 10 + 1}.",
        )
    if periods.every != "edges":
        return np.ones(after.n)
    joined = np.concatenate([periods.edges[-2:-1], after.edges[0:1], after.edges[1:]])
    lengths, usual = np.diff(joined).astype(float), np.median(np.diff(periods.edges).astype(float))
    return np.asarray((lengths[1:] + lengths[:-1]) / 2 / usual)


def exposure_ahead(posterior: Posterior, after: Periods, exposure: np.ndarray | None) -> np.ndarray:
    """Return the exposure of periods ahead: what was given, or that of the last period."""
    last = posterior.by_period[-1] / posterior.time.widths[-1]
    rows = last if exposure is None else as_floats("exposure", exposure)
    n = posterior.domain.n_nodes
    if rows.shape not in ((n,), (after.n, n)):
        raise DataError(
            f"The exposure ahead has {n:,} numbers, or so many for each of {after.n} periods; found the shape "
            f"{rows.shape}.",
            option="exposure",
            found=rows.shape,
        )
    check_amounts(rows.ravel(), "The exposure ahead")
    if not np.all(rows.sum(axis=-1) > 0):
        raise DataError(
            "The exposure ahead is zero everywhere, so that nothing could happen anywhere.", option="exposure"
        )
    if np.all(after.widths == 1.0):
        return np.array(rows)
    return np.asarray(np.broadcast_to(rows, (after.n, n)) * after.widths[:, None])
