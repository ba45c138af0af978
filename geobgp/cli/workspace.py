"""A folder of results: it appears at once, with all that could be made, and says what could not."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

import click

import geobgp
from geobgp.cli.messages import reason, say, showing_warnings
from geobgp.cli.options import ShownOptions, check_beforehand
from geobgp.errors import GeobgpError, InputWarning, WriteError, option, warn
from geobgp.files import check_unread, full, replacing, was_read, why_not_written
from geobgp.progress import Progress, Stage, shell_progress
from geobgp.summary import plain
from geobgp.text import listed, size_text

#: The file that lists what a run wrote.
RECORD = "summary.json"
#: What the list of files in it is, so that no other program's is taken for it.
_KIND = "files of geobgp"
#: Names that results have: a file of the user's that is called so is seen before anything is computed.
_RESULTS = (
    *(f"{stem}.{ending}" for ending in ("tif", "qml") for stem in (
        "mean", "median", "sd", "q[0-9]*", "coverage", "exceedance_*", "ratio_per_*", "change_per_*",
        "probability_of_increase", "map-*", "periods/*",
    )),
    "map.html", "map.qgz", "map.gpkg", "report.html", "regions.gpkg", "tolerance.gpkg", "totals.gpkg", "totals.csv",
    "gather.html", "gather.csv", "ro-crate-metadata.json",
    "strata.csv", "index.html", "intensity.nc", "posterior.geobgp", RECORD,
)  # fmt: skip
#: The exit code of a run whose results are there but for some.
PARTLY = 3


class PartlyWritten(click.ClickException):
    """Some of the results could not be written; the others are there."""

    exit_code = PARTLY

    def __init__(self, target: Path, failed: Mapping[str, str]) -> None:
        lines = "".join(f"\n  {name}: {why}" for name, why in failed.items())
        super().__init__(f"The results are in {target}, except for what failed:{lines}")


class Steps:
    """The steps that write results, one after the other: one that fails costs what it would have written, no more.

    Parameters
    ----------
    progress : Progress
    folder : path
        Where they write.
    target : path, optional
        What that folder is called in the end.

    Attributes
    ----------
    failed : dict of str to str
        The steps that failed, and why, in the words of the shell.
    errors : list of Exception
        The same, as they were raised.

    Examples
    --------
    >>> steps = Steps(Progress(), ".")
    >>> with steps.stage("map"):
    ...     raise MemoryError
    >>> with steps.stage("report") as stage:
    ...     stage.note("written all the same")
    >>> list(steps.failed)
    ['map']
    """

    def __init__(self, progress: Progress, folder: str | Path, target: str | Path | None = None) -> None:
        self.progress, self.folder, self.target = progress, Path(folder), Path(target or folder)
        self.failed: dict[str, str] = {}
        self.errors: list[Exception] = []

    @property
    def seconds(self) -> dict[str, float]:
        """Time by stage, of those before too."""
        return self.progress.seconds

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Run a step as a stage of the run's progress."""
        with self.progress.stage(name) as stage, self.step(name, stage):
            yield stage

    @contextmanager
    def step(self, name: str, stage: Stage | None = None) -> Iterator[None]:
        """Run a step; what it raises is kept, and goes no further."""
        try:
            yield
        except Exception as error:
            self.errors.append(error)
            self.failed[name] = reason(error, self.folder).replace(str(self.folder), str(self.target))
            if stage is not None:
                stage.note("failed")

    def told(self) -> list[str]:
        """Return a sentence for each step that failed."""
        return [f"Not written: {name}. {why}" for name, why in self.failed.items()]


