"""Receivers of webhooks, and the way to them: they answer late, refuse, break off, or say nothing; each drawn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple
from urllib.parse import urlsplit

from projections.webhooks.outgoing import Outgoing
from projections.webhooks.response_reading import Reply
from tests.simulation.loop import Host, SimulatedLoop, current_host
from tests.simulation.postgres.errors import ServerError

STEP = "send"
"""What a worker does that makes a request."""
_LATE = 1.5
"""Seconds that some answers take: longer than the deadline of an attempt."""
_FATES = ("refused", "cut before", "cut after", "500", "503", "late", "silent")
_FAILURES: tuple[tuple[type[OSError], str], ...] = (
    (TimeoutError, "timeout"), (ConnectionRefusedError, "connection_refused"),
    (ConnectionResetError, "connection_reset"),
)  # fmt: skip


class Key(NamedTuple):
    """What is delivered, and to whom."""

    endpoint_id: str
    event_id: str


@dataclass(slots=True, eq=False)
class Attempt:
    """One request, as a process has made it."""

    key: Key
    number: int
    signed_at: int
    """Seconds of the database's clock when it was claimed."""
    arrived: bool = False
    code: str | None = None
    took: timedelta | None = None
    over: bool = False
    """Who has made it waits no more for the answer. Where a process has died, nobody says so."""
    claimed_at: datetime | None = None
    """By the database; None where the lease was not its any more when it began."""
    lease_until: datetime | None = None
    life: datetime | None = None
    """Of the server, when it began."""


class Request:
    """
    A request on its way.

    Args:
        client: Who makes it.
        attempt: What it is.
        fate: What becomes of it; empty: nothing goes wrong.
        answered: Is set by its answer.
    """

    def __init__(self, client: Host, attempt: Attempt, fate: str, answered: asyncio.Future[str]) -> None:
        self.client = client
        self.attempt = attempt
        self.fate = fate
        self._answered = answered

    def lose(self, error: type[OSError] = ConnectionResetError) -> None:
        """Break the connection."""
        if not self._answered.done():
            self._answered.set_exception(error())

    def answer(self, code: str) -> None:
        """Bring the answer."""
        if not self._answered.done():
            self._answered.set_result(code)


class Receivers:
    """
    The receivers of all endpoints.

    Args:
        loop: Carries requests.
        seed: What goes wrong is drawn from it.
        trouble: The share of requests that something is wrong with.
        is_healed: Whether nothing goes wrong any more.
    """

    def __init__(self, loop: SimulatedLoop, seed: int, trouble: float, is_healed: Callable[[], bool]) -> None:
        self._loop = loop
        self._chance = Random(f"receivers {seed}")
        self._trouble = trouble
        self._is_healed = is_healed
        self._slowest = self._chance.choice([0.02, 0.3, 0.9])
        self._host = Host("receivers")
        self.refuses: Callable[[Key], bool] = lambda _: False
        """Whether a receiver answers with 500."""
        self.watch: Callable[[Request, str, str], ServerError | bool] = lambda *_: False
        """As that of :class:`Network`."""
        self.tell: Callable[[str], None] = lambda _: None
        self.seen: list[Key] = []
        """What has arrived, in its order."""

    def _delay(self) -> float:
        chance = self._chance.random()
        return 0.05 * self._chance.random() if chance >= 0.95 else 0.0002 + 0.0008 * chance

    def _fate(self) -> str:
        if self._is_healed() or self._chance.random() >= self._trouble:
            return ""
        return self._chance.choice(_FATES)

    async def exchange(self, attempt: Attempt) -> str:
        """
        Send a request, and wait for the status that it is answered with.

        Raises:
            OSError: The connection is refused, or breaks.
        """
        answered: asyncio.Future[str] = self._loop.create_future()
        request = Request(current_host(), attempt, self._fate(), answered)
        if not self.watch(request, STEP, "sent"):
            self._loop.at(self._loop.time() + self._delay(), self._host, self._arrives, request)
        return await answered

    def _arrives(self, request: Request) -> None:
        attempt, fate = request.attempt, request.fate
        if fate in {"refused", "cut before"}:
            error = ConnectionRefusedError if fate == "refused" else ConnectionResetError
            self._loop.at(self._loop.time() + self._delay(), request.client, request.lose, error)
            return
        refusal = self.watch(request, STEP, "begun")
        attempt.arrived = True
        self.seen.append(attempt.key)
        fails = fate == "500" or isinstance(refusal, ServerError) or self.refuses(attempt.key)
        code = "503" if fate == "503" else "500" if fails else "200"
        self.tell(f"{request.client}: attempt {attempt.number} at {attempt.key} arrives: {fate or code}")
        slowest = 0.02 if self._is_healed() else self._slowest
        takes = _LATE if fate == "late" else slowest * self._chance.random()
        self._loop.at(self._loop.time() + takes, self._host, self._answers, request, code)

    def _answers(self, request: Request, code: str) -> None:
        lost = request.fate == "silent" or self.watch(request, STEP, "done")
        at = self._loop.time() + self._delay()
        if request.fate == "cut after":
            self._loop.at(at, request.client, request.lose)
        elif not lost:
            self._loop.at(at, request.client, request.answer, code)


class SimulatedSender:
    """
    A sender of the library over the simulated network, as :class:`projections.webhooks.HttpSender` is over HTTP.

    Args:
        receivers: Of what it sends.
        begins: Is called with each attempt that begins.
    """

    def __init__(self, receivers: Receivers, begins: Callable[[Attempt], None]) -> None:
        self._receivers = receivers
        self._begins = begins

    async def send(self, outgoing: Outgoing) -> Reply:
        """Make the request of an attempt."""
        clock = asyncio.get_running_loop().time
        began, headers = clock(), dict(outgoing.headers)
        host = urlsplit(outgoing.url).hostname or ""
        attempt = Attempt(
            Key(host, headers["webhook-id"]), outgoing.attempt, int(headers["webhook-timestamp"])
        )
        self._begins(attempt)
        try:
            async with asyncio.timeout(outgoing.timeout.total_seconds()):
                code = await self._receivers.exchange(attempt)
        except OSError as error:
            code = next(code for kind, code in _FAILURES if isinstance(error, kind))
        except asyncio.CancelledError:
            attempt.over = True
            raise
        attempt.over, attempt.code = True, code
        attempt.took = timedelta(seconds=clock() - began)
        status = int(code) if code.isdigit() else None
        retry_after = "1" if status == 503 else None
        return Reply(code, status, retry_after, None, "", truncated=False, took=attempt.took)

    async def aclose(self) -> None:
        """It keeps nothing open."""
