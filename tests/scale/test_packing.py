"""What is sent between processes arrives as it was; what holds addresses is not sent."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import small_case as case

from geobgp import LGCP, FullRank, HarmonicBasis, Matern, bin_points
from geobgp.linalg.sparse import Fronts
from geobgp.scale.strata import common_parts, pack, unpack

BASES = {
    "full": lambda domain: FullRank(domain),
    "permeable": lambda domain: FullRank(domain, permeability=0.3),
    "dirichlet": lambda domain: FullRank(domain, boundary="dirichlet"),
    "features": lambda domain: HarmonicBasis.compute(domain, 30, cache=False),
}


@pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning")
@pytest.mark.parametrize("kind", BASES)
def test_a_posterior_can_be_sent(kind):
    domain = case.domain(2000.0)
    basis = BASES[kind](domain)
    counts = bin_points(case.points(seed=1), domain)
    kernel = None if kind == "features" else Matern(1.0, 4000.0, 1.0)
    posterior = LGCP(basis, kernel).fit(counts)
    posterior.sample(2, 0)  # factors are kept now
    sent = pickle.loads(pickle.dumps(posterior))
    common = common_parts(basis, posterior)
    light = unpack(pack(posterior, common), common)
    assert light.basis is posterior.basis
    places = domain.node_points[::7]
    for other in (sent, light):
        np.testing.assert_array_equal(other.node_intensity(), posterior.node_intensity())
        np.testing.assert_allclose(other.sample(3, 1), posterior.sample(3, 1))
        np.testing.assert_array_equal(other.intensity_at(places), posterior.intensity_at(places))
    assert len(pack(posterior, common)) < 0.7 * len(pickle.dumps(posterior))
    again = LGCP(sent.basis, kernel).fit(counts)
    np.testing.assert_allclose(again.node_intensity(), posterior.node_intensity(), rtol=1e-9)


def test_addresses_are_not_sent():
    field = FullRank(case.domain(2000.0)).field
    powers = field.powers(2)
    assert isinstance(powers.fronts, Fronts)
    with pytest.raises(TypeError, match="knows addresses"):
        pickle.dumps(powers.fronts)
    other = pickle.loads(pickle.dumps(powers))
    coefficients = np.array([1.0, 0.5, 0.2])
    rhs = np.arange(field.size, dtype=float)
    weights = np.ones(field.to_nodes.shape[0])
    expected = powers.factor(coefficients, weights).solve(rhs)
    np.testing.assert_allclose(other.factor(coefficients, weights).solve(rhs), expected)
