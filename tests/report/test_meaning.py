"""What the learned numbers mean: the correlations and factors that the sentences name."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from posteriors import fitted, island, prescribed
from scipy.integrate import quad
from scipy.special import j0

from geobgp import Matern
from geobgp.prior.kernels import SquaredExponential
from geobgp.report.report import correlation, in_sentences


@pytest.mark.parametrize("kernel", [Matern(1.5, 1.0, 1.0), Matern(2.0, 1.0, 1.0), SquaredExponential(1.0, 1.0)])
def test_the_correlation_is_that_of_the_spectral_density(kernel):
    for distance in (0.3, 1.0, 2.0):
        spectrum = lambda w, d=distance: w * float(kernel.spectral_density(np.array([w]))[0]) * j0(w * d)  # noqa: E731
        found = quad(spectrum, 0.0, 60.0, limit=400)[0] / (2 * math.pi)
        assert correlation(kernel, distance) == pytest.approx(found, abs=0.002)


def test_the_sentences_have_the_numbers():
    posterior = prescribed(island(), 0.0, 0.3)  # a lengthscale of 2 km, sd 1.1
    reach, spread, water = in_sentences(posterior)
    assert reach.startswith("Places 2 km apart over land (a lengthscale) have a correlation of 0.44,")
    assert "a factor of 3 around the average" in spread and "between 0.33 and 3 times" in spread
    assert water == "No information crosses water."


def test_the_report_tells_people_and_rates_by_region(tmp_path):
    made = fitted()[0]
    people = dataclasses.replace(made, exposure=made.exposure * 100, exposure_kind="population").in_units("per 1,000")
    page = people.to_report(tmp_path / "report.html", regions=[people.domain.geometry]).read_text("utf-8")
    for words in (
        "People",
        "Rate, events per 1,000 people",
        "Relative risk",
        "Above average",
        "have a correlation of 0.4",
        "km²",
    ):
        assert words in page, words
