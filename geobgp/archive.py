"""Posteriors as files: what is needed to rebuild domain, basis and states exactly, and the way back."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyproj
import shapely
from affine import Affine

from geobgp.domain import Domain
from geobgp.errors import CacheError
from geobgp.grid import Grid

if TYPE_CHECKING:
    import xarray as xr


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


def write_netcdf(data: xr.Dataset, path: Path) -> Path:
    """Write a dataset to a netCDF file that appears only when it is whole."""
    if not path.parent.is_dir():
        raise CacheError(
            f"There is no directory {str(path.parent)!r} to write {path.name!r} in. Make it first."
        )
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        data.to_netcdf(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path