class Workspace:
    """Write into a hidden folder; when all is well, `commit` puts it in place.

    Parameters
    ----------
    target : path
        The folder to fill. It must not exist, or be empty, unless `force`.
    force : bool
        Replace files of an earlier run in `target`: those that its record lists and that are still as it wrote them.
        Other files in it are left alone, and where the results would need their names it is refused.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "out"
    >>> with Workspace(target) as work:
    ...     _ = (work.folder / "a.txt").write_text("whole")
    ...     before, placed = target.exists(), work.commit()
    >>> before, [path.name for path in placed], sorted(p.name for p in target.parent.iterdir())
    (False, ['a.txt'], ['out'])
    """

    def __init__(self, target: str | Path, *, force: bool = False) -> None:
        self.target = Path(target)
        self.force = force
        self.folder = self.target
        self._made: list[Path] = []
        self._held: int | None = None

    def __enter__(self) -> Workspace:
        target = self.target
        if target.exists() and not target.is_dir():
            raise GeobgpError(
                f"{target} is a file, not a folder.",
                option="output",
                remedy=f"Choose another folder with {option('output')}.",
            )
        self._clear_away(target)
        there = sorted(p.name for p in target.iterdir() if not self._part.fullmatch(p.name)) if target.is_dir() else []
        if there and not self.force:
            some = ", ".join(there[:4]) + (f" and {len(there) - 4} more" if len(there) > 4 else "")
            raise GeobgpError(
                f"The folder {target} exists and is not empty ({some}).",
                option="output",
                found=there,
                remedy=(
                    f"Nothing is overwritten without {option('force')}, which replaces the files of an "
                    f"earlier run and leaves others alone; or choose another folder with {option('output')}."
                ),
            )
        if there:
            named = {path for pattern in _RESULTS for path in target.glob(pattern)}
            self._check_names(sorted(path.relative_to(target).as_posix() for path in named))
        # Beside the target, so that it can be renamed; inside it, where it exists already.
        beside = target if target.is_dir() else target.absolute().parent
        try:
            self._make_parents(beside)
            self.folder = beside / f".{target.absolute().name}-{secrets.token_hex(4)}.part"
            self.folder.mkdir()
            self._hold(self.folder)
        except OSError as error:
            self._remove()
            raise not_written(target, error, beside) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _undisturbed():
            self._remove()
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def commit(self) -> list[Path]:
        """Put all files in place; return where they are.

        Where a file of the user's has the name of one of them, which could not be foreseen, all of them come to a new
        folder beside the target instead: neither is lost.
        """
        # The record comes last: what it lists is there.
        names = sorted(files_in(self.folder), key=lambda name: (name == RECORD, name))
        with suppress(OSError, WriteError):  # a disk without room for that still has the results
            _sign(self.folder)
        if self.target.is_dir():
            self._step_aside(names)
        with _undisturbed():
            if self.target.is_dir():
                ours, edited = _earlier(self.target)
                stale = {name for name in ours - set(names) if not was_read(self.target / name)}
                for name in names:
                    (self.target / name).parent.mkdir(exist_ok=True)
                    (self.folder / name).replace(self.target / name)
                for name in stale:
                    (self.target / name).unlink(missing_ok=True)
                _remove_empty(self.target, stale)
                if edited - set(names):
                    warn(
                        InputWarning(
                            f"{listed(sorted(edited - set(names)))} in {self.target} changed after an earlier run "
                            "wrote it, and stays; it does not belong to these results.",
                            option="output",
                            found=sorted(edited - set(names)),
                        )
                    )
            else:
                self.folder.rename(self.target)
            self._made = []
        return [self.target / name for name in names]

    def _others(self, names: Iterable[str]) -> list[str]:
        """Return which of some names belong to files in the target that no earlier run wrote as they are now."""
        ours = _earlier(self.target)[0]
        return sorted(name for name in names if (self.target / name).exists() and name not in ours)

    def _check_names(self, names: Iterable[str]) -> None:
        """Refuse to begin where files of the user's have the names of results."""
        check_unread(*(self.target / name for name in names))
        taken = self._others(names)
        if taken:
            raise GeobgpError(
                f"{self.target} has files with the names of results that no earlier run wrote as they are now: "
                f"{listed(taken, 8)}.",
                option="output",
                found=taken,
                remedy=(
                    f"They are not replaced, {option('force')} or not: move, rename or delete them, or choose another "
                    f"folder with {option('output')}."
                ),
            )

    def _step_aside(self, names: Iterable[str]) -> None:
        """Take another folder as the target where results would replace a file of the user's after all."""
        taken = sorted({*self._others(names), *(name for name in names if was_read(self.target / name))})
        if not taken:
            return
        place, before = self.target.absolute(), self.target
        free = (place.with_name(f"{place.name}-{k}") for k in range(2, 10_000))
        self.target = next(path for path in free if not path.exists())
        warn(
            InputWarning(
                f"{listed(taken, 8)} in {before} is a file of yours, which is not replaced: the results are in "
                f"{self.target}.",
                option="output",
                found=taken,
            )
        )

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Say why results could not be written; drivers have their own errors for a full disk."""
        try:
            yield
        except GeobgpError:
            raise
        except Exception as error:
            if isinstance(error, OSError) or full(self.folder):
                raise not_written(self.target, error, self.folder) from error
            raise

    @property
    def _part(self) -> re.Pattern[str]:
        """What the hidden folder of a run is called."""
        return re.compile(rf"\.{re.escape(self.target.absolute().name)}-[0-9a-f]{{8}}\.part")

    def _clear_away(self, target: Path) -> None:
        """Remove what runs left behind that were killed; nobody holds it any more."""
        for place in (target, target.absolute().parent):
            for path in place.iterdir() if place.is_dir() else ():
                if self._part.fullmatch(path.name) and path.is_dir() and self._hold(path, keep=False):
                    shutil.rmtree(path, ignore_errors=True)

    def _hold(self, folder: Path, *, keep: bool = True) -> bool:
        """Lock a hidden folder for as long as this process lives, or tell whether nobody does."""
        try:
            import fcntl
        except ImportError:  # no such locks here: what was left behind stays
            return False
        with suppress(OSError):
            held = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(held)
                return False
            if keep:
                self._held = held
            else:
                os.close(held)
            return True
        return False

    def _make_parents(self, folder: Path) -> None:
        missing = [p for p in (folder, *folder.parents) if not p.exists()]
        for path in reversed(missing):
            path.mkdir()
            self._made.append(path)

    def _remove(self) -> None:
        if self.folder != self.target:
            shutil.rmtree(self.folder, ignore_errors=True)
        for path in reversed(self._made):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        self._made = []


def fill_folder(
    options: ShownOptions,
    make: Callable[..., Any],
    write: Callable[..., None],
    *,
    quiet: bool,
    verbose: bool,
    form: str = "console",
    opens: tuple[str, str] = ("map.html", "map.qgz"),
    report: str | None = None,
) -> None:
    """Do what a command does that fills a folder: check, make, write, and say where the results are.

    Parameters
    ----------
    options : ShownOptions
    make : callable(options, progress)
        Returns what is to be written.
    write : callable(folder, made, options, steps, warnings)
        Whatever it raises, an interrupt too, what it had written by then is kept.
    quiet, verbose, form
        As for `geobgp.progress.shell_progress`.
    opens : (str, str)
        The files to open in a browser and in QGIS.
    report : str, optional
        The file that says how the map was made.

    Raises
    ------
    PartlyWritten
        When everything is in place that could be written, and something could not.
    """
    check_beforehand(options)
    progress = shell_progress(quiet=quiet, verbose=verbose, form=form)
    with Workspace(options.output, force=options.force) as work, showing_warnings() as warnings:
        outcome = make(options, progress)
        steps, interrupt = Steps(progress, work.folder, work.target), None
        try:
            with steps.step("the rest"):
                write(work.folder, outcome, options, steps, warnings)
        except (KeyboardInterrupt, SystemExit) as error:
            interrupt, steps.failed["the rest"] = error, "The run was interrupted."
        with work.telling():
            if not set(files_in(work.folder)) - {RECORD}:
                raise interrupt or steps.errors[0]
            if not (work.folder / RECORD).exists():
                with steps.step(RECORD):
                    write_record(work.folder, _least_record(options, steps, warnings))
            files = work.commit()
    _say_where(work.target, files, progress, quiet or interrupt is not None, opens, report)
    if isinstance(interrupt, KeyboardInterrupt):
        raise KeyboardInterrupt(f"Interrupted: what was written by then is in {work.target}.")
    if interrupt is not None:
        raise interrupt
    if steps.failed:
        raise PartlyWritten(work.target, steps.failed) from (steps.errors[0] if steps.errors else None)


def _say_where(
    target: Path, files: list[Path], progress: Progress, quiet: bool, opens: tuple[str, str], report: str | None
) -> None:
    """Say where the results are, and which of them to open."""
    if quiet:
        return
    progress.line(f"{sum(progress.seconds.values()):.1f} s in all")
    done = f"The results are in {target} all the same."
    say(f"{len(files)} files ({size_text(sum(f.stat().st_size for f in files))}) in {target}", done)
    places = zip(opens, ("in a browser", "in QGIS"), strict=True)
    there = [f"{target / name} {where}" for name, where in places if (target / name).exists()]
    if there:
        say(f"Open {' and '.join(there)}.", done)
    if report is not None and (target / report).exists():
        say(f"How the map was made: {target / report}", done)


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write ``summary.json``, which lists all files that are there, and itself."""
    record = {**record, "files": sorted({*files_in(folder), RECORD})}
    text = json.dumps(plain(record), indent=2, ensure_ascii=False, allow_nan=False)
    with replacing(folder / RECORD) as temporary:
        temporary.write_text(text + "\n", "utf-8")


