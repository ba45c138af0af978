"""Sources of tiles: exposure, effort and covariates read on the map of everything, checked, and cut for each tile."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely

from geobgp.data.effects import Effects, Term, covariate_columns, covariates_of, fixed_effects
from geobgp.data.effort import node_effort, share_column
from geobgp.data.exposure import node_exposure, population_column
from geobgp.data.levels import split_use
from geobgp.data.raster_in import blocks_on_land
from geobgp.data.raster_source import open_raster, split_band
from geobgp.errors import DataError, GeobgpWarning, hearing, option, warn
from geobgp.files import kind_of, read_vector
from geobgp.land.regions import dry_areas
from geobgp.scale.tile_inputs import VALUE, Inputs, Source
from geobgp.units import RELATIVE_RISK, RISKS, Units

if TYPE_CHECKING:
    from geobgp.land.domain import Domain
    from geobgp.scale.tiles_options import TilesOptions
    from geobgp.scale.tiling import Frame, Tile

#: Bytes of a file that are hashed at a time.
_CHUNK = 1 << 22
#: Files beside a raster that say nothing of its values: statistics and overviews, which viewers write.
_BESIDE = (".aux.xml", ".ovr")


@dataclass(frozen=True, eq=False)
class Areas:
    """Polygons of a source, on the plane of the land.

    Attributes
    ----------
    geometries : (k,) array of polygons
    values : (k,) array
    dry : (k,) array or None
        Area of each without water, over which amounts are spread; None for values that hold everywhere.
    """

    geometries: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)
    dry: np.ndarray | None = field(repr=False)

    @classmethod
    def of(cls, frame: gpd.GeoDataFrame, column: str, domain: Domain, what: str, *, spread: bool) -> Areas:
        """Return the polygons of a table; amounts are to be spread over their land."""
        geometries, dry = dry_areas(domain, frame, what)
        return cls(geometries, frame[column].to_numpy(), dry if spread else None)

    def within(self, box: shapely.Polygon, crs: Any) -> gpd.GeoDataFrame:
        """Return what lies in a box; of amounts the share of each polygon's land that does."""
        near = shapely.STRtree(self.geometries).query(box, predicate="intersects")
        cut = shapely.intersection(self.geometries[near], box)
        area = shapely.area(cut)
        keep = (area > 0) & ~np.asarray(pd.isna(self.values[near]), bool)
        near, cut, area = near[keep], cut[keep], area[keep]
        values = self.values[near]
        if self.dry is not None:
            dry = self.dry[near]
            values = values * np.divide(area, dry, out=np.zeros(len(dry)), where=dry > 0)
        return gpd.GeoDataFrame({VALUE: values}, geometry=cut, crs=crs)

    def digest(self) -> bytes:
        """Return a hash of all that they say."""
        found = hashlib.blake2b(digest_size=16)
        for shape in shapely.to_wkb(self.geometries):
            found.update(shape)
        found.update(repr(self.values.tolist()).encode())
        found.update(b"" if self.dry is None else self.dry.tobytes())
        return found.digest()


