"""Maps of where things happen, with their uncertainty, that respect the shore.

The way of the data::

    polygons -> Domain -> HarmonicBasis (or FullRank) --.
    points   -> bin_points -> Counts -------------------+-> LGCP.fit -> Posterior -> raster / map / plot
    Matern   -> spectral density at the eigenvalues ----'

`map_intensity(points, land)` walks all of it in one call.

The packages from the ground up; each imports only from those before it::

    errors, text, units, style, files, progress, parallel, store, validation   what everybody uses
    linalg      eigenpairs and factors of sparse matrices, without any geography
    land        polygons to a grid: CRS, pieces of cells, Domain, regions
    prior       the Laplacian on a domain, its features or its full resolution, kernels, the cache of bases
    data        points, areas, periods, exposure, effort, covariates and rasters to numbers per node
    inference   likelihoods, engines, the rounds of a fit, mixtures over hyperparameters
    model, posterior, totals, summary, privacy, simulate, archive   LGCP and BoundaryGP, and what they find
    checks      does the map agree with the data?
    output      datasets, GeoTIFFs, netCDF, Zarr, QGIS, colours, figures
    web         the interactive map
    report      the page that says what was done and found
    auto        map_intensity and map_risk: their options, their choices, the search for the model
    scale       strata, and land too large for one fit
    cli         the shell
    gpflow      the same model in GPflow, beside output
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

#: Public names by the module that each is loaded from, when it is first asked for.
_PUBLIC = {
    "auto.maps": "map_intensity map_prevalence map_risk map_values",
    "checks.compare": "compare",
    "checks.crossval": "CrossValidation",
    "checks.variation": "Variation",
    "data.areas": "AreaCounts bin_areas",
    "data.counts": "Counts bin_points",
    "data.effects": "Categorical Distance Group Interaction Smooth",
    "data.periods": "Periods",
    "data.places": "bin_places",
    "data.standardise": "expected_counts",
    "errors": "CRSError CacheError DataError DomainError GeobgpError GeobgpWarning GeometryError SizeError",
    "land.domain": "Domain",
    "land.grid": "Grid",
    "model": "BoundaryGP LGCP",
    "posterior": "Posterior SpaceTimePosterior",
    "prior.full_rank": "FullRank",
    "prior.harmonic": "HarmonicBasis",
    "prior.kernels": "Matern SquaredExponential",
    "scale.maps": "map_strata map_tiles",
    "simulate": "simulate_points",
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names.split()}
__all__ = sorted(_HOME)

if TYPE_CHECKING:  # the same names, for type checkers
    from geobgp.auto.maps import map_intensity as map_intensity
    from geobgp.auto.maps import map_prevalence as map_prevalence
    from geobgp.auto.maps import map_risk as map_risk
    from geobgp.auto.maps import map_values as map_values
    from geobgp.checks.compare import compare as compare
    from geobgp.checks.crossval import CrossValidation as CrossValidation
    from geobgp.checks.variation import Variation as Variation
    from geobgp.data.areas import AreaCounts as AreaCounts
    from geobgp.data.areas import bin_areas as bin_areas
    from geobgp.data.counts import Counts as Counts
    from geobgp.data.counts import bin_points as bin_points
    from geobgp.data.effects import Categorical as Categorical
    from geobgp.data.effects import Distance as Distance
    from geobgp.data.effects import Group as Group
    from geobgp.data.effects import Interaction as Interaction
    from geobgp.data.effects import Smooth as Smooth
    from geobgp.data.periods import Periods as Periods
    from geobgp.data.places import bin_places as bin_places
    from geobgp.data.standardise import expected_counts as expected_counts
    from geobgp.errors import CacheError as CacheError
    from geobgp.errors import CRSError as CRSError
    from geobgp.errors import DataError as DataError
    from geobgp.errors import DomainError as DomainError
    from geobgp.errors import GeobgpError as GeobgpError
    from geobgp.errors import GeobgpWarning as GeobgpWarning
    from geobgp.errors import GeometryError as GeometryError
    from geobgp.errors import SizeError as SizeError
    from geobgp.land.domain import Domain as Domain
    from geobgp.land.grid import Grid as Grid
    from geobgp.model import LGCP as LGCP
    from geobgp.model import BoundaryGP as BoundaryGP
    from geobgp.posterior import Posterior as Posterior
    from geobgp.posterior import SpaceTimePosterior as SpaceTimePosterior
    from geobgp.prior.full_rank import FullRank as FullRank
    from geobgp.prior.harmonic import HarmonicBasis as HarmonicBasis
    from geobgp.prior.kernels import Matern as Matern
    from geobgp.prior.kernels import SquaredExponential as SquaredExponential
    from geobgp.scale.maps import map_strata as map_strata
    from geobgp.scale.maps import map_tiles as map_tiles
    from geobgp.simulate import simulate_points as simulate_points


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"geobgp.{_HOME[name]}"), name)
    raise AttributeError(f"module 'geobgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
