"""The description of results for machines follows RO-Crate 1.1, by the rocrate package and by the rules themselves."""

import hashlib
import json
from urllib.parse import unquote

import pytest
import small_case as case
from rocrate.rocrate import ROCrate

from geobgp import map_intensity
from geobgp.report.crate import CRATE, _inputs, write_crate
from geobgp.report.gather import Study


@pytest.fixture(scope="module")
def posterior():
    return map_intensity(
        case.points(), case.land(), water=case.water(), cell_size=1000, m=32, permeability=0, cache=False,
        covariates={"a b": lambda xy: xy[:, 0]}, min_count=5,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(posterior, tmp_path_factory):
    place = tmp_path_factory.mktemp("crate")
    (place / "periods").mkdir()
    for name in ("mean.tif", "periods/mean 2020-01.tif", "map.html"):
        (place / name).write_bytes(name.encode())
    files = {"mean.tif": "the mean", "periods/mean 2020-01.tif": "", "map.html": "a map", "summary.json": "", CRATE: ""}
    study = Study.of(
        {"authors": ["A. Bé"], "license": "https://creativecommons.org/licenses/by/4.0/", "funding": "None.",
         "sources": {"land": "survey"}}
    )  # fmt: skip
    write_crate(place, posterior, files, study=study, command="geobgp map points.gpkg")
    (place / "summary.json").write_text("{}")
    return place


def test_the_package_reads_it(folder):
    crate = ROCrate(folder)
    files = {unquote(one.id) for one in crate.data_entities}
    assert files == {"mean.tif", "periods/", "periods/mean 2020-01.tif", "map.html", "summary.json"}
    run = crate.get("#run")
    assert run.type == "CreateAction" and run["instrument"]["name"] == "geobgp"
    assert {unquote(one.id) for one in run["result"]} == files - {"periods/"}
    assert crate.root_dataset["license"].id.startswith("https://creativecommons")
    assert (
        crate.root_dataset["author"][0]["name"] == "A. Bé" if isinstance(crate.root_dataset["author"], list) else True
    )


def test_it_keeps_the_rules(folder, posterior):
    text = json.loads((folder / CRATE).read_text("utf-8"))
    entities = {one["@id"]: one for one in text["@graph"]}
    assert len(entities) == len(text["@graph"]), "every entity has an @id of its own"
    assert all(one.get("@type") for one in entities.values())
    assert text["@context"][0] == "https://w3id.org/ro/crate/1.1/context"
    descriptor, root = entities[CRATE], entities["./"]
    assert descriptor["@type"] == "CreativeWork" and descriptor["about"] == {"@id": "./"}
    assert descriptor["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.1"}
    assert root["@type"] == "Dataset" and {"name", "description", "datePublished", "license"} <= set(root)

    def references(value):
        if isinstance(value, dict):
            yield from [value["@id"]] if set(value) == {"@id"} else []
            for part in value.values():
                yield from references(part)
        elif isinstance(value, list):
            for part in value:
                yield from references(part)

    known = {*entities, "https://w3id.org/ro/crate/1.1"}
    assert {ref for one in entities.values() for ref in references(one)} <= known, "every reference leads somewhere"

    def reached(entity):
        yield entity["@id"]
        for part in entity.get("hasPart", ()):
            yield from reached(entities[part["@id"]])

    data = {key for key, one in entities.items() if one["@type"] in ("File", "Dataset")}
    assert set(reached(root)) == data, "every file belongs to the root, and nothing else does"
    for key in data - {"./", "summary.json"}:
        if entities[key]["@type"] == "File":
            content = (folder / unquote(key)).read_bytes()
            assert entities[key]["sha256"] == hashlib.sha256(content).hexdigest()
            assert entities[key]["contentSize"] == str(len(content))
    action = entities["#run"]
    inputs = [entities[one["@id"]] for one in action["object"]]
    assert [one["keywords"] for one in inputs] == ["points", "land", "water", "covariate a b"]
    assert [one.get("sha256") for one in inputs] == [one["sha256"] for one in posterior.origin["inputs"]]
    assert inputs[1]["description"] == "survey"


def test_it_holds_no_coordinates(folder):
    text = (folder / CRATE).read_text("utf-8")
    assert "GeoShape" not in text and "GeoCoordinates" not in text


def test_inputs_are_called_by_their_files_whatever_their_use():
    one = {"role": "covariate rain", "name": "rain.tif|smooth", "sha256": "a" * 64, "bytes": 12, "features": 4}
    two = one | {"role": "exposure", "name": "rain.tif"}
    (entity,) = _inputs({"inputs": [one, two]}, Study())
    assert entity["name"] == "rain.tif" and entity["keywords"] == "covariate rain, exposure"
