"""Fixed points in few passes."""

import hypothesis
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from geobgp.inference.relinearise import Anderson


def passes(rates, start, limit=200):
    """Return how many passes of a linear map with these rates come to rest, plainly and mixed."""
    rates = np.asarray(rates)
    goal = np.linspace(-1.0, 1.0, len(rates))

    def through(x):
        return goal + rates * (x[0] - goal), np.exp(rates * np.log(x[1]))

    counted = []
    for mixing in (None, Anderson()):
        x, count = (np.full(len(rates), start), np.full(len(rates), np.exp(start))), 0
        while count < limit:
            count += 1
            found = through(x)
            lack = max(np.abs(found[0] - x[0]).max(), np.abs(np.log(found[1]) - np.log(x[1])).max())
            if lack < 1e-3:
                break
            if lack > 100.0:  # never
                count = limit
            x = found if mixing is None else mixing.next(x, found)
        counted.append(count)
    return counted


def test_slow_maps_and_maps_that_swing_come_to_rest():
    plain, mixed = passes([0.95, 0.5, -0.3, 0.9], 0.7)
    assert plain > 80 and mixed < 15
    plain, mixed = passes([-1.2, 0.4, -0.8], 0.3)  # plain passes swing ever wider
    assert plain == 200 and mixed < 15


@hypothesis.settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1.3, 0.95), min_size=1, max_size=6), st.floats(-1.0, 1.0))
def test_any_few_rates_come_to_rest(rates, start):
    assert passes(rates, start)[1] < 60
