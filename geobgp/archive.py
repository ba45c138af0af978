"""Posteriors as files: what is needed to rebuild domain, basis and states exactly, and the way back."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyproj
import shapely
from affine import Affine
from scipy import sparse

from geobgp import store
from geobgp.data.areas import AreaCounts, PeriodAreaCounts
from geobgp.data.effects import Effects, Term
from geobgp.data.inputs import Given, GivenByPeriod, GivenPixels, GivenPolygons
from geobgp.data.periods import Periods
from geobgp.data.persons import Groups
from geobgp.data.rasters import Pixels
from geobgp.errors import CacheError, DataError
from geobgp.inference.chain import ChainState
from geobgp.inference.engine import state_from_arrays
from geobgp.inference.families import LIKELIHOODS
from geobgp.inference.mixture import INTERVAL
from geobgp.land.bridges import BridgeLines
from geobgp.land.domain import Domain
from geobgp.land.grid import MAX_CELLS, Grid
from geobgp.prior import full_rank, harmonic, kernels  # noqa: F401 (the bases register themselves)
from geobgp.prior.basis import BASES
from geobgp.privacy import Protection, PublishedState, reduced
from geobgp.style import Style
from geobgp.summary import FitRecord, plain

if TYPE_CHECKING:
    from geobgp.posterior import Posterior


_KIND = "posterior"
#: Attributes of a posterior that are polygons or pixels.
_GIVEN = ("given", "given_effort")


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
    for name, shape in (("barriers", domain.barriers), ("water", domain.water_geometry)):
        if shape is not None:
            arrays[name] = np.frombuffer(shapely.to_wkb(shape), np.uint8)
    if domain.bridges is not None:
        arrays["bridges"] = np.frombuffer(domain.bridges.given.to_wkb(), np.uint8)
    return header, arrays


def domain_from(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Domain:
    """Rebuild a domain and check that it has the very same nodes."""
    crs = None if header["crs"] is None else pyproj.CRS.from_wkt(header["crs"])
    rows, cols = header["shape"]
    if not 0 < rows * cols <= MAX_CELLS:
        raise CacheError(f"The grid in this file has {rows:,} x {cols:,} cells.", found=rows * cols)
    grid = Grid((rows, cols), Affine(*header["affine"]), crs)
    shapes = {
        name: shapely.from_wkb(arrays[name].tobytes())
        for name in ("geometry", "barriers", "water")
        if name in arrays
    }
    bridges = arrays.get("bridges")
    domain = Domain.from_geometry(
        shapes["geometry"],
        grid,
        barriers=shapes.get("barriers"),
        water_geometry=shapes.get("water"),
        bridges=None if bridges is None else BridgeLines.from_wkb(bridges.tobytes()),
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


def areas_record(areas: AreaCounts) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what `areas_from` needs, as JSON-able facts and arrays."""
    header = {
        "names": list(areas.names),
        "suppressed": areas.suppressed,
        "crs": None if areas.crs is None else areas.crs.to_wkt(),
        "covered": areas.covered,
        "n_off": areas.n_off,
        "n_nodes": areas.shares.shape[1],
    }
    shapes = shapely.GeometryCollection(list(areas.geometry))
    arrays = {
        "values": np.array(areas.values),
        "shares": areas.shares.data,
        "indices": areas.shares.indices.astype(np.int64),
        "indptr": areas.shares.indptr.astype(np.int64),
        "geometry": np.frombuffer(shapely.to_wkb(shapes), np.uint8),
    }
    for name in ("exposed", "effort"):
        if getattr(areas, name) is not None:
            arrays[name] = getattr(areas, name)
    if isinstance(areas, PeriodAreaCounts):
        header |= {"n_untimed": areas.n_untimed, "n_outside": areas.n_outside}
        arrays["unknown"] = areas.unknown
    return header, arrays if areas.located is None else arrays | {"located": areas.located}


def areas_from(
    header: dict[str, Any], arrays: dict[str, np.ndarray], periods: Periods | None = None
) -> AreaCounts:
    """Rebuild counts by area, and by period where there are some."""
    shape = arrays["values"].shape[-1], header["n_nodes"]
    plain = AreaCounts(
        values=arrays["values"],
        shares=sparse.csr_array((arrays["shares"], arrays["indices"], arrays["indptr"]), shape=shape),
        names=tuple(header["names"]),
        suppressed=None if header["suppressed"] is None else tuple(header["suppressed"]),
        geometry=np.array(shapely.get_parts(shapely.from_wkb(arrays["geometry"].tobytes())), dtype=object),
        crs=None if header["crs"] is None else pyproj.CRS.from_wkt(header["crs"]),
        covered=header["covered"],
        n_off=header["n_off"],
        located=arrays.get("located"),
        exposed=arrays.get("exposed"),
        effort=arrays.get("effort"),
    )
    if periods is None:
        return plain
    known = {f.name: getattr(plain, f.name) for f in fields(plain)}
    own = {name: header[name] for name in ("n_untimed", "n_outside")}
    return PeriodAreaCounts(**known, periods=periods, unknown=arrays["unknown"], **own)


