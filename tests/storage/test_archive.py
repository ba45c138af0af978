"""Open families in stored posteriors: kernels, bases and likelihoods of a user's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields, replace

import geopandas as gpd
import numpy as np
import pyproj
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from models import Mixed, all_modes, poisson_problem, square
from paths import ROOT
from posteriors import fitted

from geobgp import LGCP, BoundaryGP, Domain, FullRank, HarmonicBasis, Matern, Posterior, store
from geobgp.archive import pack, unpack
from geobgp.errors import CacheError, DataError
from geobgp.inference.engine import engine_for
from geobgp.inference.families import Bernoulli, Gaussian, Likelihood, Poisson
from geobgp.prior.kernels import KERNELS, Kernel
from geobgp.style import Style
from geobgp.summary import FitRecord


class Coast(HarmonicBasis):
    """A basis of a user's own."""


class Counted(Poisson):
    """A likelihood of a user's own."""


def counts() -> np.ndarray:
    return poisson_problem(square(), 3).counts


def test_a_kernel_a_basis_and_a_likelihood_of_a_users_own(tmp_path):
    made = all_modes(square(), m=30)
    basis = Coast.from_vectors(made.discretisation, made.eigenvalues, made.vectors)
    model = LGCP(basis, Mixed(0.4, lengthscale=4.0, sd=0.8))
    model.family = Counted.without_data({})
    posterior = model.fit(counts())
    back = Posterior.load(posterior.save(tmp_path / "fit"))
    assert back.kernel == posterior.kernel and isinstance(back.kernel, Mixed)
    assert type(back.basis) is Coast and type(back.likelihood) is Counted
    np.testing.assert_array_equal(back.node_intensity(), posterior.node_intensity())
    np.testing.assert_array_equal(back.observed, counts())


def test_a_kernel_nobody_knows_is_named(tmp_path, monkeypatch):
    posterior = LGCP(all_modes(square(), m=30), Mixed(0.4, lengthscale=4.0, sd=0.8)).fit(counts())
    path = posterior.save(tmp_path / "fit")
    monkeypatch.delitem(KERNELS._members, "Mixed")
    with pytest.raises(DataError, match="'Mixed' is not registered"):
        posterior.save(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    with pytest.raises(DataError, match="Unknown kernel 'Mixed'"):
        Posterior.load(path)


@pytest.mark.parametrize("make", [lambda d: all_modes(d, m=30), FullRank], ids=["features", "full"])
def test_a_fresh_process_reads_every_basis(make, tmp_path):
    basis = make(square())
    posterior = LGCP(basis, basis.default_kernel().with_parameters(4.0, 0.8)).fit(counts())
    path = posterior.save(tmp_path / "fit")
    code = f"from geobgp import Posterior; print(repr(Posterior.load({str(path)!r})))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == repr(posterior)


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "poisson"])
@pytest.mark.parametrize("link", ["probit", "logit"])
def test_likelihoods_round_trip(likelihood, link, tmp_path):
    coords = square().node_points
    values = (coords[:, 0] > 5).astype(float)
    model = BoundaryGP(all_modes(square(), m=30), Matern(1.5, 4.0, 1.0), likelihood, link=link)
    posterior = model.fit(coords, values)
    back = Posterior.load(posterior.save(tmp_path / "fit"))
    assert back.likelihood.name == posterior.likelihood.name
    for a, b in zip(posterior.predict_y(coords), back.predict_y(coords), strict=True):
        np.testing.assert_array_equal(a, b)


def test_every_likelihood_tells_how_it_is_stored():
    for one in (Poisson(np.ones(2), np.ones(2)), Gaussian(np.ones(2)), Bernoulli(np.ones(2), "logit")):
        bare = type(one).without_data(one.facts())
        assert isinstance(bare, Likelihood) and bare.size == 0 and bare.name == one.name


