"""The integration tests on each major version of PostgreSQL, all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.majors import RELEASES, binaries_or_skip

REPOSITORY = Path(__file__).parents[3]
QUARTER = REPOSITORY / "tests" / "every_major.txt"


def test_the_quarter_for_every_change_is_there_and_calls_every_function() -> None:
    files = QUARTER.read_text().splitlines()

    assert [file for file in files if not (REPOSITORY / file).is_file()] == []
    assert files == sorted(set(files))
    assert "tests/integration/schema/test_sql_functions.py" in files


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("major", RELEASES)
def test_all_integration_tests_hold(major: int) -> None:
    binaries_or_skip(major)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "auto", f"--postgres={major}", "tests/integration"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-10_000:]
