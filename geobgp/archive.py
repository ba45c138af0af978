"""Posteriors as files: any of our dataclasses taken apart into JSON and arrays, and put together again.

`pack` walks through a value: numbers, strings, lists and mappings are JSON as they are; arrays go into a mapping by the
path at which they stand; a dataclass is the name of its class with its fields, so that a new field is stored without
a line here. What stands twice is stored once. On reading only classes of `_PACKAGES` and `_MODULES` are made, and
members of the registries of kernels, bases and likelihoods; nothing is pickled.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import Field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyproj
import shapely
from affine import Affine
from scipy import sparse

from geobgp import store
from geobgp.data.effects import Effects
from geobgp.errors import CacheError, DataError
from geobgp.inference.families import LIKELIHOODS, Likelihood
from geobgp.land.domain import Domain
from geobgp.land.grid import MAX_CELLS, Grid
from geobgp.linalg.tridiagonal import Tridiagonal
from geobgp.prior.basis import BASES, Basis
from geobgp.prior.kernels import KERNELS, Kernel
from geobgp.privacy import is_published, reduced

if TYPE_CHECKING:
    from geobgp.posterior import Posterior

_KIND = "posterior"
T = TypeVar("T")
#: Whose dataclasses can be stored: none of these does more than hold what it is given.
_PACKAGES = ("data", "inference", "land", "prior")
_MODULES = ("checks.variation", "posterior", "privacy", "style", "summary", "units")
#: The key of a JSON object that stands for something else than a mapping: what it stands for.
_TAG = "is"


# -- Values that are neither plain nor dataclasses -----------------------------------------------------------


class _Codec(NamedTuple):
    """How values of a class are taken apart, and put together from what came out."""

    cls: type
    apart: Callable[[Any], Any]
    together: Callable[[Any], Any]


def _domain_record(domain: Domain) -> dict[str, Any]:
    """Return what `_domain` needs."""
    return {
        "shape": domain.grid.shape,
        "affine": domain.grid.affine,
        "crs": domain.crs,
        "min_coverage": domain.min_coverage,
        "notes": domain.notes,
        "hash": domain.content_hash(),
        "geometry": domain.geometry,
        "barriers": domain.barriers,
        "water": domain.water_geometry,
        "bridges": None if domain.bridges is None else domain.bridges.given,
        "cells": np.column_stack([domain.node_rows, domain.node_cols]),
        "areas": domain.node_areas,
    }


def _domain(record: dict[str, Any]) -> Domain:
    """Rebuild a domain and check that it has the very same nodes."""
    rows, cols = record["shape"]
    if not 0 < rows * cols <= MAX_CELLS:
        raise CacheError(f"The grid in this file has {rows:,} x {cols:,} cells.", found=rows * cols)
    domain = Domain.from_geometry(
        record["geometry"],
        Grid((rows, cols), record["affine"], record["crs"]),
        barriers=record["barriers"],
        water_geometry=record["water"],
        bridges=record["bridges"],
        min_coverage=record["min_coverage"],
        notes=record["notes"],
    )
    if domain.content_hash() != record["hash"] and not _same_nodes(domain, record):
        raise CacheError(
            "The domain in this file cannot be rebuilt with the libraries installed here "
            f"(GEOS {shapely.geos_version_string}, PROJ {pyproj.proj_version_str}). "
            "Load it where it was saved, or fit again."
        )
    return domain


def _same_nodes(domain: Domain, record: dict[str, Any]) -> bool:
    """Whether another version of GEOS or PROJ has changed no more than the last digits of the areas."""
    cells = np.column_stack([domain.node_rows, domain.node_cols])
    return (
        cells.shape == record["cells"].shape
        and bool((cells == record["cells"]).all())
        and np.allclose(domain.node_areas, record["areas"], rtol=1e-8, atol=0.0)
    )


def _sparse_record(matrix: sparse.csr_array) -> dict[str, Any]:
    indices, starts = (part.astype(np.int64) for part in (matrix.indices, matrix.indptr))
    return {"data": matrix.data, "indices": indices, "indptr": starts, "shape": matrix.shape}


def _chain_record(chain: Tridiagonal) -> dict[str, Any]:
    """Return the pivots' inverses, of which one triangle is used."""
    rows, cols = np.triu_indices(chain.inverses.shape[1])
    return {"pivots": chain.inverses[:, rows, cols], "between": chain.between, "size": chain.inverses.shape[1]}