def given_record(given: Given | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what `given_from` needs, as JSON-able facts and arrays; nothing of nothing."""
    if given is None:
        return {}, {}
    if isinstance(given, GivenByPeriod):
        each = [given_record(one) for one in given.parts]
        arrays: dict[str, np.ndarray] = {}
        for k, (_, some) in enumerate(each):
            arrays |= _named(str(k), some)
        return {"periods": [facts for facts, _ in each], "together": given.together}, arrays
    if isinstance(given, GivenPixels):
        pixels = given.pixels
        crs = None if pixels.crs is None else pixels.crs.to_wkt()
        return {"affine": list(pixels.affine)[:6], "crs": crs}, {"pixels": pixels.values}
    assert isinstance(given, GivenPolygons)
    shapes = shapely.to_wkb(shapely.GeometryCollection(list(given.geometry)))
    crs = None if given.crs is None else given.crs.to_wkt()
    return {"crs": crs}, {"values": given.values, "geometry": np.frombuffer(shapes, np.uint8)}


def given_from(header: dict[str, Any] | None, arrays: dict[str, np.ndarray]) -> Given | None:
    """Rebuild the polygons or pixels that something was read from; files of earlier versions have none."""
    if not header:
        return None
    if "periods" in header:
        parts = [given_from(facts, _of(str(k), arrays)) for k, facts in enumerate(header["periods"])]
        return GivenByPeriod(tuple(parts), header["together"])
    crs = None if header["crs"] is None else pyproj.CRS.from_wkt(header["crs"])
    if "affine" in header:
        return GivenPixels(Pixels(arrays["pixels"], Affine(*header["affine"]), crs))
    shapes = shapely.get_parts(shapely.from_wkb(arrays["geometry"].tobytes()))
    return GivenPolygons(np.array(shapes, dtype=object), crs, arrays["values"])


def _state_in_space(arrays: dict[str, np.ndarray], basis: Any) -> Any:
    return state_from_arrays(basis, arrays)


def _published_state(arrays: dict[str, np.ndarray], basis: Any) -> PublishedState:
    return PublishedState.from_arrays(arrays)


def save(posterior: Posterior, path: str | Path) -> Path:
    """Write a posterior; see `Posterior.save`."""
    if posterior.protection:
        posterior = reduced(posterior)
    fit = posterior.fit
    domain, domain_arrays = domain_record(posterior.domain)
    header = {
        "source": posterior.provenance["source"],
        "domain": domain,
        "basis": {"kind": BASES.name_of(posterior.basis), "facts": posterior.basis.facts()},
        "kernel": kernels.to_dict(posterior.kernel),
        "likelihood": {
            "kind": LIKELIHOODS.name_of(posterior.likelihood),
            "facts": posterior.likelihood.facts(),
        },
        "exposure_kind": posterior.exposure_kind,
        "covariates": [[term.covariate, term.level, term.reference] for term in posterior.effects.terms],
        "points": dict(posterior.points),
        "created": posterior.created,
        "title": posterior.title,
        "shown_in": posterior.shown_in,
        "per": posterior.per,
        "style": posterior.style.attrs(),
        "interval": posterior.interval,
        "protection": asdict(posterior.protection) if posterior.protection else None,
        "scaling": posterior.scaling,
        "choices": dict(posterior.choices),
        "tried": [asdict(rung) for rung in posterior.tried],
        "n_states": len(fit.states),
        "fit": {
            "elbo": float(fit.elbo),
            "converged": bool(fit.converged),
            "message": str(fit.message),
            "truncated_variance": float(fit.truncated_variance),
            "seconds": {name: float(value) for name, value in fit.seconds.items()},
            "rounds": int(fit.rounds),
        },
    }
    if "variation" in fit.notes and (variation := posterior._known_variation()) is not None:
        header["variation"] = plain(asdict(variation))
    arrays = {
        "exposure": posterior.exposure,
        "covariate_means": posterior.effects.means,
        "covariate_scales": posterior.effects.scales,
        "elbo_trace": np.asarray(fit.elbo_trace, float),
        "hyper_mean": fit.hyper_mean,
        "hyper_cov": fit.hyper_cov,
    }
    if posterior.effort is not None:
        arrays["effort"] = posterior.effort
    if posterior.observed is not None:
        arrays["observed"] = posterior.observed
    if (persons := posterior.persons) is not None and not posterior.effects.names:
        # With confounders they would be persons, and not numbers of them.
        arrays |= _named("persons", {k: getattr(persons, k) for k in ("node", "cases", "persons")})
    if posterior.areas is not None:
        header["areas"], area_arrays = areas_record(posterior.areas)
        arrays |= _named("areas", area_arrays)
    for name in _GIVEN:
        header[name], given_arrays = given_record(getattr(posterior, name))
        arrays |= _named(name, given_arrays)
    if posterior.periods is not None:
        header["in_time"] = True
        arrays |= _named("periods", posterior.periods.to_arrays())
    arrays |= _named("domain", domain_arrays) | _named("basis", posterior.basis.to_arrays())
    for k, state in enumerate(fit.states):
        arrays |= _named(f"state{k}", state.to_arrays())
    return store.write(path, _KIND, header, arrays)


def load(path: str | Path) -> Posterior:
    """Read a posterior; see `Posterior.load`."""
    from geobgp.checks.variation import variation_from
    from geobgp.inference.fit import Fit
    from geobgp.posterior import Posterior

    header, arrays = store.read(path, _KIND)
    try:
        domain = domain_from(header["domain"], _of("domain", arrays))
        kind = BASES.find(header["basis"]["kind"])
        basis = kind.from_arrays(domain, header["basis"]["facts"], _of("basis", arrays))
        in_time = bool(header.get("in_time"))
        protection = Protection(**(header.get("protection") or {}))
        rebuild: Any = ChainState.from_arrays if in_time else _state_in_space
        if protection:
            rebuild = _published_state
        states = tuple(rebuild(_of(f"state{k}", arrays), basis) for k in range(header["n_states"]))
        for state in () if in_time or protection else states:
            _check_state(state, domain.n_nodes)
        _check_arrays(arrays, domain.n_nodes)
        periods = Periods.from_arrays(_of("periods", arrays)) if in_time else None
        more: dict[str, Any] = {name: given_from(header.get(name), _of(name, arrays)) for name in _GIVEN}
        found: dict[str, Any] = {name: arrays[name] for name in ("elbo_trace", "hyper_mean", "hyper_cov")}
        terms = tuple(Term(*term) for term in header["covariates"])
        effects = Effects(terms, arrays["covariate_means"], arrays["covariate_scales"])
        likelihood = LIKELIHOODS.find(header["likelihood"]["kind"])
        fit = Fit(states=states, **found, **header["fit"])
        if "variation" in header:
            fit.notes["variation"] = variation_from(header["variation"])
        return Posterior(
            fit=fit,
            basis=basis,
            kernel=kernels.from_dict(header["kernel"]),
            likelihood=likelihood.without_data(header["likelihood"]["facts"]),
            exposure=arrays["exposure"],
            exposure_kind=header["exposure_kind"],
            effects=effects,
            points=header["points"],
            created=header["created"],
            title=header["title"],
            shown_in=header.get("shown_in", ""),
            per=header.get("per", ""),
            style=Style.in_attrs(header.get("style", {})) or Style(),
            interval=header.get("interval", INTERVAL),
            protection=protection,
            scaling=header["scaling"],
            observed=arrays.get("observed"),
            effort=arrays.get("effort"),
            persons=_persons(_of("persons", arrays)),
            areas=areas_from(header["areas"], _of("areas", arrays), periods) if "areas" in header else None,
            choices=header["choices"],
            tried=tuple(FitRecord(**rung) for rung in header["tried"]),
            periods=periods,
            **more,
        )
    except (CacheError, DataError):
        raise
    except (KeyError, TypeError) as error:
        raise CacheError(
            f"{str(path)!r} was written by {header.get('source')} and lacks {error} that this "
            "version needs. Load it with that version, or fit and save again."
        ) from error
    except Exception as error:  # right checksums, wrong content: whatever reads it has its own words
        raise CacheError(
            f"{str(path)!r} does not hold what it claims to: {error}",
            remedy="Take another copy, or fit and save again.",
        ) from error


def _check_state(state: Any, n_nodes: int) -> None:
    """Refuse a state that does not fit its basis."""
    fixed, beta = state.fixed, state.beta
    fits = {
        "fixed effects": fixed.ndim == 2 and fixed.shape == (n_nodes, len(beta)),
        "coefficients": beta.ndim == 1 and state.beta_cov.shape == (len(beta), len(beta)),
        "offset": state.offset is None or state.offset.shape == (n_nodes,),
        "share": 0 < state.weight < np.inf,
        "hyperparameters": 0 < state.lengthscale < np.inf and 0 < state.sd < np.inf,
    }
    _check(fits)


def _check_arrays(arrays: dict[str, np.ndarray], n_nodes: int) -> None:
    """Refuse numbers that do not belong to the nodes."""
    amounts = {name: arrays[name] for name in ("exposure", "observed", "effort") if name in arrays}
    _check(
        {
            name: array.ndim >= 1
            and n_nodes in array.shape
            and bool(np.isfinite(array).all() and (array >= 0).all())
            for name, array in amounts.items()
        }
    )


def _check(fits: dict[str, bool]) -> None:
    wrong = [name for name, right in fits.items() if not right]
    if wrong:
        raise CacheError(f"The {wrong[0]} of this file do not fit its domain.", found=wrong)


def _persons(arrays: dict[str, np.ndarray]) -> Groups | None:
    """Rebuild cases and controls by node."""
    if not arrays:
        return None
    return Groups(**arrays, effects=Effects(columns=np.ones((len(arrays["node"]), 1))))


def _named(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def _of(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
