"""Write what type checkers and editors read of `map_*`: their whole signatures and docstrings, from the options.

    PYTHONPATH=. python tests/helpers/stubs.py      # write geobgp/auto/maps.pyi and geobgp/scale/maps.pyi

`help(map_intensity)` shows the same without them; they are for those who read the code without running it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = ("geobgp.auto.maps", "geobgp.scale.maps")
#: Where the names in annotations come from.
HOMES = {
    "Any": "typing", "Literal": "typing", "Path": "pathlib", "Sequence": "collections.abc",
    "Mapping": "collections.abc",
    "Covariates": "geobgp.data.effects", "Effort": "geobgp.data.inputs", "Exposure": "geobgp.data.inputs",
    "Features": "geobgp.auto.options", "Kernel": "geobgp.prior.kernels", "Posterior": "geobgp.posterior",
    "CountName": "geobgp.inference.families", "TestedName": "geobgp.inference.families",
    "ProgressLike": "geobgp.progress", "Strata": "geobgp.scale.strata", "Tiles": "geobgp.scale.tiles",
}  # fmt: skip


def stub(module: str) -> str:
    """Return the text of a stub: every function of a module as it is called, with its docstring."""
    loaded = importlib.import_module(module)
    functions = [f for n, f in vars(loaded).items() if n.startswith("map_") and f.__module__ == module]
    body = "\n".join(line for function in functions for line in _lines(function))
    words = {word for part in body.split('"""')[::2] for word in _words(part)}
    homes: dict[str, list[str]] = {}
    for name in sorted(words & set(HOMES)):
        homes.setdefault(HOMES[name], []).append(name)
    ours = {home for home in homes if home.startswith("geobgp")}
    lines = [f"from {home} import {', '.join(homes[home])}" for home in sorted(set(homes) - ours)]
    lines += ["", "import numpy as np", ""] if "np" in words else [""]
    lines += [f"from {home} import {', '.join(homes[home])}" for home in sorted(ours)]
    note = "# Written by tests/helpers/stubs.py: change the options, and write it again."
    head = f'"""{(loaded.__doc__ or "").strip()}"""\n\n{note}\n\n'
    return head + "\n".join(lines) + "\n\n" + body + "\n"


def _words(text: str) -> list[str]:
    return "".join(c if c.isidentifier() else " " for c in text).split()


def _lines(function: object) -> Iterator[str]:
    """Yield a function without its body; defaults are shown, for editors show them."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    yield f"def {function.__name__}("  # type: ignore[attr-defined]
    keyword = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword:
            keyword = True
            yield "    *,"
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}".replace("'", '"')
        annotation = str(parameter.annotation).replace("'", '"')
        yield f"    {parameter.name}: {annotation}{default},"
    yield f") -> {signature.return_annotation}:"
    doc = inspect.getdoc(function) or ""
    yield '    """' + "\n".join(f"    {line}".rstrip() for line in doc.splitlines()).strip() + '\n    """'
    yield ""


if __name__ == "__main__":
    for module in MODULES:
        (ROOT / f"{module.replace('.', '/')}.pyi").write_text(stub(module), "utf-8")
