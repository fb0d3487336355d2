"""What users install is the wheel, not this folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's contents, as an installer lays them out."""
    built, installed = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("installed")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", built], cwd=ROOT, check=True
    )
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(installed)
    return installed


@pytest.mark.slow
def test_wheel_brings_the_four_packages_and_nothing_else(installed: Path) -> None:
    names = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}

    assert names == {"journal", "offsets", "projections", "spark_projections"}


def test_wheel_is_typed(installed: Path) -> None:
    assert {path.parent.name for path in installed.glob("*/py.typed")} == {
        "journal",
        "offsets",
        "projections",
        "spark_projections",
    }


@pytest.mark.slow
def test_installed_wheel_finds_its_sql(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "projections.cli", "schema", "print"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "CREATE OR REPLACE FUNCTION projections.append_events_v1" in done.stdout


def test_installed_wheel_holds_every_sql_file(installed: Path) -> None:
    packed = {
        str(p.relative_to(installed / "journal/_sql_files"))
        for p in installed.glob("journal/_sql_files/**/*.sql")
    }

    assert packed == {str(p.relative_to(ROOT / "sql")) for p in (ROOT / "sql").rglob("*.sql")}
