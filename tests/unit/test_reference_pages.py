"""Pages of the reference that are written by hand, against what is recorded of the code."""

from __future__ import annotations

import re
from pathlib import Path

from tests.golden.recordings import recorded

ROOT = Path(__file__).parent.parent.parent


def first_cells(page: str) -> set[str]:
    """What is in backquotes in the first column of the tables of a page."""
    rows = re.findall(r"^\| (`[^|]*`) \|", (ROOT / "docs/reference" / page).read_text(), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_every_action_of_the_log_is_described() -> None:
    assert first_cells("log-actions.md") - {"NAME_failed"} == {
        *recorded("log_actions")["log_actions.txt"].split()
    }


def test_every_environment_variable_is_described() -> None:
    assert first_cells("environment.md") == {*recorded("environment")["environment.txt"].split()}