def test_a_file_without_its_parts_says_what_it_lacks(tmp_path):
    from geobgp import store

    path = LGCP(FullRank(square()), Matern(1.0, 4.0, 0.8)).fit(counts()).save(tmp_path / "fit")
    header, arrays = store.read(path, "posterior")
    del header["posterior"]["of"]["exposure_kind"]
    store.write(path, "posterior", header, arrays)
    with pytest.raises(CacheError, match=r"geobgp .* lacks"):
        Posterior.load(path)


def test_an_engine_for_every_basis_and_none_for_others():
    columns, sd = np.ones((square().n_nodes, 1)), np.ones(1)
    for basis in (all_modes(square(), m=5), FullRank(square())):
        kernel: Kernel = basis.default_kernel()
        engine = engine_for(basis, kernel, columns, sd)
        theta = np.log([3.0, 1.0])
        assert engine.truncated_variance(theta) == pytest.approx(basis.truncated_variance(kernel, 3.0), abs=1e-12)
    with pytest.raises(DataError, match="object"):
        engine_for(object(), kernel, columns, sd)


def rewritten(path, target, change):
    """Write a stored file once more with other content."""
    header, arrays = store.read(path, "posterior")
    change(header, arrays)
    return store.write(target, "posterior", header, arrays)


def standing(facts, kind):
    """Return what stands for the first value of a kind in the header of a file."""
    inside = facts.values() if isinstance(facts, dict) else facts if isinstance(facts, list) else ()
    if isinstance(facts, dict) and facts.get("is") == kind:
        return facts["of"]
    return next(filter(None, (standing(one, kind) for one in inside)), None)


def named(arrays, end):
    """Return the name of the array that ends so."""
    return next(name for name in arrays if name.endswith(end))


def _larger(header, arrays):
    standing(header, "domain")["shape"]["of"] = [10**7, 10**7]


def _elsewhere(header, arrays):
    standing(header, "domain")["crs"]["of"] = pyproj.CRS(3035).to_wkt()


def _no_crs(header, arrays):
    standing(header, "domain")["crs"]["of"] = "PROJCS[nonsense"


def _other_land(header, arrays):
    name = named(arrays, "domain.geometry")
    shape = shapely.from_wkb(arrays[name].tobytes())
    arrays[name] = np.frombuffer(shapely.to_wkb(shapely.affinity.scale(shape, 0.9)), np.uint8)


def _no_land(header, arrays):
    arrays[named(arrays, "domain.geometry")] = np.frombuffer(b"\x01\x02\x03", np.uint8)


def _fewer(header, arrays):
    arrays["posterior.exposure"] = arrays["posterior.exposure"][:-1]


def _negative(header, arrays):
    arrays["posterior.exposure"] = -arrays["posterior.exposure"]


def _other_state(header, arrays):
    name = named(arrays, "states.0.fixed")
    arrays[name] = arrays[name][:-1]


