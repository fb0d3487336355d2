"""The arrangements that faults are injected into, and what comes of a run of one."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from projections.auditing import Audit
from tests.chaos.chaos import CONNECTIONS, Chaos
from tests.chaos.cluster import cluster
from tests.chaos.faults import KINDS, Plan
from tests.chaos.inlining import InlineChaos
from tests.chaos.projecting import ApartChaos, BothChaos, ForeignChaos, TogetherChaos
from tests.chaos.subscriptions import SubscriptionChaos
from tests.chaos.webhooks import WebhookChaos
from tests.fixtures.failover import Server
from tests.fixtures.processes import none_left_behind

_REPORT_EVERY = 10.0


class Arrangement(NamedTuple):
    """
    What faults are injected into.

    Args:
        chaos: Who appends, who works, and what must be true at the end.
        servers: One, or one for the journal and one for the read models.
        at_least_once: Whether effects may be repeated.
    """

    chaos: type[Chaos]
    servers: int = 1
    at_least_once: bool = False


ARRANGEMENTS: Mapping[str, Arrangement] = {
    "together": Arrangement(TogetherChaos),
    "apart": Arrangement(ApartChaos, 2),
    "both": Arrangement(BothChaos, 2),
    "foreign": Arrangement(ForeignChaos, 2),
    "inline": Arrangement(InlineChaos),
    "groups": Arrangement(SubscriptionChaos, at_least_once=True),
    "webhooks": Arrangement(WebhookChaos, at_least_once=True),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What came of the faults in one arrangement.

    Args:
        arrangement: Its name.
        seconds: How long it took.
        faults: Those that hit, by kind.
        missed: Those that were tried and did not hit.
        audits: What was found, by what was compared.
        counts: What else happened.
        at_least_once: Whether effects may be repeated.
    """

    arrangement: str
    seconds: float
    faults: Counter[str]
    missed: Counter[str]
    audits: dict[str, Audit]
    counts: Counter[str]
    at_least_once: bool

    @property
    def clean(self) -> bool:
        """Whether nothing was found but what is allowed."""
        return all(
            audit.committed > 0 and audit.clean(at_least_once=self.at_least_once)
            for audit in self.audits.values()
        )

    @property
    def values(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        return {
            "arrangement": self.arrangement,
            "seconds": round(self.seconds, 1),
            "clean": self.clean,
            "faults": dict(self.faults),
            "missed": dict(self.missed),
            "counts": dict(self.counts),
            "audits": {name: audit.values for name, audit in self.audits.items()},
        }

    def __str__(self) -> str:
        faults = ", ".join(f"{kind} {number}" for kind, number in self.faults.most_common())
        audits = "; ".join(
            f"{name}: {audit.committed:,} committed, {audit.handled:,} handled, "
            + ("clean" if not audit.counts else f"{dict(audit.counts)}, such as {audit.examples[0]}")
            for name, audit in self.audits.items()
        )
        return (
            f"{self.arrangement}: {self.faults.total()} faults in {self.seconds:.0f} s ({faults}); {audits}"
        )


def left_out() -> dict[str, str]:
    """Kinds that cannot be injected on this machine, and why."""
    return {name: kind.needs for name, kind in KINDS.items() if kind.needs is not None}


async def inject(
    name: str,
    base: Server,
    logs: Path,
    faults: int,
    seed: int,
    *,
    kinds: Iterable[str] | None = None,
    arrangement: Arrangement | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """
    Inject faults into an arrangement, let it catch up, and compare.

    Args:
        name: One of :data:`ARRANGEMENTS`, or that of another arrangement, which is given.
        base: What :func:`tests.fixtures.failover.base_server` gives.
        logs: A directory for what the workers say.
        faults: How many are to hit.
        seed: Of all that is chosen.
        kinds: Only these; by default all that the arrangement is made for.
        arrangement: What is not among the usual ones.
        report: Is told how far it is.
    """
    arrangement = arrangement or ARRANGEMENTS[name]
    wanted = [kind for kind in arrangement.chaos.kinds if kinds is None or kind in kinds]
    plan = Plan.of(faults, [kind for kind in wanted if kind not in left_out()])
    directory = logs / name
    directory.mkdir()
    began = time.monotonic()
    with none_left_behind():
        chaos, audits = await _compared(name, arrangement, base, directory, plan, seed, report)
    took = time.monotonic() - began
    return Outcome(name, took, plan.hits, plan.missed, audits, chaos.counts, arrangement.at_least_once)


async def _compared(  # noqa: PLR0917 - as they come
    name: str,
    arrangement: Arrangement,
    base: Server,
    directory: Path,
    plan: Plan,
    seed: int,
    report: Callable[[str], None],
) -> tuple[Chaos, dict[str, Audit]]:
    async with AsyncExitStack() as stack:
        clusters = [
            await stack.enter_async_context(
                cluster(
                    base,
                    connections=CONNECTIONS,
                    disk="disk full" in plan.left and number == arrangement.servers - 1,
                    clock="clock" in plan.left and number == 0,
                )
            )
            for number in range(arrangement.servers)
        ]
        chaos = arrangement.chaos(clusters, directory, plan, seed)
        stack.push_async_callback(chaos.end)
        async with chaos.around():
            await chaos.prepare()
            reporting = asyncio.create_task(_report(name, plan, report))
            try:
                await chaos.run()
            finally:
                reporting.cancel()
            await chaos.catch_up()
            return chaos, await chaos.check()


async def _report(name: str, plan: Plan, report: Callable[[str], None]) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(_REPORT_EVERY)
        left = ", ".join(f"{kind} {number}" for kind, number in (+plan.left).items()) or "none"
        report(f"{name}: {plan.hits.total()} faults, {time.monotonic() - began:.0f} s; to come: {left}")
