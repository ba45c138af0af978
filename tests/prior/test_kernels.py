import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import Mixed
from scipy.integrate import quad
from scipy.special import gamma, kv

from geobgp.archive import pack, unpack
from geobgp.errors import DataError, GeobgpError
from geobgp.prior.kernels import Matern, PCPrior, SquaredExponential

KERNELS = [Matern(0.5), Matern(1.0), Matern(1.5), Matern(2.7), SquaredExponential()]
ALL = [*KERNELS, Mixed(0.3)]


@pytest.mark.parametrize("kernel", ALL)
def test_spectral_density_integrates_to_the_variance(kernel):
    fixed = kernel.with_parameters(1.7, 1.3)
    total, _ = quad(lambda w: w * fixed.spectral_density(np.array([w]))[0] / (2 * math.pi), 0, np.inf, limit=500)
    assert total == pytest.approx(1.3**2, rel=1e-6)


@pytest.mark.parametrize("nu", [0.5, 1.0, 1.5, 2.7])
def test_matern_density_is_the_covariance_transformed(nu):
    """s(ω) = 2π ∫ r k(r) J0(ω r) dr, with k written out by Bessel functions."""
    from scipy.special import j0

    length, sd = 1.3, 0.8

    def covariance(r):
        x = math.sqrt(2 * nu) * r / length
        return sd**2 * 2 ** (1 - nu) / gamma(nu) * x**nu * kv(nu, x)

    kernel = Matern(nu, length, sd)
    for omega in (0.0, 0.7, 2.0):
        by_hand, _ = quad(lambda r: r * covariance(r) * j0(omega * r), 1e-12, 60, limit=1000)  # noqa: B023
        assert kernel.spectral_density(np.array([omega]))[0] == pytest.approx(2 * math.pi * by_hand, rel=1e-5)


def test_squared_exponential_is_the_limit_of_smooth_materns():
    omega = np.linspace(0, 3, 20)
    limit = SquaredExponential(lengthscale=1.2, sd=0.7).spectral_density(omega)
    assert Matern(1e6, 1.2, 0.7).spectral_density(omega) == pytest.approx(limit, rel=1e-4)


