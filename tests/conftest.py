"""What all tests share; the fixtures themselves are in tests/fixtures."""

from __future__ import annotations

from typing import Any

import pytest

pytest_plugins = ["tests.fixtures.postgres"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have all tests that need Java run in one process, one after the other: each process would start its own."""
    from xdist.scheduler import LoadScopeScheduling

    class SparkInOneProcess(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith("tests/spark/") else nodeid

    return SparkInOneProcess(config, log)
