"""What tests of running commands begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.database.sync import connect_sync
from tests.fixtures.axe import axe  # noqa: F401 - a fixture
from tests.fixtures.chromium import EXECUTABLE
from tests.fixtures.chromium import chromium as running_chromium
from tests.fixtures.commands import APP, SEEN, append_events


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A directory with a user's module in it."""
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.fixture
def filled(dsn: str) -> str:
    """A journal of 100 events over 20 sources, and the read model's table."""
    with connect_sync(dsn) as connection:
        connection.execute(SEEN)
    append_events(dsn, 100)
    return dsn


@pytest.fixture(scope="session")
def chromium() -> Iterator[str]:
    """The address of a browser; each test opens a page of its own there."""
    if EXECUTABLE is None:
        pytest.skip("no chromium on PATH")
    with running_chromium() as address:
        yield address
