"""Arrays inside a web page: palette pictures, and numbers quantised for the read-out."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

#: Relative step of the read-out's logarithmic scale: a number is right to half of this.
RELATIVE_STEP: Final = 0.001
#: How many times smaller than the typical value a number may be before it counts as zero.
RANGE: Final = 1e9


def palette_png(index: np.ndarray, colours: np.ndarray) -> bytes:
    """Return an 8-bit palette PNG; index -1 is transparent.

    Parameters
    ----------
    index : (rows, cols) int array
        -1 or the number of a colour.
    colours : (k, 3) uint8 array
        At most 255 of them.
    """
    rows, cols = index.shape
    # Entry 0 is transparent. Filter 0 (none) suits classes.
    scanlines = np.zeros((rows, cols + 1), np.uint8)
    scanlines[:, 1:] = index + 1
    table = np.vstack([np.zeros((1, 3), np.uint8), np.asarray(colours, np.uint8)])
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", cols, rows, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", table.tobytes()),
            _chunk(b"tRNS", b"\x00"),
            _chunk(b"IDAT", zlib.compress(scanlines.tobytes(), 6)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def data_url(data: bytes, kind: str) -> str:
    """Return bytes as a data: URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


@dataclass(frozen=True)
class Scale:
    """How numbers become codes: 0 for none, 1 for zero, then evenly spaced in the logarithm (or plainly).

    Attributes
    ----------
    low : float
        Value of code 2.
    step : float
        Of the logarithm, or of the value itself when `linear`.
    linear : bool
    """

    low: float
    step: float
    linear: bool = False

    @classmethod
    def logarithmic(cls, *arrays: np.ndarray) -> Scale:
        """Return the scale that holds the positive values of all arrays to `RELATIVE_STEP`.

        It ends 28 powers of ten above its lowest value; what is larger is shown as that.
        """
        positive = [a[(a > 0) & np.isfinite(a)] for a in arrays]
        positive = [a for a in positive if a.size]
        if not positive:
            return cls(1.0, RELATIVE_STEP)
        # From the median and not from the largest: one absurd value must not push all others to zero.
        least = min(float(np.median(a)) for a in positive) / RANGE
        return cls(min(float(a[a >= least].min()) for a in positive), RELATIVE_STEP)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return codes as uint16."""
        with np.errstate(invalid="ignore", divide="ignore"):
            if self.linear:
                at = (values - self.low) / self.step
            else:
                at = np.where(values >= self.low, np.log(values / self.low) / self.step, -1.0)
        codes = np.round(np.where(np.isnan(values), -2.0, np.maximum(at, -1.0))) + 2
        return np.clip(codes, 0, 65535).astype(np.uint16)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return values, NaN for code 0; what the page's script does."""
        at = codes.astype(float) - 2
        values = self.low + at * self.step if self.linear else self.low * np.exp(at * self.step)
        return np.where(codes == 0, np.nan, np.where(codes == 1, 0.0, values))

    def config(self) -> dict[str, Any]:
        """Return what the page's script needs."""
        return {"low": self.low, "step": self.step, "linear": self.linear}


def pack(codes: np.ndarray) -> str:
    """Return a (rows, cols) uint16 array as text: second differences, bytes in planes, deflated, base64.

    A flat or evenly sloping field becomes zeros, and each line or column that repeats the one before it too.
    """
    delta = codes.astype(np.uint16)
    delta = np.diff(delta, axis=1, prepend=np.zeros((len(delta), 1), np.uint16))
    delta = np.diff(delta, axis=0, prepend=np.zeros((1, delta.shape[1]), np.uint16)).astype(np.uint16)
    # Small negative differences become small codes too.
    signed = delta.astype(np.int16).astype(np.int32)
    folded = np.where(signed < 0, -2 * signed - 1, 2 * signed).astype(np.uint16)
    planes = np.concatenate([(folded >> 8).astype(np.uint8).ravel(), (folded & 255).astype(np.uint8).ravel()])
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode("ascii")


def unpack(text: str, shape: tuple[int, int]) -> np.ndarray:
    """Return what `pack` packed; what the page's script does."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    high, low = planes.reshape(2, *shape).astype(np.int32)
    folded = high * 256 + low
    signed = np.where(folded & 1, -(folded + 1) // 2, folded // 2)
    return np.cumsum(np.cumsum(signed, axis=0), axis=1).astype(np.uint16)
