"""What happens in a run from outside: who writes, which faults there are; all of it drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

LARGEST_STEP = 0.5
"""Seconds that the database's clock is set back or ahead."""
BUSY = 4.0
"""Seconds in which writers write and faults happen."""
_BURST = 0.25
"""Seconds."""
_UNNOTICED = 0.3
"""The share of runs with two servers in which that of the read models fails over for a moment in a burst."""
SOURCES = tuple(f"thing-{n}" for n in range(64))

_DRAWN = ("together", "inline", "apart", "foreign")
ARRANGEMENTS = (*_DRAWN, "groups", "webhooks")
"""
The journal in the database of the read models, and events handled where they are appended, too; the journal in another
database; a table of another system in another one; events that are matched, and read by the members of a group;
events that are sent to endpoints.
"""
_BY_SEED = {4: "groups", 9: "webhooks"}
"""Of each ten seeds those that draw no arrangement."""
_APART = ("apart", "foreign")
"""Those with two servers: the first has the read models."""
AT_A_TIME = (
    "crash", "power loss", "freeze", "hang", "cut", "long cut", "reset", "clock step", "fail-over", "server crash",
    "server restart", "rescale", "pause", "stop", "join", "take over",
)  # fmt: skip
"""Faults that happen at a time, whatever is being done then."""
ONLY_IN: dict[str, tuple[str, ...]] = {"inline": ("switch", "switch", "switch")}
"""More faults at a time, of one arrangement."""
AT_A_STEP = (
    "crash", "freeze", "hang", "lost answer", "reset", "conflict", "deadlock", "cancelled", "terminated", "fail-over",
)  # fmt: skip
"""Faults that happen as a worker does something."""
STEPS = (
    "save_offsets", "COMMIT", "COMMIT", "heartbeat", "poll_writers", "read_events_by_slices", "read_keys_by_slices",
    "save_horizons", "release_range", "claim_range", "BEGIN", "INSERT", "park_source", "read_offsets",
    "evict_offsets", "load_events", "fail_range", "DELETE",
)  # fmt: skip
_STEPS_IN: dict[str, tuple[str, ...]] = {
    "groups": (
        "move_cursor", "move_cursor", "move_cursor", "read_next", "read_next", "match_log", "match_log", "COMMIT",
        "COMMIT", "poll_group", "poll_group", "generation", "last_match", "join_handler", "release_group_range",
        "subscribe", "save_offsets", "heartbeat", "poll_writers", "interests", "leave", "claim_range", "release_range",
        "fail_batch", "take_retries", "finish_retry",
    ),
    "webhooks": (
        "send", "send", "send", "send", "claim_deliveries", "claim_deliveries", "claim_deliveries", "finish_deliveries",
        "finish_deliveries", "finish_deliveries", "fan_out", "fan_out", "COMMIT", "COMMIT", "save_offsets",
        "reap_deliveries", "expire_deliveries", "release_waiting", "take_turn", "endpoint_versions", "load_endpoints",
        "heartbeat", "poll_writers", "claim_range", "release_range",
    ),
}  # fmt: skip
"""Other steps, of one arrangement."""
MOMENTS = ("sent", "begun", "done")
"""Of a statement: it leaves the worker, the server begins with it, the server has done it and answers."""
_MANY = 8
"""Ranges, so many that a process that is left alone has to take them one after the other."""
_OF_MANY = 0.15
"""The share of runs with so many."""
_BEGUN = 0.5
"""Seconds in which the history is written."""
_REFUSALS = {"conflict", "deadlock", "cancelled", "terminated"}


