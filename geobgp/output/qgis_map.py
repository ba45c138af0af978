"""A posterior as a QGIS project: rasters, regions of exceedance, regions with labels and the shore, in one folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import shapely

from geobgp.errors import DataError
from geobgp.files import replacing
from geobgp.output import palette
from geobgp.output.contours import cell_patches, node_polygons, polygonal, to_polygons
from geobgp.output.grids import hatched_cells, hatched_land
from geobgp.output.qgis import Fill, polygon_qml
from geobgp.output.qgis_project import Group, ProjectLayer, Span, moment, write_project
from geobgp.privacy import hidden_nodes, legend
from geobgp.text import number, percent

if TYPE_CHECKING:
    import geopandas as gpd
    import pyproj

    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior

#: The land where a threshold is exceeded with more than these probabilities.
PROBABILITIES = (0.5, 0.8, 0.95)
#: The file with polygons beside a project.
POLYGONS = "map.gpkg"
_LINES = polygon_qml([Fill("#33434b", colour="#33434b", hatched=True)])
_SHORE = polygon_qml([Fill("#4d4d4d", 0.2)])
_HIDDEN = polygon_qml([Fill("#bdbdbd", 0.1, "#d9d9d9")])


class Dated(NamedTuple):
    """A raster of a period: its file, when the period begins, when the next one does, and what it is called."""

    path: Any
    start: Any
    end: Any
    label: str = ""


def write_qgis(
    posterior: Posterior,
    path: Path,
    rasters: Sequence[Path],
    *,
    thresholds: Sequence[float] = (),
    regions: gpd.GeoDataFrame | None = None,
) -> Path:
    """Write a project that shows what was written of a posterior, and polygons for it beside.

    Parameters
    ----------
    posterior : Posterior
    path : path
        Ends in ``.qgz``.
    rasters : sequence of path
        In the same folder, with styles beside; the first one is visible.
    thresholds : sequence of float
        The land that probably exceeds each becomes a layer.
    regions : GeoDataFrame, optional
        What ``regions.gpkg``, in the same folder, holds.
    """
    domain, folder = posterior.domain, Path(path).parent
    above = {f"exceedance_{t:g}": exceedance_regions(posterior, float(t)) for t in sorted(set(thresholds))}
    hatched, hidden = _hatched(domain, *hatched_land(posterior)), _hidden_land(posterior)
    write_layers(folder / POLYGONS, {"shoreline": shoreline(domain)} | above | hatched | hidden)
    members: list[ProjectLayer | Group] = []
    if regions is not None:
        style = polygon_qml([Fill("#303030", 0.3)], label=label_column(regions))
        members.append(_vector("Regions", "regions.gpkg", "regions", style, regions.crs))
    members.append(_vector("Shoreline", POLYGONS, "shoreline", _SHORE, domain.crs))
    if hidden:
        members.append(_vector(legend(posterior, "Hidden"), POLYGONS, "hidden", _HIDDEN, domain.crs))
    members += _hatched_layers(hatched, domain)
    for threshold, layer in zip(sorted(set(thresholds)), above, strict=True):
        name = f"Probably more than {number(threshold, 6)} {posterior.units}"
        members.append(_vector(name, POLYGONS, layer, _chances_qml(), domain.crs, visible=False))
    shown = [_raster(file, domain.crs, visible=k == 0) for k, file in enumerate(rasters)]
    group = Group(_title(posterior.provenance["title"]), [*members, *shown])
    return write_project(path, group, crs=domain.crs, bounds=domain.grid.bounds)


def write_dated(
    path: Path,
    rasters: Sequence[tuple[Any, ...]],
    *,
    title: str = "",
    domain: Domain | None = None,
    hatched: tuple[np.ndarray, str] | None = None,
) -> Path:
    """Write a project of maps over time, which QGIS's temporal controller plays.

    Parameters
    ----------
    path : path
        Ends in ``.qgz``.
    rasters : sequence of (path, start, end) or of (path, start, end, label)
        In the same folder or one inside it, with styles beside. A period holds its start but not its end, which is the
        next one's start. Rasters of one statistic (by their own names) are a group, and the first group is visible.
        Starts and ends that are plain numbers are no times: then the first raster is shown, and the others wait.
    title : str
    domain : Domain, optional
        Whose shoreline is shown, from ``map.gpkg``, which is written beside.
    hatched : ((n_periods, n_nodes) bool array, str), optional
        From `Course.hatched`; what is hatched in all periods is, in the project.

    Returns
    -------
    path
        Of the project.
    """
    import pyproj
    import rasterio

    dated = [Dated(*item) for item in rasters]
    if not dated:
        raise DataError("A project of maps over time needs at least one raster.", option="rasters")
    folder = Path(path).absolute().parent
    with rasterio.open(dated[0].path) as src:
        crs, bounds = None if src.crs is None else pyproj.CRS.from_wkt(src.crs.to_wkt()), tuple(src.bounds)
    groups: dict[str, list[ProjectLayer]] = {}
    for item in dated:
        span = _span(item)
        file = Path(item.path).absolute()
        members = groups.setdefault(raster_name(file), [])
        visible = span is not None or not members
        members.append(
            _raster(file, crs, folder, visible=visible, span=span, name=item.label or str(item.start))
        )
    parts: list[ProjectLayer | Group] = []
    if domain is not None:
        nodes, words = hatched or (np.zeros((1, domain.n_nodes), bool), "")
        lines = _hatched(domain, nodes.all(axis=0), words)
        write_layers(folder / POLYGONS, {"shoreline": shoreline(domain)} | lines)
        parts.append(_vector("Shoreline", POLYGONS, "shoreline", _SHORE, domain.crs))
        parts += _hatched_layers(lines, domain)
    for k, (name, layers) in enumerate(groups.items()):
        parts.append(Group(name, layers, visible=k == 0, expanded=False))
    return write_project(path, Group(_title(title), parts), crs=crs, bounds=bounds)


# -- polygons


def _hidden_land(posterior: Posterior) -> dict[str, gpd.GeoDataFrame]:
    """Return the land whose small numbers are hidden, as a layer; none where nothing is."""
    if not posterior.protection or not (hidden := hidden_nodes(posterior)).any():
        return {}
    frame = node_polygons(posterior.domain, np.where(hidden, "hidden", ""), ("hidden",))
    frame["why"] = legend(posterior)
    return {"hidden": frame}


def shoreline(domain: Domain) -> gpd.GeoDataFrame:
    """Return the land as it is mapped, one row."""
    import geopandas as gpd

    return gpd.GeoDataFrame({"name": ["land"]}, geometry=[domain.geometry], crs=domain.crs)


def _hatched(domain: Domain, nodes: np.ndarray, words: str) -> dict[str, gpd.GeoDataFrame]:
    """Return the cells of which the data say nothing, as a layer of their own; none where there is no such cell."""
    import geopandas as gpd

    patches = cell_patches(hatched_cells(domain, nodes), domain.grid.affine)
    if not patches:
        return {}
    shapes = [polygonal(p if p.is_valid else shapely.make_valid(p)) for p in patches]
    return {"hatched": gpd.GeoDataFrame({"label": [words] * len(shapes)}, geometry=shapes, crs=domain.crs)}


def _hatched_layers(frames: Mapping[str, gpd.GeoDataFrame], domain: Domain) -> list[ProjectLayer]:
    return [
        _vector(_capital(str(frame["label"].iloc[0])), POLYGONS, name, _LINES, domain.crs)
        for name, frame in frames.items()
    ]


def exceedance_regions(posterior: Posterior, threshold: float) -> gpd.GeoDataFrame:
    """Return the land where `threshold` is exceeded with more than each of `PROBABILITIES`, place by place."""
    chance = posterior.exceedance(threshold)
    frame = to_polygons(chance, PROBABILITIES, domain=posterior.domain, kind="above")
    frame = frame.rename(columns={"lower": "probability"})[["probability", "area", "geometry"]]
    frame.insert(0, "label", [_chance_label(p) for p in frame["probability"]])
    frame.insert(1, "threshold", threshold)
    frame.insert(2, "units", posterior.units)
    return frame


def _chance_label(probability: float) -> str:
    return f"probability > {percent(probability)}"


def _chances_qml() -> str:
    classes = palette.fixed_classes(palette.PROBABILITY_BREAKS, ramp="probability")
    shades = [classes.hex[k] for k in np.searchsorted(classes.breaks, PROBABILITIES, side="right")]
    # Each lies within the one before, and is drawn after it.
    fills = [Fill("#ffffff", 0.1, c, _chance_label(p)) for c, p in zip(shades, PROBABILITIES, strict=True)]
    return polygon_qml(fills, column="label")


def label_column(frame: gpd.GeoDataFrame) -> str:
    """Return the column of words that names the rows of a frame; empty if there is none.

    Examples
    --------
    >>> import geopandas as gpd
    >>> label_column(gpd.GeoDataFrame({"code": ["a"], "GM_NAME": ["Zeist"], "n": [1]}, geometry=[None]))
    'GM_NAME'
    """
    import pandas as pd

    others = [c for c in frame.columns if c != frame.geometry.name]
    words = [str(c) for c in others if not pd.api.types.is_numeric_dtype(frame[c])]
    return next((c for c in words if "name" in c.lower()), words[0] if words else "")


def write_layers(path: Path, frames: Mapping[str, gpd.GeoDataFrame]) -> Path:
    """Write polygons as layers of one GeoPackage, complete or not at all; a layer may be empty."""
    import warnings

    with replacing(path, parents=True) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "'crs' was not provided")  # a local domain has none
        for name, frame in frames.items():
            mode = "a" if temporary.exists() else "w"
            frame.to_file(temporary, layer=name, driver="GPKG", geometry_type="MultiPolygon", mode=mode)
    return path


# -- layers


def raster_name(path: Path) -> str:
    """Return what a raster says it shows; its file's name if it says nothing."""
    import rasterio

    with rasterio.open(path) as src:
        words = src.tags(1).get("long_name", "")
    return _capital(words) or path.stem


