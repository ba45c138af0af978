"""Templates: package files that Jinja fills in, so that nothing from data is ever taken for markup."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from geobgp import text


def read(name: str) -> str:
    """Return a text file of the package, such as ``web/map.css``."""
    return files("geobgp").joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    made = Environment(
        autoescape=True,
        loader=FunctionLoader(read),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # The order of keys is kept, and no byte wasted: the numbers of a whole map go through here.
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    made.globals |= {"file": read, "text": text}
    return made


def template(name: str) -> Template:
    """Return a template of the package, such as ``report/report.html.j2``."""
    return _environment().get_template(name)


def render(name: str, **values: Any) -> str:
    """Return a template filled in; values are escaped, except where the template calls them safe."""
    return template(name).render(values)
