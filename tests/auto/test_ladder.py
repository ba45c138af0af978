import dataclasses

import numpy as np
import pytest
import shapely
from scipy.special import gammaln

from geobgp import LGCP, Domain, FullRank, HarmonicBasis, Matern, Posterior, bin_points, map_intensity
from geobgp.auto import pipeline
from geobgp.auto import search as ladder
from geobgp.auto.gridded import GriddedData, GriddedSeries
from geobgp.auto.options import Options
from geobgp.auto.tasks import CountTask
from geobgp.errors import GeometryError, InputWarning, ResolutionWarning, SizeError
from geobgp.progress import Progress

SQUARE = shapely.box(0.0, 0.0, 10.0, 10.0)


def clumps(n: int = 300, spread: float = 0.15, seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centre = rng.uniform(0.5, 9.5, (20, 2))
    return np.clip(centre[rng.integers(20, size=n)] + rng.normal(0, spread, (n, 2)), 0.01, 9.99)


def smooth(n: int = 400, seed: int = 4) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).normal([4.0, 6.0], [2.5, 2.0], (n, 2)), 0.01, 9.99)


@pytest.fixture
def no_more_than(monkeypatch):
    """Let only cells be too late of which there would be more than so many: no test leans on the clock."""

    def limit(nodes: float) -> None:
        def late(self, like, size):
            many = like.data.domain.n_nodes * (like.data.domain.cell_size / size) ** 2
            return "they would take about 99 s, and 1 s of those allowed are left" if many > nodes else ""

        monkeypatch.setattr(ladder.GridRefinement, "_late", late)

    return limit


def run(points, land=SQUARE, **options):
    usual = {"crs": "local", "cache": False, "permeability": 0.0, "max_seconds": 1e6}
    return pipeline.run(Options(points=points, land=land, **{**usual, **options}))


def test_the_gain_is_that_of_the_points_over_an_even_rate():
    """By hand: the bound of the counts, less the number of ways to spread points within cells, less an even rate's."""
    points = clumps()
    scenes = GriddedSeries(CountTask(Options(points=points, land=SQUARE, crs="local"), Progress()))
    for size in (0.5, 1.0):
        scene = scenes.at(size)
        posterior = LGCP(FullRank(scene.domain), Matern(1.0, 2.0, 1.0)).fit(scene.counts)
        total = 0.0
        for y, area in zip(scene.counts.values, scene.domain.node_areas, strict=True):
            total += gammaln(y + 1) - y * np.log(area)
        even = len(points) * np.log(len(points) / 100.0) - len(points)
        assert scene.gain(posterior) == pytest.approx(posterior.elbo + total - even, abs=1e-8)


def test_the_gain_of_a_flat_field_does_not_depend_on_the_cells():
    scenes = GriddedSeries(CountTask(Options(points=smooth(), land=SQUARE, crs="local"), Progress()))
    gains = []
    for size in (0.25, 0.5, 1.0):
        scene = scenes.at(size)
        gains.append(scene.gain(LGCP(FullRank(scene.domain), Matern(1.0, 5.0, 1e-3)).fit(scene.counts)))
    assert np.ptp(gains) < 0.01
    assert -10.0 < gains[0] < 0.0  # what the intercept's wide prior costs


def test_clustered_points_get_finer_cells_and_smooth_ones_do_not(no_more_than):
    no_more_than(10_500)
    told = r"could be sharper.*cells of 0\.0.*Raise max_seconds, or give cell_size=0\.0"
    with pytest.warns(ResolutionWarning, match=told):
        fine = run(clumps(spread=0.1)).posterior
    usual = ladder.cell_size_for(100.0, 300, None)[0]
    assert fine.domain.cell_size == pytest.approx(usual / 2)
    assert "would gain about" in fine.choices["cell size"] and "99 s" in fine.choices["cell size"]
    coarse = run(smooth()).posterior
    assert coarse.domain.cell_size == ladder.cell_size_for(100.0, 400, None)[0]
    assert "cells half as wide would gain only about" in coarse.choices["cell size"]
    for posterior in (fine, coarse):
        nodes = [rung.nodes for rung in posterior.tried]
        assert nodes == sorted(nodes) and len(set(nodes)) >= 2
        (kept,) = [rung for rung in posterior.tried if rung.kept]
        assert kept.nodes == posterior.domain.n_nodes
        assert kept.gain > max(rung.gain for rung in posterior.tried) - 2.0
        text = str(posterior.summary())
        assert str(kept.nodes)[:1] in text and "nats above one level everywhere" in text


