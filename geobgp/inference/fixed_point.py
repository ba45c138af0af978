"""Fixed points: moments that a pass returns as they were, found in fewer passes by Anderson's mixing.

A pass maps means and variances x to others, G(x). The next place to try is the combination of the last few at which
what they lack, G(x) - x, would vanish if the map were linear.
"""

from __future__ import annotations

import numpy as np

#: Means and variances.
Moments = tuple[np.ndarray, np.ndarray]

#: Passes that are remembered.
_DEPTH = 8
#: The longest way that a mixture may lie from the last place, if a pass does not lead farther.
_FAR = 2.0
_SMALLEST = 1e-12


class Anderson:
    """The places that were tried, and where their passes led.

    Examples
    --------
    >>> mixing = Anderson()
    >>> x = np.zeros(2), np.ones(2)
    >>> for _ in range(8):
    ...     x = mixing.next(x, (1.0 - 0.9 * x[0], np.exp(0.2 - 0.8 * np.log(x[1]))))
    >>> [v.round(6).tolist() for v in (x[0] * 1.9, np.log(x[1]) * 9.0)]
    [[1.0, 1.0], [1.0, 1.0]]
    """

    def __init__(self) -> None:
        self._places: list[np.ndarray] = []
        self._lacks: list[np.ndarray] = []

    def next(self, tried: Moments, found: Moments) -> Moments:
        """Return the moments to try after these, of which a pass has found those."""
        place, size = _flat(tried), len(tried[0])
        lack = _flat(found) - place
        # Means count in posterior standard deviations, variances by their logarithm.
        weight = np.ones(len(lack))
        weight[:size] = 1.0 / np.sqrt(np.maximum(found[1], _SMALLEST))
        new = place + lack
        if self._lacks:
            by_place = np.array([place - other for other in self._places]).T
            by_lack = np.array([lack - other for other in self._lacks]).T
            share = np.linalg.lstsq(weight[:, None] * by_lack, weight * lack, rcond=1e-8)[0]
            way = lack - (by_place + by_lack) @ share
            longest, farthest = float(np.abs(weight * way).max()), float(np.abs(weight * lack).max())
            if np.isfinite(longest):
                new = place + way * min(1.0, max(_FAR, farthest) / max(longest, 1e-300))
        self._places = [*self._places, place][-_DEPTH:]
        self._lacks = [*self._lacks, lack][-_DEPTH:]
        return _moments(new, size)


def _flat(moments: Moments) -> np.ndarray:
    return np.concatenate([moments[0], np.log(np.maximum(moments[1], _SMALLEST))])


def _moments(flat: np.ndarray, size: int) -> Moments:
    return flat[:size], np.exp(flat[size:])
