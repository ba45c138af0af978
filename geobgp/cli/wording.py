"""Errors and warnings in the words of the command line."""

from __future__ import annotations

import re
from collections.abc import Callable

from geobgp.cli.workspace import reason
from geobgp.errors import GeobgpError

_OPTIONS = (
    "water", "barriers", "cell_size", "boundary", "hyper", "weights", "longitude", "latitude", "easting",
    "northing", "layer", "on_water", "max_snap", "threshold", "exposure", "exposure_column", "land_crs",
)  # fmt: skip

_RULES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"Use crs=None to have (one|a CRS) chosen", r"Leave --crs out to have \1 chosen"),
    (r"\bUse crs=None", "Leave --crs out"),
    (r"\bor use crs=None", "or leave --crs out"),
    (r"\bcrs=None chooses", "without --crs geobgp chooses"),
    (r"\bcrs=None\b", "no --crs"),
    (r"\bcrs=['\"]([^'\"]+)['\"]", r"--crs \1"),
    (r"\bcache=False\b", "--no-cache"),
    (r"\bfill_missing=['\"]mean['\"]", "--fill-missing"),
    (r"\bm=['\"]?(\w+)['\"]?", r"--features \1"),
    (rf"\b({'|'.join(_OPTIONS)})=['\"]([^'\"]+)['\"]", lambda m: f"--{_dashed(m[1])} {m[2]}"),
    (rf"\b({'|'.join(_OPTIONS)})=(?=[\s,.;)])", lambda m: f"--{_dashed(m[1])}"),
    (r"\b(cell_size|max_snap|on_water|exposure_column)\b", lambda m: f"--{_dashed(m[1])}"),
    (r"\bUse more features \(m\), or FullRank", "Use --features with a larger number, or --features full"),
    (r"\bm = ([\d,]+) features", r"\1 features"),
    (r"\bUse m <= ([\d,]*\d)", r"Use --features \1 or fewer"),
    (r"Use e\.g\. frame\.geometry\.representative_point\(\)", "Use a point within each, e.g. its centroid"),
    (
        r"Check the CRS of the points and of the land",
        "Check the CRS of the points (--points-crs) and of the land",
    ),
    (r"That folder has: \[(.*?)\]", lambda m: "That folder has: " + m[1].replace("'", "")),
)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def in_options(text: str) -> str:
    """Return a message with the names of Python arguments as the options of the command line.

    Examples
    --------
    >>> in_options("Use on_water='drop', or name longitude= and latitude=.")
    'Use --on-water drop, or name --longitude and --latitude.'
    """
    text = " ".join(str(text).split())
    whose = "points" if text.startswith("points") or "of the points" in text else "land"
    text = re.sub(
        r"Say which it is, e\.g\. frame\.set_crs\('EPSG:4326'\) for longitude and latitude",
        f"Say which it is, e.g. --{whose}-crs EPSG:4326 for longitude and latitude",
        text,
    )
    text = re.sub(r"\bcrs=(?=[\s,.;)])", "--points-crs" if whose == "points" else "--crs", text)
    for pattern, words in _RULES:
        text = re.sub(pattern, words, text)
    return text


def explain(error: BaseException) -> str:
    """Return one paragraph for an error: what was found and what to do."""
    if isinstance(error, GeobgpError):
        return in_options(str(error))
    if isinstance(error, MemoryError):
        return (
            "There is not enough memory for this. Use a larger --cell-size or fewer --features, or a machine "
            "with more memory."
        )
    if isinstance(error, OSError):
        name = f" ({error.filename})" if getattr(error, "filename", None) else ""
        return f"A file could not be read or written{name}: {reason(error)} Nothing was written."
    return (
        f"geobgp has failed in a way that it should not: {type(error).__name__}: {in_options(str(error))}. "
        "Nothing was written. Run it again with --debug, and report what it prints."
    )