def _chain(record: dict[str, Any]) -> Tridiagonal:
    pivots, size = record["pivots"], record["size"]
    inverses = np.zeros((len(pivots), size, size))
    rows, cols = np.triu_indices(size)
    inverses[:, rows, cols] = pivots
    return Tridiagonal.from_inverses(inverses, record["between"])


_CODECS: dict[str, _Codec] = {
    "crs": _Codec(pyproj.CRS, lambda crs: crs.to_wkt(), pyproj.CRS.from_wkt),
    "affine": _Codec(Affine, lambda affine: list(affine)[:6], lambda numbers: Affine(*numbers)),
    "shape": _Codec(
        shapely.Geometry,
        lambda shape: np.frombuffer(shapely.to_wkb(shape), np.uint8),
        lambda data: shapely.from_wkb(data.tobytes()),
    ),
    "sparse": _Codec(
        sparse.csr_array,
        _sparse_record,
        lambda r: sparse.csr_array((r["data"], r["indices"], r["indptr"]), shape=r["shape"]),
    ),
    "domain": _Codec(Domain, _domain_record, _domain),
    "basis": _Codec(
        Basis,
        lambda basis: {
            "kind": BASES.name_of(basis), "domain": basis.domain, "facts": basis.facts(), "arrays": basis.to_arrays(),
        },
        lambda r: BASES.find(r["kind"]).from_arrays(r["domain"], r["facts"], r["arrays"]),
    ),
    "likelihood": _Codec(
        Likelihood,
        lambda likelihood: {"kind": LIKELIHOODS.name_of(likelihood), "facts": likelihood.facts()},
        lambda r: LIKELIHOODS.find(r["kind"]).without_data(r["facts"]),
    ),
    "kernel": _Codec(
        Kernel,
        lambda kernel: {"kind": KERNELS.name_of(kernel), "fields": _stored_fields(kernel)},
        lambda r: KERNELS.find(r["kind"])(**r["fields"]),
    ),
    "chain": _Codec(Tridiagonal, _chain_record, _chain),
    "tuple": _Codec(tuple, list, tuple),
}  # fmt: skip


# -- The walker ----------------------------------------------------------------------------------------------


@cache
def _classes() -> dict[str, type]:
    """Return the dataclasses that can be stored, by name."""
    names = [f"{package}.{name}" for package in _PACKAGES for name in _names_in(package)]
    modules = [importlib.import_module(f"geobgp.{name}") for name in (*names, *_MODULES)]
    return {
        name: member
        for module in modules
        for name, member in vars(module).items()
        if isinstance(member, type) and is_dataclass(member) and member.__module__ == module.__name__
    }


def _names_in(package: str) -> list[str]:
    return [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent / package)])]


def _is_stored(one: Field[Any]) -> bool:
    """Tell whether a field is part of what its object was made of: private ones are not, nor those marked so."""
    return one.init and not one.name.startswith("_") and bool(one.metadata.get("stored", True))


def _stored_fields(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value) if _is_stored(one)}


