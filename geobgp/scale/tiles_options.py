"""Options of `map_tiles`: those of `map_intensity` that it shares, and its own."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, Literal

from geobgp.auto.options import Options, OptionSet, setting
from geobgp.errors import DataError, option
from geobgp.units import check_units

#: Width of halos in lengthscales; and where land may be empty, through which information comes from farther away.
HALO, HALO_WITH_VOIDS = 3.0, 4.0


def like(name: str) -> Any:
    """Return the field of an option that `map_intensity` has too."""
    own = Options.__dataclass_fields__[name]
    return field(default=own.default, metadata=own.metadata)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TilesOptions(OptionSet):
    """What a run of `map_tiles` is told; see there."""

    points: Any = setting("The points.", kind="file", default=MISSING)
    land: Any = setting("Polygons of the land.", kind="file", default=MISSING)
    output: Any = setting(
        "Folder to write, or to go on with.", "Results", "folder", default=MISSING, short="-o"
    )
    cell_size: float | None = like("cell_size")
    tile_nodes: int = setting(
        "Cells of land of a tile, at most, its halo not counted.",
        "Model",
        "number",
        default=50_000,
        least=100,
    )
    halo: float | None = setting(
        "Width of the halo around a tile, in lengthscales; by default 3, and 4 with exposure or effort.",
        "Model",
        "number",
        metavar="N",
        least=3.0,
    )
    water: Any = like("water")
    barriers: Any = like("barriers")
    exposure: Any = like("exposure")
    exposure_column: str | None = like("exposure_column")
    effort: Any = like("effort")
    effort_column: str | None = like("effort_column")
    covariates: Any = like("covariates")
    fill_missing: Literal["mean"] | None = like("fill_missing")
    crs: Any = like("crs")
    land_crs: Any = like("land_crs")
    min_coverage: float = like("min_coverage")
    longitude: str | None = like("longitude")
    latitude: str | None = like("latitude")
    easting: str | None = like("easting")
    northing: str | None = like("northing")
    points_crs: Any = like("points_crs")
    layer: str | None = like("layer")
    max_snap: float | None = like("max_snap")
    permeability: float | Literal["auto"] = like("permeability")
    units: str | None = like("units")
    title: str = like("title")
    min_count: int | str = setting(default=0, group="Results", kind="small numbers")
    interval: float = like("interval")
    client: Any = setting(
        "Address of a Dask scheduler whose workers count points and fit tiles.",
        "Model",
        "client",
        flag="--scheduler",
        metavar="ADDRESS",
        matters=False,
    )
    n_jobs: int | None = setting(
        "Processes to use where there is no scheduler; one for each core by default.",
        "Model",
        "number",
        flag="--jobs",
        least=1,
        matters=False,
    )

    @property
    def wide(self) -> float:
        """Width of the halo in lengthscales: more where exposure or effort may leave land without any information."""
        if self.halo is not None:
            return self.halo
        return HALO if self.exposure is None and self.effort is None else HALO_WITH_VOIDS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_jobs is not None:
            object.__setattr__(self, "n_jobs", int(self.n_jobs))
        if self.min_count:
            raise DataError(
                "Small numbers are not hidden on maps by tile: where tiles are blended, no fit knows on how many "
                "events a cell rests.",
                option="min_count",
                found=self.min_count,
                remedy="Map a smaller land, or larger cells, with map_intensity.",
            )
        if self.cell_size is None:
            raise DataError(
                "How wide are the cells?", option="cell_size", remedy=f"Give {option('cell_size')} in metres."
            )
        if hasattr(self.covariates, "columns"):  # a table: its columns by name
            from geobgp.data.effects import named_covariates

            object.__setattr__(self, "covariates", named_covariates(self.covariates))
        for name in ("exposure", "effort"):
            by_parts(name, getattr(self, name))
        known = {name: by_parts("covariates", value) for name, value in (self.covariates or {}).items()}
        object.__setattr__(self, "covariates", known or None)
        check_units(self.units, self.exposure is not None)


def by_parts(name: str, value: Any) -> Any:
    """Return a source of which every tile can read its part; refuse any other.

    Parameters
    ----------
    name : str
        The option that it is of.
    value : path, GeoDataFrame, or Categorical of a path
    """
    levels = getattr(value, "source", None)
    if isinstance(levels, str | Path):
        return f"{levels}|levels"
    if value is None or isinstance(value, str | Path):
        return value
    if hasattr(value, "columns") and hasattr(value, "geometry"):
        return value
    if isinstance(value, list | tuple):
        from geobgp.data.period_inputs import check_one

        check_one(name, value, "a map by tile", "Give one for all: tiles are not mapped over time.")
    if hasattr(value, "dims"):
        found, remedy = "an array in memory", 'Write it to a file: array.rio.to_raster("raster.tif").'
    elif callable(value):
        found, remedy = "a function", "Write its values to a raster."
    else:
        found = f"a {type(value).__name__}, whose numbers would belong to the nodes of one domain"
        remedy = "Give the path of a raster, or polygons."
    raise DataError(
        f"{option(name)}: every tile reads its own part of a raster file or of polygons; found {found}.",
        option=name,
        found=type(value).__name__,
        remedy=remedy,
    )
