"""Numbers: what the map's read-out shows, cell by cell, as codes of the very digits that are shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from geobgp.text import rounded
from geobgp.web.embed import pack

if TYPE_CHECKING:
    from geobgp.land.domain import Domain

#: Significant digits of every number.
DIGITS: Final = 3
_TOO_LARGE: Final = 65535
# Codes in a power of ten, and how many powers there is room for beside none, zero and too large.
_DECADE: Final = 9 * 10 ** (DIGITS - 1)
_DECADES: Final = (_TOO_LARGE - 2) // _DECADE
#: Bytes that a number takes at least, about; with it a hopeless attempt is not made.
_BYTES: Final = 0.5


@dataclass(frozen=True)
class Decimals:
    """Numbers of three significant digits as codes: 0 for none, 1 for zero, 65535 for too large.

    Attributes
    ----------
    lowest : int
        The power of ten of code 2, which stands for 1.00 times it.

    Examples
    --------
    >>> decimals = Decimals(lowest=-2)
    >>> decimals.encode(np.array([np.nan, 0, 0.01, 0.0123456, 0.9996]))
    array([   0,    1,    2,   25, 1802], dtype=uint16)
    >>> decimals.decode(np.array([25, 1802])).tolist()
    [0.0123, 1.0]
    """

    lowest: int

    @classmethod
    def holding(cls, *arrays: np.ndarray) -> Decimals:
        """Return decimals that hold all positive values; if they span too much, those around the middle."""
        positive = [a[(a > 0) & np.isfinite(a)] for a in arrays]
        powers = np.concatenate([np.floor(np.log10(a)) for a in positive]) if positive else np.empty(0)
        if not powers.size:
            return cls(0)
        low, high = powers.min(), powers.max()
        return cls(int(low if high - low < _DECADES else np.median(powers) - _DECADES // 2))

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return codes as uint16; values are rounded as `geobgp.text.rounded` does, half-way cases too."""
        values = np.asarray(values, float)
        codes = np.where(np.isnan(values), 0, 1)
        codes[np.isposinf(values)] = _TOO_LARGE
        with np.errstate(invalid="ignore"):
            held = (values > 0) & np.isfinite(values)
        some = values[held]
        power = np.floor(np.log10(some))
        digits = _scaled(some, power)
        # The logarithm may be off by its last bit at a power of ten.
        power += np.where(digits >= 10**DIGITS, 1, np.where(digits < 10 ** (DIGITS - 1), -1, 0))
        digits = _scaled(some, power)
        whole = np.round(digits)
        for i in np.flatnonzero(np.abs(digits - np.floor(digits) - 0.5) < 1e-6):
            whole[i] = np.round(_scaled(rounded(float(some[i]), DIGITS), power[i]))
        code = 2 + (power - self.lowest) * _DECADE + whole - 10 ** (DIGITS - 1)
        codes[held] = np.where(code < 2, 1, np.minimum(code, _TOO_LARGE))
        return codes.astype(np.uint16)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return numbers, NaN for none; what the page's script does."""
        power, digits = np.divmod(codes.astype(np.int64) - 2, _DECADE)
        power, digits = power + self.lowest - DIGITS + 1, digits + 10 ** (DIGITS - 1)
        text = [f"{d}e{p}" for d, p in zip(digits.ravel().tolist(), power.ravel().tolist(), strict=True)]
        numbers = np.array(text, dtype=np.str_).astype(float).reshape(codes.shape)
        known = [codes == 0, codes == 1, codes == _TOO_LARGE]
        return np.select(known, [np.nan, 0.0, np.inf], numbers)


def _scaled(values: Any, power: Any) -> Any:
    """Return values with their digits before the point; in two steps, since a power may be out of range."""
    half = np.trunc((DIGITS - 1 - power) / 2)
    return values * 10.0**half * 10.0 ** (DIGITS - 1 - power - half)