@dataclass(frozen=True, slots=True)
class Write:
    """
    A transaction of an application.

    Args:
        at: Seconds.
        sources: Of one event each, in order.
        holds: Seconds that it stays open after it has appended.
        ends: ``commit``, ``rollback``, or ``prepare``: then another session ends it later. Or ``import``: events
            from ``holds`` seconds ago on are imported.
        two_steps: Append the second half just before the end.
        after_poll: Append as soon as a worker has asked who writes.
    """

    at: float
    sources: tuple[str, ...]
    holds: float
    ends: str
    two_steps: bool = False
    after_poll: bool = False


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
        server: Which one it hits, where there are several.
    """

    kind: str
    at: float
    step: str = ""
    moment: str = ""
    count: int = 1
    worker: int = 0
    amount: float = 0.5
    server: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A run, but for the order in which things happen, which is drawn from the seed as it goes."""

    seed: int
    arrangement: str
    """Where things are: one of :data:`ARRANGEMENTS`."""
    workers: int
    ranges: int
    batch_size: int
    page_bytes: int
    far: float
    """How many times as far from the servers workers are as applications."""
    connections: int
    """Of the pool of each worker."""
    retention: float
    """Minutes that offsets are kept."""
    writes: tuple[Write, ...]
    faults: tuple[Fault, ...]
    history: tuple[Write, ...] = ()
    """Before the first worker starts, one after another."""
    poison: dict[tuple[str, int], int] = field(default_factory=dict)
    """For events by source and number, how often their handler fails."""
    trouble: float = 0.0
    """The share of requests to receivers that something is wrong with."""
    pauses: tuple[float, float] = (0.05, 0.5)
    """Seconds of the first pause before a range that has failed starts again, and of the longest."""
    queues: bool = False
    """Whether the handler queues its statement, and does not wait for it."""

    @property
    def size(self) -> int:
        """How much there is to look at."""
        happens = len(self.writes) + 2 * len(self.faults) + len(self.poison) + (self.trouble > 0)
        return happens + self.workers + self.ranges

    def __str__(self) -> str:
        head = (
            f"seed {self.seed}, {self.arrangement}: {self.workers} workers, {self.ranges} ranges, batches of "
            f"{self.batch_size}, pages of {self.page_bytes} bytes, {self.connections} connections, {self.far} times as "
            f"far as applications, {self.trouble:.0%} of requests to receivers in trouble"
        )
        happens = [
            (w.at, f"write {', '.join(w.sources)}, open for {w.holds:.3f} s, {w.ends}") for w in self.writes
        ]
        happens += [(0.0, f"history {', '.join(w.sources)}") for w in self.history]
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


def plan_of(seed: int, arrangement: str | None = None) -> Plan:
    """The plan that belongs to a seed, in the arrangement that it draws, or in another one."""
    chance = Random(f"plan {seed}")
    drawn = chance.choice(_DRAWN)
    where = arrangement or _BY_SEED.get(seed % 10, drawn)
    # Many sources with few events, and none open for long: then nothing else leads back to what was passed over.
    quick = chance.random() < 0.4
    sources = SOURCES if quick else SOURCES[: chance.randint(1, 16)]
    workers = chance.randint(1, 3)
    bursts = tuple(BUSY * chance.random() for _ in range(chance.randint(1, 3)))
    faults = tuple(_fault(chance, workers, where) for _ in range(chance.randint(0, 6)))
    if where == "inline":
        faults = (Fault("switch", 0.1 + 0.9 * chance.random(), amount=1.0), *faults)
    plan = Plan(
        seed=seed,
        arrangement=where,
        workers=workers,
        ranges=chance.choice([1, 1, 2, 3, 4]),
        batch_size=chance.choice([1, 2, 3, 5, 50]),
        page_bytes=chance.choice([600, 1800, 8 * 2**20]),
        far=chance.choice([1, 1, 3, 10]),
        connections=chance.choice([4, 4, 5, 8]),
        retention=chance.choice([1, 1, 60]),
        writes=tuple(_write(chance, sources, bursts, quick=quick) for _ in range(chance.randint(5, 30))),
        faults=faults,
        poison={
            (chance.choice(sources), chance.randint(1, 6)): chance.randint(1, 4)
            for _ in range(chance.choice([0, 0, 0, 1, 2]))
        },
    )
    if Random(f"ranges {seed}").random() < _OF_MANY:
        plan = replace(plan, ranges=_MANY)
    if where in _APART and chance.random() < _UNNOTICED:
        quick = Fault(
            "fail-over", chance.choice(bursts) + _BURST * chance.random(), amount=0.25 * chance.random()
        )
        plan = replace(plan, faults=(*faults, quick))
    if where == "webhooks":
        plan = replace(plan, trouble=chance.choice([0.0, 0.05, 0.2, 0.4]))
    if where == "foreign":  # another system imports nothing
        return plan
    imports = tuple(_import(chance, number) for number in range(chance.choice([0, 0, 1, 3])))
    plan = replace(plan, writes=plan.writes + imports)
    return plan if where == "apart" else _soon_old(plan, sources)


