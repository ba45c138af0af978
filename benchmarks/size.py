"""How large the package is: code lines (no docstrings, comments or blanks) and modules by folder, and names of classes.

    python benchmarks/size.py [folder] [--modules] [--check]

`--modules` lists every module, the largest first. `--check` fails where a class name is used twice.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

_LAYOUT = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
)  # fmt: skip
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstring_lines(tree: ast.Module) -> set[int]:
    r"""Return the lines that docstrings stand on.

    Examples
    --------
    >>> sorted(docstring_lines(ast.parse("def f():\n    '''One\n    two.'''\n    return 'no docstring'")))
    [2, 3]
    """
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            lines |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def code_lines(source: str) -> int:
    r"""Return how many lines of a module are code.

    Examples
    --------
    >>> code_lines("'''About.'''\n# a comment\n\nx = (1,\n     2)  # another\n")
    2
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(ast.parse(source)))


def class_names(source: str) -> list[str]:
    """Return the names of all classes of a module."""
    return [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]


def measure(folder: Path) -> tuple[dict[Path, int], dict[str, list[str]]]:
    """Return the code lines of every module that has any, and in which modules each class name is used."""
    sizes, classes = {}, defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        source, name = path.read_text("utf-8"), path.relative_to(folder)
        if lines := code_lines(source):
            sizes[name] = lines
        for one in class_names(source):
            classes[one].append(str(name))
    return sizes, classes


def main(arguments: list[str] | None = None) -> int:
    """Print the table; return 1 where `--check` finds a class name used twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    package = Path(__file__).resolve().parents[1] / "geobgp"
    parser.add_argument("folder", nargs="?", type=Path, default=package)
    parser.add_argument("--modules", action="store_true", help="list every module, the largest first")
    parser.add_argument("--check", action="store_true", help="fail where a class name is used twice")
    options = parser.parse_args(arguments)
    sizes, classes = measure(options.folder)
    if options.modules:
        for name, lines in sorted(sizes.items(), key=lambda item: -item[1]):
            print(f"{lines:7,}  {name}")
    modules, lines_of = Counter[str](), Counter[str]()
    for name, lines in sizes.items():
        folder = name.parts[0] if len(name.parts) > 1 else "(root)"
        modules[folder] += 1
        lines_of[folder] += lines
    print(f"{'folder':<12}{'modules':>8}{'code lines':>12}")
    for folder, lines in lines_of.most_common():
        print(f"{folder:<12}{modules[folder]:>8}{lines:>12,}")
    print(f"{'all':<12}{sum(modules.values()):>8}{sum(sizes.values()):>12,}")
    repeated = {name: where for name, where in classes.items() if len(where) > 1}
    for name, where in sorted(repeated.items()):
        print(f"class {name} is used {len(where)} times: {', '.join(where)}")
    return int(options.check and bool(repeated))


if __name__ == "__main__":
    sys.exit(main())