@dataclass(frozen=True, eq=False)
class TileSources:
    """What was given besides points and land.

    Attributes
    ----------
    inputs : Inputs
        As tiles read it.
    areas : dict of str to Areas
        Those sources that are polygons, by their keys.
    units : Units
        What the mosaic is in.
    domain : Domain
        The cells of the map of everything.
    exposure : (n_nodes,) array or None
        On these cells.
    effort : (n_nodes,) array or None
    covariates : dict of str to (n_nodes,) array or Categorical
        In their own units, or as shares of levels.
    """

    inputs: Inputs
    areas: dict[str, Areas]
    units: Units
    domain: Domain = field(repr=False)
    exposure: np.ndarray | None = field(repr=False)
    effort: np.ndarray | None = field(repr=False)
    covariates: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, o: TilesOptions, domain: Domain) -> TileSources:
        """Read all sources on the cells of the map of everything; what is wrong with them is said here."""
        heard: list[GeobgpWarning] = []
        with hearing(heard.append):
            made = cls._read(o, domain)
        for warning in heard:
            # How many nodes have no value is told when those of the tiles are known.
            if not (
                warning.option in ("exposure", "effort", "covariates") and isinstance(warning.found, int)
            ):
                warn(warning)
        return made

    @classmethod
    def _read(cls, o: TilesOptions, domain: Domain) -> TileSources:
        areas: dict[str, Areas] = {}
        exposure, kind, per = None, "area", None
        given = _polygons(o.exposure, "exposure")
        if given is not None:
            exposure, kind = node_exposure(given, domain, o.exposure_column)
            per = Source("exposure", "exposure", _raster(given))
            if per.path is None:
                column = population_column(given, o.exposure_column)
                areas[per.key] = Areas.of(given, column, domain, "areas of the exposure", spread=True)
        units = _units(o.units or "", kind, domain)
        given = _polygons(o.effort, "effort")
        effort, seen = node_effort(given, domain, o.effort_column), None
        if effort is not None:
            seen = Source("effort", "effort", _raster(given), usual=(_mean(effort, domain),))
            if seen.path is None:
                column = share_column(given, o.effort_column)
                areas[seen.key] = Areas.of(given, column, domain, "effort", spread=False)
        values: dict[Term, np.ndarray] = {}
        sources: list[Source] = []
        for name, value in (o.covariates or {}).items():
            found = covariate_columns(name, value, domain, o.fill_missing)
            levels = tuple(str(term.level) for term in found if term.level is not None)
            usual = tuple(_mean(column, domain) for column in found.values())
            source = Source("covariates", name, _raster(split_use(value)[0]), levels, usual)
            if source.path is None:
                column = next(c for c in value.columns if c != value.geometry.name)
                areas[source.key] = Areas.of(value, column, domain, "covariates", spread=False)
            values |= found
            sources.append(source)
        given = covariates_of(values)
        effects = fixed_effects(given, domain)
        bare = Effects(effects.terms, effects.means, effects.scales)
        inputs = Inputs(per, seen, tuple(sources), bare, o.fill_missing)
        digest = _digest(inputs, areas, domain) if inputs.sources else ""
        return cls(replace(inputs, digest=digest), areas, units, domain, exposure, effort, given)

    @property
    def model(self) -> dict[str, Any]:
        """What the model of the map of everything is told of them."""
        return {"exposure": self.exposure, "effort": self.effort, "covariates": self.covariates or None}

    def shapes(self, tile: Tile, frame: Frame) -> dict[str, gpd.GeoDataFrame]:
        """Return the polygons within a tile, by the keys of their sources."""
        box = frame.polygon(tile.outer)
        return {key: areas.within(box, self.domain.crs) for key, areas in self.areas.items()}


def _polygons(value: Any, what: str) -> Any:
    """Return a source, with a file of polygons read."""
    if isinstance(value, str | Path) and kind_of(value) in ("vector", "parquet"):
        return read_vector(value, what)
    return value


def _raster(value: Any) -> str | None:
    """Return the path of a raster, from wherever it is read; None for polygons."""
    if not isinstance(value, str | Path):
        return None
    path, band = split_band(value)
    path = str(Path(path).resolve()) if Path(path).exists() else path
    return path if band is None else f"{path}|band={band}"


def _mean(values: np.ndarray, domain: Domain) -> float:
    return float(np.average(values, weights=domain.node_areas))


def _units(asked: str, kind: str, domain: Domain) -> Units:
    if asked.strip().lower() == RELATIVE_RISK and kind not in RISKS:
        raise DataError(
            f"{option('units', asked)} is the ratio to the average of all land, which no tile knows.",
            option="units",
            found=asked,
            remedy="Say 'per 100,000', or give expected numbers of events as polygons with a column 'expected'.",
        )
    return Units.of(asked, kind, domain.area_unit)


def _digest(inputs: Inputs, areas: Mapping[str, Areas], domain: Domain) -> str:
    """Return a hash of all that sources hold; where they lie does not matter."""
    found = hashlib.blake2b(digest_size=12)
    found.update(repr(inputs.fill_missing).encode())
    for source in inputs.sources:
        found.update(repr((source.key, source.levels)).encode())
        own = areas[source.key].digest() if source.path is None else _raster_digest(source.path, domain)
        found.update(own)
    return found.hexdigest()


def _raster_digest(path: str, domain: Domain) -> bytes:
    """Return a hash of a raster: of its files where they are at hand, else of its values around the land."""
    import rasterio

    found = hashlib.blake2b(digest_size=16)
    file, band = split_band(path)
    with rasterio.open(file) as opened:
        files = sorted(Path(name) for name in opened.files if not name.endswith(_BESIDE))
        facts = (
            opened.shape,
            tuple(opened.transform),
            opened.nodatavals,
            opened.scales,
            opened.offsets,
            band,
        )
        found.update(repr(facts).encode() + (b"" if opened.crs is None else opened.crs.to_wkt().encode()))
    if files and all(one.is_file() for one in files):
        for one in files:
            with one.open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    found.update(chunk)
        return found.digest()
    with open_raster(path, None, None) as raster:
        for values in blocks_on_land(raster, domain):
            found.update(np.ascontiguousarray(values).tobytes())
    return found.digest()
