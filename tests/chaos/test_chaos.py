"""
Workers are killed and stopped, statements cancelled, connections ended and cut, answers to commits lost, servers crash,
fail over and are restored, disks fill, clocks step: in each arrangement nothing is lost, doubled or out of order.

A run prints its seed; CHAOS_SEED makes the same choices again. CHAOS_FAULTS is how many hit in a long run of an
arrangement.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.arrangements import ARRANGEMENTS, Outcome, inject
from tests.chaos.faults import KINDS, Plan
from tests.fixtures.failover import Server

FAULTS = int(os.environ.get("CHAOS_FAULTS", "500"))


async def run(name: str, base: Server, logs: Path, faults: int) -> Outcome:
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(2**32))
    print(f"CHAOS_SEED={seed}", flush=True)
    outcome = await inject(name, base, logs, faults, seed, report=print)
    print(outcome, dict(outcome.counts))
    assert outcome.clean, outcome.audits
    assert outcome.faults.total() >= faults
    return outcome


@pytest.mark.slow
async def test_whatever_goes_wrong_every_event_is_handled_once(base_cluster: Server, tmp_path: Path) -> None:
    outcome = await run("together", base_cluster, tmp_path, 40)

    assert {*outcome.faults} == {*ARRANGEMENTS["together"].chaos.kinds}


@pytest.mark.slow
@pytest.mark.timeout(FAULTS + 600)
@pytest.mark.parametrize("name", ARRANGEMENTS)
async def test_whatever_goes_wrong_in_an_arrangement_for_long_nothing_is_lost(
    base_cluster: Server, tmp_path: Path, name: str
) -> None:
    await run(name, base_cluster, tmp_path, FAULTS)


@pytest.mark.parametrize("number", [5, 40, 1000, 10_000])
def test_a_plan_has_faults_of_each_kind(number: int) -> None:
    plan = Plan.of(number, KINDS)

    assert sum(plan.left.values()) == max(number, len(KINDS))
    assert min(plan.left.values()) >= 1
    assert not plan.done


def test_a_plan_is_done_when_as_many_have_hit_and_what_missed_counts_nothing() -> None:
    plan = Plan({"cancel": 1, "crash": 1})
    choices = random.Random(1)

    plan.told("cancel", hit=False)
    assert plan.take(["cancel"], choices) == "cancel"
    plan.told("cancel", hit=True)
    assert plan.take(["cancel"], choices) is None
    assert not plan.done
    plan.told("crash", hit=True)
    assert plan.done
    assert (dict(plan.hits), dict(plan.missed)) == ({"cancel": 1, "crash": 1}, {"cancel": 1})
