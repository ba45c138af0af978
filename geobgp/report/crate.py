"""The description of a folder of results for machines: ``ro-crate-metadata.json``, by RO-Crate 1.1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from geobgp.files import replacing
from geobgp.privacy import told_origin
from geobgp.provenance import file_name, sha256
from geobgp.report import statements
from geobgp.report.gather import Study

if TYPE_CHECKING:
    from geobgp.posterior import Posterior

#: What the file is called, and what it conforms to.
CRATE = "ro-crate-metadata.json"
_PROFILE = "https://w3id.org/ro/crate/1.1"
#: Media types that are not known by their endings everywhere.
_FORMATS = {
    ".tif": "image/tiff", ".qml": "application/xml", ".html": "text/html", ".csv": "text/csv",
    ".json": "application/json", ".gpkg": "application/geopackage+sqlite3", ".nc": "application/netcdf",
    ".qgz": "application/zip", ".geobgp": "application/zip", ".zip": "application/zip", ".png": "image/png",
    ".gif": "image/gif", ".mp4": "video/mp4", ".pdf": "application/pdf", ".svg": "image/svg+xml",
}  # fmt: skip


def write_crate(
    folder: str | Path, posterior: Posterior, files: Mapping[str, str], *, study: Study | None = None, command: str = ""
) -> Path:
    """Write the description of a folder: its files, what they were made of, by which software and call.

    Parameters
    ----------
    folder : str or path
    posterior : Posterior
        What the files are of.
    files : mapping of str to str
        Their paths within the folder, with ``/``, and what they are; those that are not there yet have no size.
    study : Study, optional
        What the author states: authors, licence, funding.
    command : str
        By default the call.
    """
    graph = _graph(Path(folder), posterior, dict(sorted(files.items())), study or Study(), command)
    context = [f"{_PROFILE}/context", {"sha256": "http://schema.org/sha256"}]
    text = json.dumps({"@context": context, "@graph": graph}, indent=2, ensure_ascii=False, allow_nan=False)
    path = Path(folder) / CRATE
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    return path


def _graph(
    folder: Path, posterior: Posterior, files: dict[str, str], study: Study, command: str
) -> list[dict[str, Any]]:
    origin = told_origin(posterior)
    outputs = [_file(folder, name, about) for name, about in files.items() if name != CRATE]
    parents = sorted({name.rsplit("/", 1)[0] for name in files if "/" in name})
    folders = [
        {
            "@id": f"{_uri(parent)}/", "@type": "Dataset", "name": parent,
            "hasPart": [_ref(one) for one in outputs if one["@id"].startswith(f"{_uri(parent)}/")],
        }
        for parent in parents
    ]  # fmt: skip
    inputs = _inputs(origin, study)
    software = _software(origin)
    authors = [{"@id": f"#author-{k}", "@type": "Person", "name": name} for k, name in enumerate(study.authors, 1)]
    action = {
        "@id": "#run", "@type": "CreateAction", "name": "The run that made these results",
        "description": command or origin.get("call", ""), "endTime": posterior.created,
        "instrument": _ref(software[0]), "object": [_ref(one) for one in inputs],
        "result": [_ref(one) for one in outputs],
        "actionStatus": "http://schema.org/CompletedActionStatus",
    }  # fmt: skip
    title = posterior.title or posterior.default_title
    usual = f"{title}: {statements.basis_in_words(posterior)}, mapped by geobgp."
    described = study.entries.get("description", usual)
    root: dict[str, Any] = {
        "@id": "./", "@type": "Dataset", "name": title, "description": described, "datePublished": posterior.created,
        "hasPart": [_ref(one) for one in (*[f for f in outputs if "/" not in f["@id"]], *folders)],
        "mentions": _ref(action),
    }  # fmt: skip
    more = []
    if authors:
        root["author"] = [_ref(one) for one in authors]
        action["agent"] = root["author"]
    if licence := study.entries.get("license"):
        url = licence.startswith(("http://", "https://"))
        more.append({"@id": licence if url else "#license", "@type": "CreativeWork", "name": licence})
        root["license"] = _ref(more[-1])
    if funding := study.entries.get("funding"):
        more.append({"@id": "#funding", "@type": "Grant", "name": funding})
        root["funding"] = _ref(more[-1])
    if posterior.periods is not None and posterior.periods.dated:
        ends = posterior.periods.starts[0], posterior.periods.ends[-1]
        root["temporalCoverage"] = "/".join(str(end)[:10] for end in ends)
    descriptor = {
        "@id": CRATE, "@type": "CreativeWork", "conformsTo": {"@id": _PROFILE}, "about": {"@id": "./"},
    }  # fmt: skip
    return [descriptor, root, *folders, *outputs, action, *inputs, *software, *authors, *more]


def _ref(entity: Mapping[str, Any]) -> dict[str, str]:
    return {"@id": entity["@id"]}


def _uri(name: str) -> str:
    """Return a path within the folder as a relative URI; a blank is no character of one."""
    return quote(name)


def _file(folder: Path, name: str, about: str) -> dict[str, Any]:
    path = folder / name
    entity = {"@id": _uri(name), "@type": "File", "name": name}
    if about:
        entity["description"] = about
    if (media := _FORMATS.get(path.suffix.lower())) is not None:
        entity["encodingFormat"] = media
    if path.is_file():
        digest, size = sha256([path])
        entity |= {"contentSize": str(size), "sha256": digest}
    return entity


def _inputs(origin: Mapping[str, Any], study: Study) -> list[dict[str, Any]]:
    """Return every input once, with all that it was used for; none of them is in the folder."""
    entities: dict[tuple[Any, ...], dict[str, Any]] = {}
    for one in origin.get("inputs", ()):
        new = {"@id": f"#input-{len(entities) + 1}", "@type": "CreativeWork", "name": file_name(one)}
        entity = entities.setdefault((new["name"], one["sha256"]), new)
        entity["keywords"] = ", ".join(filter(None, (entity.get("keywords"), one["role"])))
        if one["sha256"]:
            entity["sha256"] = one["sha256"]
        if one["bytes"] is not None:
            entity["contentSize"] = str(one["bytes"])
        if one["role"] in study.sources:
            entity["description"] = study.sources[one["role"]]
    return list(entities.values())


def _software(origin: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return geobgp, and what it ran with."""
    import geobgp

    versions = dict(origin.get("software", {}))
    own = {
        "@id": "#geobgp", "@type": "SoftwareApplication", "name": "geobgp",
        "version": versions.pop("geobgp", geobgp.__version__),
    }  # fmt: skip
    system = versions.pop("system", None)
    if system is not None:
        own["operatingSystem"] = system
    others = [
        {"@id": f"#{name}", "@type": "SoftwareApplication", "name": name, "version": version}
        for name, version in versions.items()
    ]
    if others:
        own["softwareRequirements"] = [_ref(one) for one in others]
    return [own, *others]
