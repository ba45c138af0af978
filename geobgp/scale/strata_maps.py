"""The maps of strata: a mapping of names to posteriors, their table, totals, rasters and page."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from geobgp.errors import DataError
from geobgp.files import replacing
from geobgp.land.regions import read_regions
from geobgp.privacy import hide_rows
from geobgp.scale.packing import Packed
from geobgp.scale.workers import Failed, open_workers
from geobgp.text import count, listed

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.data.strata_counts import StrataCounts
    from geobgp.posterior import Posterior
    from geobgp.prior.kernels import NormalPrior


@dataclass(frozen=True, eq=False)
class Strata(Mapping[str, "Posterior"]):
    """What `map_strata` has made: a mapping of the strata's names to their posteriors, which share one basis.

    Attributes
    ----------
    counts : StrataCounts
        What became of the points, by name; ``counts.labels`` has the values of the columns.
    everything : Posterior
        The map of all points together, which chose cells, water and basis.
    failures : dict of str to str
        Why strata could not be mapped, by name.
    warnings : dict of str to tuple of str
        What each fit warned of, by name.
    prior : NormalPrior or None
        The prior that pooled strata share.
    """

    _posteriors: dict[str, Posterior] = field(repr=False)
    counts: StrataCounts = field(repr=False)
    everything: Posterior
    failures: dict[str, str]
    warnings: dict[str, tuple[str, ...]] = field(repr=False)
    prior: NormalPrior | None = None

    def __getitem__(self, name: str) -> Posterior:
        return self._posteriors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._posteriors)

    def __len__(self) -> int:
        return len(self._posteriors)

    def __repr__(self) -> str:
        failed = f", {len(self.failures):,} failed ({listed(self.failures, 3)})" if self.failures else ""
        return (
            f"Strata({count(len(self), 'map')} by {listed(self.counts.by)}, {self.everything.domain.n_nodes:,} "
            f"nodes, {self.everything.basis.label}{', pooled' if self.prior is not None else ''}{failed})"
        )

    def table(self) -> pd.DataFrame:
        """Return a row for each stratum: its labels, points, hyperparameters, bound, and what is to be said of it."""
        scale, unit = self.everything.domain.length_unit
        rows = {}
        for name, posterior in self.items():
            rows[name] = {
                **self.counts.labels.loc[name].to_dict(),
                "points": posterior.n_points,
                "dropped": self.counts[name].n_dropped,
                f"lengthscale_{unit}": posterior.lengthscale / scale,
                "sd": posterior.sd,
                "elbo": posterior.elbo,
                "converged": posterior.converged,
                "remarks": " ".join(self.warnings.get(name, ())),
            }
        for name, reason in self.failures.items():
            row = {**self.counts.labels.loc[name].to_dict(), "points": self.counts[name].n_used}
            rows[name] = row | {"dropped": self.counts[name].n_dropped, "remarks": reason}
        order = [name for name in self.counts if name in rows]
        table = pd.DataFrame([rows[name] for name in order], index=pd.Index(order, name="stratum"))
        named = hide_rows(table.rename(columns={"points": "observed"}), self.everything, ["observed"])
        return named.rename(columns={"observed": "points"})

    def totals(
        self,
        regions: Any = None,
        *,
        client: Any = None,
        n_jobs: int | None = 1,
        step: Callable[[int, int], Any] | None = None,
        **how: Any,
    ) -> gpd.GeoDataFrame:
        """Return the expected number of events of each stratum in regions, with intervals.

        Parameters
        ----------
        regions : GeoDataFrame, GeoSeries, geometry, list of geometries or path, optional
            As for `Posterior.totals`; by default the whole land.
        client, n_jobs
            Who does it, as for `map_strata`; this process by default.
        step : callable(done, all), optional
            Told of the progress.
        **how
            As for `Posterior.totals`.

        Returns
        -------
        GeoDataFrame
            A row for each stratum and region: ``stratum``, the columns that made it, and those of `Posterior.totals`.
        """
        if how.get("points") is not None:
            raise DataError(
                "Which points are of which stratum is not told by points.",
                option="points",
                remedy="Ask one stratum at a time: strata[name].totals(regions, points=...).",
            )
        frame = read_regions(regions, self.everything.domain)
        tables: dict[int, Any] = {}
        names = list(self)
        with open_workers(client, n_jobs) as workers:
            shared = workers.share(replace(self.everything, tried=())), workers.share((frame, how))
            items = [Packed.of(self[name]) for name in names]
            for k, table in workers.run(_totals, items, *shared):
                if isinstance(table, Failed):
                    raise table.error
                values = {"stratum": names[k], **self.counts.labels.loc[names[k]].to_dict()}
                for place, (column, value) in enumerate(values.items()):
                    table.insert(place, column if column not in table else f"stratum_{column}", value)
                tables[k] = table
                if step is not None:
                    step(len(tables), len(names))
        out: gpd.GeoDataFrame = pd.concat([tables[k] for k in range(len(names))], ignore_index=True)
        return out

    def to_totals(self, path: str | Path, regions: Any = None, **how: Any) -> Path:
        """Write `totals` to a GeoPackage (``.gpkg``) or, without geometries, to a CSV file."""
        return self.write_totals(self.totals(regions, **how), path)

    @staticmethod
    def write_totals(table: gpd.GeoDataFrame, path: str | Path) -> Path:
        """Write a table of totals, as `to_totals` does."""
        path = Path(path)
        if path.suffix.lower() not in (".gpkg", ".csv"):
            raise DataError(
                f"Totals are written as .gpkg or .csv; found {path.name!r}.", option="path", found=str(path)
            )
        with replacing(path) as temporary:
            if path.suffix.lower() == ".gpkg":
                table.to_file(temporary, layer="totals", driver="GPKG")
            else:
                pd.DataFrame(table.drop(columns=table.geometry.name)).to_csv(temporary, index=False)
        return path

    def file_names(self) -> dict[str, str]:
        """Return a name for the files of each stratum that is safe everywhere, and no other's."""
        return safe_names(list(self))

    def to_raster(self, folder: str | Path, step: Callable[[int, int], Any] | None = None) -> dict[str, Path]:
        """Write a GeoTIFF of each stratum into a folder, all statistics as its bands; return where, by name."""
        written: dict[str, Path] = {}
        for name, path in self.raster_paths(folder).items():
            written[name] = self[name].to_raster(path)[0]
            if step is not None:
                step(len(written), len(self))
        return written

    def raster_paths(self, folder: str | Path) -> dict[str, Path]:
        """Return where the GeoTIFF of each stratum is written, by name."""
        return {name: Path(folder) / f"map-{stem}.tif" for name, stem in self.file_names().items()}

    def to_index(self, path: str | Path, *, title: str = "") -> Path:
        """Write a page of small maps of all strata under one legend; it opens in any browser, without network."""
        from geobgp.scale.strata_page import write_page

        return write_page(self, path, title=title)


def _totals(item: Packed, everything: Posterior, asked: tuple[Any, dict[str, Any]]) -> gpd.GeoDataFrame:
    """Return the totals of one stratum, wherever this is."""
    frame, how = asked
    return item.on(everything).totals(frame, **how)


def safe_names(names: list[str]) -> dict[str, str]:
    """Return file names without an ending, of letters, digits and dashes, all different in any case.

    Examples
    --------
    >>> safe_names(["Lyme disease", "../etc", "lyme/disease", "ÄÖ", ""])
    {'Lyme disease': 'lyme-disease', '../etc': 'etc', 'lyme/disease': 'lyme-disease-2', 'ÄÖ': 'ao', '': 'stratum'}
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        stem = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60] or "stratum"
        other, k = stem, 2
        while other in taken:
            other, k = f"{stem}-{k}", k + 1
        taken.add(other)
        found[name] = other
    return found
