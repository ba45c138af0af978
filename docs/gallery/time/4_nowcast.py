"""Nowcast

Cases are reported late. The last weeks are estimated from the delays so far, with their uncertainty.
"""

import numpy as np
import pandas as pd

import geobgp

rng = np.random.default_rng(3)
towns = np.array([[5.97, 52.21], [5.47, 51.44], [6.56, 52.99]])
week = np.repeat(np.arange(16), rng.poisson(6 * 1.25 ** np.arange(16)))
place = towns[rng.choice(3, len(week))] + rng.normal(0, [0.2, 0.12], (len(week), 2))
cases = pd.DataFrame(place, columns=["longitude", "latitude"])
cases["onset"] = pd.Timestamp("2023-09-04") + pd.to_timedelta(7 * week + rng.integers(0, 7, len(week)), unit="D")
cases["reported"] = cases["onset"] + pd.to_timedelta(rng.gamma(1.5, 7, len(cases)).astype(int), unit="D")

posterior = geobgp.map_intensity(
    cases,
    land="sample_data/netherlands_land.gpkg",
    time="onset",
    every="week",
    reported="reported",
    as_of="2023-12-24",
    cell_size=15_000,
    m=48,
)
posterior.plot_level()
