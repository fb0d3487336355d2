"""The simulated PostgreSQL answers as a real one, call by call."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.simulation.all_calls import CODE_OF, CODES
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
    [pytest.param(range(8), id="some"), pytest.param(range(8, 400), id="many", marks=pytest.mark.slow)],
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


INLINE = (
    "begin", "begin", "append", "append", "append", "handle_inline", "handle_inline", "handle_inline", "commit",
    "commit", "roll_back", "set_mode", "park", "unpark", "pause", "evict", "read_offsets",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 40), marks=pytest.mark.slow)])
def test_handling_where_events_are_appended_has_the_same_answers(dsn: str, seeds: range) -> None:
    begins = [
        (0, CODE_OF[name], a, b)
        for name, a, b in (("register", 1, 0), ("register", 2, 4), ("set_mode", 1, 1))
    ]
    handled = 0
    for seed in seeds:
        chance = Random(seed)
        numbers = [(chance.randrange(3), chance.randrange(30), chance.randrange(30)) for _ in range(100)]
        drawn = [(one, CODE_OF[chance.choice(INLINE)], a, b) for one, a, b in numbers]
        lines = check(dsn, [*begins, *drawn], 2 + seed % 2)
        answers = [answer for _, name, answer in lines if name == "handle inline"]
        handled += sum(isinstance(answer, list) and len(answer) > 0 for answer in answers)

    assert handled > len(seeds) / 2


BESIDE_IMPORTS = ("append", "poll", "evict", "register", "beat", "save", "read", "begin", "commit")


def importing_program(seed: int) -> Program:
    """Imports one after the other, each on a connection, with other calls between their steps."""
    chance, program = Random(seed), []
    for _ in range(12):
        connection, source = chance.randrange(3), chance.randrange(30)
        ends = chance.choice(["commit", "commit", "commit", "roll_back", "prepare"])
        for step in ("begin", "stage", *["copy"] * chance.randint(1, 2), "import_staged", ends):
            program.append((connection, CODE_OF[step], source, chance.randrange(30)))
            if chance.random() < 0.5:
                beside = CODE_OF[chance.choice(BESIDE_IMPORTS)]
                program.append((chance.randrange(3), beside, chance.randrange(30), chance.randrange(30)))
    return program


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 40), marks=pytest.mark.slow)])
def test_imports_have_the_same_answers(dsn: str, seeds: range) -> None:
    imported = 0
    for seed in seeds:
        lines = check(dsn, importing_program(seed), 2 + seed % 2)
        answers = [answer for _, name, answer in lines if name == "import"]
        imported += sum(isinstance(answer, list) and answer[0]["_import_events_v1"] > 0 for answer in answers)

    assert imported > len(seeds)


GROUPS = (
    "begin", "append", "append", "append", "commit", "commit", "roll_back", "subscribe", "register_handler", "keep",
    *("join_group",) * 5, "leave_group", "release", "cut_group", *("look_for",) * 5, *("last",) * 3,
    *("read_matches",) * 8, *("move",) * 8, *("join_handler",) * 3, *("ask_matching",) * 3, "begin_matching",
    *("match",) * 6, *("take_retries",) * 3, *("fail_batch",) * 3, *("finish_retry",) * 3, "retry_batches",
)  # fmt: skip


def groups_program(seed: int, length: int) -> Program:
    """Groups that are there, and calls about them in any order."""
    chance = Random(f"groups {seed}")
    begins = [("make_group", 0, seed), ("make_group", 1, seed + 1)]
    begins += [
        (name, a, b) for a, b in ((0, 0), (0, 1), (1, 2)) for name in ("subscribe", "register_handler")
    ]
    begins += [("append", 2, 0), ("ask_matching", 2, 0)]
    drawn = [
        (chance.randrange(3), CODE_OF[chance.choice(GROUPS)], chance.randrange(30), chance.randrange(30))
        for _ in range(length)
    ]
    return [*((0, CODE_OF[name], a, b) for name, a, b in begins), *drawn]


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(10), id="some"), pytest.param(range(10, 200), id="many", marks=pytest.mark.slow)],
)
@pytest.mark.timeout(900)
def test_groups_have_the_same_answers(dsn: str, seeds: range) -> None:
    answers: Counter[str] = Counter()
    read = moved = 0
    for seed in seeds:
        for _, name, answer in check(dsn, groups_program(seed, 150), 2 + seed % 2):
            answers.update([answer] if isinstance(answer, str) else [])
            read += len(answer) if name == "read matches" and isinstance(answer, list) else 0
            moved += name == "move cursor" and isinstance(answer, list)

    assert answers.keys() >= {"waits", "PJ010", "PJ013", "PJ084", "25P02"}
    assert read > 2 * len(seeds)
    assert moved > 2 * len(seeds)


WEBHOOKS = (
    "begin", "commit", "commit", "roll_back", *("make_deliveries",) * 6, *("claim",) * 6, *("finish",) * 7,
    "reap", "expire", "release_waiting", "decide", *("look_at",) * 5,
)  # fmt: skip


def webhooks_program(seed: int, length: int) -> Program:
    """Endpoints that are there, and calls about their deliveries in any order."""
    chance = Random(f"webhooks {seed}")
    program = [(0, CODE_OF["create_endpoint"], n, chance.randrange(30)) for n in range(4)]
    for _ in range(length):
        connection, name = chance.randrange(3), chance.choice(WEBHOOKS)
        for one in ("expire", "order", name) if name == "claim" else (name,):
            program.append((connection, CODE_OF[one], chance.randrange(30), chance.randrange(30)))
    return program


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(4), id="some"), pytest.param(range(4, 200), id="many", marks=pytest.mark.slow)],
)
@pytest.mark.timeout(900)
def test_webhooks_have_the_same_answers(dsn: str, seeds: range) -> None:
    seen: Counter[str] = Counter()
    claimed = finished = 0
    for seed in seeds:
        for _, name, answer in check(dsn, webhooks_program(seed, 150), 2 + seed % 2):
            seen.update([answer] if isinstance(answer, str) else [])
            claimed += len(answer) if name == "claim deliveries" and isinstance(answer, list) else 0
            finished += len(answer) if name == "finish deliveries" and isinstance(answer, list) else 0
            if name == "deliveries" and isinstance(answer, list):
                seen.update({row["state"] for row in answer})

    assert seen.keys() >= {
        "waits",
        "55P03",
        "25P02",
        "waiting",
        "pending",
        "leased",
        "done",
        "dead",
        "expired",
    }
    assert claimed > 10 * len(seeds)
    assert finished > 5 * len(seeds)


@pytest.mark.slow
def test_a_deadlock_ends_for_the_one_that_closes_the_circle(dsn: str) -> None:
    begin, append = CODE_OF["begin"], CODE_OF["append"]
    lines = check(
        dsn, [(0, begin, 0, 0), (1, begin, 0, 0), *((n % 2, append, 3, n // 2 ^ n % 2) for n in range(4))], 2
    )

    assert [answer for _, _, answer in lines[-3:]] == ["waits", lines[-2][2], "40P01"]
    assert lines[-2][2][0]["seq_nr"] == 1


@pytest.mark.slow
@given(programs, connections)
@settings(
    max_examples=examples(80),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_any_schedule_has_the_same_answers(dsn: str, program: Program, connections: int) -> None:
    check(dsn, program, connections)
