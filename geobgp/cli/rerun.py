"""A run again: ``geobgp rerun`` finds its inputs, says which have changed, and makes the same results elsewhere."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from geobgp.auto.options import OptionSet
from geobgp.auto.pipeline import run
from geobgp.cli import commands
from geobgp.cli.messages import say
from geobgp.cli.options import MapOptions, PrevalenceFiles, RiskFiles, ValueFiles, parse_options
from geobgp.cli.results import write_results
from geobgp.cli.workspace import RECORD, fill_folder
from geobgp.errors import GeobgpError
from geobgp.files import split_layer
from geobgp.provenance import changed, files_of, identified, versions
from geobgp.text import count, listed, number

#: What is run again: the options of each command, and what makes its map.
_KINDS: dict[str, tuple[type[OptionSet], Callable[..., Any]]] = {
    "map": (MapOptions, commands.make_map), "risk": (RiskFiles, run), "values": (ValueFiles, run),
    "prevalence": (PrevalenceFiles, run),
}  # fmt: skip
#: How deep, and in how many folders, inputs are looked for.
_DEEP, _MOST_FOLDERS = 3, 5_000


def rerun(
    source: str,
    output: str,
    parse: Callable[[str, list[str]], Mapping[str, Any]],
    *,
    folders: Sequence[str] = (),
    named: Mapping[str, str] | None = None,
    accept: bool = False,
    force: bool = False,
    **talk: Any,
) -> None:
    """Do what ``geobgp rerun`` does.

    Parameters
    ----------
    source : str
        The ``summary.json`` of a run, or its folder.
    output : str
        The folder to write; not that of the run.
    parse : callable(command, words)
        Reads the words of a command line as that command does.
    folders : sequence of str
        Where inputs are looked for; by default here, and beside the results.
    named : mapping of str to str
        Where some of them are, by the names that they had.
    accept : bool
        Go on where inputs have changed.
    force : bool
        Replace what an earlier run wrote.
    **talk
        As for `geobgp.progress.shell_progress`.
    """
    place = Path(source) / RECORD if Path(source).is_dir() else Path(source)
    record = _read(place)
    before = place.resolve().parent
    if Path(output).resolve() == before:
        raise GeobgpError(
            f"{output} is the folder of the run that is repeated.",
            option="output",
            remedy="Choose another one, so that both can be compared.",
        )
    command, *words = shlex.split(record["command"])[1:]
    with ExitStack() as stack:
        roots = [Path(folder) for folder in folders] or [Path.cwd(), before.parent]
        inputs = record["origin"]["inputs"]
        if not folders and {one["name"] for one in inputs} <= {*commands.DATA.values()}:
            roots.append(Path(stack.enter_context(commands.demo_data())))
        paths = _found(inputs, roots, dict(named or {}), accept)
        _tell_versions(record["origin"]["software"])
        options, make = _KINDS[command]
        values = dict(parse(command, [*_with_paths(words, paths), *(["--force"] if force else [])])) | {
            "output": output
        }
        again: Any = parse_options(options, values)
        decide = partial(make, decisions=[np.inf if one is None else one for one in record["origin"]["decisions"]])
        try:
            fill_folder(again, decide, write_results, report="report.html", **talk)
        finally:
            if not talk["quiet"] and (Path(output) / RECORD).is_file():
                say(compared(before, Path(output)))


def _read(path: Path) -> dict[str, Any]:
    """Return the record of a run that can be run again."""
    try:
        record: dict[str, Any] = json.loads(path.read_text("utf-8"))
        command = shlex.split(record["command"])[1]
        missing = {"inputs", "software", "decisions"} - set(record.get("origin") or ())
    except FileNotFoundError as error:
        raise GeobgpError(
            f"There is no file {path}.", remedy=f"Name the folder of results, or its {RECORD}."
        ) from error
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise GeobgpError(f"{path} is not the {RECORD} of a complete run, or is damaged.") from error
    if command not in _KINDS:
        kinds = ", ".join(f"geobgp {name}" for name in _KINDS)
        raise GeobgpError(
            f"{path} is of geobgp {command}; what is run again is {kinds}.",
            remedy=f"Its own command was: {record['command']}",
        )
    if missing:
        raise GeobgpError(
            f"{path} does not say what went in: an earlier version of geobgp wrote it.",
            remedy=f"Its command was: {record['command']}",
        )
    return record


# -- Where inputs are now ----------------------------------------------------------------------------------------


def _found(
    inputs: Sequence[Mapping[str, Any]], roots: Sequence[Path], named: dict[str, str], accept: bool
) -> dict[str, str]:
    """Return where inputs are now, by the names that they had; refuse what is missing, and what has changed."""
    names = {one["name"] for one in inputs}
    if unknown := [name for name in named if name not in names and name not in map(_bare, names)]:
        raise GeobgpError(
            f"No input was called {unknown[0]!r}.", found=unknown, remedy=f"There were {listed(sorted(names))}."
        )
    paths, missing, differing = dict[str, str](), dict[str, list[str]](), dict[str, str]()
    for one in inputs:
        name = one["name"]
        twins = {other["sha256"] for other in inputs if other["name"] == name}
        if len(twins) > 1:
            raise GeobgpError(
                f"Several inputs were called {name!r}, in folders that no file of results names.",
                found=name,
                remedy="Give them different names, and make the map with its own command.",
            )
        if name in paths:
            continue
        given = named.get(name, named.get(_bare(name)))
        path = _located(one, roots) if given is None else given + name.removeprefix(_bare(name))
        if path is None:
            missing.setdefault(name, []).append(one["role"])
            continue
        paths[name] = path
        if one["kind"] == "file" and (how := changed(one, identified(path))):
            differing[name] = how
    if missing:
        which = ", ".join(f"{name} ({', '.join(roles)})" for name, roles in missing.items())
        places = ", ".join(dict.fromkeys(str(root) for root in roots))
        raise GeobgpError(
            f"{count(len(missing), 'input is', 'inputs are')} not there: {which}. Looked for in {places}.",
            found=[*missing],
            remedy="Say where to look, --inputs FOLDER, or where one of them is, --input NAME=PATH.",
        )
    if differing:
        _check_changes(differing, accept)
    return paths


def _bare(name: str) -> str:
    """Return the name of an input's file, without layer and use."""
    return split_layer(name.split("|")[0])[0]


