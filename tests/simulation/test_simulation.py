"""Whole workers under drawn faults and orders: nothing lost, nothing twice, in order, and all of it in the end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.layers import Simulation
from tests.simulation.history import Event, problems, unread
from tests.simulation.loop import Host, SimulatedLoop, simulated_loop
from tests.simulation.plan import ARRANGEMENTS, AT_A_STEP, Fault, at_a_time, plan_of, smaller
from tests.simulation.report import run_seeds
from tests.simulation.shrinking import shrunk
from tests.simulation.world import Outcome, simulate

ROOT = Path(__file__).parents[2]

FOUND_SOON = {
    one.name: layer
    for one in MUTANTS.values()
    for layer in one.found_by
    if isinstance(layer, Simulation) and layer.seeds <= 20
}
"""Bugs that a few seeds find."""

NOT_NOTICED = {171_338}
"""The clock steps back between the end of a reader and the start of the next one: docs/proof.md."""


def command(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *options],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def first_failure(mutant: str, layer: Simulation) -> Outcome | None:
    plans = (plan_of(seed, layer.arrangement) for seed in range(layer.first, layer.first + layer.seeds))
    with MUTANTS[mutant].seeded():
        return next((one for plan in plans if (one := simulate(plan)).failure is not None), None)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seeds", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_whatever_goes_wrong_everything_is_handled_once_and_in_order(seeds: int) -> None:
    report = run_seeds(50_000, seeds)

    assert report.failed == []
    assert report.committed > 20 * report.seeds  # the runs are not empty
    assert report.faults.total() > report.seeds


@pytest.mark.slow
def test_what_handlers_queue_is_handled_once_and_in_order() -> None:
    outcomes = [simulate(replace(plan_of(seed), queues=True)) for seed in range(60_000, 60_020)]

    assert [outcome.failure for outcome in outcomes if outcome.failure is not None] == []
    assert sum(bool(outcome.plan.poison) for outcome in outcomes) > 2


def test_a_fault_of_a_worker_before_the_first_has_started_is_none() -> None:
    """The history of this run takes longer to write than others do."""
    assert simulate(plan_of(60_014)).failure is None


@pytest.mark.parametrize("seed", [3, 7])
def test_a_range_goes_on_soon_after_its_database_is_back_however_long_its_pauses_are(seed: int) -> None:
    away = Fault("server restart", 3.9, amount=0.1)
    plan = replace(plan_of(seed, "together"), faults=(away,), poison={}, pauses=(10.0, 30.0))

    assert simulate(plan).failure is None


def test_a_clock_that_went_back_is_not_forgotten_by_a_range_that_starts_again() -> None:
    """The worker notices it, and loses its connection before it has stored from where it reads again."""
    assert simulate(plan_of(156_141)).failure is None


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_a_hundred_thousand_seeds() -> None:
    done = command("--seeds", "100000", "--first", "100000", "--json")

    told = json.loads(done.stdout)
    assert [one for one in told["failed"] if one["seed"] not in NOT_NOTICED] == []
    assert told["not_covered"] == []
    assert {kind: number for kind, number in told["faults"].items() if number < 1000} == {}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 42])
def test_the_same_seed_gives_the_same_trace_byte_for_byte(seed: int) -> None:
    one, other = (command("--trace", "--first", str(seed), PYTHONHASHSEED=order) for order in ("1", "2"))

    assert one.returncode == 0, one.stderr
    assert one.stdout == other.stdout
    assert one.stdout.count("\n") > 200


@pytest.mark.slow
def test_the_command_counts_faults_and_what_they_hit() -> None:
    done = command("--seeds", "30", "--first", "7000", "--json")

    told = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert told["seeds"] == 30
    assert told["failed"] == []
    assert told["events"] > 10_000
    assert told["arrangements"].keys() == {*ARRANGEMENTS}
    assert set(told["faults"]) <= {*AT_A_STEP, *(kind for one in ARRANGEMENTS for kind in at_a_time(one))}
    assert sum(told["faults"].values()) <= sum(sum(hit.values()) for hit in told["coverage"].values())
    assert done.stderr.splitlines() == [
        "25 of 30 seeds; the rest: --first 7025 --seeds 5", "30 of 30 seeds",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mutant", FOUND_SOON)
def test_a_seeded_bug_is_found(mutant: str) -> None:
    assert first_failure(mutant, FOUND_SOON[mutant]) is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "arrangement", "step"),
    [
        ("memory-before-the-commit", None, "save_offsets"),
        ("orders-are-not-kept", "webhooks", "claim_deliveries"),
    ],
)
def test_a_seed_that_fails_is_shrunk_to_what_it_takes(
    mutant: str, arrangement: str | None, step: str
) -> None:
    failed = first_failure(mutant, Simulation(20, arrangement=arrangement))
    assert failed is not None

    with MUTANTS[mutant].seeded():
        least = shrunk(failed)

    assert least.failure is not None
    assert least.plan.size < failed.plan.size / 2
    assert any("fault" in line or step in line for line in least.trace)


def test_no_smaller_plan_has_a_fault_of_a_worker_that_it_leaves_out() -> None:
    plans = [one for seed in range(50) for one in smaller(plan_of(seed))]

    assert [one for one in plans if any(fault.worker >= one.workers for fault in one.faults)] == []


@pytest.mark.slow
def test_the_command_shows_the_shortest_plan_of_a_seed_that_fails() -> None:
    done = command("--seeds", "3", "--mutant", "memory-before-the-commit")

    assert done.returncode == 1
    assert "The shortest plan that fails" in done.stdout
    assert "not handled" in done.stdout


def events(*keys: tuple[str, int]) -> list[Event]:
    return [Event(source, number, f"{source}{number}") for source, number in keys]


COMMITTED = events(("a", 1), ("a", 2), ("b", 1), ("a", 3))
LOST = Event("a", 3, "lost")


@pytest.mark.parametrize(
    ("handled", "wrong"),
    [
        (COMMITTED, None),
        (COMMITTED[:-1], "not handled: [3]"),
        ([*COMMITTED, COMMITTED[-1]], "handled twice: [3]"),
        ([COMMITTED[1], COMMITTED[0], *COMMITTED[2:]], "out of order"),
        ([*COMMITTED, *events(("b", 2))], "not in the log: [2]"),
        ([*COMMITTED[:-1], Event("a", 3, "another")], "not handled: [3]"),
        ([*COMMITTED[:-1], LOST, COMMITTED[-1]], None),
        ([*COMMITTED[:-1], LOST, LOST, COMMITTED[-1]], "handled twice: [3]"),
        ([*COMMITTED[:-1], LOST], "not handled: [3]"),
    ],
)
def test_the_checker_of_histories_finds_what_is_wrong(handled: list[Event], wrong: str | None) -> None:
    found = problems(COMMITTED, handled, {LOST, COMMITTED[0]})

    assert found == [] if wrong is None else any(wrong in one for one in found)


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        (COMMITTED, None),
        ([*COMMITTED, *COMMITTED[1:2], LOST], None),
        (COMMITTED[:-1], "not handled: [3]"),
        ([COMMITTED[1], COMMITTED[0], *COMMITTED[2:]], "out of order: [2, 1, 3]"),
        ([*COMMITTED[:-1], LOST], "not handled: [3]"),
    ],
)
def test_the_checker_of_what_is_seen_at_least_once_finds_what_is_wrong(
    seen: list[Event], wrong: str | None
) -> None:
    found = unread(COMMITTED, seen)

    assert found == [] if wrong is None else any(wrong in one for one in found)


def test_hosts_run_in_a_drawn_order_and_each_in_its_own() -> None:
    def run(seed: int) -> list[Any]:
        with simulated_loop(Random(seed)) as loop:
            seen: list[Any] = []
            for host in (Host("one"), Host("other")):
                for number in range(10):
                    loop.call_soon(seen.append, (host.name, number), context=host.context)
            loop.run_until_complete(_ten_seconds(loop))
            return seen

    one, again, other = run(1), run(1), run(2)

    assert one == again != other
    assert Counter(name for name, _ in one) == {"one": 10, "other": 10}
    assert [number for name, number in other if name == "one"] == list(range(10))


async def _ten_seconds(loop: SimulatedLoop) -> None:
    before = loop.time()
    await asyncio.sleep(10)
    assert loop.time() == pytest.approx(before + 10)
