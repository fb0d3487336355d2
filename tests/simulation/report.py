"""What came of many runs, and how often which fault hit what."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from tests.mutants.catalogue import MUTANTS
from tests.simulation.plan import AT_A_STEP, AT_A_TIME, plan_of
from tests.simulation.world import Outcome, simulate


@dataclass(slots=True)
class Report:
    """What came of many runs."""

    seeds: int = 0
    failed: list[dict[str, Any]] = field(default_factory=list)
    events: int = 0
    committed: int = 0
    seconds: float = 0.0
    """Of virtual time."""
    faults: Counter[str] = field(default_factory=Counter)
    hit: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Add a run."""
        self.seeds += 1
        self.events += outcome.events
        self.committed += outcome.committed
        self.seconds += outcome.took
        self.faults.update(outcome.faults)
        self.hit.update(outcome.hit)
        if outcome.failure is not None:
            self.failed.append({"seed": outcome.plan.seed, "reason": outcome.failure})

    def merge(self, other: Report) -> None:
        """Add the runs of another report."""
        for name in ("seeds", "events", "committed", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failed += other.failed
        self.faults.update(other.faults)
        self.hit.update(other.hit)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        by_kind: dict[str, dict[str, int]] = {}
        for (kind, step), number in sorted(self.hit.items()):
            by_kind.setdefault(kind, {})[step] = number
        return {
            "seeds": self.seeds,
            "failed": self.failed,
            "events": self.events,
            "committed": self.committed,
            "virtual_seconds": round(self.seconds),
            "faults": dict(sorted(self.faults.items())),
            "coverage": by_kind,
            "not_covered": sorted({*AT_A_TIME, *AT_A_STEP}.difference(self.faults)),
        }


def run_seeds(first: int, seeds: int, mutant: str | None = None, *, stop: bool = False) -> Report:
    """
    Run seeds one after the other.

    Args:
        first: The first seed.
        seeds: How many.
        mutant: The name of a bug that is seeded.
        stop: Whether the first one that fails is the last.
    """
    report = Report()
    with MUTANTS[mutant].seeded() if mutant else nullcontext():
        for seed in range(first, first + seeds):
            report.add(simulate(plan_of(seed)))
            if stop and report.failed:
                break
    return report
