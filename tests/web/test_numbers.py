from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from posteriors import disc, island

from geobgp.text import rounded
from geobgp.web import layers as numbers
from geobgp.web.layers import Decimals, Numbers
from geobgp.web.page import unpack


def back(values):
    decimals = Decimals.holding(values)
    return decimals.decode(decimals.encode(values))


@given(hnp.arrays(float, 20, elements=st.floats(1e-30, 1e30)))
def test_numbers_are_their_three_digits(values):
    assert back(values).tolist() == [rounded(v, 3) for v in values.tolist()]


@given(st.integers(1000, 9999), st.integers(-20, 20))
def test_half_way_cases_are_rounded_as_text_rounds_them(digits, power):
    value = float(f"{digits - digits % 10 + 5}e{power}")
    near = np.array([value, np.nextafter(value, 0), np.nextafter(value, np.inf)])
    assert back(near).tolist() == [rounded(v, 3) for v in near.tolist()]


@given(st.integers(-300, 300))
def test_powers_of_ten(power):
    value = float(f"1e{power}")
    near = np.array([value, np.nextafter(value, 0), value * (1 - 1e-9), value * (1 + 1e-9)])
    assert back(near).tolist() == [rounded(v, 3) for v in near.tolist()]


def test_none_zero_and_too_large_have_codes_of_their_own():
    values = np.array([[np.nan, 0.0, 1.0], [50.0, np.inf, -1.0]])
    np.testing.assert_array_equal(back(values), [[np.nan, 0, 1], [50, np.inf, -1]])
    assert np.isnan(back(np.full(3, np.nan))).all()
    np.testing.assert_array_equal(back(np.zeros(2)), 0)


def test_numbers_below_zero_have_codes_too():
    """What is measured may be negative: temperatures, balances."""
    rng = np.random.default_rng(4)
    values = np.r_[rng.normal(size=500) * 10.0 ** rng.integers(-8, 9, 500), 0.0, -1.0, -0.9996, 12.35]
    assert back(values).tolist() == [rounded(v, 3) for v in values.tolist()]


def test_one_absurd_value_does_not_hide_the_others():
    usual = np.array([0.1, 0.234, 2.0])
    np.testing.assert_array_equal(back(np.r_[usual, 1e19, 1e-30]), [*usual, 1e19, 1e-30])
    np.testing.assert_array_equal(back(np.r_[usual, 1e200, 1e-200]), [*usual, np.inf, 0])


@given(hnp.arrays(float, 20, elements=st.floats(0, 1)))
def test_chances_are_the_percentages_that_are_shown(p):
    thousandths = numbers.chance_codes(p) - 1.0
    for share, shown in zip(p.tolist(), thousandths.tolist(), strict=True):
        if share < 0.001 or share > 0.999:
            assert shown == (0 if share < 0.5 else 1000)
        else:
            # One decimal below 10 % and above 90 %, none between; half a unit is all that rounding may take.
            whole = 100 <= shown <= 900
            assert shown % (10 if whole else 1) == 0
            assert abs(1000 * share - shown) <= (5 if whole else 0.5) + 1e-9


def test_chances_off_land():
    assert numbers.chance_codes(np.array([np.nan, 0.5])).tolist() == [0, 501]


def fields_on(domain, seed=0):
    rng = np.random.default_rng(seed)
    land = domain.coverage > 0
    mean = np.where(land, np.exp(rng.normal(size=land.shape)), np.nan)
    return {"mean": mean, "sd": mean**1.5, "p": np.where(land, rng.random(land.shape), np.nan)}


@pytest.mark.parametrize("domain", [island(2000.0), disc()], ids=["island", "disc"])
def test_every_cell_has_its_own_number(domain):
    fields = fields_on(domain)
    made = Numbers.of(domain, fields, 1_000_000)
    assert made.block == 1
    box = np.s_[made.row : made.row + made.shape[0], made.col : made.col + made.shape[1]]
    outside = np.ones(domain.grid.shape, bool)
    outside[box] = False
    assert np.isnan(fields["mean"][outside]).all()
    codes = {name: unpack(text, made.shape) for name, text in made.arrays.items()}
    for name in ("mean", "sd"):
        expected = [rounded(v, 3) if v == v else np.nan for v in fields[name][box].ravel().tolist()]
        np.testing.assert_array_equal(made.decimals.decode(codes[name]).ravel(), expected)
    np.testing.assert_array_equal(codes["p"], numbers.chance_codes(fields["p"][box]))


def test_where_cells_take_too_much_they_are_averaged_by_land():
    domain = island(2000.0)
    fields = fields_on(domain)
    limit = Numbers.of(domain, fields, 1_000_000).size // 3
    made = Numbers.of(domain, fields, limit)
    k = made.block
    assert k > 1
    assert made.size <= limit
    shown = made.decimals.decode(unpack(made.arrays["mean"], made.shape))
    weight = domain.coverage * domain.cell_area
    for row in range(made.shape[0]):
        for col in range(made.shape[1]):
            top, left = made.row + k * row, made.col + k * col
            own = np.s_[top : top + k, left : left + k]
            if not weight[own].any():
                assert np.isnan(shown[row, col])
                continue
            land = weight[own] > 0
            mean = np.average(fields["mean"][own][land], weights=weight[own][land])
            assert shown[row, col] == pytest.approx(mean, rel=6e-3)
