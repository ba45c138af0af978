"""``geobgp tiles``: points and land of any size in, one mosaic out; cut off, it goes on."""

from __future__ import annotations

from geobgp.cli.messages import say, showing_warnings
from geobgp.inference.mixture import interval_in
from geobgp.progress import shell_progress
from geobgp.scale.tiles import run_tiles
from geobgp.scale.tiles_options import TilesOptions
from geobgp.text import count, number, size_text


def tiles_files(options: TilesOptions, *, quiet: bool = False, verbose: bool = False) -> None:
    """Do what ``geobgp tiles`` does.

    Parameters
    ----------
    options : TilesOptions
    quiet, verbose : bool
    """
    progress = shell_progress(quiet=quiet, verbose=verbose)
    with showing_warnings():
        made = run_tiles(options, progress)
    if not quiet:
        progress.line(f"{sum(progress.seconds.values()):.1f} s in all")
        done = f"{made.n_fitted:,} of {count(len(made.table), 'tile')} fitted now"
        there = f"The mosaic is in {made.raster} all the same."
        say(f"{done}; {made.raster} ({size_text(made.raster.stat().st_size)}), in {made.units}", there)
        for effect in made.coefficients.iloc[1:].itertuples():
            ends = interval_in(made.coefficients, "rate_ratio")
            assert ends is not None
            low, high = (number(getattr(effect, name), 3) for name in (ends.low, ends.high))
            more = f"times {number(effect.rate_ratio, 3)} ({low} to {high}) the intensity for each unit more"
            say(f"{effect.name}: {more}", there)
        say(f"Open {made.raster} in QGIS. {made.folder / 'tiles'} is only needed to go on.", there)
