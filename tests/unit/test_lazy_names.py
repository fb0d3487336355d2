"""Names that are imported when they are asked for are those that type checkers see."""

from __future__ import annotations

import re
import subprocess
import sys
from compileall import compile_file
from importlib import import_module
from pathlib import Path
from shutil import make_archive

import pytest

ROOT = Path(__file__).parents[2]

PACKAGE = """\
from typing import TYPE_CHECKING

from projections.lazy import lazy_names

if TYPE_CHECKING:
    from fractions import Fraction as Fraction

__all__, __getattr__, __dir__ = lazy_names()
"""
PROGRAM = """\
import sys
sys.path.insert(0, sys.argv[1])
import lacking
print(lacking.__all__, lacking.Fraction(1, 2))
"""


@pytest.mark.parametrize("package", ["projections.webhooks", "spark_projections"])
def test_type_checkers_see_each_name_where_it_is(package: str) -> None:
    module = import_module(package)
    text = Path(str(module.__file__)).read_text()
    seen = re.findall(r"    from ([\w.]+) import (\w+) as \2\n", text)

    assert sorted(name for _, name in seen) == module.__all__
    assert set(module.__all__) <= set(dir(module))
    for home, name in seen:
        assert getattr(module, name) is getattr(import_module(home), name)


@pytest.mark.daily(1)
@pytest.mark.parametrize("packed", [False, True], ids=["compiled", "zipped"])
def test_names_are_found_where_no_source_is_installed(tmp_path: Path, *, packed: bool) -> None:
    package = tmp_path / "lacking"
    package.mkdir()
    source = package / "__init__.py"
    source.write_text(PACKAGE)
    compile_file(source, legacy=True, quiet=1)
    source.unlink()
    root = make_archive(str(tmp_path / "packed"), "zip", tmp_path, "lacking") if packed else str(tmp_path)

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, root], check=True, capture_output=True, text=True, cwd=ROOT
    )

    assert done.stdout == "['Fraction'] 1/2\n"