def _raster(
    path: Path,
    crs: pyproj.CRS | None,
    folder: Path | None = None,
    *,
    visible: bool,
    span: Span | None = None,
    name: str = "",
) -> ProjectLayer:
    source = path.name
    if folder is not None:
        if not path.is_relative_to(folder):
            raise DataError(
                f"{path} is not in the folder of the project, {folder}.",
                found=path,
                remedy="Write the rasters into that folder: a project and its rasters move together.",
            )
        source = path.relative_to(folder).as_posix()
    style = path.with_suffix(".qml")
    # A raster without any value has no classes.
    qml = style.read_text("utf-8") if style.exists() else "<qgis/>"
    return ProjectLayer(name or raster_name(path), source, qml, crs=crs, visible=visible, span=span)


def _vector(
    name: str, file: str, layer: str, style: str, crs: pyproj.CRS | None, *, visible: bool = True
) -> ProjectLayer:
    return ProjectLayer(name, f"{file}|layername={layer}", style, "vector", crs, visible)


def _span(item: Dated) -> Span | None:
    start, end = moment(item.start), moment(item.end)
    if start is None or end is None:
        return None
    if not start < end:
        raise DataError(
            f"{Path(item.path).name}: the period ends ({end}) before it has begun ({start}).",
            found=(start, end),
        )
    return start, end


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _title(title: str) -> str:
    return title or "geobgp"
