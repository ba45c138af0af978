"""What the commands do: files in, a folder of results out."""

from __future__ import annotations

import json
import math
import shlex
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

import geobgp
from geobgp.auto.pipeline import Mapped, run
from geobgp.cli.wording import in_options
from geobgp.cli.workspace import RECORD, Workspace, reason
from geobgp.errors import DataError, GeobgpError, GeobgpWarning
from geobgp.files import check_exists
from geobgp.land.crs import as_crs
from geobgp.land.polygons import read_lines, read_polygons
from geobgp.progress import ConsoleProgress, Progress
from geobgp.text import count

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.checks.residuals import Checks
    from geobgp.land.domain import Domain

_REGION_SAMPLES = 500
_ABOUT = {
    "mean.tif": "posterior mean of the intensity",
    "sd.tif": "its standard deviation",
    "q05.tif": "5 % quantile: the intensity is above it with 95 % probability",
    "q50.tif": "median",
    "q95.tif": "95 % quantile",
    "coverage.tif": "share of each cell that is land",
    "map.html": "interactive map; opens in any browser, without network",
    "report.html": "this report",
    "regions.gpkg": "expected numbers by region, with intervals",
    "summary.json": "numbers and choices, for programs",
    "posterior.geobgp": "everything; geobgp.Posterior.load reads it",
}


# -- map


def map_files(options: Mapping[str, Any]) -> None:
    """Do what ``geobgp map`` does."""
    o = dict(options)
    thresholds = _thresholds(o["thresholds"])
    sources = {name: o.get(name) for name in ("points", "land", "water", "barriers", "exposure", "regions")}
    sources |= {f"covariate {name}": path for name, path in o["covariates"]}
    for what, path in sources.items():
        if path is not None:
            check_exists(path, what)
    progress = _progress(o)
    with Workspace(o["output"], force=o["force"]) as work, _warnings_to(progress) as said:
        polygons = _polygons(o)
        mapped = run(
            o["points"],
            polygons.pop("land"),
            **polygons,
            **{k: o[k] for k in ("cell_size", "crs", "boundary", "weights", "on_water", "max_snap", "hyper")},
            **{
                k: o[k]
                for k in ("longitude", "latitude", "easting", "northing", "layer", "points_crs", "title")
            },
            m=o["features"],
            keep_coordinates=o["show_points"],
            exposure=o["exposure"],
            exposure_column=o["exposure_column"],
            covariates=dict(o["covariates"]) or None,
            fill_missing="mean" if o["fill_missing"] else None,
            cache=not o["no_cache"],
            progress=progress,
        )
        try:
            _write(work.folder, mapped, o, thresholds, sources, progress, said)
            files = work.commit()
        except OSError as error:
            raise GeobgpError(
                f"Results cannot be written to {work.target}: {reason(error, work.folder)}"
            ) from error
    _closing(mapped, work.target, files, o, progress)


def _thresholds(values: Any) -> list[float]:
    for value in values:
        if not (math.isfinite(value) and value > 0):
            raise DataError(f"A threshold is a positive number, in the unit of the map; found {value!r}.")
    return sorted(set(values))


def _progress(options: Mapping[str, Any]) -> Progress:
    return Progress() if options.get("quiet") else ConsoleProgress(verbose=bool(options.get("verbose")))


def _polygons(o: Mapping[str, Any]) -> dict[str, Any]:
    """Return land, water and barriers: paths, or what they hold with the CRS that was given for them."""
    out = {name: o.get(name) for name in ("land", "water", "barriers")}
    if o.get("land_crs"):
        crs = as_crs(o["land_crs"], "land_crs")
        for name, path in out.items():
            if path is not None:
                read = read_lines if name == "barriers" else read_polygons
                series = read(path, name)[0]
                out[name] = series if series.crs is not None else series.set_crs(crs)
    return out


@contextmanager
def _warnings_to(progress: Progress) -> Iterator[list[str]]:
    """Show warnings of geobgp as one paragraph each, once, and keep them; hide those of libraries."""
    said: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", GeobgpWarning)

        def show(message: Any, category: Any, *_: Any, **__: Any) -> None:
            text = in_options(str(message))
            if text not in said:
                said.append(text)
                click.echo(f"Warning: {text}", err=True)

        warnings.showwarning = show
        yield said


