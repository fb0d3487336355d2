"""An application that has packages of the names that this library takes: the error says so, and what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.commands import ROOT, environment, projections

WAY_OUT = "Rename the one of your application, or move it into another package of yours, such as my_app."


def python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False, timeout=300,
        env=environment(),
    )  # fmt: skip


def package(directory: Path, name: str, text: str = "class Entry: ...\n") -> Path:
    found = directory / name / "__init__.py"
    found.parent.mkdir()
    found.write_text(text)
    return found


@pytest.mark.parametrize(
    ("name", "code"),
    [
        *(
            (name, code)
            for name in ("journal", "offsets")
            for code in (
                "import projections", "import projections.webhooks", "from {0} import *; import projections",
                "import spark_projections",
            )
        ),
        ("journal", "import offsets"),
        ("projections", "import spark_projections"),
    ],
)  # fmt: skip
def test_another_package_that_comes_first_is_named(tmp_path: Path, name: str, code: str) -> None:
    theirs = package(tmp_path, name)

    result = python(code.format(name), tmp_path)

    last = result.stderr.splitlines()[-1]
    assert last.startswith("ImportError: slice-projections needs its own package")
    assert str(theirs) in last
    assert str(ROOT / name / "__init__.py") in last
    assert WAY_OUT + name in last


@pytest.mark.parametrize("imported", ["offsets", "projections", "spark_projections"])
def test_a_module_of_the_name_is_named_as_well(tmp_path: Path, imported: str) -> None:
    (tmp_path / "journal.py").write_text("")

    last = python(f"import {imported}", tmp_path).stderr.splitlines()[-1]

    assert str(tmp_path / "journal.py") in last
    assert str(ROOT / "journal" / "__init__.py") in last


@pytest.mark.slow
@pytest.mark.parametrize("name", ["offsets", "projections", "spark_projections"])
def test_the_journal_needs_none_of_the_other_names(tmp_path: Path, name: str) -> None:
    package(tmp_path, name)

    assert python("import journal; journal.append", tmp_path).returncode == 0


@pytest.mark.daily(1)
@pytest.mark.parametrize("name", ["sql", "journal"])
def test_a_directory_without_modules_is_in_nobodys_way(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()

    assert python("import projections; projections.append", tmp_path).returncode == 0


def test_the_command_line_says_it_where_it_is_started_in_such_a_directory(tmp_path: Path) -> None:
    theirs = package(tmp_path, "journal")

    result = projections("worker", "app", cwd=tmp_path)

    assert result.returncode == 1
    assert str(theirs) in result.stderr.splitlines()[-1]
    assert WAY_OUT in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["from journal import Entry", "import journal\njournal.Entry", "import journal.entries"]
)
def test_an_application_that_gets_ours_instead_of_its_own_is_told_so(tmp_path: Path, text: str) -> None:
    theirs = package(tmp_path, "journal")
    (theirs.parent / "entries.py").write_text("")
    (tmp_path / "app.py").write_text(text)
    started = "import sys; sys.path.remove(''); from projections.cli import main; main(['worker', 'app'])"

    result = python(started, tmp_path)  # as the installed command starts: this directory comes later

    assert result.returncode == 1
    assert result.stderr.startswith("error: module 'app' cannot be imported: ")
    assert (
        f"there are two packages 'journal': that of slice-projections ({ROOT / 'journal' / '__init__.py'})"
        in result.stderr
    )
    assert str(theirs) in result.stderr
    assert WAY_OUT in result.stderr


@pytest.mark.slow
def test_what_the_application_lacks_for_other_reasons_is_told_as_before(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("from journal import nothing_of_that_name")

    result = projections("worker", "app", cwd=tmp_path)

    assert "cannot import name 'nothing_of_that_name'" in result.stderr
    assert "two packages" not in result.stderr