def _located(one: Mapping[str, Any], roots: Iterable[Path]) -> str | None:
    """Return where a file is, as it was if such a one is there, else as it is now; None where it is not."""
    if one["kind"] != "file":
        return None
    name, others = one["name"], dict[str, str]()
    for folder in _walk(roots):
        path = str(folder / name)
        if not files_of(path):
            continue
        digest = identified(path)["sha256"]
        if digest == one["sha256"] or one["sha256"] is None:
            return path
        others.setdefault(digest, path)
    if len(others) > 1:
        raise GeobgpError(
            f"There are several files {name!r}, and none is as it was: {listed(others.values(), 4)}.",
            found=name,
            remedy=f"Say which it is: --input {shlex.quote(_bare(name))}=PATH.",
        )
    return next(iter(others.values()), None)


def _walk(roots: Iterable[Path]) -> Iterator[Path]:
    """Yield folders, those near the roots first, each once; hidden ones are left out."""
    level, seen = [root for root in roots if root.is_dir()], set[Path]()
    for _ in range(_DEEP + 1):
        deeper = list[Path]()
        for folder in level:
            if (place := folder.resolve()) in seen or len(seen) >= _MOST_FOLDERS:
                continue
            seen.add(place)
            yield folder
            try:
                deeper += sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
            except OSError:  # not ours to read
                continue
        level = deeper


def _check_changes(differing: Mapping[str, str], accept: bool) -> None:
    """Say which inputs have changed; go on if that was accepted, or is now."""
    told = "; ".join(f"{name} ({how})" for name, how in differing.items())
    message = f"{count(len(differing), 'input has', 'inputs have')} changed since: {told}."
    if accept:
        click.echo(f"Warning: {message}", err=True)
        return
    if sys.stdin is not None and sys.stdin.isatty() and click.confirm(f"{message} Go on all the same?", err=True):
        return
    raise GeobgpError(
        message,
        found=dict(differing),
        remedy="Find the files as they were (--inputs FOLDER), or go on with those that are there now: --changed.",
    )


def _with_paths(words: Sequence[str], paths: Mapping[str, str]) -> list[str]:
    """Return the words of a command line with paths in place of names, without where it wrote."""
    end = len(words) - 1 - words[::-1].index("-o") if "-o" in words else len(words)
    out = []
    for word in words[:end]:
        prefix, equals, name = word.partition("=")
        out.append(paths.get(word) or (f"{prefix}={paths[name]}" if equals and name in paths else word))
    return [*out, "-o", os.devnull]


def _tell_versions(before: Mapping[str, str]) -> None:
    now = versions()
    differing = [f"{name} {before[name]} then, {now[name]} now" for name in before if now.get(name) != before[name]]
    if differing:
        click.echo(f"Warning: other versions may give other last digits: {'; '.join(differing)}.", err=True)


# -- Whether it is the same --------------------------------------------------------------------------------------


def compared(before: Path, now: Path) -> str:
    """Return whether the rasters of two folders of results have the same pixels, in a sentence."""
    import rasterio

    same, differing = 0, list[str]()
    names = sorted({p.relative_to(now).as_posix() for p in now.rglob("*.tif")})
    for name in names:
        if not (before / name).is_file():
            continue
        with rasterio.open(before / name) as one, rasterio.open(now / name) as other:
            first, second = one.read(masked=True), other.read(masked=True)
        if first.shape == second.shape and np.array_equal(first.filled(np.nan), second.filled(np.nan), equal_nan=True):
            same += 1
        elif first.shape != second.shape:
            differing.append(f"{name} (other cells)")
        else:
            apart = np.ma.abs(first - second).max() / max(float(np.ma.abs(first).max()), 1e-300)
            differing.append(f"{name} (by up to {number(100 * float(apart), 2)} % of its largest value)")
    if not same and not differing:
        return f"There are no rasters in {before} to compare with."
    if not differing:
        return f"{count(same, 'raster is', 'rasters are')} the same as before, bit by bit."
    others = f"{count(len(differing), 'differs', 'differ')}: {', '.join(differing)}"
    return f"{count(same, 'raster is', 'rasters are')} the same as before; {others}."