@given(kernel=st.sampled_from(ALL), log_l=st.floats(-3, 3), log_s=st.floats(-3, 3), lam=st.floats(0, 1e3))
@settings(max_examples=200, deadline=None)
def test_derivatives_of_the_log_density(kernel, log_l, log_s, lam):
    lam = np.array([lam])
    theta, e = np.array([log_l, log_s]), 1e-5
    value, first, second = kernel.log_density(lam, theta)
    up, up1, _ = kernel.log_density(lam, theta + np.array([e, 0.0]))
    down, down1, _ = kernel.log_density(lam, theta - np.array([e, 0.0]))
    scale = 1 + lam[0] * math.exp(2 * log_l)
    assert (up - down) / (2 * e) == pytest.approx(first, abs=1e-5 * scale, rel=1e-5)
    assert (up1 - down1) / (2 * e) == pytest.approx(second, abs=1e-5 * scale, rel=1e-5)
    more, _, _ = kernel.log_density(lam, theta + np.array([0.0, 0.5]))
    assert more - value == pytest.approx(1.0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_missed_share_is_the_tail_of_the_density(kernel):
    fixed = kernel.with_parameters(1.5, 1.0)
    last = 2.3
    tail, _ = quad(
        lambda w: w * fixed.spectral_density(np.array([w]))[0] / (2 * math.pi), math.sqrt(last), np.inf, limit=500
    )
    assert fixed.truncated_variance(last, 1.5) == pytest.approx(tail, rel=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_extremes_neither_overflow_nor_give_nan(kernel):
    lam = np.array([0.0, 1e-12, 1.0, 1e12])
    for log_l in (-150.0, 150.0, 300.0):
        for part in kernel.log_density(lam, np.array([log_l, 0.0])):
            assert not np.isnan(part).any()


def test_prior_has_the_probabilities_it_states():
    prior = PCPrior(lengthscale=(2.0, 0.05), sd=(3.0, 0.01))

    def mass(index, low, high):
        def density(t):
            return math.exp(prior.log_density(np.array([t, t]))[0][index])

        return quad(density, low, high, limit=500)[0]

    assert mass(0, -30, 30) == pytest.approx(1, abs=1e-6)
    assert mass(0, -30, math.log(2.0)) == pytest.approx(0.05, abs=1e-6)
    assert mass(1, -30, 10) == pytest.approx(1, abs=1e-6)
    assert mass(1, math.log(3.0), 10) == pytest.approx(0.01, abs=1e-6)


def test_prior_derivatives():
    prior, theta, e = PCPrior(lengthscale=(2.0, 0.05), sd=(3.0, 0.01)), np.array([0.4, -0.7]), 1e-6
    _, first, second = prior.log_density(theta)
    up, up1, _ = prior.log_density(theta + e)
    down, down1, _ = prior.log_density(theta - e)
    assert (up - down) / (2 * e) == pytest.approx(first, rel=1e-6)
    assert (up1 - down1) / (2 * e) == pytest.approx(second, rel=1e-6)


def test_prior_scales_with_the_domain():
    a = PCPrior().scaled(100.0, 1.0)
    b = PCPrior().scaled(100_000.0, 1000.0)
    assert b.lengthscale[0] == pytest.approx(1000 * a.lengthscale[0])
    assert a.sd == b.sd
    assert PCPrior().scaled(10.0, 5.0).lengthscale[0] == 5.0
    assert PCPrior(sd=(1.0, 0.1)).scaled(10.0, 5.0).sd == (1.0, 0.1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Matern(0.0),
        lambda: Matern(float("nan")),
        lambda: Matern(1.5, lengthscale=-1.0),
        lambda: Matern(1.5, sd=0.0),
        lambda: SquaredExponential(lengthscale=float("inf")),
        lambda: PCPrior(lengthscale=(1.0, 1.5)),
        lambda: PCPrior(sd=(-1.0, 0.5)),
        lambda: PCPrior().rates(),
        lambda: Matern(1.5).spectral_density(np.zeros(1)),
    ],
)
def test_mistakes_are_named(make):
    with pytest.raises(GeobgpError):
        make()


@pytest.mark.parametrize("kernel", [*KERNELS, Matern(1.5, 3.0, 0.1 + 0.2, PCPrior(sd=(1.0, 0.01)))])
def test_round_trip_through_plain_data(kernel):
    facts, arrays = pack(kernel)
    assert not arrays and unpack(json.loads(json.dumps(facts)), {}) == kernel


@pytest.mark.parametrize("kernel", ALL)
@pytest.mark.parametrize("share", [0.5, 0.05, 1e-3])
def test_the_eigenvalue_needed_misses_just_the_share(kernel, share):
    assert kernel.truncated_variance(kernel.eigenvalue_needed(7.0, share), 7.0) == pytest.approx(share, rel=1e-9)


def test_a_kernel_of_a_users_own_is_stored_under_its_own_name():
    kernel = Mixed(0.25, lengthscale=2.0, prior=PCPrior(lengthscale=(1.0, 0.1)))
    facts, arrays = pack(kernel)
    assert facts["of"]["kind"] == "Mixed"
    assert unpack(facts, arrays) == kernel


def test_kernels_that_could_not_be_read_again_are_named():
    class Plain(Matern):
        """Not a dataclass of its own: fields are those of Matern, but equality is by class."""

    @dataclass(frozen=True)
    class Table(Matern):
        values: tuple = ()

    assert unpack(*pack(Plain(1.5))) == Plain(1.5)
    assert unpack(*pack(Table(1.5, values=(1, 2)))) == Table(1.5, values=(1, 2))
    with pytest.raises(DataError, match=r"object \(fields.values.0\) cannot be stored"):
        pack(Table(1.5, values=(object(),)))
    with pytest.raises(DataError, match="'Matern' already"):
        type("Matern", (Matern,), {})


def test_unknown_kernel_in_a_file():
    with pytest.raises(DataError, match="quadratic"):
        unpack({"is": "kernel", "of": {"kind": "quadratic", "fields": {}}}, {})
