"""Posteriors as files: what is needed to rebuild domain, basis and states exactly, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyproj
import shapely
from affine import Affine

from geobgp.errors import CacheError
from geobgp.land.domain import Domain
from geobgp.land.grid import Grid
from geobgp.prior import kernels
from geobgp.prior.laplacian import discretise
from geobgp.storage import store
from geobgp.summary import Effects

if TYPE_CHECKING:
    from geobgp.posterior import Posterior
    from geobgp.prior.full_rank import FullRank
    from geobgp.prior.harmonic import HarmonicBasis

_KIND = "posterior"


def domain_record(domain: Domain) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what `domain_from` needs, as JSON-able facts and arrays."""
    header = {
        "shape": list(domain.grid.shape),
        "affine": list(domain.grid.affine)[:6],
        "crs": None if domain.crs is None else domain.crs.to_wkt(),
        "min_coverage": domain.min_coverage,
        "notes": list(domain.notes),
        "hash": domain.content_hash(),
    }
    arrays = {
        "geometry": np.frombuffer(shapely.to_wkb(domain.geometry), np.uint8),
        "cells": np.column_stack([domain.node_rows, domain.node_cols]),
        "areas": domain.node_areas,
    }
    if domain.barriers is not None:
        arrays["barriers"] = np.frombuffer(shapely.to_wkb(domain.barriers), np.uint8)
    return header, arrays


def domain_from(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Domain:
    """Rebuild a domain and check that it has the very same nodes."""
    crs = None if header["crs"] is None else pyproj.CRS.from_wkt(header["crs"])
    rows, cols = header["shape"]
    grid = Grid((rows, cols), Affine(*header["affine"]), crs)
    barriers = arrays.get("barriers")
    domain = Domain.from_geometry(
        shapely.from_wkb(arrays["geometry"].tobytes()),
        grid,
        barriers=None if barriers is None else shapely.from_wkb(barriers.tobytes()),
        min_coverage=header["min_coverage"],
        notes=tuple(header["notes"]),
    )
    if domain.content_hash() != header["hash"] and not _same_nodes(domain, arrays):
        raise CacheError(
            "The domain in this file cannot be rebuilt with the libraries installed here "
            f"(GEOS {shapely.geos_version_string}, PROJ {pyproj.proj_version_str}). "
            "Load it where it was saved, or fit again."
        )
    return domain


def _same_nodes(domain: Domain, arrays: dict[str, np.ndarray]) -> bool:
    """Whether another version of GEOS or PROJ has changed no more than the last digits of the areas."""
    cells = np.column_stack([domain.node_rows, domain.node_cols])
    return (
        cells.shape == arrays["cells"].shape
        and bool((cells == arrays["cells"]).all())
        and np.allclose(domain.node_areas, arrays["areas"], rtol=1e-8, atol=0.0)
    )


def basis_record(basis: HarmonicBasis | FullRank) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what `basis_from` needs: the features' vectors, or nothing but the name of the full rank."""
    header = {"boundary": basis.boundary, "scheme": basis.scheme, "m": "full"}
    if not hasattr(basis, "eigenvalues"):
        return header, {}
    return header | {"m": int(basis.m)}, {name: getattr(basis, name) for name in ("eigenvalues", "vectors")}


def basis_from(
    header: dict[str, Any], arrays: dict[str, np.ndarray], domain: Domain
) -> tuple[HarmonicBasis | FullRank, Any]:
    """Rebuild a basis on its domain; also return the class of the states that belong to it."""
    if header["m"] == "full":
        from geobgp.inference.states import SparseState
        from geobgp.prior.full_rank import FullRank

        return FullRank(domain, boundary=header["boundary"], scheme=header["scheme"]), SparseState
    from geobgp.inference.states import FeatureState
    from geobgp.prior.harmonic import HarmonicBasis

    kind: dict[str, Any] = {"boundary": header["boundary"], "scheme": header["scheme"]}
    made: dict[str, Any] = arrays | {"domain": domain, "discretisation": discretise(domain, **kind)}
    return HarmonicBasis(**kind, **made), FeatureState


def save(posterior: Posterior, path: str | Path) -> Path:
    """Write a posterior; see `Posterior.save`."""
    import geobgp

    fit = posterior.fit
    domain, domain_arrays = domain_record(posterior.domain)
    basis, basis_arrays = basis_record(posterior.basis)
    header = {
        "version": geobgp.__version__,
        "domain": domain,
        "basis": basis,
        "kernel": kernels.to_dict(posterior.kernel),
        "likelihood": posterior.likelihood,
        "exposure_kind": posterior.exposure_kind,
        "covariates": list(posterior.effects.names),
        "points": dict(posterior.points),
        "created": posterior.created,
        "title": posterior.title,
        "choices": dict(posterior.choices),
        "n_states": len(fit.states),
        "fit": {
            "elbo": float(fit.elbo),
            "converged": bool(fit.converged),
            "message": str(fit.message),
            "missed_share": float(fit.missed_share),
            "seconds": {name: float(value) for name, value in fit.seconds.items()},
            "rounds": int(fit.rounds),
        },
    }
    arrays = {
        "exposure": posterior.exposure,
        "covariate_means": posterior.effects.means,
        "covariate_scales": posterior.effects.scales,
        "elbo_trace": np.asarray(fit.elbo_trace, float),
        "hyper_mean": fit.hyper_mean,
        "hyper_cov": fit.hyper_cov,
    }
    arrays |= _named("domain", domain_arrays) | _named("basis", basis_arrays)
    for k, state in enumerate(fit.states):
        arrays |= _named(f"state{k}", state.to_arrays())
    return store.write(path, _KIND, header, arrays)


def load(path: str | Path) -> Posterior:
    """Read a posterior; see `Posterior.load`."""
    from geobgp.inference.fit import Fit
    from geobgp.posterior import Posterior

    header, arrays = store.read(path, _KIND)
    try:
        domain = domain_from(header["domain"], _of("domain", arrays))
        basis, state = basis_from(header["basis"], _of("basis", arrays), domain)
        states = tuple(state.from_arrays(_of(f"state{k}", arrays), basis) for k in range(header["n_states"]))
        found: dict[str, Any] = {name: arrays[name] for name in ("elbo_trace", "hyper_mean", "hyper_cov")}
        effects = Effects(tuple(header["covariates"]), arrays["covariate_means"], arrays["covariate_scales"])
        return Posterior(
            fit=Fit(states=states, **found, **header["fit"]),
            basis=basis,
            kernel=kernels.from_dict(header["kernel"]),
            likelihood=header["likelihood"],
            exposure=arrays["exposure"],
            exposure_kind=header["exposure_kind"],
            effects=effects,
            points=header["points"],
            created=header["created"],
            title=header["title"],
            choices=header["choices"],
        )
    except (KeyError, TypeError) as error:
        raise CacheError(
            f"{str(path)!r} was written by geobgp {header.get('version')} and lacks {error} that this "
            "version needs. Load it with that version, or fit and save again."
        ) from error


def _named(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def _of(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
