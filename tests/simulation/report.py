"""What came of many runs, and how often which fault hit what."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from tests.mutants.catalogue import MUTANTS
from tests.simulation.plan import ARRANGEMENTS, AT_A_STEP, at_a_time, plan_of
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
    arrangements: Counter[str] = field(default_factory=Counter)
    """Runs of each."""
    faults_in: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By arrangement and kind."""

    def add(self, outcome: Outcome) -> None:
        """Add a run."""
        self.seeds += 1
        self.events += outcome.events
        self.committed += outcome.committed
        self.seconds += outcome.took
        self.faults.update(outcome.faults)
        self.hit.update(outcome.hit)
        arrangement = outcome.plan.arrangement
        self.arrangements[arrangement] += 1
        self.faults_in.update({(arrangement, kind): number for kind, number in outcome.faults.items()})
        if outcome.failure is not None:
            self.failed.append(
                {"seed": outcome.plan.seed, "arrangement": arrangement, "reason": outcome.failure}
            )

    def merge(self, other: Report) -> None:
        """Add the runs of another report."""
        for name in ("seeds", "events", "committed", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failed += other.failed
        for name in ("faults", "hit", "arrangements", "faults_in"):
            getattr(self, name).update(getattr(other, name))

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
            "arrangements": dict(sorted(self.arrangements.items())),
            "faults": dict(sorted(self.faults.items())),
            "coverage": by_kind,
            "not_covered": self._not_covered(),
        }

    def _not_covered(self) -> list[str]:
        """Kinds of faults that no run of an arrangement had."""
        return [
            f"{kind}, {arrangement}"
            for arrangement in ARRANGEMENTS
            for kind in sorted({*at_a_time(arrangement), *AT_A_STEP})
            if (arrangement, kind) not in self.faults_in
        ]


def run_seeds(
    first: int, seeds: int, mutant: str | None = None, arrangement: str | None = None, *, stop: bool = False
) -> Report:
    """
    Run seeds one after the other.

    Args:
        first: The first seed.
        seeds: How many.
        mutant: The name of a bug that is seeded.
        arrangement: Where things are, whatever the seeds draw.
        stop: Whether the first one that fails is the last.
    """
    report = Report()
    with MUTANTS[mutant].seeded() if mutant else nullcontext():
        for seed in range(first, first + seeds):
            report.add(simulate(plan_of(seed, arrangement)))
            if stop and report.failed:
                break
    return report


def run_chunk(chunk: tuple[int, int], **options: Any) -> tuple[int, Report]:
    """As :func:`run_seeds`, with the first seed; a function of its own, for processes import it by its name."""
    return chunk[0], run_seeds(*chunk, **options)
