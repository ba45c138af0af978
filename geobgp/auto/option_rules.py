"""What the value of an option must be, by what its `Setting` says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geobgp import arguments, validate

if TYPE_CHECKING:
    from geobgp.auto.options import Setting


def rule_of(name: str, how: Setting, default: Any) -> validate.Rule | None:
    """Return what the value of an option must be; None where anything may be."""
    if how.choices:
        return validate.choice(*how.choices)
    if how.kind in ("number", "numbers"):
        whole = isinstance(default, int)
        one = (
            validate.whole(int(how.least))
            if whole
            else validate.number(how.above, how.least, below=how.below)
        )
        return one if how.kind == "number" else validate.numbers(one, f"a list, each {one.words}")
    if how.kind == "crs":
        from geobgp.land.crs import as_crs

        def known(value: Any) -> Any:
            if not (name == "crs" and isinstance(value, str) and value.lower() == "local"):
                as_crs(value, name)
            return value

        return validate.Rule("a CRS", known)
    if name == "weights":
        return arguments.WEIGHTS
    return _RULES.get(how.kind)


_RULES: dict[str, validate.Rule] = {
    "file": arguments.SOURCE,
    "files": arguments.SOURCE,
    "folder": validate.PATH,
    "text": validate.TEXT,
    "column": validate.NAME,
    "columns": validate.names("a list of names of columns"),
    "features": validate.either(
        validate.choice("auto", "full"),
        validate.whole(1),
        words="'auto', 'full' or a number of features of at least 1",
    ),
    "interval": arguments.SUPPRESSED,
    "share": validate.either(
        validate.choice("auto"), validate.number(least=0.0, most=1.0), words="'auto' or a number from 0 to 1"
    ),
    "rasters": arguments.COVARIATES,
    "kernel": arguments.KERNEL,
    "client": arguments.CLIENT,
    "dates": arguments.TIMES,
    "periods": arguments.EVERY,
    "span": arguments.SPAN,
    "small numbers": arguments.MIN_COUNT,
}
