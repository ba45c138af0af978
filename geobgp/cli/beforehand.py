"""What can be known before a fit, and is: files, the basemap, regions, outlines for orientation."""

from __future__ import annotations

from typing import Any

from geobgp.auto.options import OptionSet
from geobgp.errors import DataError, GeobgpError
from geobgp.files import read_vector
from geobgp.land.regions import check_frame, merged


def check_beforehand(options: OptionSet) -> None:
    """Refuse to begin where what is asked for could not be written after the fit.

    Files that are missing; a basemap that there is not; regions without a CRS, a geometry or the column of their names.
    """
    options.check_files()
    told: Any = options
    local = isinstance(told.crs, str) and told.crs.lower() == "local"
    if told.basemap is not None:
        from geobgp.web.basemaps import check_basemap

        check_basemap(told.basemap, local=local)
    if told.regions is not None:
        frame = read_vector(told.regions, "regions")
        check_frame(frame, local, "regions")
        if told.regions_by is not None:
            try:
                merged(frame, told.regions_by)
            except DataError as error:
                raise _as("regions_by", error) from error
    context = getattr(told, "context", None)
    if context is not None:
        check_frame(read_vector(context, "context", columns=[]), local, "context", any_kind=True)


def _as(name: str, error: GeobgpError) -> GeobgpError:
    """Return an error that names another option."""
    return type(error)(error.message, option=name, found=error.found, remedy=error.remedy)
