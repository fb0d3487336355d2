"""What all tests share; the fixtures themselves are in tests/fixtures."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest
from hypothesis import settings

from tests.fixtures.processes import end_with_this_process

pytest_plugins = ["tests.fixtures.postgres", "tests.fixtures.failover"]


def pytest_configure(config: pytest.Config) -> None:
    """
    Have hypothesis try a quarter of its examples every day and all of them with ``-m slow``, however long one takes.
    Every day they are the same, so that what fails is what was changed; with ``-m slow`` they are new ones each time.

    Have the processes that tests start keep what they compile, as they do for a user: hundreds import the same.

    All that tests start ends with this process, however it ends.

    Tests interrupt processes: what a shell starts in the background ignores that, and so does all that it starts.
    """
    settings.register_profile("daily", deadline=None, max_examples=25, derandomize=True)
    settings.register_profile("slow", deadline=None, max_examples=100)
    settings.load_profile("slow" if _runs_slow(config) else "daily")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_with_this_process()


def _runs_slow(config: pytest.Config) -> bool:
    return str(config.getoption("markexpr")) == "slow"


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """
    Mark variants of a test as slow where it is marked ``daily(number)``: all but so many, taken evenly.

    What tries a number of examples runs with ``-m slow`` too, where that number is larger.
    """
    for _, group in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        variants = [item for item in group if item.get_closest_marker("slow") is None]
        daily = variants[0].get_closest_marker("daily") if variants else None
        for number, item in enumerate(variants):
            if daily is not None and number * daily.args[0] % len(variants) >= daily.args[0]:
                item.add_marker(pytest.mark.slow)
    for item in items if _runs_slow(config) else ():
        by_hypothesis = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if by_hypothesis or item.get_closest_marker("examples") is not None:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: looking through them for garbage again and again is a tenth of the work."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Commands that run in this process configure the logs of all of it."""
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


_TOGETHER = (
    "tests/spark/",  # each process that runs one starts a Java
    "tests/acceptance/test_demo.py::",
    "tests/acceptance/test_demo_database.py::",
    "tests/acceptance/test_pooler_cli.py::",  # each command leaves what the next one needs
    "tests/integration/foreign/test_akka_r2dbc.py::",
    "tests/integration/foreign/test_node_systems.py::",
    "tests/integration/partitions/test_clustered_plans.py::",
    "tests/integration/schema/test_jit.py::",
    "tests/integration/journal/test_lookups.py::",
    "tests/integration/schema/test_other_versions.py::",
    "tests/integration/schema/test_plans.py::",
    "tests/integration/schema/test_plans_and_statistics.py::",
    "tests/integration/schema/test_plans_of_types.py::",
    "tests/integration/partitions/test_many_partitions.py::",
    "tests/integration/webhooks/test_delivery_log_plans.py::",
    "tests/acceptance/test_lag_cli.py::",
    "tests/acceptance/test_management_cli.py::",
    "tests/packaging/test_wheel.py::",
)
"""Tests that share what takes seconds to make: in one process, one after the other."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two more than processors: tests often wait for a server or for other processes."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return processors + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process the next test, whichever that is, but those that belong together to one."""
    from xdist.scheduler import LoadScopeScheduling

    class SomeTogether(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next(filter(nodeid.startswith, _TOGETHER), nodeid)

    return SomeTogether(config, log)
