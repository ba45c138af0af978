"""The size of the package is counted as it should be."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def size():
    """Return benchmarks/size.py as a module."""
    spec = importlib.util.spec_from_file_location("size", ROOT / "benchmarks" / "size.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_code_is_counted_without_docstrings_comments_and_blanks(tmp_path, capsys):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "a.py").write_text(
        '"""About."""\n\nclass One:\n    """A class."""\n\n    x = (1,  # one\n         2)\n'
    )
    (tmp_path / "b.py").write_text("# only this\n\nclass One:\n    pass\n")
    (tmp_path / "part" / "__init__.py").write_text('"""Nothing."""\n')
    assert size().measure(tmp_path)[0] == {Path("b.py"): 2, Path("part/a.py"): 3}
    assert size().main([str(tmp_path), "--check"]) == 1
    assert "class One is used 2 times: b.py, part/a.py" in capsys.readouterr().out
