"""Maps of where things happen, with their uncertainty, that respect the shore.

The way of the data::

    polygons -> Domain -> HarmonicBasis (or FullRank) --.
    points   -> bin_points -> Counts -------------------+-> LGCP.fit -> Posterior -> raster / map / plot
    Matern   -> spectral density at the eigenvalues ----'

`map_intensity(points, land)` walks all of it in one call.

The house, from the ground up; each folder imports only from those before it::

    errors, text, files, progress, validate, arguments   what everybody uses: errors, words, files, stages, rules
    linalg      eigenpairs and factors of sparse matrices, without any geography
    land        polygons to a grid: CRS, pieces of cells, Domain, regions
    prior       the Laplacian on a domain, its features or its full resolution, kernels, the cache of bases
    data        points, exposure, covariates and rasters to numbers per node
    inference   likelihoods, engines, the rounds of a fit, mixtures over hyperparameters
    model, posterior, summary, simulate   LGCP and BoundaryGP, what they find, points drawn from it
    spacetime   the same over periods
    storage     posteriors and arrays in files
    checks      does the map agree with the points?
    output      xarray datasets, GeoTIFFs, contours, QGIS styles, colours, plots
    web         the interactive map
    report      the page that says what was done and found
    auto        map_intensity: its options, its choices, the search for the model
    scale       past one machine: who does independent work, strata, tiles
    cli         the shell
    gpflow      the same model in GPflow, beside output
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from geobgp.auto.maps import map_intensity, map_risk
    from geobgp.checks.compare import compare
    from geobgp.checks.crossval import CrossValidation
    from geobgp.checks.variation import Variation
    from geobgp.data.areas import AreaCounts, bin_areas
    from geobgp.data.counts import Counts, bin_points
    from geobgp.data.effects import Categorical
    from geobgp.data.periods import Periods
    from geobgp.data.standardise import expected_counts
    from geobgp.errors import (
        CacheError,
        CRSError,
        DataError,
        DomainError,
        GeobgpError,
        GeobgpWarning,
        GeometryError,
        SizeError,
    )
    from geobgp.land.domain import Domain
    from geobgp.land.grid import Grid
    from geobgp.model import LGCP, BoundaryGP
    from geobgp.posterior import Posterior, SpaceTimePosterior
    from geobgp.prior.full_rank import FullRank
    from geobgp.prior.harmonic import HarmonicBasis
    from geobgp.prior.kernels import Matern, SquaredExponential
    from geobgp.scale.maps import map_strata, map_tiles
    from geobgp.simulate import simulate_points

_HOME = {
    "AreaCounts": "data.areas",
    "BoundaryGP": "model",
    "CRSError": "errors",
    "CacheError": "errors",
    "Categorical": "data.effects",
    "Counts": "data.counts",
    "CrossValidation": "checks.crossval",
    "DataError": "errors",
    "Domain": "land.domain",
    "DomainError": "errors",
    "FullRank": "prior.full_rank",
    "GeobgpError": "errors",
    "GeobgpWarning": "errors",
    "GeometryError": "errors",
    "Grid": "land.grid",
    "HarmonicBasis": "prior.harmonic",
    "LGCP": "model",
    "Matern": "prior.kernels",
    "Periods": "data.periods",
    "Posterior": "posterior",
    "SizeError": "errors",
    "SpaceTimePosterior": "posterior",
    "SquaredExponential": "prior.kernels",
    "Variation": "checks.variation",
    "bin_areas": "data.areas",
    "bin_points": "data.counts",
    "compare": "checks.compare",
    "expected_counts": "data.standardise",
    "map_intensity": "auto.maps",
    "map_risk": "auto.maps",
    "map_strata": "scale.maps",
    "map_tiles": "scale.maps",
    "simulate_points": "simulate",
}

__all__ = [
    "LGCP",
    "AreaCounts",
    "BoundaryGP",
    "CRSError",
    "CacheError",
    "Categorical",
    "Counts",
    "CrossValidation",
    "DataError",
    "Domain",
    "DomainError",
    "FullRank",
    "GeobgpError",
    "GeobgpWarning",
    "GeometryError",
    "Grid",
    "HarmonicBasis",
    "Matern",
    "Periods",
    "Posterior",
    "SizeError",
    "SpaceTimePosterior",
    "SquaredExponential",
    "Variation",
    "bin_areas",
    "bin_points",
    "compare",
    "expected_counts",
    "map_intensity",
    "map_risk",
    "map_strata",
    "map_tiles",
    "simulate_points",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"geobgp.{_HOME[name]}"), name)
    raise AttributeError(f"module 'geobgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
