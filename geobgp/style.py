"""Style: the classes and colours that were asked for, of a map in all of its files and figures."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any

from geobgp.errors import DataError, option

#: The word for classes that share out the land.
QUANTILE = "quantile"


@dataclass(frozen=True)
class Style:
    """How the intensity (its mean and its quantiles) is coloured, where it is not left to the map.

    Attributes
    ----------
    classes : int, tuple of float or "quantile", optional
        Breaks between classes, ascending; or how many classes there are, or "quantile": the land is then shared out
        among them, so that a map that hardly varies has as many colours as any other.
    vmin, vmax : float, optional
        Even classes between these numbers; what lies beyond is in the first and the last.
    cmap : str, optional
        A ramp of `geobgp.output.palette`, a colour map of matplotlib, or colours ("#ffffcc, #800026") to go through.

    Examples
    --------
    >>> Style.of(classes=[0.1, 0.2, 0.5], cmap=["#ffffff", "#000000"]).attrs()
    {'classes': '0.1, 0.2, 0.5,', 'colours': '#ffffff, #000000'}
    """

    classes: int | tuple[float, ...] | str | None = None
    vmin: float | None = None
    vmax: float | None = None
    cmap: str | None = None

    @classmethod
    def of(cls, classes: Any = None, vmin: Any = None, vmax: Any = None, cmap: Any = None) -> Style:
        """Return what a user asked for, checked."""
        if isinstance(classes, (bool, str, bytes)):
            if classes != QUANTILE:
                raise _wrong("classes", classes)
            _check_room(classes, vmin, vmax)
        elif isinstance(classes, Real):
            if not (2 <= float(classes) <= 30 and float(classes).is_integer()):
                raise _wrong("classes", classes)
            classes = int(float(classes))
        elif classes is not None:
            classes = _breaks(classes)
            _check_room(classes, vmin, vmax)
        low, high = _number("vmin", vmin), _number("vmax", vmax)
        if low is not None and high is not None and not low < high:
            raise DataError(
                f"{option('vmin')} must lie below {option('vmax')}; found {vmin!r} and {vmax!r}.", option="vmin"
            )
        return cls(classes, low, high, _colours(cmap))

    def attrs(self) -> dict[str, str]:
        """Return what a variable of a dataset carries, so that whoever draws it knows."""
        known = {"classes": self.classes, "vmin": self.vmin, "vmax": self.vmax, "colours": self.cmap}
        chosen = {k: v for k, v in known.items() if v is not None}
        return {
            k: "".join(f"{b!r}, " for b in v).strip() if isinstance(v, tuple) else str(v) for k, v in chosen.items()
        }

    @classmethod
    def in_attrs(cls, attrs: Any) -> Style | None:
        """Return the style that a variable carries, if any."""
        if not any(name in attrs for name in ("classes", "vmin", "vmax", "colours")):
            return None
        text = str(attrs.get("classes", ""))
        several = tuple(float(b) for b in text.split(",") if b.strip()) if "," in text else None
        classes = several or (text if text == QUANTILE else int(text) if text else None)
        vmin, vmax = (float(attrs[name]) if name in attrs else None for name in ("vmin", "vmax"))
        return cls(classes, vmin, vmax, attrs.get("colours"))


def _check_room(classes: Any, vmin: Any, vmax: Any) -> None:
    """Refuse two answers to where the breaks are."""
    if vmin is not None or vmax is not None:
        how = "at quantiles" if classes == QUANTILE else "given as breaks"
        raise DataError(
            f"{option('classes')} {how} leave no room for {option('vmin')} and {option('vmax')}.",
            option="classes",
            found=classes,
            remedy="Give the one or the others.",
        )


def _breaks(classes: Any) -> tuple[float, ...]:
    try:
        breaks = tuple(float(v) for v in classes)
    except (TypeError, ValueError):
        raise _wrong("classes", classes) from None
    rising = all(a < b for a, b in pairwise(breaks))
    if not breaks or not rising or not all(map(math.isfinite, breaks)):
        raise _wrong("classes", classes)
    return breaks


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise DataError(f"{option(name)} is a number; found {value!r}.", option=name, found=value)
    return float(value)


def _colours(cmap: Any) -> str | None:
    """Return a colour map as a word: a name, or colours one after the other."""
    if cmap is None or (isinstance(cmap, str) and "#" not in cmap):
        return cmap
    if callable(cmap):  # one of matplotlib's
        from matplotlib.colors import to_hex

        cmap = [to_hex(cmap(k / 16)) for k in range(17)]
    names = re.split(r"\s*,\s*", cmap.strip()) if isinstance(cmap, str) else []
    names = list(map(str, cmap)) if isinstance(cmap, (list, tuple)) else names
    if len(names) < 2 or not all(re.fullmatch(r"#[0-9a-fA-F]{6}", one) for one in names):
        raise DataError(
            f"{option('cmap')} is the name of a colour map, or two or more colours such as '#ffffcc'; found {cmap!r}.",
            option="cmap",
            found=cmap,
        )
    return ", ".join(names)


def _wrong(name: str, value: Any) -> DataError:
    return DataError(
        f"{option(name)} are ascending numbers, or how many classes there are (2 to 30), or '{QUANTILE}'; "
        f"found {value!r}.",
        option=name,
        found=value,
    )