def chance_codes(p: np.ndarray) -> np.ndarray:
    """Return probabilities as codes: 0 for none, else thousandths plus 1.

    Between 10 % and 90 % they are whole percentages, elsewhere tenths of them; 0 and 1000 thousandths stand for
    less than 0.1 % and more than 99.9 %.

    Examples
    --------
    >>> chance_codes(np.array([np.nan, 0.0004, 0.0126, 0.4449, 0.9994])) - 1.0
    array([  -1.,    0.,   13.,  440., 1000.])
    """
    with np.errstate(invalid="ignore"):
        tenths = np.round(1000 * p)
        shown = np.where((tenths >= 100) & (tenths <= 900), 10 * np.round(100 * p), tenths)
        shown = np.where(p < 0.001, 0, np.where(p > 0.999, 1000, shown))
    return np.where(np.isnan(p), 0, shown + 1).astype(np.uint16)


def is_chance(name: str) -> bool:
    """Return whether a field holds a probability: "p", "p0", "p1", ..."""
    return name[:1] == "p"


@dataclass(frozen=True, eq=False)
class Numbers:
    """The numbers of all cells with land, packed.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns of numbers.
    row, col : int
        Of the grid, where they begin.
    block : int
        1: each number is a cell's own. k: it is the average, by land, of k x k cells.
    decimals : Decimals
    arrays : mapping of str to str
        From `geobgp.web.embed.pack`; "p", "p0", ... in `chance_codes`, all others in `decimals`.
    """

    shape: tuple[int, int]
    row: int
    col: int
    block: int
    decimals: Decimals
    arrays: Mapping[str, str]

    @classmethod
    def of(cls, domain: Domain, fields: Mapping[str, np.ndarray], max_bytes: int) -> Numbers:
        """Return the numbers of fields on the domain's grid; averages only where cells would take too much.

        Fields are (rows, cols), or (periods, rows, cols); the first one says where there are numbers.
        """
        first = next(iter(fields))
        known = np.isfinite(fields[first])
        periods = known.shape[:-2]
        land = np.where(known.any(axis=0) if periods else known, domain.coverage * domain.cell_area, 0.0)
        rows, cols = np.nonzero(land)
        row, col = int(rows.min()), int(cols.min())
        box = np.s_[row : rows.max() + 1, col : cols.max() + 1]
        n = len(rows) * len(fields) * math.prod(periods)
        block = max(math.ceil(math.sqrt(_BYTES * n / max_bytes)), 1)
        while True:
            cut = {name: _averages(values[(..., *box)], land[box], block) for name, values in fields.items()}
            decimals = Decimals.holding(*(values for name, values in cut.items() if not is_chance(name)))
            arrays = {}
            for name, values in cut.items():
                codes = chance_codes(values) if is_chance(name) else decimals.encode(values)
                # Periods lie one below the other, each in one line.
                arrays[name] = pack(codes.reshape(*periods, -1) if periods else codes)
            n_rows, n_cols = cut[first].shape[-2:]
            made = cls((n_rows, n_cols), row, col, block, decimals, arrays)
            if made.size <= max_bytes or max(made.shape) == 1:
                return made
            block = max(block + 1, math.ceil(block * math.sqrt(made.size / max_bytes)))

    @property
    def size(self) -> int:
        """Bytes they take in the page."""
        return sum(map(len, self.arrays.values()))

    def config(self) -> dict[str, Any]:
        """Return what the page's script needs beside the arrays."""
        return {
            "rows": self.shape[0], "cols": self.shape[1], "row": self.row, "col": self.col,
            "block": self.block, "lowest": self.decimals.lowest, "digits": DIGITS,
        }  # fmt: skip


def _averages(values: np.ndarray, weights: np.ndarray, block: int) -> np.ndarray:
    """Return weighted averages of block x block values; NaN where there is no value with a weight."""
    if block == 1:
        return values
    at = [np.arange(0, n, block) for n in values.shape[-2:]]

    def total(array: np.ndarray) -> np.ndarray:
        return np.add.reduceat(np.add.reduceat(array, at[0], axis=-2), at[1], axis=-1)

    weights = np.where(np.isfinite(values), weights, 0.0)
    with np.errstate(invalid="ignore"):
        return total(np.where(weights > 0, values, 0.0) * weights) / total(weights)
