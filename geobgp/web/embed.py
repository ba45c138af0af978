"""Arrays inside a web page: palette pictures, and codes packed as text."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np


def palette_png(index: np.ndarray, colours: np.ndarray) -> bytes:
    """Return an 8-bit palette PNG; index -1 is transparent.

    Parameters
    ----------
    index : (rows, cols) int array
        -1 or the number of a colour.
    colours : (k, 3) uint8 array
        At most 255 of them.

    Notes
    -----
    The page's script reads the land from it: one IDAT chunk, a byte a pixel, lines unfiltered, 0 for none.
    """
    rows, cols = index.shape
    # Entry 0 is transparent.
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