def test_finer_cells_score_better_where_the_ladder_takes_them(no_more_than):
    """Held-out points that no fit has seen agree with the ladder."""
    no_more_than(9000)
    every = clumps(600, spread=0.1)
    seen, held = every[::2], every[1::2]
    with pytest.warns(ResolutionWarning):
        fine = run(seen).posterior
    usual = run(seen, cell_size=2 * fine.domain.cell_size).posterior
    scores = [float(np.log(p.intensity_at(held)["mean"]).mean()) for p in (fine, usual)]
    assert scores[0] > scores[1]


def test_a_given_size_is_taken():
    posterior = run(clumps(), cell_size=0.4).posterior
    assert posterior.domain.cell_size == 0.4
    assert posterior.choices["cell size"].endswith("(given)")
    finest = min(rung.cell_size for rung in posterior.tried)
    assert finest == 0.4


def test_time_that_has_run_out_says_what_would_have_come_next():
    with pytest.warns(ResolutionWarning, match=r"0 s of those allowed are left\. Raise max_seconds"):
        found = run(clumps(), max_seconds=0.0, m="full")
    assert len(found.posterior.tried) == 1
    assert "would take about" in found.choices["cell size"].why


def test_places_that_points_share_set_a_limit_to_the_cells(no_more_than):
    no_more_than(9000)
    lattice = np.round(clumps(500, spread=0.1) / 0.25) * 0.25 + 0.1
    with pytest.warns(InputWarning, match="share their place with others"):
        found = run(np.clip(lattice, 0.01, 9.99), m="full")
    assert found.domain.cell_size >= 0.125
    assert "many points share their places" in found.choices["cell size"].why
    assert "0.25 units apart" in found.choices["cell size"].why
    assert found.counts.coordinates is None


def test_points_that_can_be_read_once_have_one_size():
    found = run(iter([smooth()]), m=16, kernel=Matern(1.5, lengthscale=8.0))
    assert len({rung.cell_size for rung in found.posterior.tried}) == 1


def test_a_finer_size_that_cannot_be_had_ends_the_ladder(no_more_than, monkeypatch):
    no_more_than(1e9)
    at = GriddedSeries.at

    def sometimes(self, cell_size, reach=None):
        if cell_size < 0.19:
            raise GeometryError("The exposure has a hole.")
        return at(self, cell_size, reach)

    monkeypatch.setattr(GriddedSeries, "at", sometimes)
    with pytest.warns(ResolutionWarning, match="cannot be had: The exposure has a hole"):
        found = run(clumps(spread=0.1), m="full")
    assert found.posterior.converged


def test_shores_that_are_near_are_compared_again_on_finer_cells(no_more_than):
    no_more_than(4000)
    strait = shapely.box(4.9, 0.0, 5.1, 10.0)
    found = run(smooth(300), land=shapely.difference(SQUARE, strait), permeability="auto")
    assert "on finer cells" in found.choices["water"].why or "features" in found.choices["features"].value


def test_what_was_tried_survives_saving(tmp_path):
    posterior = run(smooth(200), cell_size=1.0).posterior
    again = Posterior.load(posterior.save(tmp_path / "fit.geobgp"))
    assert again.tried == posterior.tried and len(again.tried) >= 1


