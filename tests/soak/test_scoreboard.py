"""The scoreboard of a soak: a good file passes, and each fault fails the line that is about it, and no other."""

from __future__ import annotations

from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.soak.plot import svg
from tests.soak.scoreboard import scoreboard

Lines = list[dict[str, Any]]


def sample(number: int) -> dict[str, Any]:
    def table(size: int, parts: int = 1) -> dict[str, int]:
        held = 400 * (number - 25) if 25 <= number < 45 else 10
        return {"parts": parts, "bytes": size, "index_bytes": size // 2, "dead": held}

    return {
        "kind": "sample",
        "at": 30.0 * number,
        "xmin_held": 25 <= number < 45,
        "appended": 600 * number,
        "load": 1.5,
        "latency": {"p50": 3.0 + number % 3, "p90": 6.0, "p99": 20.0 + number % 7, "max": 90.0},
        "processes": {
            "worker 1": {"processes": 1, "pss": 45.0, "own": 40.0 + number % 4},
            "server": {"processes": 20 + number % 3, "pss": 200.0, "own": 120.0},
        } | ({"worker 9": {"processes": 1, "pss": 40.0, "own": 5.0 * number}} if number < 80 else {}),
        "tables": {"events": table(20_000_000, 5 + number % 2), "seen": table(100_000 * number)},
    }  # fmt: skip


def good() -> Lines:
    nothing = {"waiting": 0, "lost": 0, "doubled": 0, "out_of_order": 0, "invented": 0, "examples": []}
    return [
        *map(sample, range(100)),
        {"kind": "leave", "at": 100.0, "worker": 9, "exit_code": 0},
        {"kind": "kill", "at": 200.0, "worker": 10, "exit_code": -9},
        {"kind": "stopped", "at": 3000.0, "exit_codes": [0, 0, 0]},
        {"kind": "audit", "what": "projection", "committed": 90, "handled": 90, **nothing},
        {"kind": "audit", "what": "webhooks", "at_least_once": True, "committed": 9, "handled": 10}
        | nothing | {"doubled": 1},
        {"kind": "read model", "expected": 90, "counted": 90},
    ]  # fmt: skip


def failed(lines: Lines) -> list[str]:
    return [score.what for score in scoreboard(lines) if not score.passed]


@pytest.mark.slow
def test_a_run_is_drawn() -> None:
    held = [{"kind": "xmin held", "at": 750.0}, {"kind": "xmin released", "at": 1350.0}]
    drawn = ET.fromstring(
        svg([{"kind": "start", "at": 0, "rate": 20, "seed": 1, "hours": 1}, *good(), *held])
    )

    found = Counter(one.tag.rpartition("}")[2] for one in drawn.iter())
    assert found["polyline"] == 9
    assert found["rect"] == 1 + 5
    texts = {one.text for one in drawn.iter() if one.text}
    assert {"dead rows", "memory of a process, MB", "0.5 h"} <= texts
    assert sum(text.startswith("pass") for text in texts) == len(scoreboard(good()))


def of_kind(lines: Lines, kind: str) -> Lines:
    return [line for line in lines if line["kind"] == kind]


def test_a_good_run_passes() -> None:
    assert failed(good()) == []
    assert len(scoreboard(good())) == 11


@pytest.mark.parametrize("kind", ["lost", "doubled", "out_of_order", "invented"])
def test_what_the_history_checker_finds_fails(kind: str) -> None:
    lines = good()
    of_kind(lines, "audit")[0][kind] = 1

    assert failed(lines) == ["history of projection"]


def test_what_was_never_compared_fails() -> None:
    assert failed([line for line in good() if line["kind"] not in {"audit", "read model"}]) == [
        "the sums of the read model"
    ]


def test_memory_that_grows_fails() -> None:
    lines = good()
    for number, line in enumerate(of_kind(lines, "sample")):
        line["processes"]["worker 1"]["own"] += 0.5 * number

    assert failed(lines) == ["memory of worker 1, a process"]


def test_latency_that_grows_fails() -> None:
    lines = good()
    for line in of_kind(lines, "sample")[70:]:
        line["latency"]["p99"] *= 3

    assert failed(lines) == ["latency, p99"]


def test_sizes_that_grow_fail() -> None:
    lines = good()
    for number, line in enumerate(of_kind(lines, "sample")):
        line["tables"]["events"]["index_bytes"] += 200_000 * number

    assert failed(lines) == ["sizes of tables and indexes level off"]


def test_dead_rows_that_stay_fail() -> None:
    lines = good()
    for line in of_kind(lines, "sample")[45:]:
        line["tables"]["events"]["dead"] = 9000

    assert failed(lines) == ["dead rows go when nobody holds them"]


def test_partitions_that_stay_fail() -> None:
    lines = good()
    for number, line in enumerate(of_kind(lines, "sample")):
        line["tables"]["events"]["parts"] = 5 + number // 10

    assert failed(lines) == ["old partitions are dropped"]


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "ended", "at": 5.0, "process": "worker 1", "exit_code": 1},
        {"kind": "leave", "at": 5.0, "worker": 9, "exit_code": 70},
    ],
)
def test_a_process_that_ends_by_itself_or_with_an_error_fails(line: dict[str, Any]) -> None:
    assert failed([*good(), line]) == ["no process ends by itself, all end in order"]


def test_a_run_that_was_too_short_fails() -> None:
    lines = good()

    assert failed([*of_kind(lines, "sample")[:5], *lines[100:]]) == ["samples"]
