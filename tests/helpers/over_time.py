"""A stand-in for a posterior over periods: one of prescribed numbers for each, and what the outputs ask of them."""

from __future__ import annotations

from dataclasses import dataclass

import geopandas as gpd
import numpy as np
import pandas as pd
import xarray as xr
from posteriors import bumps, prescribed

from geobgp.data.periods import Periods
from geobgp.land.domain import Domain
from geobgp.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Stack:
    """Posteriors one after the other."""

    periods: Periods
    maps: tuple[Posterior, ...]
    observed: np.ndarray | None = None
    dynamics = "separable"
    tau = 2.0
    level_sd = 0.3

    @property
    def time(self) -> Periods:
        return self.periods

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.maps[0], name)

    def at(self, period) -> Posterior:
        return self.maps[self.periods.find(period)]

    def _joined(self, parts):
        starts = self.periods.starts
        bounds = np.column_stack([starts, self.periods.ends])
        if self.periods.dated:
            starts, bounds = starts.astype("datetime64[ns]"), bounds.astype("datetime64[ns]")
        made = xr.concat(parts, dim="time", coords="minimal", compat="override", join="override")
        return made.assign_coords(
            time=("time", starts, {"bounds": "time_bounds", "axis": "T"}),
            time_bounds=(("time", "bounds"), bounds),
            period=("time", list(self.periods.labels)),
        )

    def intensity(self, quantiles=(0.05, 0.5, 0.95)) -> xr.Dataset:
        return self._joined([p.intensity(quantiles) for p in self.maps])

    def exceedance(self, threshold) -> xr.DataArray:
        return self._joined([p.exceedance(threshold).to_dataset() for p in self.maps])["exceedance"]

    def dataset(self, quantiles=None, thresholds=()) -> xr.Dataset:
        data = self.intensity(quantiles or (0.05, 0.5, 0.95))
        for threshold in thresholds:
            data[f"exceedance_{threshold:g}"] = self.exceedance(threshold)
        return data

    def level(self) -> pd.DataFrame:
        expected = np.array([float(p.exposure @ p.node_intensity()["mean"]) for p in self.maps])
        mean = expected / self.maps[0].exposure.sum()
        out = {"period": self.periods.labels, "start": self.periods.starts}
        if self.observed is not None:
            out["observed"] = self.observed
        out |= {"predicted_q05": np.floor(0.7 * expected), "predicted_q95": np.ceil(1.3 * expected)}
        out |= {"expected": expected, "expected_q05": 0.9 * expected, "expected_q95": 1.1 * expected}
        out |= {
            "level": mean,
            "level_sd": 0.1 * mean,
            "level_q05": 0.85 * mean,
            "level_q50": mean,
            "level_q95": 1.15 * mean,
        }
        return pd.DataFrame(out)

    def totals(self, regions) -> gpd.GeoDataFrame:
        parts = [p.totals(regions, n_samples=100) for p in self.maps]
        labelled = [part.assign(period=label) for part, label in zip(parts, self.periods.labels, strict=True)]
        return gpd.GeoDataFrame(pd.concat(labelled), geometry="geometry", crs=parts[0].crs)


def moving(domain: Domain, periods: Periods, *, seed: int = 1, title: str = "", observed: bool = True) -> Stack:
    """A bump that wanders across the land, with a season."""
    west, south, east, north = domain.grid.bounds
    base, t = bumps(domain, seed), np.arange(periods.n)
    maps = []
    for k in t:
        share = (k + 0.5) / periods.n
        at = np.array([west + share * (east - west), south + (0.3 + 0.4 * share) * (north - south)])
        gap = ((domain.node_points - at) ** 2).sum(axis=1) / (2 * (0.12 * (east - west)) ** 2)
        log = 0.5 * base - 1 + 2.2 * np.exp(-gap) + 0.5 * np.sin(2 * np.pi * k / 12)
        maps.append(prescribed(domain, log, 0.2 + 0.01 * k, title=title))
    counts = np.random.default_rng(seed).poisson([m.exposure @ m.node_intensity()["mean"] for m in maps])
    return Stack(periods, tuple(maps), counts.astype(float) if observed else None)