def _write(
    folder: Path, mapped: Mapped, o: Mapping[str, Any], thresholds: list[float], sources: dict[str, Any],
    progress: Progress, said: list[str],
) -> None:  # fmt: skip
    from geobgp.report.report import ReportInputs, write_report

    posterior = mapped.posterior
    with progress.stage("rasters") as stage:
        made = posterior.to_raster(folder, thresholds)
        stage.note(f"{len(made)} files")
    with progress.stage("map") as stage:
        threshold = thresholds[0] if thresholds else None
        posterior.to_map(
            folder / "map.html",
            threshold=threshold,
            tiles=o["tiles"],
            show_points=o["show_points"],
            points=mapped.counts.coordinates,
        )
        stage.note(f"{(folder / 'map.html').stat().st_size / 1e6:.1f} MB")
    regions = None
    if o["regions"]:
        with progress.stage("regions") as stage:
            regions = _regions(mapped, o["regions"])
            regions.to_file(folder / "regions.gpkg", layer="regions", driver="GPKG")
            stage.note(count(len(regions), "region"))
    with progress.stage("checks") as stage:
        from geobgp.checks.residuals import check
        from geobgp.text import percent

        checks = check(posterior, mapped.counts.values)
        stage.note(f"{percent(checks.covered)} of {len(checks.blocks):,} blocks within their 90 % interval")
    with progress.stage("posterior") as stage:
        saved = posterior.save(folder / "posterior.geobgp")
        stage.note(f"{saved.stat().st_size / 1e6:.1f} MB")
    names = sorted({p.name for p in folder.iterdir()} | {"report.html", RECORD})
    command = _command(o)
    with progress.stage("report"):
        write_report(
            folder / "report.html",
            posterior,
            ReportInputs(
                sources=_inputs(sources),
                counts=mapped.counts,
                choices=mapped.choices,
                checks=checks,
                warnings=said,
                thresholds=thresholds,
                regions=regions,
                files={n: _about(n) for n in names if not n.endswith(".qml")},
                seconds=progress.seconds,
                command=command,
            ),
        )
    record = _record(mapped, checks, sources, names, said, progress, command)
    (folder / RECORD).write_text(
        json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n", "utf-8"
    )


def _regions(mapped: Mapped, path: str) -> gpd.GeoDataFrame:
    """Return totals of regions, with a name and the number observed; polygons of one name are one region."""
    import geopandas as gpd

    from geobgp.land.regions import area_shares, read_regions

    frame = read_regions(path, mapped.domain)
    words = [c for c in frame.columns if c != frame.geometry.name and not _is_number(frame[c])]
    named = next((c for c in words if "name" in str(c).lower()), words[0] if words else None)
    names = [f"region {k + 1}" for k in range(len(frame))] if named is None else frame[named].astype(str)
    frame = gpd.GeoDataFrame({"name": names}, geometry=frame.geometry.to_numpy(), crs=frame.crs)
    if frame["name"].duplicated().any():
        frame = frame.dissolve(by="name", sort=False).reset_index()
    totals = mapped.posterior.totals(frame, predicted=True, n_samples=_REGION_SAMPLES)
    totals["observed"] = area_shares(mapped.domain, frame) @ mapped.counts.values
    return totals


def _is_number(column: Any) -> bool:
    import pandas as pd

    return bool(pd.api.types.is_numeric_dtype(column))


def _about(name: str) -> str:
    if name.startswith("exceedance_"):
        return f"probability of more than {name.removeprefix('exceedance_').removesuffix('.tif')}"
    return _ABOUT.get(name, "")


def _inputs(sources: Mapping[str, Any]) -> dict[str, str]:
    """Return names of files without their folders: a report travels."""
    return {what.capitalize(): Path(str(path)).name for what, path in sources.items() if path is not None}


