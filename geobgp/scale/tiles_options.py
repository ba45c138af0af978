"""Options of `map_tiles`: those of `map_intensity` that it shares, and its own."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from typing import Any, Literal

from geobgp.auto.options import Options, OptionSet, setting
from geobgp.errors import DataError, option


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
    halo: float = setting(
        "Width of the halo around a tile, in lengthscales.",
        "Model",
        "number",
        default=3.0,
        metavar="N",
        least=3.0,
    )
    water: Any = like("water")
    barriers: Any = like("barriers")
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
    title: str = like("title")
    client: Any = like("client")
    n_jobs: int | None = setting(
        "Processes to use where there is no scheduler; one for each core by default.",
        "Model",
        "number",
        flag="--jobs",
        least=1,
        matters=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_jobs is not None:
            object.__setattr__(self, "n_jobs", int(self.n_jobs))
        if self.cell_size is None:
            raise DataError(
                "How wide are the cells?", option="cell_size", remedy=f"Give {option('cell_size')} in metres."
            )
