"""What can go wrong, each with what was found, what was expected and what to do."""

from __future__ import annotations


class GeobgpError(ValueError):
    """Base of every error that geobgp raises on purpose: the data or the options are at fault."""


class CRSError(GeobgpError):
    """A coordinate reference system is missing, geographic, or not in metres."""


class GeometryError(GeobgpError):
    """Points or polygons cannot be read or used."""


class DomainError(GeobgpError):
    """No usable land, or a grid that does not fit it."""


class DataError(GeobgpError):
    """Counts, exposure, covariates or values do not fit the model."""


class SizeError(GeobgpError):
    """What was asked for needs more memory, cells or features than there are."""


class CacheError(GeobgpError):
    """A stored file is damaged or is not what it claims to be."""


class GeobgpWarning(UserWarning):
    """Something the user should know, with the number found and the remedy."""
