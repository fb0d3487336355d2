"""What all tests share; the fixtures themselves are in tests/fixtures."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest
from hypothesis import settings

from tests.fixtures.processes import end_with_this_process
from tests.fixtures.variants import telling

pytest_plugins = ["tests.fixtures.postgres", "tests.fixtures.failover"]


def pytest_configure(config: pytest.Config) -> None:
    """
    Have hypothesis try a quarter of its examples every day and all of them with ``-m slow``, however long one takes.
    Every day they are the same, so that what fails is what was changed; with ``-m slow`` they are new ones each time.

    Keep what Python compiles, here and in the processes that tests start, as it does for a user: each process of
    pytest-xdist reads all tests, and hundreds of processes import the same.

    All that tests start ends with this process, however it ends.

    Tests interrupt processes: what a shell starts in the background ignores that, and so does all that it starts.
    """
    settings.register_profile("daily", deadline=None, max_examples=25, derandomize=True)
    settings.register_profile("slow", deadline=None, max_examples=100)
    settings.load_profile("slow" if _runs_slow(config) else "daily")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_with_this_process()
    gc.disable()  # until all tests are collected


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Make no items of what is slow where that is left out: each process makes all of them, which takes seconds."""
    marks = getattr(obj, "pytestmark", None)
    slow = isinstance(marks, list) and any(getattr(mark, "name", None) == "slow" for mark in marks)
    return [] if slow and collector.config.getoption("markexpr") == "not slow" else None


_VARIANTS = 5
_ALL_VARIANTS = ("tests/unit/", "tests/property/", "tests/mutants/", "tests/models/", "tests/golden/")
"""Tests whose variants take milliseconds."""


def _runs_slow(config: pytest.Config) -> bool:
    return str(config.getoption("markexpr")) == "slow"


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """
    Mark as slow those variants of a test that the daily set leaves out: all but ``daily(number)``, and all but five
    of a test without this mark that is no unit test.

    What tries a number of examples runs with ``-m slow`` too, where that number is larger.
    """
    for _, group in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        variants = [item for item in group if item.get_closest_marker("slow") is None]
        kept = telling(variants, _daily(variants[0])) if variants else []
        for item in variants:
            if item not in kept:
                item.add_marker(pytest.mark.slow)
    for item in items if _runs_slow(config) else ():
        by_hypothesis = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if by_hypothesis or item.get_closest_marker("examples") is not None:
            item.add_marker(pytest.mark.slow)


def _daily(item: pytest.Item) -> int:
    """The number of variants of a test that the daily set has."""
    if (mark := item.get_closest_marker("daily")) is not None:
        return int(mark.args[0])
    return sys.maxsize if item.nodeid.startswith(_ALL_VARIANTS) else _VARIANTS


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: looking through them for garbage again and again is a tenth of the work."""
    gc.collect()
    gc.freeze()
    gc.enable()


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
    "tests/integration/webhooks/log/test_log_plans.py::",
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