def _command(o: Mapping[str, Any]) -> str:
    """Return a command line that does the same, with names of files only."""
    words = ["geobgp", "map", Path(o["points"]).name]
    paths = ("land", "water", "barriers", "exposure", "regions")
    plain = (
        "cell_size", "crs", "land_crs", "exposure_column", "weights", "longitude", "latitude", "easting",
        "northing", "points_crs", "layer", "max_snap", "title", "tiles",
    )  # fmt: skip
    usual = {"features": "auto", "boundary": "auto", "hyper": "map", "on_water": "nearest"}
    for name in paths:
        words += [f"--{name}", Path(o[name]).name] if o.get(name) else []
    for name in plain:
        value = o.get(name)
        text = f"{value:g}" if isinstance(value, float) else str(value)
        words += [f"--{name.replace('_', '-')}", text] if value not in (None, "") else []
    for name, value in usual.items():
        words += [f"--{name.replace('_', '-')}", str(o[name])] if o[name] != value else []
    for name, path in o["covariates"]:
        words += ["--covariate", f"{name}={Path(path).name}"]
    for value in o["thresholds"]:
        words += ["--threshold", f"{value:g}"]
    words += [f"--{name.replace('_', '-')}" for name in ("fill_missing", "show_points") if o.get(name)]
    return shlex.join([*words, "-o", Path(o["output"]).name])


def _record(
    mapped: Mapped, checks: Checks, sources: dict[str, Any], names: list[str], said: list[str],
    progress: Progress, command: str,
) -> dict[str, Any]:  # fmt: skip
    posterior, counts = mapped.posterior, mapped.counts
    return _plain(
        {
            "geobgp": geobgp.__version__,
            "title": posterior.title,
            "created": posterior.created,
            "inputs": _inputs(sources),
            "points": {
                "read": counts.n_read, "used": counts.n_used, "moved": counts.n_snapped,
                "dropped": counts.n_dropped, "rows_without_point": counts.n_missing,
                "largest_move": counts.max_snap_distance, "total_weight": counts.total_weight,
            },
            "choices": {name: {"value": c.value, "why": c.why} for name, c in mapped.choices.items()},
            "summary": {k: v for k, v in posterior.summary().to_dict().items() if k != "choices"},
            "checks": {
                "blocks": len(checks.blocks), "block_side": checks.side, "within_90": checks.covered,
                "mean_squared_pearson": checks.dispersion, "fine": checks.verdict()[0],
                "empty_nodes_observed": checks.empty_observed, "empty_nodes_expected": checks.empty_expected,
            },
            "warnings": said,
            "seconds": progress.seconds,
            "files": names,
            "command": command,
        }
    )  # fmt: skip