def _soon_old(plan: Plan, sources: tuple[str, ...]) -> Plan:
    """Of half of the plans in which no clock steps: there is a history, and offsets are not kept for long."""
    chance = Random(f"retention {plan.seed}")
    if any(fault.kind == "clock step" for fault in plan.faults) or chance.random() < 0.5:
        return plan
    history = tuple(
        Write(0.0, tuple(chance.choice(sources) for _ in range(chance.randint(1, 20))), 0.0, "commit")
        for _ in range(chance.randint(1, 3))
    )
    faults = tuple(replace(fault, at=max(fault.at, _BEGUN)) for fault in plan.faults)
    retention = chance.choice([0.0001, 0.0005, 0.002, 0.01])
    ranges = chance.choice([1, 1, 1, 2])
    return replace(
        plan,
        history=history,
        faults=faults,
        retention=retention,
        ranges=plan.ranges if plan.ranges == _MANY else ranges,
    )


def _write(chance: Random, sources: tuple[str, ...], bursts: tuple[float, ...], *, quick: bool) -> Write:
    """Most are close to others: what commits late shows where something later was read meanwhile."""
    at = chance.choice(bursts) + _BURST * chance.random() if chance.random() < 0.7 else BUSY * chance.random()
    number = chance.choice([1, 1, 1, 2, 3, 6])
    longest = 0.05 if quick else 3
    holds = chance.choice(
        [0.0, 0.0, 0.005 * chance.random(), 0.05 * chance.random(), longest * chance.random()]
    )
    ends = chance.choices(["commit", "rollback", "prepare"], [16, 2, 0 if quick else 2])[0]
    return Write(
        min(at, BUSY),
        tuple(chance.choice(sources) for _ in range(number)),
        holds,
        ends,
        two_steps=number > 1 and chance.random() < 0.3,
        after_poll=chance.random() < 0.3,
    )


def _import(chance: Random, number: int) -> Write:
    """History of a source that nobody knows yet."""
    sources = (f"history-{number}",) * chance.randint(1, 4)
    return Write(BUSY * chance.random(), sources, 5 * chance.random() ** 2, "import")


def at_a_time(arrangement: str) -> tuple[str, ...]:
    """Faults that happen at a time in an arrangement."""
    return AT_A_TIME + ONLY_IN.get(arrangement, ())


def _fault(chance: Random, workers: int, arrangement: str) -> Fault:
    at, worker, amount, server = (
        BUSY * chance.random(),
        chance.randrange(workers),
        chance.random(),
        chance.randrange(2),
    )
    if chance.random() < 0.5:
        return Fault(chance.choice(at_a_time(arrangement)), at, worker=worker, amount=amount, server=server)
    kind = chance.choice(AT_A_STEP)
    moment = "begun" if kind in _REFUSALS else chance.choice(MOMENTS)
    steps = _STEPS_IN.get(arrangement, STEPS)
    return Fault(kind, at, chance.choice(steps), moment, chance.randint(1, 3), worker, amount, server)


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
    others += [replace(plan, trouble=0.0)] if plan.trouble else []
    others += [_with_workers(plan, plan.workers - 1)] if plan.workers > 1 else []
    others += [replace(plan, history=plan.history[:-1])] if plan.history else []
    others += [replace(plan, ranges=1)] if plan.ranges > 1 else []
    return [*halves, *others, *single]


def _with_workers(plan: Plan, workers: int) -> Plan:
    """Without the others, and what was to be done to them."""
    return replace(
        plan, workers=workers, faults=tuple(fault for fault in plan.faults if fault.worker < workers)
    )
