"""Draws of a posterior as ArviZ knows them: InferenceData, or a DataTree from ArviZ 1.0 on."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.errors import GeobgpError, SizeError, option
from geobgp.inference.families import Poisson
from geobgp.linalg.blas import free_memory
from geobgp.privacy import shifts
from geobgp.summary import weights_of
from geobgp.text import size_text

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.posterior import Posterior


#: How ArviZ is installed.
INSTALL = "pip install 'geobgp[arviz]'"
#: Arrays of one number per draw and node that are held at the same time.
_ARRAYS = 5


class MissingArviZError(GeobgpError, ImportError):
    """ArviZ cannot be imported."""


def inference_data(posterior: Posterior, draws: int = 250, chains: int = 4, rng: int | np.random.Generator = 0) -> Any:
    """Return draws of a posterior for ArviZ; see `Posterior.to_arviz`.

    Returns
    -------
    arviz.InferenceData, or xarray.DataTree from ArviZ 1.0 on
    """
    arviz = _arviz()
    _check_size(posterior, draws * chains)
    groups = _groups(posterior, draws, chains, np.random.default_rng(rng))
    if hasattr(arviz, "InferenceData"):
        return arviz.InferenceData(**groups)
    import xarray as xr

    return xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})


def _arviz() -> Any:
    try:
        with warnings.catch_warnings():
            # Releases before 1.0 announce it at every import; both are served here.
            warnings.simplefilter("ignore", FutureWarning)
            import arviz
    except ImportError as error:
        raise MissingArviZError(
            f"to_arviz() needs ArviZ, which cannot be imported ({error}).", remedy=f"Install it with: {INSTALL}"
        ) from error
    return arviz


def _check_size(posterior: Posterior, n: int) -> None:
    need, free = 8.0 * _ARRAYS * n * posterior.domain.n_nodes, free_memory()
    if free is not None and need > free:
        raise SizeError(
            f"{n:,} draws at {posterior.domain.n_nodes:,} nodes take {size_text(need)}; {size_text(free)} are free.",
            option="draws",
            found=n,
            remedy=f"Ask for fewer {option('draws')}.",
        )


def _groups(posterior: Posterior, draws: int, chains: int, rng: np.random.Generator) -> dict[str, xr.Dataset]:
    import xarray as xr

    nodes, effects, owner = _draw(posterior, draws * chains, rng)
    if posterior.protection:
        nodes = nodes + shifts(posterior)
    domain, seen, shape = posterior.domain, posterior.seen_exposure, (chains, draws, -1)
    states = posterior.fit.states
    coords = {"chain": np.arange(chains), "draw": np.arange(draws), "node": np.arange(domain.n_nodes)}
    per_node = ("chain", "draw", "node")
    sampled: dict[str, Any] = {"coefficient": (("chain", "draw", "effect"), effects.reshape(shape))}
    if len(states) > 1:
        for name in ("lengthscale", "sd"):
            values = np.array([getattr(state, name) for state in states])[owner]
            sampled[name] = (("chain", "draw"), values.reshape(chains, draws))
    values = posterior.shown.factor * posterior.link.inverse(nodes).reshape(shape)
    sampled["intensity" if posterior.is_summed else posterior.quantity] = (per_node, values, {"units": posterior.units})
    names = ["intercept", *posterior.design.names][len(posterior.design.names) + 1 - effects.shape[1] :]
    # The exposure of cases among persons is that of the controls, person by person.
    kept = not (posterior.protection and posterior.exposure_kind == "risk")
    places = ({"exposure": ("node", posterior.exposure)} if kept else {}) | {
        "easting": ("node", domain.node_points[:, 0]),
        "northing": ("node", domain.node_points[:, 1]),
    }
    if posterior.effort is not None:
        places["effort"] = ("node", posterior.effort)
    groups = {
        "posterior": xr.Dataset(sampled, coords | {"effect": names}, attrs=posterior.provenance),
        "constant_data": xr.Dataset(places, {"node": coords["node"]}),
    }
    observed = None if posterior.protection else posterior.observed
    if observed is not None:
        rate = np.exp(nodes) * seen
        likelihood = posterior.likelihood.of(observed, seen)
        log_p = likelihood.expected(nodes, np.zeros_like(nodes)).value
        groups["observed_data"] = xr.Dataset({"events": ("node", observed)}, {"node": coords["node"]})
        groups["log_likelihood"] = xr.Dataset({"events": (per_node, log_p.reshape(shape))}, coords)
        if isinstance(posterior.likelihood, Poisson):
            drawn = rng.poisson(np.minimum(rate, 1e15)).reshape(shape)
            groups["posterior_predictive"] = xr.Dataset({"events": (per_node, drawn)}, coords)
    return groups


def _draw(posterior: Posterior, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return joint draws of the linear predictor (n, n_nodes) and of the effects in own units, and their states."""
    states = posterior.fit.states
    owner = rng.permutation(np.repeat(np.arange(len(states)), rng.multinomial(n, weights_of(states))))
    k = len(states[0].coefficients()[0])
    nodes, effects = np.empty((n, posterior.domain.n_nodes)), np.empty((n, k))
    for which in np.unique(owner):
        mine = owner == which
        nodes[mine], effects[mine] = states[which].sample_joint(int(mine.sum()), rng)
    return nodes, effects @ posterior.design.to_own_units(k).T, owner
