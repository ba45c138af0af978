"""Simulate a survey of prevalence and measurements of a metal in the Netherlands, both from known formulas.

- survey_antibodies_simulated.csv: how many were tested for antibodies, and how many had them, in `N_SITES` towns. Sites
  vary about `true_prevalence` more than chance has it: beta-binomial numbers.
- measurements_lead_simulated.csv: lead in moss (micrograms per gram) at `N_PLACES` places, `N_TWICE` of them sampled
  twice: log-normal values about `true_lead`. It is spread by dust from roads, so that it does not cross the IJsselmeer.

Run ``python sample_data/make_surveys.py`` to write both files anew; they are the same on every run.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import shapely
from make_population import green_space
from make_tick_bites import HERE, dry_land, plane

#: Towns surveyed; seeds of both files.
N_SITES, SEED_SURVEY, SEED_LEAD = 150, 20240501, 20240601
#: Log odds without green space far from the focus; log odds ratio of full green space, and of the middle of the focus.
LOG_ODDS, GREEN_EFFECT, FOCUS_EFFECT = -2.6, 2.5, 1.6
#: The focus of the infection: longitude, latitude, width in km.
FOCUS = (5.75, 53.05, 45.0)
#: The share of a site has the variance p (1 - p) / (SIZE + 1) about the prevalence p there.
SIZE = 15.0
#: Places with moss, of which so many near the IJsselmeer (west, south, east, north), and those sampled twice.
N_PLACES, N_NEAR, N_TWICE, NEAR = 190, 80, 10, (4.6, 52.35, 5.8, 53.0)
#: Micrograms per gram far from all sources; log ratios of the middle of the source and of the south.
LEAD, SOURCE_EFFECT, SOUTH_EFFECT = 3.0, 2.0, 0.6
#: The source on the peninsula, and the south: longitude, latitude, width in km.
SOURCE, SOUTH = (5.16, 52.66, 26.0), (5.8, 51.0, 60.0)
#: Standard deviation of the logarithm of a sample about `true_lead`.
NOISE = 0.25
#: A line through the IJsselmeer from its southern end to the open sea.
WATER = ((5.07, 52.34), (5.15, 52.50), (5.35, 52.65), (5.40, 52.85), (5.15, 53.00), (5.10, 53.70))


def distance_around(longitude: np.ndarray, latitude: np.ndarray, place: tuple[float, ...]) -> np.ndarray:
    """Return the distance in km to a place; across the line `WATER`, around its southern end."""
    east, north = (np.atleast_1d(v) for v in plane(longitude, latitude))
    e0, n0 = plane(*place[:2])
    water = np.column_stack(plane(*np.array(WATER).T))
    ways = np.stack([np.column_stack([east, north]), np.broadcast_to([e0, n0], (len(east), 2))], axis=1)
    across = shapely.intersects(shapely.linestrings(ways), shapely.LineString(water))
    end_e, end_n = water[0]
    around = np.hypot(east - end_e, north - end_n) + np.hypot(e0 - end_e, n0 - end_n)
    return np.where(across, around, np.hypot(east - e0, north - n0)).reshape(np.shape(longitude))


def bump(distance: np.ndarray, width: float) -> np.ndarray:
    """Return a Gaussian of a distance, 1 in its middle."""
    return np.exp(-0.5 * (distance / width) ** 2)


def true_prevalence(longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Return the share of people with antibodies, from 0 to 1.

    ``expit(LOG_ODDS + GREEN_EFFECT * green_space + FOCUS_EFFECT * bump(distance_around(FOCUS)))``
    """
    focus = bump(distance_around(longitude, latitude, FOCUS), FOCUS[2])
    log_odds = LOG_ODDS + GREEN_EFFECT * green_space(longitude, latitude) + FOCUS_EFFECT * focus
    return 1 / (1 + np.exp(-log_odds))


def true_lead(longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Return the median of lead in moss at a place, in micrograms per gram.

    ``LEAD * exp(SOURCE_EFFECT * bump(distance_around(SOURCE)) + SOUTH_EFFECT * bump(distance to SOUTH))``
    """
    source = bump(distance_around(longitude, latitude, SOURCE), SOURCE[2])
    here, there = plane(longitude, latitude), plane(*SOUTH[:2])
    south = bump(np.hypot(here[0] - there[0], here[1] - there[1]), SOUTH[2])
    return LEAD * np.exp(SOURCE_EFFECT * source + SOUTH_EFFECT * south)


def days(rng: np.random.Generator, n: int, first: str, last: str) -> pd.Series:
    """Return so many days between two, as they are written."""
    start, end = np.datetime64(first), np.datetime64(last)
    return pd.Series(start + rng.integers(0, (end - start).astype(int) + 1, n)).dt.strftime("%Y-%m-%d")


def survey() -> pd.DataFrame:
    """Return the survey: towns in proportion to the root of their inhabitants, and who was tested there."""
    rng = np.random.default_rng(SEED_SURVEY)
    towns = pd.read_csv(HERE / "places_netherlands_points.csv")
    towns = towns[shapely.contains_xy(dry_land(), towns["x"], towns["y"])].reset_index(drop=True)
    # The first of so many exponential waits: without replacement, and the same with every version of NumPy.
    root = np.sqrt(np.maximum(towns["population"].to_numpy(), 1))
    first = np.argsort(rng.exponential(size=len(towns)) / root)[:N_SITES]
    sites = towns.iloc[np.sort(first)].reset_index(drop=True)
    p = true_prevalence(sites["x"].to_numpy(), sites["y"].to_numpy())
    tested = np.clip(np.round(60 * np.exp(0.45 * rng.standard_normal(N_SITES))), 15, 200).astype(int)
    positive = rng.binomial(tested, rng.beta(SIZE * p, SIZE * (1 - p)))
    frame = pd.DataFrame({"site": sites["name"], "longitude": sites["x"], "latitude": sites["y"]})
    frame["date"] = days(rng, N_SITES, "2024-01-08", "2024-12-13")
    return frame.assign(tested=tested, positive=positive)


def measurements() -> pd.DataFrame:
    """Return the samples of moss, some places having two."""
    rng = np.random.default_rng(SEED_LEAD)
    dry = dry_land()
    west, south, east, north = dry.bounds
    places = []
    for n, (w, s, e, t) in ((N_PLACES - N_NEAR, (west, south, east, north)), (N_NEAR, NEAR)):
        tried = np.round(rng.random((20 * n, 2)) * [e - w, t - s] + [w, s], 4)
        places.append(tried[shapely.contains_xy(dry, *tried.T)][:n])
    at = np.concatenate([np.arange(N_PLACES), rng.permutation(N_PLACES)[:N_TWICE]])
    longitude, latitude = np.concatenate(places)[at].T
    lead = true_lead(longitude, latitude) * np.exp(NOISE * rng.standard_normal(len(at)))
    frame = pd.DataFrame({"sample": np.arange(1, len(at) + 1), "longitude": longitude, "latitude": latitude})
    frame["date"] = days(rng, len(at), "2023-08-01", "2023-09-30")
    return frame.assign(lead=np.round(lead, 2))


if __name__ == "__main__":
    for name, table in (("survey_antibodies", survey()), ("measurements_lead", measurements())):
        table.to_csv(HERE / f"{name}_simulated.csv", index=False, lineterminator="\n")