def _plain(value: Any) -> Any:
    """Return what JSON can hold: no NaN, no arrays."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _closing(
    mapped: Mapped, target: Path, files: list[Path], o: Mapping[str, Any], progress: Progress
) -> None:
    if o.get("quiet"):
        return
    size = sum(f.stat().st_size for f in files) / 1e6
    progress.line(f"{sum(progress.seconds.values()):.1f} s in all")
    click.echo(f"{len(files)} files ({size:,.1f} MB) in {target}")
    click.echo(f"Open {target / 'map.html'} in a browser and {target / 'mean.tif'} in QGIS.")
    click.echo(f"How the map was made: {target / 'report.html'}")


# -- demo


def demo(options: Mapping[str, Any]) -> None:
    """Do what ``geobgp demo`` does: `map_files` on the sample data."""
    data = Path(geobgp.__file__).resolve().parent.parent / "sample_data"
    needed = {
        "points": "tick_bites_simulated.gpkg", "land": "netherlands_land.gpkg",
        "water": "netherlands_water.gpkg", "regions": "netherlands_provinces.gpkg",
    }  # fmt: skip
    missing = [name for name in needed.values() if not (data / name).is_file()]
    if missing:
        raise GeobgpError(
            f"The sample data are not here: {data / missing[0]} does not exist. They come with the source of "
            "geobgp, not with the installed package: take a copy of the repository, run `pip install -e .` "
            "in it, and then `geobgp demo`; or map your own data with `geobgp map`."
        )
    nothing: dict[str, Any] = dict.fromkeys(
        ("barriers", "exposure", "exposure_column", "cell_size", "crs", "land_crs", "points_crs", "weights",
         "longitude", "latitude", "easting", "northing", "layer", "max_snap", "tiles")
    )  # fmt: skip
    chosen: dict[str, Any] = {
        "covariates": (), "thresholds": (0.2,), "features": "auto", "boundary": "auto", "hyper": "map",
        "on_water": "nearest", "title": "Tick bites in the Netherlands (simulated)", "show_points": False,
        "fill_missing": False,
    }  # fmt: skip
    map_files({**nothing, **chosen, **options, **{k: str(data / v) for k, v in needed.items()}})


# -- simulate


def simulate(options: Mapping[str, Any]) -> None:
    """Do what ``geobgp simulate`` does."""
    o = dict(options)
    if (o["posterior"] is None) == (o["land"] is None):
        raise click.UsageError("Give either --posterior, or --land with --intensity.")
    if o["land"] is not None and o["intensity"] is None:
        raise click.UsageError("--land needs --intensity: a number of events per km², or a raster.")
    target = Path(o["output"])
    if target.exists() and not o["force"]:
        raise GeobgpError(
            f"{target} exists. Nothing is overwritten without --force; or choose another file with -o."
        )
    if target.suffix.lower() not in (".gpkg", ".geojson", ".parquet", ".csv"):
        raise DataError(f"{target.name}: points are written as .gpkg, .geojson, .parquet or .csv.")
    progress = _progress(o)
    from geobgp.simulate import simulate_points

    with _warnings_to(progress):
        with progress.stage("land") as stage:
            domain, intensity = _simulated(o)
            stage.note(f"{domain.n_nodes:,} nodes")
        with progress.stage("points") as stage:
            points = simulate_points(domain, intensity, o["seed"])
            stage.note(f"{len(points):,}")
        _write_points(points, target)
    if not o["quiet"]:
        click.echo(f"{len(points):,} points in {target}")


def _simulated(o: Mapping[str, Any]) -> tuple[Domain, Any]:
    """Return the domain and the intensity to simulate from."""
    from geobgp.auto.choices import cell_size_for
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior

    if o["posterior"] is not None:
        posterior = Posterior.load(o["posterior"])
        expected = posterior.node_intensity()["mean"].to_numpy() * posterior.exposure
        return posterior.domain, expected / (posterior.domain.node_areas / posterior.domain.area_unit[0])
    polygons = _polygons(o)
    size = o["cell_size"]
    if size is None:
        import shapely

        from geobgp.land.polygons import land_polygons

        prepared = land_polygons(polygons["land"], polygons["water"], polygons["barriers"], o["crs"])
        size = cell_size_for(float(shapely.area(prepared.geometry)), None, prepared.crs)[0]
    domain = Domain.from_polygons(
        polygons["land"], water=polygons["water"], barriers=polygons["barriers"], cell_size=size, crs=o["crs"]
    )
    try:
        return domain, float(o["intensity"])
    except ValueError:
        pass
    from geobgp.data.raster_in import read_to_nodes

    check_exists(o["intensity"], "intensity")
    values = read_to_nodes(o["intensity"], domain, "mean")
    missing = int(np.isnan(values).sum())
    if missing:
        raise DataError(
            f"intensity: {o['intensity']} has no value at {missing:,} of {len(values):,} nodes of the land."
        )
    return domain, values


def _write_points(points: gpd.GeoDataFrame, target: Path) -> None:
    """Write points to a file that appears only when it is whole."""
    import tempfile

    kind = target.suffix.lower()
    try:
        with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".geobgp-") as folder:
            temporary = Path(folder) / target.name
            if kind == ".parquet":
                points.to_parquet(temporary)
            elif kind == ".csv":
                shown = points if points.crs is None else points.to_crs(4326)
                names = ("easting", "northing") if points.crs is None else ("longitude", "latitude")
                coords = np.column_stack([shown.geometry.x, shown.geometry.y])
                np.savetxt(temporary, coords, "%.8f", ",", header=",".join(names), comments="")
            elif kind == ".geojson" and points.crs is not None:
                points.to_crs(4326).to_file(temporary, driver="GeoJSON")
            else:
                points.to_file(temporary, driver="GeoJSON" if kind == ".geojson" else "GPKG")
            temporary.replace(target)
    except OSError as error:
        raise GeobgpError(f"{target} cannot be written: {reason(error, target.absolute().parent)}") from error
