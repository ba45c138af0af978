"""A posterior of prescribed numbers, and its dataset, for the tests of what is written."""

import pytest
from posteriors import bumps, island, prescribed


@pytest.fixture(scope="module")
def posterior():
    domain = island()
    return prescribed(domain, bumps(domain), 0.4, title="Known numbers")


@pytest.fixture(scope="module")
def data(posterior):
    data = posterior.intensity()
    data["exceedance_0.5"] = posterior.exceedance(0.5)
    return data
