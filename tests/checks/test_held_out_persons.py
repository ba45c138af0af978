"""Persons held out of a map of risk: against fits without them, calibrated, and with mistakes explained."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from models import square
from scipy.special import expit

from geobgp import FullRank, Matern, Posterior
from geobgp.auto.tasks import fit_risk
from geobgp.checks.blocks import squares
from geobgp.checks.crossval import what_to_try
from geobgp.data.counts import bin_points
from geobgp.data.persons import Groups, Persons
from geobgp.errors import DataError

KERNEL = Matern(1.0, lengthscale=4.0, sd=0.8)


def simulated(seed=0, n=900, slope=0.0, side=12.0):
    """Return groups of cases and controls on a square, with a spot of risk, and the square."""
    rng, domain = np.random.default_rng(seed), square(side)
    at, age = rng.uniform(0, side, (n, 2)), rng.choice([-1.0, 0.0, 1.0], n)
    log_odds = -1.0 + 1.5 * np.exp(-(((at - 4.0) / 2.5) ** 2).sum(axis=1)) + slope * age
    ill = rng.random(n) < expit(log_odds)

    def persons(which):
        columns = {"age": age[which]} if slope else {}
        table = pd.DataFrame(columns, index=range(int(which.sum())))
        return Persons(bin_points(at[which], domain), domain.locate(at[which]), table)

    return Groups.of(persons(ill), persons(~ill)), domain


def without(groups, left):
    keep = ~left
    effects = dataclasses.replace(groups.effects, columns=groups.effects.columns[keep])
    return Groups(groups.node[keep], groups.cases[keep], groups.persons[keep], effects)


@pytest.mark.parametrize("slope", [0.0, 0.7])
def test_what_is_predicted_is_what_a_fit_without_the_block_says(slope):
    groups, domain = simulated(1, slope=slope)
    basis = FullRank(domain)
    posterior = fit_risk(groups, basis, KERNEL)
    checked = posterior.cross_validate(4.0)
    blocks = squares(domain, 4.0)
    assert len(checked.blocks) == 9
    for k in (0, 4):
        left = blocks.of[groups.node] == k
        other = fit_risk(without(groups, left), basis, KERNEL)
        offset = other.likelihood.facts()["offset"]
        mean, cov = other.fit.states[0].joint_at(groups.node[left], groups.effects.columns[left])
        draws = np.random.default_rng(0).multivariate_normal(mean, cov, 4000)
        expected = float((expit(offset + draws) @ groups.persons[left]).mean())
        assert checked.blocks["expected"].iloc[k] == pytest.approx(expected, rel=0.04)
        assert checked.blocks["observed"].iloc[k] == groups.cases[left].sum()
        p = expit(offset + draws)
        y, n = groups.cases[left], groups.persons[left]
        log_p = (y * np.log(p) + (n - y) * np.log1p(-p)).sum(axis=1)
        score = float(np.log(np.mean(np.exp(log_p - log_p.max()))) + log_p.max())
        assert checked.blocks["log_density"].iloc[k] == pytest.approx(score, abs=0.5)


def test_intervals_hold_and_real_risk_scores():
    pit, scores = [], []
    for seed in range(4):
        groups, domain = simulated(seed)
        checked = fit_risk(groups, FullRank(domain), KERNEL).cross_validate(3.0, rounds=0)
        pit.append(checked.pit)
        scores.append(checked.score)
    inside = (np.concatenate(pit) > 0.05) & (np.concatenate(pit) < 0.95)
    assert 0.8 <= inside.mean() <= 0.98  # 64 blocks
    assert np.mean(scores) > 0.02
    # In words that follow from the number: what is not below zero is not called above.
    against = "better than by" if checked.score > 2 * checked.se else "about as well as by"
    assert f"predicted {against} one risk everywhere" in checked.verdict()
    assert checked.events == "cases" and (checked.blocks["persons"] >= checked.blocks["observed"]).all()
    assert checked.blocks["score"].sum() == pytest.approx(checked.score * checked.n_events)


def test_a_buffer_and_blocks_without_persons():
    groups, domain = simulated(2)
    west = domain.node_points[groups.node, 0] < 8.0
    some = without(groups, ~west)
    posterior = fit_risk(some, FullRank(domain), KERNEL)
    checked = posterior.cross_validate(4.0, buffer=1.5, rounds=0)
    assert len(checked.blocks) == 6 and (checked.block_of[domain.node_points[:, 0] > 8.0] == -1).all()
    assert checked.plot() is not None
    advice = " ".join(one.words for one in what_to_try(posterior, checked))
    assert "confounders" in advice and "exposure" not in advice
    with pytest.raises(DataError, match="number of at least 0"):
        posterior.cross_validate(4.0, buffer=-1.0)
    with pytest.raises(DataError, match="at least two"):
        posterior.cross_validate(np.where(domain.node_points[:, 0] > 8.0, "east", "west"))


def test_files_keep_numbers_by_node_and_no_persons(tmp_path):
    groups, domain = simulated(3)
    posterior = fit_risk(groups, FullRank(domain), KERNEL)
    back = Posterior.load(posterior.save(tmp_path / "a.geobgp"))
    assert back.cross_validate(4.0, rounds=0).score == posterior.cross_validate(4.0, rounds=0).score
    groups, domain = simulated(3, slope=0.5)
    posterior = fit_risk(groups, FullRank(domain), KERNEL)
    assert posterior.cross_validate(4.0, rounds=0).n_events == groups.cases.sum()
    back = Posterior.load(posterior.save(tmp_path / "b.geobgp"))
    with pytest.raises(DataError, match="Files keep none with confounders") as raised:
        back.cross_validate()
    assert "before it is saved" in raised.value.remedy


def test_blocks_hold_no_more_persons_than_can_be_held_out(monkeypatch):
    groups, domain = simulated(n=600)
    posterior = fit_risk(groups, FullRank(domain), KERNEL)
    usual = posterior.cross_validate(rounds=0)
    monkeypatch.setattr("geobgp.checks.blocks.MOST_NODES", 3)
    checked = posterior.cross_validate(rounds=0)
    assert checked.side < checked.wanted_side == usual.side
    assert np.bincount(checked.block_of[groups.node]).max() <= 3 and checked.n_events == usual.n_events
