"""Numbers, shares and lists as people read them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from html import escape
from typing import Any


def number(value: float, digits: int | None = None, *, missing: str = "unknown") -> str:
    """Return a number for people, thousands separated.

    Parameters
    ----------
    value : float
    digits : int, optional
        Significant digits to round to; trailing zeros are left out, and an exponent is used only if needed.
        By default about four, whole numbers being kept whole.
    missing : str
        What stands for NaN.

    Examples
    --------
    >>> number(12345.678), number(0.012345), number(3.0), number(float("nan"))
    ('12,346', '0.01235', '3', 'unknown')
    >>> [number(v, 3) for v in (0.012345, 1234567, 3.0, 0, 1e-7)]
    ['0.0123', '1,230,000', '3', '0', '1e-7']
    """
    if not math.isfinite(value):
        return missing if math.isnan(value) else str(value)
    if digits is None:
        if 1000 <= abs(value) < 1e9:
            return f"{value:,.0f}"
        return f"{value:.3e}" if abs(value) >= 1e9 else f"{value:.4g}"
    if value == 0:
        return "0"
    value = rounded(value, digits)
    size = abs(value)
    if size < 1e-4 or size >= 1e9:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}e{int(exponent)}"
    decimals = max(digits - 1 - math.floor(math.log10(size)), 0)
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def ratio_text(value: float, digits: int = 3) -> str:
    """Return a ratio with some digits, or with two of what sets it off from 1.

    Examples
    --------
    >>> [ratio_text(v) for v in (2.3456, 1.0028, 0.999961, 1.0, float("nan"))]
    ['2.35', '1.0028', '0.999961', '1', 'unknown']
    """
    apart = abs(value - 1)
    return number(value, 1 - math.floor(math.log10(apart)) + (value > 1) if 1e-9 < apart < 0.01 else digits)


def rounded(value: float, digits: int) -> float:
    """Return a value rounded to significant digits.

    Examples
    --------
    >>> rounded(12345.0, 2)
    12000.0
    """
    return float(f"{value:.{digits - 1}e}")


def percent(share: float, decimals: int | None = None) -> str:
    """Return a share as a percentage; by default a whole one, and 100 only if it is all.

    Examples
    --------
    >>> percent(0.0512), percent(0.0512, 1), percent(0.997)
    ('5 %', '5.1 %', '99.7 %')
    """
    if decimals is None:
        decimals = 1 if 0.995 <= share < 1 else 0
    return f"{100 * share:.{decimals}f} %"


def chance(p: float) -> str:
    """Return a probability as a percentage that draws or rounding have not made certain.

    Examples
    --------
    >>> chance(0.96), chance(0.004), chance(1.0), chance(0.0)
    ('96 %', '0.4 %', '> 99.9 %', '< 0.1 %')
    """
    return "> 99.9 %" if p > 0.999 else "< 0.1 %" if p < 0.001 else percent(p, 1 if p < 0.005 else None)


def whole_percent(share: float) -> str:
    """Return a probability that was asked for as a percentage, with all its digits.

    Examples
    --------
    >>> whole_percent(0.9), whole_percent(0.975)
    ('90 %', '97.5 %')
    """
    return f"{100 * share:.6g} %"


def events(value: float) -> str:
    """Return a number of events, which may be an expected one: whole, or with one decimal where it is small.

    Examples
    --------
    >>> events(31.4), events(0.26), events(2.0), events(float("nan"))
    ('31', '0.3', '2', '-')
    """
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


def count(n: int, thing: str, things: str | None = None) -> str:
    """Return how many there are of a thing.

    Examples
    --------
    >>> count(1, "polygon"), count(1234, "polygon"), count(2, "county", "counties")
    ('1 polygon', '1,234 polygons', '2 counties')
    """
    return f"{n:,} {thing if n == 1 else things or thing + 's'}"


def listed(names: Iterable[Any], most: int = 20) -> str:
    """Return names in quotes, and how many more there are.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    quoted = [repr(str(name)) for name in names]
    rest = len(quoted) - most
    return ", ".join(quoted[:most]) + (f" and {rest} more" if rest > 0 else "")


def size_text(n_bytes: float) -> str:
    """Return a size in bytes as people read it.

    Examples
    --------
    >>> size_text(1_234_567), size_text(13_710)
    ('1.2 MB', '13.7 kB')
    """
    if 0 < n_bytes < 50_000:
        return f"{n_bytes / 1e3:,.1f} kB"
    return f"{n_bytes / 1e6:,.1f} MB"


_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", re.I)


def bytes_in(text: str) -> int | None:
    """Return a size as people write it in bytes; None where it cannot be read.

    Examples
    --------
    >>> bytes_in("2GB"), bytes_in("500 MB"), bytes_in("1.5g"), bytes_in("much")
    (2000000000, 500000000, 1500000000, None)
    """
    match = _SIZE.fullmatch(text)
    return None if match is None else int(float(match[1]) * 1000 ** " kmgt".index(match[2].lower() or " "))


def html_table(rows: Iterable[tuple[str, str]]) -> str:
    """Return names and what is said of each as a table for notebooks.

    Examples
    --------
    >>> html_table([]), "<3" in html_table([("used", "<3")])
    ('<table></table>', False)
    """
    left = "style='text-align:left'"
    body = (f"<tr><th {left}>{escape(k)}</th><td {left}>{escape(v)}</td></tr>" for k, v in rows)
    return f"<table>{''.join(body)}</table>"
