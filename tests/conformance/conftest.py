"""Both delivery logs: whatever one does, the other does."""

from __future__ import annotations

import pytest

from tests.fixtures.memory_log import DeliveryLog, MemoryLog
from tests.fixtures.writable_log import WritableLog


@pytest.fixture(params=["memory", "postgres"])
def log(request: pytest.FixtureRequest) -> DeliveryLog:
    """An empty one."""
    if request.param == "memory":
        return MemoryLog()
    return WritableLog(request.getfixturevalue("database"))
