"""Options of `map_strata`: those of `map_intensity`, and its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from geobgp.auto.options import Options, setting, settings
from geobgp.errors import DataError, option

#: Options of one map that many maps on one basis cannot have.
_NOT_HERE = ("areas", "count", "suppressed", "time", "every", "between", "date_format")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class StrataOptions(Options):
    """What a run of `map_strata` is told; see there."""

    by: Sequence[str] = setting(
        "A column of the points: one map for each of its values; may be repeated.",
        "Data",
        "columns",
        default=(),
        metavar="COLUMN",
    )
    pool: bool = setting(
        "Let strata with few points borrow lengthscale and sd from the others.",
        "Model",
        "flag",
        default=False,
    )
    client: Any = setting(
        "Address of a Dask scheduler whose workers count points and fit strata.",
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

    def __post_init__(self) -> None:
        if isinstance(self.by, str):
            object.__setattr__(self, "by", (self.by,))
        super().__post_init__()
        if self.n_jobs is not None:
            object.__setattr__(self, "n_jobs", int(self.n_jobs))
        if not self.by:
            raise DataError(
                "Which column of the points makes the strata?",
                option="by",
                remedy=f"Name it with {option('by')}.",
            )
        for name in _NOT_HERE:
            if getattr(self, name) is not None:
                raise DataError(
                    f"{option(name)} does not go with strata.", option=name, remedy="Leave it out."
                )
        from geobgp.data.period_inputs import check_one

        for name, value in (("exposure", self.exposure), *(("covariates", v) for v in self._covariates())):
            check_one(name, value, "a map by stratum", "Give one for all: strata are not mapped over time.")
        if self.weights is not None and not isinstance(self.weights, str):
            raise DataError(
                f"{option('weights')} of strata are a column of the points.",
                option="weights",
                found=type(self.weights).__name__,
            )

    def _covariates(self) -> list[Any]:
        return list((self.covariates or {}).values())

    def of_everything(self) -> Options:
        """Return the options of the map of all strata together."""
        told: dict[str, Any] = {f.name: getattr(self, f.name) for f in dataclasses.fields(Options)}
        return Options(**(told | {"hyper": "map", "min_count": 0, "protect": "hide", "min_people": 0.0}))


def strata_names() -> list[str]:
    """Return the names of the options that strata have, of those that all maps can have."""
    return [name for name in settings(StrataOptions) if name not in _NOT_HERE] + [
        "regions",
        "output",
        "force",
    ]