def _half_a_factor(header, arrays):
    name = next(name for name in arrays if ".chol.dense." in name)
    arrays[name] = arrays[name][: len(arrays[name]) // 2]


def _other_features(header, arrays):
    name = next(name for name in arrays if ".basis.arrays.vectors" in name)
    arrays[name] = arrays[name][:-1]


def _other_likelihood(header, arrays):
    standing(header, "likelihood")["kind"] = "Sorcery"


def _a_class_of_others(header, arrays):
    header["posterior"]["of"]["choices"] = {"is": "Popen", "of": {"args": "true"}}


def _a_field_of_others(header, arrays):
    standing(header, "Fit")["sorcery"] = 1


def _nothing(header, arrays):
    header["posterior"] = None


@pytest.mark.parametrize(
    "change",
    [_larger, _elsewhere, _no_crs, _other_land, _no_land, _fewer, _negative, _other_state, _half_a_factor,
     _other_features, _other_likelihood, _a_class_of_others, _a_field_of_others, _nothing],
)  # fmt: skip
def test_whole_files_with_wrong_content_are_refused(change, tmp_path):
    path = fitted()[0].save(tmp_path / "right.geobgp")
    wrong = rewritten(path, tmp_path / "wrong.geobgp", change)
    with pytest.raises((CacheError, DataError)):
        Posterior.load(wrong)
    assert Posterior.load(rewritten(path, tmp_path / "same.geobgp", lambda header, arrays: None)).elbo


def test_files_from_before_exposure_was_kept_are_read(tmp_path):
    """A region's part of a cell is then by land, as it was."""
    districts = gpd.GeoDataFrame(
        {"people": [900.0, 100.0]}, geometry=[shapely.box(0, 0, 5, 6), shapely.box(5, 0, 9, 6)]
    )
    domain = Domain.from_polygons(shapely.box(0, 0, 9, 6), cell_size=2, crs="local")
    basis = HarmonicBasis.compute(domain, 8, cache=False)
    model = LGCP(basis, Matern(1.5, lengthscale=8.0, sd=0.5), exposure=districts, exposure_column="people")
    posterior = model.fit(np.full(domain.n_nodes, 3.0))
    posterior.save(tmp_path / "new.geobgp")
    header, arrays = store.read(tmp_path / "new.geobgp", "posterior")
    del header["posterior"]["of"]["given"]
    store.write(tmp_path / "old.geobgp", "posterior", header, arrays)
    shapes, found = districts[["geometry"]], {}
    for name in ("new", "old"):
        table = Posterior.load(tmp_path / f"{name}.geobgp").totals(shapes, n_samples=2)
        found[name] = table["exposure"]
        assert found[name].sum() == pytest.approx(1000.0)
    np.testing.assert_allclose(found["new"], [900.0, 100.0], rtol=1e-9)
    assert found["old"][0] < 850.0


def same(a, b) -> bool:
    """Whether two values hold the same, whatever they are made of."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
numbers = st.lists(st.floats(), max_size=3).map(np.array)
nested = st.recursive(
    plain | numbers,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.just("is") | st.integers(), inner, max_size=3)
    ),
)


@given(nested)
def test_whatever_is_taken_apart_is_put_together_as_it_was(value):
    facts, arrays = pack(value)
    assert same(unpack(json.loads(json.dumps(facts)), arrays), value)


def test_what_stands_twice_is_stored_once():
    domain, numbers = square(), np.arange(3.0)
    facts, arrays = pack({"a": [domain, numbers], "b": (domain, numbers)})
    back = unpack(facts, arrays)
    assert back["a"][0] is back["b"][0] and back["a"][1] is back["b"][1]
    assert back["a"][0].content_hash() == domain.content_hash()


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array([None]), np.datetime64("2020-01-01"), 1j, print])
def test_what_could_not_be_read_again_is_refused(value):
    with pytest.raises(DataError, match=r"\(here.*\) cannot be stored"):
        pack({"here": value})


def test_every_field_of_a_posterior_comes_back(tmp_path):
    """Whatever fields it has: none is named in the archive, and none is forgotten."""
    record = FitRecord(1.0, 20, "30 features", "closed", 3.5, 0.1, True)
    posterior = replace(
        fitted()[0], title="A map", per="per 100,000 people", shown_in="events per km²", interval=0.8,
        style=Style.of(classes=(1, 2, 5)), choices={"water": "closed"}, tried=(record,),
    )  # fmt: skip
    back = Posterior.load(posterior.save(tmp_path / "fit"))
    for one in fields(posterior):
        if one.name in ("fit", "basis", "likelihood", "design", "places"):
            continue
        expected, found = getattr(posterior, one.name), getattr(back, one.name)
        assert same(expected, found) if isinstance(expected, np.ndarray) else expected == found, one.name
    assert back.places is None
    assert back.fit.hyper_mean.tolist() == posterior.fit.hyper_mean.tolist()
