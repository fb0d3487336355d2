"""
Two versions of an application take turns in a group, while processes that match and that consume are killed and
stopped, and all else goes wrong that does in the arrangement ``groups``.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.arrangements import Arrangement, inject
from tests.chaos.rolling import RollingChaos
from tests.chaos.test_chaos import FAULTS
from tests.fixtures.failover import Server


@pytest.mark.slow
@pytest.mark.timeout(FAULTS + 600)
async def test_versions_of_an_application_are_rolled_forward_and_back_and_no_handler_loses_anything(
    base_cluster: Server, tmp_path: Path
) -> None:
    rolling = Arrangement(RollingChaos, at_least_once=True)
    outcome = await inject(
        "rolling", base_cluster, tmp_path, FAULTS, random.randrange(2**32), arrangement=rolling, report=print
    )
    print(outcome)
    assert outcome.clean
    assert all(
        outcome.counts[what] for what in ("rolls", "consumers of version 1", "consumers of version 2", "calm")
    )
