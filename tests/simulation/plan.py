"""What happens in a run from outside: who writes, which faults there are; all of it drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

BUSY = 4.0
"""Seconds in which writers write and faults happen."""
SOURCES = tuple(f"thing-{n}" for n in range(16))

AT_A_TIME = (
    "crash", "power loss", "freeze", "hang", "cut", "long cut", "reset", "clock step", "fail-over", "server crash",
    "server restart", "rescale", "pause", "stop", "join", "take over",
)  # fmt: skip
"""Faults that happen at a time, whatever is being done then."""
AT_A_STEP = (
    "crash", "freeze", "hang", "lost answer", "reset", "conflict", "deadlock", "cancelled", "terminated", "fail-over",
)  # fmt: skip
"""Faults that happen as a worker does something."""
STEPS = (
    "save_offsets", "COMMIT", "COMMIT", "heartbeat", "poll_writers", "read_events_by_slices", "read_keys_by_slices",
    "save_horizons", "release_range", "claim_range", "BEGIN", "INSERT", "park_source", "read_offsets",
    "evict_offsets", "load_events", "fail_range", "DELETE",
)  # fmt: skip
MOMENTS = ("sent", "begun", "done")
"""Of a statement: it leaves the worker, the server begins with it, the server has done it and answers."""
_REFUSALS = {"conflict", "deadlock", "cancelled", "terminated"}


@dataclass(frozen=True, slots=True)
class Write:
    """
    A transaction of an application.

    Args:
        at: Seconds.
        sources: Of one event each, in order.
        holds: Seconds that it stays open after it has appended.
        ends: ``commit``, ``rollback``, or ``prepare``: then another session ends it later.
        two_steps: Append the second half just before the end.
    """

    at: float
    sources: tuple[str, ...]
    holds: float
    ends: str
    two_steps: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """
    Something that goes wrong, or that somebody does.

    Args:
        kind: One of :data:`AT_A_TIME` or :data:`AT_A_STEP`.
        at: Seconds; of one at a step, from when on.
        step: What a worker does then; empty for a time.
        moment: When in that.
        count: The how-manieth time from ``at`` on.
        worker: Whom it hits.
        amount: Seconds, commits that are lost, or ranges: what the kind makes of it, 0 to 1.
    """

    kind: str
    at: float
    step: str = ""
    moment: str = ""
    count: int = 1
    worker: int = 0
    amount: float = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """A run, but for the order in which things happen, which is drawn from the seed as it goes."""

    seed: int
    workers: int
    ranges: int
    batch_size: int
    page_bytes: int
    connections: int
    """Of the pool of each worker."""
    retention: float
    """Minutes that offsets are kept."""
    writes: tuple[Write, ...]
    faults: tuple[Fault, ...]
    poison: dict[tuple[str, int], int] = field(default_factory=dict)
    """For events by source and number, how often their handler fails."""

    @property
    def size(self) -> int:
        """How much there is to look at."""
        return len(self.writes) + 2 * len(self.faults) + self.workers + self.ranges + len(self.poison)

    def __str__(self) -> str:
        head = (
            f"seed {self.seed}: {self.workers} workers, {self.ranges} ranges, batches of {self.batch_size}, pages of "
            f"{self.page_bytes} bytes, {self.connections} connections"
        )
        happens = [
            (w.at, f"write {', '.join(w.sources)}, open for {w.holds:.3f} s, {w.ends}") for w in self.writes
        ]
        for fault in self.faults:
            where = (
                f" as worker {fault.worker} does {fault.step} ({fault.moment}, {fault.count})"
                if fault.step
                else ""
            )
            happens.append(
                (fault.at, f"fault: {fault.kind}{where or f' of worker {fault.worker}'}, {fault.amount:.2f}")
            )
        lines = [head, *(f"  {at:7.3f} {what}" for at, what in sorted(happens))]
        lines += [
            f"  poison: {source} {number} fails {times}x" for (source, number), times in self.poison.items()
        ]
        return "\n".join(lines)


def plan_of(seed: int) -> Plan:
    """The plan that belongs to a seed."""
    chance = Random(f"plan {seed}")
    sources = SOURCES[: chance.randint(1, len(SOURCES))]
    workers = chance.randint(1, 3)
    return Plan(
        seed=seed,
        workers=workers,
        ranges=chance.choice([1, 1, 2, 3, 4]),
        batch_size=chance.choice([1, 2, 3, 5, 50]),
        page_bytes=chance.choice([600, 1800, 8 * 2**20]),
        connections=chance.choice([4, 4, 5, 8]),
        retention=chance.choice([1, 1, 60]),
        writes=tuple(_write(chance, sources) for _ in range(chance.randint(5, 25))),
        faults=tuple(_fault(chance, workers) for _ in range(chance.randint(0, 6))),
        poison={
            (chance.choice(sources), chance.randint(1, 6)): chance.randint(1, 4)
            for _ in range(chance.choice([0, 0, 0, 1, 2]))
        },
    )


def _write(chance: Random, sources: tuple[str, ...]) -> Write:
    number = chance.choice([1, 1, 1, 2, 3, 6])
    holds = chance.choice([0.0, 0.0, 0.005 * chance.random(), 0.05 * chance.random(), 3 * chance.random()])
    ends = chance.choices(["commit", "rollback", "prepare"], [16, 2, 2])[0]
    return Write(
        BUSY * chance.random(),
        tuple(chance.choice(sources) for _ in range(number)),
        holds,
        ends,
        two_steps=number > 1 and chance.random() < 0.3,
    )


def _fault(chance: Random, workers: int) -> Fault:
    at, worker, amount = BUSY * chance.random(), chance.randrange(workers), chance.random()
    if chance.random() < 0.5:
        return Fault(chance.choice(AT_A_TIME), at, worker=worker, amount=amount)
    kind = chance.choice(AT_A_STEP)
    moment = "begun" if kind in _REFUSALS else chance.choice(MOMENTS)
    return Fault(kind, at, chance.choice(STEPS), moment, chance.randint(1, 3), worker, amount)


def smaller(plan: Plan) -> list[Plan]:
    """Plans with something left out, those that leave out most first."""
    halves = [
        replace(plan, **{name: part})
        for name in ("faults", "writes")
        for half in [len(getattr(plan, name)) // 2]
        if half > 1
        for part in (getattr(plan, name)[:half], getattr(plan, name)[half:])
    ]
    single = [
        replace(plan, **{name: items[:n] + items[n + 1 :]})
        for name in ("faults", "writes")
        for items in [getattr(plan, name)]
        for n in range(len(items))
    ]
    others = [replace(plan, poison={})] if plan.poison else []
    others += [replace(plan, workers=plan.workers - 1)] if plan.workers > 1 else []
    others += [replace(plan, ranges=1)] if plan.ranges > 1 else []
    return [*halves, *others, *single]
