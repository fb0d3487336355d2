"""The simulated PostgreSQL answers as a real one, call by call."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.simulation.calls import CODE_OF, CODES
from tests.simulation.sides import Line, Program, on_real, on_simulated

numbers = st.integers(0, 29)
calls = st.tuples(st.integers(0, 2), st.integers(0, CODES - 1), numbers, numbers)
programs = st.lists(calls, min_size=10, max_size=40)
connections = st.integers(2, 3)


def random_program(seed: int, length: int) -> Program:
    chance = Random(seed)
    return [
        (chance.randrange(3), chance.randrange(CODES), chance.randrange(30), chance.randrange(30))
        for _ in range(length)
    ]


def check(dsn: str, program: Program, connections: int) -> list[Line]:
    simulated = on_simulated(program, connections)
    real = asyncio.run(on_real(dsn, program, connections))
    for number, (mine, theirs) in enumerate(zip(simulated, real, strict=False)):
        assert mine == theirs, f"answer {number}, after {simulated[max(0, number - 12) : number]}"
    assert len(simulated) == len(real)
    return simulated


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(20), id="some"), pytest.param(range(20, 400), id="many", marks=pytest.mark.slow)],
)
@pytest.mark.timeout(900)
def test_long_schedules_have_the_same_answers(dsn: str, seeds: range) -> None:
    answers: Counter[str] = Counter()
    for seed in seeds:
        lines = check(dsn, random_program(seed, 150), 2 + seed % 2)
        answers.update(answer for _, _, answer in lines if isinstance(answer, str))

    # The schedules are not empty: calls wait, are fenced off and overtaken, and meet a database that went back.
    assert answers["waits"] >= len(seeds)
    assert answers.keys() >= {"PJ010", "PJ011", "PJ013", "PJ001", "25P02"}


def test_a_deadlock_ends_for_the_one_that_closes_the_circle(dsn: str) -> None:
    begin, append = CODE_OF["begin"], CODE_OF["append"]
    lines = check(
        dsn, [(0, begin, 0, 0), (1, begin, 0, 0), *((n % 2, append, 3, n // 2 ^ n % 2) for n in range(4))], 2
    )

    assert [answer for _, _, answer in lines[-3:]] == ["waits", lines[-2][2], "40P01"]
    assert lines[-2][2][0]["seq_nr"] == 1


@given(programs, connections)
@settings(
    max_examples=examples(80),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_any_schedule_has_the_same_answers(dsn: str, program: Program, connections: int) -> None:
    check(dsn, program, connections)
