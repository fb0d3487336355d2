"""What all tests share; the fixtures themselves are in tests/fixtures."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

pytest_plugins = ["tests.fixtures.postgres"]


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Commands that run in this process configure the logs of all of it."""
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have all tests that need Java run in one process, one after the other: each process would start its own."""
    from xdist.scheduler import LoadScopeScheduling

    class SparkInOneProcess(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith("tests/spark/") else nodeid

    return SparkInOneProcess(config, log)