def _least_record(options: Any, steps: Steps, warnings: list[str]) -> dict[str, Any]:
    """Return what ``summary.json`` holds where the run could not come to its end."""
    return {
        "geobgp": geobgp.__version__,
        "options": options.record(),
        "warnings": warnings,
        "not_written": steps.failed,
        "seconds": steps.seconds,
    }


def not_written(target: Path, error: Exception, place: Path) -> WriteError:
    """Return the error to raise where results could not be written."""
    reason, remedy = why_not_written(error if isinstance(error, OSError) else OSError(), place)
    return WriteError(f"Results cannot be written to {target}: {reason}", option="output", remedy=remedy)


def _sign(folder: Path) -> None:
    """Add to a record which files go with it, by their content, so that they are known again."""
    path = folder / RECORD
    if not path.is_file():
        return
    record = json.loads(path.read_text(encoding="utf-8"))
    hashes = {name: _hash(folder / name) for name in files_in(folder) if name != RECORD}
    record["written"] = {
        "kind": _KIND,
        "version": geobgp.__version__,
        "sha256": hashes | {RECORD: _hash_of_record(record)},
    }
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _earlier(folder: Path) -> tuple[set[str], set[str]]:
    """Return the files in a folder that an earlier run wrote, and those of them that changed since."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        written = record["written"]
        hashes = dict(written["sha256"])
        if written["kind"] != _KIND or not isinstance(written["version"], str):
            return set(), set()
    except (OSError, ValueError, KeyError, TypeError):
        return set(), set()
    there = {n: h for n, h in hashes.items() if isinstance(n, str) and _inside(n) and (folder / n).is_file()}
    ours = {
        name
        for name, known in there.items()
        if known == (_hash_of_record(record) if name == RECORD else _hash(folder / name))
    }
    return ours, set(there) - ours


def _hash(path: Path) -> str:
    """Return the SHA-256 of a file; of a GeoPackage without its header, which readers such as QGIS write to."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(100 if path.suffix == ".gpkg" else 0)
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _hash_of_record(record: dict[str, Any]) -> str:
    stable = {name: value for name, value in record.items() if name != "written"}
    return hashlib.sha256(json.dumps(stable, sort_keys=True).encode()).hexdigest()


def files_in(folder: Path) -> list[str]:
    """Return the names of all files in a folder, those in folders within it with their folder."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def _inside(name: str) -> bool:
    """Whether a name is that of a file in the folder itself, or in one within it."""
    path = PurePosixPath(name)
    return len(path.parts) in (1, 2) and not path.is_absolute() and ".." not in path.parts and "\\" not in name


def _remove_empty(folder: Path, names: Iterable[str]) -> None:
    """Remove folders within a folder that hold none of their files any more."""
    for parent in {(folder / name).parent for name in names} - {folder}:
        if parent.is_dir() and not any(parent.iterdir()):
            parent.rmdir()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold back Ctrl-C for the moment in which files are moved or removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            raise KeyboardInterrupt
