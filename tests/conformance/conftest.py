"""Both delivery logs: whatever one does, the other does."""

from __future__ import annotations

import pytest

from projections.webhooks.log import DeliveryLog, PostgresLog
from tests.fixtures.memory_log import MemoryLog


@pytest.fixture(params=["memory", "postgres"])
def log(request: pytest.FixtureRequest) -> DeliveryLog:
    """An empty one."""
    if request.param == "memory":
        return MemoryLog()
    return PostgresLog(request.getfixturevalue("database"))
