"""What a soak proves: lines that pass or fail, read from its file alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from projections.auditing import KINDS

_WARM_UP = 0.15
"""The part of the samples that is not judged: caches fill, and files grow to their size."""
_FEWEST = 12
_LOOSE_MB = 8
_LOOSE_MS = 5
_SAME = 1.15
_LATENCY_SAME = 2
_GROWING = {"seen"}
"""The record of all that was handled grows by what it is."""

Line = Mapping[str, Any]


class Score(NamedTuple):
    """
    A line of the scoreboard.

    Args:
        what: What must be true.
        passed: Whether it is.
        shown: The numbers.
    """

    what: str
    passed: bool
    shown: str

    def __str__(self) -> str:
        return f"{'pass' if self.passed else 'FAIL'}  {self.what}: {self.shown}"


def read(path: Path) -> list[Line]:
    """The lines of a soak's file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def scoreboard(lines: Sequence[Line]) -> list[Score]:
    """Judge a soak that has ended; one that has not, or that has too few samples, fails."""
    samples = [line for line in lines if line["kind"] == "sample"]
    judged = samples[int(len(samples) * _WARM_UP) :]
    scores = [*_audits(lines), _ended(lines)]
    if len(judged) < _FEWEST:
        return [*scores, Score("samples", passed=False, shown=f"{len(judged)}, fewer than {_FEWEST}")]
    return [*scores, *_memory(judged), *_latency(judged), *_sizes(judged), _dead(judged), _partitions(judged)]


def _audits(lines: Sequence[Line]) -> list[Score]:
    found = [line for line in lines if line["kind"] == "audit"]
    scores = []
    for audit in found:
        counts = {kind: audit[kind] for kind in KINDS if audit[kind]}
        allowed = {"doubled"} if audit.get("at_least_once") else set()
        shown = f"{audit['committed']:,} committed, {audit['handled']:,} handled, found {counts or 'nothing'}"
        clean = audit["committed"] > 0 and counts.keys() <= allowed
        scores.append(Score(f"history of {audit['what']}", clean, shown))
    sums = [line for line in lines if line["kind"] == "read model"]
    right = bool(sums) and all(line["expected"] == line["counted"] for line in sums)
    shown = ", ".join(f"{line['counted']:,} of {line['expected']:,}" for line in sums)
    return [*scores, Score("the sums of the read model", bool(found) and right, shown or "not compared")]


def _ended(lines: Sequence[Line]) -> Score:
    ended = [f"{line['process']} with {line['exit_code']}" for line in lines if line["kind"] == "ended"]
    codes = [code for line in lines if line["kind"] == "stopped" for code in line["exit_codes"]]
    codes += [line["exit_code"] for line in lines if line["kind"] == "leave"]
    shown = ", ".join(ended) or f"{len(codes)} were told to end, exit codes {sorted(set(codes))}"
    return Score("no process ends by itself, all end in order", not ended and set(codes) == {0}, shown)


def _thirds(samples: Sequence[Line], value: Callable[[Line], float]) -> tuple[float, float]:
    """The medians over the first and the last third."""
    third = len(samples) // 3
    return median(map(value, samples[:third])), median(map(value, samples[-third:]))


def _stays(what: str, medians: tuple[float, float], unit: str, most: float) -> Score:
    first, last = medians
    return Score(
        what, last <= most, f"{first:,.1f} {unit} in the first third, {last:,.1f} {unit} in the last"
    )


def own_memory(sample: Line, name: str) -> float:
    """MB of a process; of the server, whose processes come and go with connections, of one of them."""
    used = sample["processes"][name]
    return float(used["own"] / used["processes"])


def _memory(samples: Sequence[Line]) -> list[Score]:
    everywhere = set.intersection(*(set(sample["processes"]) for sample in samples))
    scores = []
    for name in sorted(everywhere):
        medians = _thirds(samples, lambda sample, name=name: own_memory(sample, name))  # type: ignore[misc]
        scores.append(_stays(f"memory of {name}, a process", medians, "MB", medians[0] * _SAME + _LOOSE_MB))
    return scores


def _latency(samples: Sequence[Line]) -> list[Score]:
    told = [sample for sample in samples if sample["latency"] and not sample["xmin_held"]]
    scores = []
    for name in ("p50", "p99"):
        medians = _thirds(told, lambda sample, name=name: sample["latency"][name])  # type: ignore[misc]
        scores.append(_stays(f"latency, {name}", medians, "ms", medians[0] * _LATENCY_SAME + _LOOSE_MS))
    return scores


def size(sample: Line, *, growing: bool = False) -> float:
    """MB of all tables and indexes, without the record that grows by what it is."""
    tables = sample["tables"].items()
    return sum(t["bytes"] + t["index_bytes"] for name, t in tables if growing or name not in _GROWING) / 1e6


def _sizes(samples: Sequence[Line]) -> list[Score]:
    half = len(samples) // 2
    first, last = max(map(size, samples[:half])), max(map(size, samples[half:]))
    shown = f"at most {first:,.1f} MB in the first half, {last:,.1f} MB in the second"
    return [Score("sizes of tables and indexes level off", last <= first * _SAME + 1, shown)]


def dead(sample: Line) -> int:
    """Dead rows of all tables."""
    return int(sum(table["dead"] for table in sample["tables"].values()))


def _dead(samples: Sequence[Line]) -> Score:
    held = [dead(sample) for sample in samples if sample["xmin_held"]]
    after = [dead(sample) for sample in samples[-len(samples) // 4 :]]
    shown = f"up to {max(held, default=0):,} while a transaction held them, {median(after):,.0f} at the end"
    return Score("dead rows go when nobody holds them", bool(held) and median(after) < max(held) / 2, shown)


def _partitions(samples: Sequence[Line]) -> Score:
    parts = [sample["tables"]["events"]["parts"] for sample in samples]
    shown = f"{min(parts)} to {max(parts)} partitions of the journal"
    return Score("old partitions are dropped", max(parts) <= min(parts) + 2, shown)
