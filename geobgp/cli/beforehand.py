"""What can be known before a fit, and is: files, the basemap, regions, outlines for orientation."""

from __future__ import annotations

from geobgp.auto.options import OptionSet
from geobgp.errors import DataError, GeobgpError
from geobgp.files import read_vector
from geobgp.land.regions import check_frame, merged


def check_beforehand(options: OptionSet) -> None:
    """Refuse to begin where what is asked for could not be written after the fit.

    Files that are missing; a basemap that there is not; regions without a CRS, a geometry or the column of their names.
    """
    options.check_files()
    crs, basemap, regions, by, context = (
        getattr(options, name, None) for name in ("crs", "basemap", "regions", "regions_by", "context")
    )
    local = isinstance(crs, str) and crs.lower() == "local"
    if basemap is not None:
        from geobgp.web.basemaps import check_basemap

        check_basemap(basemap, local=local)
    if regions is not None:
        frame = read_vector(regions, "regions")
        check_frame(frame, local, "regions")
        if by is not None:
            try:
                merged(frame, by)
            except DataError as error:
                raise _as("regions_by", error) from error
    if context is not None:
        check_frame(read_vector(context, "context", columns=[]), local, "context", any_kind=True)


def _as(name: str, error: GeobgpError) -> GeobgpError:
    """Return an error that names another option."""
    return type(error)(error.message, option=name, found=error.found, remedy=error.remedy)