@pytest.mark.parametrize("make", [FullRank, lambda d: HarmonicBasis.compute(d, 120, cache=False)])
def test_a_fit_that_goes_on_from_coarser_cells_ends_at_the_same_optimum(make):
    """No local one: from nothing, and from a fit on other cells, within 0.02 nats."""
    points = clumps(400, spread=0.8)
    coarse, fine = (Domain.from_polygons(SQUARE, cell_size=h, crs="local") for h in (0.8, 0.4))
    first = LGCP(make(coarse)).fit(bin_points(points, coarse))
    counts = bin_points(points, fine)
    cold = LGCP(make(fine)).fit(counts)
    warm = LGCP(make(fine)).fit(counts, start=first)
    assert warm.converged and cold.converged
    assert warm.elbo == pytest.approx(cold.elbo, abs=0.02)
    assert warm.lengthscale == pytest.approx(cold.lengthscale, rel=0.05)
    np.testing.assert_allclose(warm.node_intensity()["mean"], cold.node_intensity()["mean"], rtol=0.05)


def test_a_fit_goes_on_only_from_one_with_the_same_kernel():
    domain = Domain.from_polygons(SQUARE, cell_size=1.0, crs="local")
    counts = bin_points(smooth(), domain)
    first = LGCP(FullRank(domain), Matern(1.0, 3.0, 1.0)).fit(counts)
    with pytest.raises(Exception, match="same kernel"):
        LGCP(FullRank(domain), Matern(2.0, 3.0, 1.0)).fit(counts, start=first)


def test_map_intensity_has_the_ladder_too():
    posterior = map_intensity(smooth(100), SQUARE, crs="local", permeability=0.0, cell_size=1.0, cache=False)
    assert [dataclasses.asdict(rung)["kept"] for rung in posterior.tried].count(True) == 1


@pytest.mark.parametrize(("options", "words"), [({"cell_size": 1e-4}, "limit"), ({"m": 99_999}, "at most")])
def test_what_cannot_be_is_told_before_anything_is_fitted(options, words, monkeypatch):
    monkeypatch.setattr(LGCP, "fit", lambda *a, **k: pytest.fail("something was fitted"))
    with pytest.raises(SizeError, match=words):
        run(smooth(), permeability="auto", **options)


def test_finer_cells_that_gain_less_than_they_must_are_not_kept(no_more_than, monkeypatch):
    no_more_than(50_000)
    monkeypatch.setattr(ladder, "FADE", 1e3)  # whatever was gained before, finer cells promise much
    gained = {}
    real = GriddedData.gain

    def gain(self, posterior):
        return gained.setdefault(self.domain.n_nodes, real(self, posterior) if not gained else
                                 max(gained.values()) + (5.0 if len(gained) == 1 else 0.69))  # fmt: skip

    monkeypatch.setattr(GriddedData, "gain", gain)
    posterior = run(clumps(n=873), m="full").posterior
    nodes = sorted(gained)
    assert len(nodes) == 3 and posterior.domain.n_nodes == nodes[1]
    assert "gain only 0.69 nats, and must gain 4.4" in posterior.choices["cell size"]


def test_a_quick_map_is_one_coarse_fit_and_one_usual():
    """Points so clustered that the search would go on; nothing is said to have been short of time."""
    mapped = run(clumps(), quick=True, permeability="auto")
    tried = mapped.posterior.tried
    assert [one.prior for one in tried] == ["full resolution"] * 2
    assert tried[0].cell_size > tried[1].cell_size == mapped.domain.cell_size
    assert [one.water for one in tried] == ["closed"] * 2
    assert "a quick map" in mapped.choices["cell size"].why and "a quick map" in mapped.choices["water"].why
    given = run(clumps(), quick=True, permeability=0.3, cell_size=0.2)
    assert [one.water for one in given.posterior.tried] == ["permeability 0.3"] * 2
    assert given.domain.cell_size == 0.2
