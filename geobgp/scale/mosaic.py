"""Mosaics: tiles blended into one map on disk, block by block as they come, and the GeoTIFF made of it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyproj

from geobgp import store
from geobgp.errors import CacheError, WorkerError
from geobgp.files import replacing
from geobgp.output.palette import ratio_classes, round_classes
from geobgp.output.rasters import raster_tags, write_cog, write_style
from geobgp.scale.tiling import Frame, Tile, weights
from geobgp.units import RELATIVE_RISK, Units

if TYPE_CHECKING:
    from geobgp.scale.tile import FittedTile

#: Cells along the side of a chunk.
CHUNK = 512
#: Values that the classes of the style are made of, at most.
_SAMPLE = 200_000
KIND = "tile"
#: How the names of probabilities begin, before the threshold.
EXCEEDANCE = "exceedance_"


def write_tile(path: Path, fitted: FittedTile) -> None:
    """Write the result of a tile, whole or not at all."""
    store.write(path, KIND, {"facts": fitted.facts, "names": list(fitted.statistics)}, fitted.statistics)


def read_tile(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """Return the facts and statistics of a tile; None where there is no whole file."""
    try:
        header, arrays = store.read(path, KIND)
        return header["facts"], {name: arrays[name] for name in header["names"]}
    except (CacheError, OSError, KeyError):
        return None


class Mosaic:
    """One map of all tiles, as a Zarr group that grows as they come.

    Parameters
    ----------
    folder : path
        In which it is made.
    frame : Frame
    tiles : sequence of Tile
    names : sequence of str
        Statistics.
    crs : pyproj.CRS or None
    units : Units
        What it is in; tiles are in the own unit, whatever that is.
    title : str
        By default what it shows.
    """

    def __init__(
        self,
        folder: Path,
        frame: Frame,
        tiles: Sequence[Tile],
        names: Sequence[str],
        crs: pyproj.CRS | None,
        units: Units,
        title: str = "",
    ) -> None:
        try:
            import zarr
        except ImportError as error:
            raise WorkerError(
                "The mosaic of tiles is a Zarr group, and zarr is not installed.", remedy="Install geobgp[dask]."
            ) from error
        self.folder, self.frame, self.tiles, self.names = folder, frame, list(tiles), list(names)
        shown = "Relative risk" if units.quantity == RELATIVE_RISK else f"Intensity in {units.words}"
        self.crs, self.units, self.title = crs, units, title or shown
        #: Tiles that are blended into the core of each, and those of them that are not there yet.
        self._with = {t.number: [o for o in self.tiles if o.shown.meets(t.core)] for t in self.tiles}
        self._waiting = {n: {o.number for o in others} for n, others in self._with.items()}
        self._paths: dict[int, Path] = {}
        self._part = folder / ".mosaic.zarr.part"
        shutil.rmtree(self._part, ignore_errors=True)
        # Version 2 of the format, as of maps over time: its metadata are consolidated where everybody looks for them.
        self._group: Any = zarr.open_group(str(self._part), mode="w", zarr_format=2)
        self._group.attrs.update({"title": self.title, "units": units.words, "coordinates": "spatial_ref"})
        shape = frame.box.shape
        chunks = tuple(min(CHUNK, side) for side in shape)
        for name in self.names:
            made = self._group.create_array(
                name, shape=shape, chunks=chunks, dtype="float32", fill_value=np.float32(np.nan)
            )
            unit, words = self._told(name)
            about = {"units": unit, "long_name": words, "quantity": units.quantity}
            made.attrs.update({**about, "grid_mapping": "spatial_ref", "_ARRAY_DIMENSIONS": ["northing", "easting"]})
        h = frame.cell_size
        axes = {
            "northing": frame.north - (np.arange(shape[0]) + 0.5) * h,
            "easting": frame.west + (np.arange(shape[1]) + 0.5) * h,
        }
        for name, values in axes.items():
            axis = self._group.create_array(name, shape=values.shape, chunks=values.shape, dtype="float64")
            axis.attrs["_ARRAY_DIMENSIONS"] = [name]
            axis[:] = values
        place = self._group.create_array("spatial_ref", shape=(), dtype="int64")
        wkt = "" if crs is None else crs.to_wkt()
        place.attrs.update(
            {"_ARRAY_DIMENSIONS": [], "crs_wkt": wkt, "GeoTransform": " ".join(map(repr, frame.affine().to_gdal()))}
        )

    def _told(self, name: str) -> tuple[str, str]:
        """Return the unit of a statistic, and what it is in words."""
        if name.startswith(EXCEEDANCE):
            return "1", f"probability of more than {name.removeprefix(EXCEEDANCE)} {self.units.words}"
        return self.units.words, f"{self.units.quantity}, {name}"

    def add(self, tile: Tile, path: Path) -> None:
        """Take a tile that is done; every core all of whose tiles are there is written."""
        self._paths[tile.number] = path
        for other in self.tiles:
            waiting = self._waiting[other.number]
            if tile.number in waiting:
                waiting.discard(tile.number)
                if not waiting:
                    self._write(other)

    def _write(self, tile: Tile) -> None:
        """Blend the tiles that reach into a core, and write it."""
        shape = tile.core.shape
        total = np.zeros(shape)
        sums = {name: np.zeros(shape) for name in self.names}
        for other in self._with[tile.number]:
            tile_values = read_tile(self._paths[other.number])
            if tile_values is None:
                raise CacheError(f"{self._paths[other.number]} has been damaged since it was written.")
            common = other.shown.common(tile.core)
            here, there = common.within(tile.core), common.within(other.shown)
            weight = weights(other)[there]
            land = np.isfinite(tile_values[1][self.names[0]][there])
            weight = np.where(land, weight, 0.0)
            total[here] += weight
            for name in self.names:
                sums[name][here] += weight * np.where(land, tile_values[1][name][there], 0.0)
        rows, cols = tile.core.within(self.frame.box)
        with np.errstate(invalid="ignore", divide="ignore"):
            for name in self.names:
                # Other tiles may have written next to it, never in it.
                factor = 1.0 if name.startswith(EXCEEDANCE) else self.units.factor
                blended = np.where(total > 0, factor * sums[name] / total, np.nan).astype(np.float32)
                before = self._group[name][rows, cols]
                self._group[name][rows, cols] = np.where(np.isfinite(blended), blended, before)

    def finish(self) -> tuple[Path, Path]:
        """Put the group in place and make the GeoTIFF of it; return where both are."""
        lacking = [n for n, waiting in self._waiting.items() if waiting]
        if lacking:
            raise CacheError(f"{len(lacking):,} tiles are not done yet, the first number {lacking[0]}.")
        import zarr

        target = self.folder / "mosaic.zarr"
        shutil.rmtree(target, ignore_errors=True)
        raster = self._to_raster(self.folder / "mosaic.tif")
        zarr.consolidate_metadata(str(self._part))
        self._part.rename(target)
        return raster, target

    def _to_raster(self, path: Path) -> Path:
        from rasterio.windows import Window

        rows, cols = self.frame.box.shape
        sample: list[np.ndarray] = []

        def fill(raster: Any) -> None:
            for band, name in enumerate(self.names, start=1):
                for top in range(0, rows, CHUNK):
                    values = self._group[name][top : top + CHUNK]
                    raster.write(values, band, window=Window(0, top, cols, len(values)))
                    if band == 1:
                        sample.append(values[np.isfinite(values)][:: max(1, rows * cols // _SAMPLE)])
                raster.set_band_description(band, name)
                unit, words = self._told(name)
                raster.set_band_unit(band, unit)
                raster.update_tags(band, long_name=words)

        plain = self._part / "plain.tif"
        try:
            with replacing(path) as temporary:
                write_cog(
                    fill, str(plain), str(temporary), raster_tags(self.title, {"title": self.title}), block=CHUNK,
                    count=len(self.names), height=rows, width=cols, transform=self.frame.affine(),
                    crs=None if self.crs is None else self.crs.to_wkt(), tiled=True, compress="DEFLATE",
                    bigtiff="IF_SAFER", blockxsize=CHUNK, blockysize=CHUNK,
                )  # fmt: skip
        finally:
            plain.unlink(missing_ok=True)
        values = np.concatenate(sample)
        if len(values):
            words, risk = self.units.words, self.units.quantity == RELATIVE_RISK
            write_style(ratio_classes(words) if risk else round_classes(values, units=words), values, path)
        return path