def pack(value: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Take a value apart into what JSON can hold and arrays of plain numbers; see `unpack`.

    Raises
    ------
    DataError
        If there is something in it that could not be read again.

    Examples
    --------
    >>> from geobgp.data.effects import Effects, Term
    >>> facts, arrays = pack({"effects": Effects.of([Term("slope")], [0.0], [1.0]), "n": 3})
    >>> sorted(arrays)
    ['effects.blocks.0.means', 'effects.blocks.0.scales']
    >>> unpack(facts, arrays)["effects"].names
    ('slope',)
    """
    arrays: dict[str, np.ndarray] = {}
    seen: dict[int, tuple[str, Any]] = {}

    def walk(value: Any, path: str) -> Any:
        if isinstance(value, np.generic) and value.dtype.kind in "bifu":
            value = value.item()
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, list):
            return [walk(one, _join(path, k)) for k, one in enumerate(value)]
        if isinstance(value, Mapping):
            plain = all(isinstance(name, str) for name in value) and _TAG not in value
            if plain:
                return {name: walk(one, _join(path, name)) for name, one in value.items()}
            pairs = [[name, one] for name, one in value.items()]
            return {_TAG: "pairs", "of": walk(pairs, path)}
        if id(value) in seen and type(value) is not tuple:
            return {_TAG: "again", "of": seen[id(value)][0]}
        seen[id(value)] = path, value  # held, so that no other takes its identity
        if isinstance(value, np.ndarray):
            return walk_shapes(value, path) if value.dtype.hasobject else store_array(value, path)
        for tag, codec in _CODECS.items():
            if isinstance(value, codec.cls) and not hasattr(value, "_fields"):
                return {_TAG: tag, "of": walk(codec.apart(value), path), "at": path}
        if _classes().get(type(value).__name__) is type(value):
            whole = value.for_file() if hasattr(value, "for_file") else value
            own = {name: walk(one, _join(path, name)) for name, one in _stored_fields(whole).items()}
            return {_TAG: type(value).__name__, "of": own, "at": path}
        raise DataError(
            f"A {type(value).__name__} ({path}) cannot be stored.",
            found=type(value).__name__,
            remedy="Keep numbers, strings, arrays and dataclasses of these.",
        )

    def store_array(value: np.ndarray, path: str) -> Any:
        # What other libraries note on a type of numbers cannot be stored, and is not ours.
        arrays[path] = value if value.dtype.metadata is None else value.astype(value.dtype.str)
        return {_TAG: "array", "of": path, "at": path}

    def walk_shapes(value: np.ndarray, path: str) -> Any:
        if not all(isinstance(one, shapely.Geometry) for one in value.flat):
            raise DataError(f"An array of Python objects ({path}) cannot be stored.", found=path)
        return {_TAG: "shapes", "of": walk(shapely.GeometryCollection(list(value)), path), "at": path}

    return walk(value, ""), arrays


def unpack(facts: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Put together what `pack` took apart."""
    objects: dict[str, Any] = {}
    _classes()  # whose modules register bases, kernels and likelihoods

    def walk(facts: Any) -> Any:
        if isinstance(facts, list):
            return [walk(one) for one in facts]
        if not isinstance(facts, dict):
            return facts
        if _TAG not in facts:
            return {name: walk(one) for name, one in facts.items()}
        kind, content = facts[_TAG], facts["of"]
        if kind == "again":
            return objects[content]
        value = build(kind, content)
        if "at" in facts:
            objects[facts["at"]] = value
        return value

    def build(kind: str, content: Any) -> Any:
        if kind == "array":
            return arrays[content]
        if kind == "pairs":
            return dict(walk(content))
        if kind == "shapes":
            return np.array(shapely.get_parts(walk(content)), dtype=object)
        if kind in _CODECS:
            return _CODECS[kind].together(walk(content))
        return _made(kind, {name: walk(one) for name, one in content.items()})

    return walk(facts)


def _made(kind: str, values: dict[str, Any]) -> Any:
    """Return an object of a class that can be stored."""
    cls = _classes().get(kind)
    if cls is None:
        raise CacheError(f"This file holds a {kind!r}, which this version of geobgp does not know.", found=kind)
    known = {one.name for one in fields(cls) if _is_stored(one)}
    if more := sorted(set(values) - known):
        raise CacheError(f"The {kind} in this file has {more[0]!r}, which this version of geobgp does not know.")
    return cls(**values)


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


# -- Posteriors ----------------------------------------------------------------------------------------------


def save(posterior: Posterior, path: str | Path) -> Path:
    """Write a posterior; see `Posterior.save`."""
    return write(path, _KIND, record(posterior), posterior.provenance["source"])


def load(path: str | Path) -> Posterior:
    """Read a posterior; see `Posterior.load`."""
    return read(path, _KIND, restored)


def write(path: str | Path, kind: str, content: dict[str, Any], source: str) -> Path:
    """Write what `pack` can take apart, with what wrote it."""
    facts, arrays = pack(content)
    return store.write(path, kind, {"source": source, **facts}, arrays)


def record(posterior: Posterior) -> dict[str, Any]:
    """Return what a file holds of a posterior, for `restored`: no persons with confounders, no small numbers."""
    without_field = posterior._known_without_field() if posterior.design.blocks else None
    if posterior.protection:
        posterior = reduced(posterior)
    noted = posterior._known_variation() if "variation" in posterior.fit.notes else None
    if posterior.persons is not None and posterior.design.names:
        # With confounders they would be persons, and not numbers of them.
        posterior = replace(posterior, persons=None)
    return {"posterior": posterior, "variation": noted, "without_field": without_field}


def restored(content: dict[str, Any]) -> Posterior:
    """Return the posterior that a file holds."""
    posterior: Posterior = content["posterior"]
    _check(posterior)
    if (persons := posterior.persons) is not None:
        alike = Effects(columns=np.ones((len(persons.node), 1)))
        posterior = replace(posterior, persons=replace(persons, effects=alike))
    if content["variation"] is not None:
        posterior.fit.notes["variation"] = content["variation"]
    if content.get("without_field") is not None:
        posterior.fit.notes["means_without_field"] = content["without_field"]
    return posterior


def read(path: str | Path, kind: str, build: Callable[[dict[str, Any]], T]) -> T:
    """Return what a file holds, as a function makes it of what `unpack` gives; foreign files raise CacheError."""
    header, arrays = store.read(path, kind)
    source = header.pop("source", "another version of geobgp")
    try:
        return build(unpack(header, arrays))
    except (CacheError, DataError):
        raise
    except (KeyError, TypeError) as error:
        raise CacheError(
            f"{str(path)!r} was written by {source} and lacks {error} that this "
            "version needs. Load it with that version, or fit and save again."
        ) from error
    except Exception as error:  # an undamaged file of wrong content: whatever reads it has its own words
        raise CacheError(
            f"{str(path)!r} does not hold what it claims to: {error}",
            remedy="Take another copy, or fit and save again.",
        ) from error


def _check(posterior: Posterior) -> None:
    """Refuse states that do not fit the basis, and numbers that do not belong to the nodes."""
    n = posterior.domain.n_nodes
    fits: dict[str, bool] = {}
    for name in ("exposure", "observed", "effort"):
        amount = getattr(posterior, name)
        if amount is not None:
            fits[name] = n in amount.shape and bool(np.isfinite(amount).all() and (amount >= 0).all())
    for state in () if is_published(posterior) else posterior.fit.states:
        s: Any = state
        k = len(s.beta)
        columns = s.columns if hasattr(s, "columns") else s.fixed
        fits |= {
            "fixed effects": columns.shape[-2] == n and columns.shape[-1] <= k,
            "coefficients": s.beta.ndim == 1 and s.beta_cov.shape == (k, k),
            "offset": s.offset is None or s.offset.shape == (n,),
            "share": 0 < s.weight < np.inf,
            "hyperparameters": 0 < s.lengthscale < np.inf and 0 < s.sd < np.inf,
            "weights": _weights_fit(s, posterior.basis.m),
        }
    wrong = [name for name, right in fits.items() if not right]
    if wrong:
        raise CacheError(f"The {wrong[0]} of this file do not fit its domain.", found=wrong)


def _weights_fit(state: Any, m: int) -> bool:
    """Tell whether a state has a weight for each of m features or unknowns, and a factor of as many rows."""
    if hasattr(state, "z"):
        return len(state.z) == len(state.coupling) == m
    if hasattr(state, "chain"):
        return bool(m <= state.mean.shape[-1] == len(state.scale) == state.chain.inverses.shape[-1])
    blocks = [len(block) for block in state.chol.dense if block.shape == (len(block), len(block))]
    return sum(blocks) + len(state.chol.alone) == m == len(state.mean) == len(state.scale)
