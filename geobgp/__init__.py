"""Maps of where things happen, with their uncertainty, that respect the shore.

The way of the data::

    polygons -> Domain -> HarmonicBasis (or FullRank) --.
    points   -> bin_points -> Counts -------------------+-> LGCP.fit -> Posterior -> raster / map / plot
    Matern   -> spectral density at the eigenvalues ----'

`map_intensity(points, land)` walks all of it in one call.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from geobgp.basis import HarmonicBasis
    from geobgp.counts import Counts, bin_points
    from geobgp.domain import Domain
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
    from geobgp.grid import Grid
    from geobgp.kernels import Matern, SquaredExponential
    from geobgp.model import LGCP, BoundaryGP
    from geobgp.pipeline import map_intensity
    from geobgp.posterior import Posterior
    from geobgp.precision import FullRank
    from geobgp.simulate import simulate_points

_HOME = {
    "BoundaryGP": "model",
    "CRSError": "errors",
    "CacheError": "errors",
    "Counts": "counts",
    "DataError": "errors",
    "Domain": "domain",
    "DomainError": "errors",
    "FullRank": "precision",
    "GeobgpError": "errors",
    "GeobgpWarning": "errors",
    "GeometryError": "errors",
    "Grid": "grid",
    "HarmonicBasis": "basis",
    "LGCP": "model",
    "Matern": "kernels",
    "Posterior": "posterior",
    "SizeError": "errors",
    "SquaredExponential": "kernels",
    "bin_points": "counts",
    "map_intensity": "pipeline",
    "simulate_points": "simulate",
}

__all__ = [
    "LGCP",
    "BoundaryGP",
    "CRSError",
    "CacheError",
    "Counts",
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
    "Posterior",
    "SizeError",
    "SquaredExponential",
    "bin_points",
    "map_intensity",
    "simulate_points",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"geobgp.{_HOME[name]}"), name)
    raise AttributeError(f"module 'geobgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
