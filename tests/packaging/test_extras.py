"""What runs without the packages of an extra, and what is said where one is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

_ARROW = ("adbc_driver_manager", "adbc_driver_postgresql", "cloudpickle", "pyarrow", "pyspark")
_WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from projections.cli import main

main()
"""


def without(missing: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as if packages were not installed."""
    program = _WITHOUT.format(missing=set(missing))
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["verify"], ["rebuild"], ["rebuilds"], ["rebuilds", "list"], ["parked", "list"]], ids=" ".join
)
def test_help_needs_no_extra(command: list[str]) -> None:
    done = without(_ARROW, *command, "--help")
    assert (done.returncode, done.stderr) == (0, "")


_DELAYS = "tests.benchmarks.workload:ByTable"
_NOWHERE = ("--dsn", "postgresql://nobody@127.0.0.1:1/none")


@pytest.mark.slow
def test_verifying_needs_no_extra() -> None:
    done = without(_ARROW, "verify", _DELAYS, "--all", *_NOWHERE)
    assert done.stderr.startswith("error: ")
    assert "is not installed" not in done.stderr


@pytest.mark.slow
def test_what_needs_an_extra_says_which() -> None:
    done = without(_ARROW, "rebuild", _DELAYS, "--engine", "local", *_NOWHERE)
    assert "it comes with: pip install 'slice-projections[arrow]'" in done.stderr
    assert "Traceback" not in done.stderr
