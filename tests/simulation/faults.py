"""Faults, as they are done to a running simulation."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import offsets
from journal import ProjectionsError
from tests.simulation.network import Link
from tests.simulation.plan import LARGEST_STEP, Fault
from tests.simulation.postgres.errors import ServerError
from tests.simulation.receivers import Request

if TYPE_CHECKING:
    from tests.simulation.world import World

_REFUSALS = {
    "conflict": ("40001", "could not serialize access due to concurrent update"),
    "deadlock": ("40P01", "deadlock detected"),
    "cancelled": ("57014", "canceling statement due to user request"),
}
_LIVE = 0.4
"""The share of switches that make a projection live."""
_MOST_LOST = 12
"""Commits that a fail-over loses."""

_OF_A_WORKER = {"crash", "power loss", "freeze", "hang", "cut", "long cut", "reset", "stop"}
"""Kinds that nothing happens by where the worker has not started."""


class Faults:
    """
    Does the faults of a plan, and counts which hit what.

    Args:
        world: What they are done to.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.done: Counter[str] = Counter()
        """By kind."""
        self.hit: Counter[tuple[str, str]] = Counter()
        """By kind, and by the step that it hit."""
        self._at_steps: list[Fault] = []
        self._seen: Counter[Fault] = Counter()
        for fault in world.plan.faults:
            if fault.step:
                self._at_steps.append(fault)
            else:
                world.loop.at(fault.at, world.loop.world, self._happens, fault)

    def stop(self) -> None:
        """None happens any more."""
        self._at_steps.clear()

    def watch(self, link: Link | Request, step: str, moment: str) -> ServerError | bool:
        """Do what is to happen as a worker does a step: what it is refused with, or whether its message is lost."""
        for fault in self._at_steps:
            if fault.step != step or fault.moment != moment or self._world.loop.time() < fault.at:
                continue
            if fault.worker != self._world.workers.place_of(link.client):
                continue
            self._seen[fault] += 1
            if self._seen[fault] >= fault.count:
                self._at_steps.remove(fault)
                return self._do_at_step(fault, link)
        return False

    def _do_at_step(self, fault: Fault, link: Link | Request) -> ServerError | bool:
        self.done[fault.kind] += 1
        self.hit[fault.kind, f"{fault.step} {fault.moment}"] += 1
        self._world.tell(f"fault: {fault.kind} at {fault.step} ({fault.moment}) of {link.client}")
        loop = self._world.loop
        if fault.kind in _REFUSALS:
            return ServerError(*_REFUSALS[fault.kind])
        if fault.kind == "terminated":
            return ServerError("57P01", "terminating connection due to administrator command", fatal=True)
        if fault.kind in {"lost answer", "reset"}:
            loop.at(loop.time(), loop.world, link.lose)
            return fault.kind == "lost answer"
        # Not in the middle of a callback of the one that it is done to.
        loop.at(loop.time(), loop.world, self._do, fault)
        return False

    def _happens(self, fault: Fault) -> None:
        if self._world.faults_are_over:
            return
        if fault.kind in _OF_A_WORKER and fault.worker not in self._world.workers.places:
            return  # the history took so long that none has started
        self.done[fault.kind] += 1
        for step in self._world.workers.steps_of(fault.worker) or ["nothing"]:
            self.hit[fault.kind, step] += 1
        self._world.tell(f"fault: {fault.kind} of worker {fault.worker}")
        self._do(fault)

    def _do(self, fault: Fault) -> None:
        world, amount, number = self._world, fault.amount, fault.worker
        workers, server = world.workers, world.places.servers[fault.server % len(world.places.servers)]
        match fault.kind:
            case "crash" | "power loss":
                workers.kill(number, silently=fault.kind == "power loss", again_after=amount)
            case "freeze":
                workers.freeze(number, 3 * amount)
            case "hang":
                workers.hang(number, again_after=amount)
            case "cut":
                world.network.cut(workers.host(number), server, amount)
            case "long cut":
                world.network.cut(workers.host(number), server, 2 + 3 * amount)
            case "reset":
                for link in world.network.links_of(workers.host(number), server):
                    link.lose()
            case "clock step":
                server.clock_ahead += timedelta(seconds=LARGEST_STEP * (2 * amount - 1))
            case "fail-over":
                world.restart_server(
                    server, lost=round(_MOST_LOST * amount), after=0.1 * amount, promoted=True
                )
            case "server crash":  # with commits that were not waited for
                world.restart_server(server, lost=round(3 * amount), after=0.5 * amount)
            case "server restart":
                world.restart_server(server, lost=0, after=0.5 * amount)
            case "stop":
                workers.stop(number, again_after=amount)
            case "join":
                workers.join(take_over=False)
            case "take over":
                workers.join(take_over=True)
            case _:
                world.loop.start(world.operator, self._operate(fault))

    async def _operate(self, fault: Fault) -> None:
        database = self._world.operators_database
        try:
            async with database.session() as session:
                if fault.kind == "rescale":
                    await self._world.places.rescale(session, fault.amount)
                elif fault.kind == "pause":
                    await offsets.set_paused(session, self._world.places.name, paused=True)
                elif fault.kind == "switch":
                    await offsets.set_mode(
                        session, self._world.places.name, "live" if fault.amount < _LIVE else "inline"
                    )
            if fault.kind == "pause":
                await self._world.pause(2 * fault.amount)
                async with database.session() as session:
                    await offsets.set_paused(session, self._world.places.name, paused=False)
        except (ProjectionsError, OSError, TimeoutError):
            pass  # it was not done, or nobody knows
