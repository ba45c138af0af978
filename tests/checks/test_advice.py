"""What to try where checks fail follows what the fit itself shows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import shapely
from models import all_modes, archipelago, poisson_problem, square
from scipy.special import ndtr

from geobgp.checks.crossval import CrossValidation, check_warning, what_to_try
from geobgp.errors import CheckWarning, render_text
from geobgp.land.domain import Domain
from geobgp.model import LGCP
from geobgp.prior.full_rank import FullRank
from geobgp.prior.kernels import Matern

KERNEL = Matern(1.0, lengthscale=4.0, sd=1.0)


def with_pit(checked: CrossValidation, scores: np.ndarray) -> CrossValidation:
    return dataclasses.replace(checked, blocks=checked.blocks.assign(pit=ndtr(scores)))


def first_words(posterior, checked) -> str:
    return render_text(what_to_try(posterior, checked)[0].words)


@pytest.fixture(scope="module")
def plain():
    domain = square(12.0)
    posterior = LGCP(FullRank(domain), KERNEL).fit(poisson_problem(domain, total=600).counts)
    return posterior, posterior.cross_validate(2.0)


def test_no_warning_where_checks_hold(plain):
    assert plain[1].failures() == [] and check_warning(*plain) is None


def test_one_line_where_they_fail(plain):
    posterior, checked = plain
    wild = with_pit(checked, np.where(np.arange(len(checked.blocks)) % 2, 3.0, -3.0))
    warning = check_warning(posterior, wild)
    assert isinstance(warning, CheckWarning) and "\n" not in str(warning)
    assert str(warning).startswith("Only 0 % of 36 held-out blocks") and "Try " in str(warning)
    assert warning.found == 0.0


def test_a_check_knows_what_to_try(plain):
    posterior, checked = plain
    assert checked.posterior is posterior and checked.advice() == []
    wild = with_pit(checked, np.where(np.arange(len(checked.blocks)) % 2, 3.0, -3.0))
    assert wild.advice() == [render_text(one.words) for one in what_to_try(posterior, wild)]
    assert wild.advice()[0] in str(check_warning(posterior, wild))
    assert dataclasses.replace(wild, posterior=None).advice() == []


def test_neighbours_that_err_alike_speak_for_covariates(plain):
    posterior, checked = plain
    east = checked.blocks.centroid.x.to_numpy()
    found = first_words(posterior, with_pit(checked, 2.5 * np.sign(east - 6)))
    assert found.startswith("covariates") and "err alike (correlation 0." in found


def test_few_features_speak_for_full_resolution():
    domain = square(12.0)
    posterior = LGCP(all_modes(domain, m=10), KERNEL)
    with pytest.warns(match="miss"):
        fitted = posterior.fit(poisson_problem(domain, total=600).counts)
    assert first_words(fitted, fitted.cross_validate(2.0)).startswith("full resolution (FullRank")


def test_bad_blocks_at_the_shore_speak_for_permeable_water():
    land = [shapely.box(0, 0, 20, 20), shapely.box(20.5, 0, 30, 9.7)]
    domain = Domain.from_polygons(land, cell_size=1.0, crs="local")
    counts = poisson_problem(domain, total=600).counts
    closed = LGCP(FullRank(domain), KERNEL).fit(counts)
    checked = closed.cross_validate(2.0)
    wet = checked.blocks["land_area"].to_numpy() < 3.999
    signs = np.where(np.arange(len(wet)) % 2, 1.0, -1.0)
    found = first_words(closed, with_pit(checked, np.where(wet, 3.0, 0.5) * signs))
    assert found.startswith("water that information may cross (permeability=") and "beside water" in found
    water = FullRank(archipelago(), permeability=0.5)
    crossed = LGCP(water, KERNEL).fit(poisson_problem(archipelago()).counts)
    told = [render_text(one.words) for one in what_to_try(crossed, crossed.cross_validate(3.0))]
    assert not [words for words in told if words.startswith("water")]


def test_crowds_on_one_spot_speak_for_smaller_cells():
    domain = square(12.0)
    counts = np.full(domain.n_nodes, 1.0)
    counts[70] = 400
    posterior = LGCP(FullRank(domain), Matern(1.0, 8.0, 0.3)).fit(counts)
    assert first_words(posterior, posterior.cross_validate(2.0)).startswith("smaller cells (cell_size)")
