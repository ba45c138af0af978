"""Options of `map_risk`: those of `map_intensity` that it shares, and its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from geobgp.auto.options import Options, OptionSet, setting

if TYPE_CHECKING:
    from geobgp.prior.kernels import Kernel


def _like(name: str) -> Any:
    """Return the field of an option that `map_intensity` has too."""
    own = Options.__dataclass_fields__[name]
    return field(default=own.default, metadata=own.metadata)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RiskOptions(OptionSet):
    """What a run of `map_risk` is told; see there."""

    cases: Any = setting("The persons who fell ill.", kind="file", default=MISSING)
    controls: Any = setting("Some who did not.", kind="file", default=MISSING)
    land: Any = setting("Polygons of the land.", kind="file", default=MISSING)
    confounders: Sequence[str] = setting(
        "A column of both tables to allow for, a number or levels; may be repeated.",
        "Rates and covariates",
        "columns",
        default=(),
        flag="--confounder",
        metavar="COLUMN",
    )
    water: Any = _like("water")
    barriers: Any = _like("barriers")
    bridges: Any = _like("bridges")
    cell_size: float | None = _like("cell_size")
    crs: Any = _like("crs")
    land_crs: Any = _like("land_crs")
    min_coverage: float = _like("min_coverage")
    longitude: str | None = _like("longitude")
    latitude: str | None = _like("latitude")
    easting: str | None = _like("easting")
    northing: str | None = _like("northing")
    points_crs: Any = _like("points_crs")
    on_water: Literal["nearest", "drop", "error"] = _like("on_water")
    max_snap: float | None = _like("max_snap")
    permeability: float | Literal["auto"] = _like("permeability")
    kernel: Kernel | None = _like("kernel")
    hyper: Literal["map", "integrate"] = _like("hyper")
    max_seconds: float = _like("max_seconds")
    title: str = _like("title")
    interval: float = _like("interval")
    min_count: int | str = _like("min_count")
    protect: Literal["hide", "smooth"] = _like("protect")

    def __post_init__(self) -> None:
        if isinstance(self.confounders, str):
            object.__setattr__(self, "confounders", (self.confounders,))
        super().__post_init__()
