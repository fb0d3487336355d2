"""Metrics and health as ASGI applications."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

from journal import Database, Journals
from projections.durations import InvalidDuration, parse_duration
from projections.extras import from_extra
from projections.http.addresses import Address, parse_address
from projections.http.authentication import TRUSTED, read_token
from projections.http.serving import serving
from projections.monitoring.cache import Cache, LookFailed, cached_snapshot, closing
from projections.monitoring.health import SLOW_TURN, LagChecks, Lagging, lags_of, time_of_a_turn
from projections.monitoring.metrics import (
    build_info,
    database_up,
    journals_up,
    range_metrics,
    snapshot_metrics,
    write_metrics,
)
from projections.monitoring.registration import Place
from projections.monitoring.snapshot import Snapshot
from projections.monitoring.worker_metrics import WorkerMetrics

with from_extra("monitor"):
    from prometheus_client import Metric, ProcessCollector
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

log = logging.getLogger("projections")

_READY_FOR = timedelta(seconds=1)
_READY_WITHIN = timedelta(seconds=3)


class Counted(Protocol):
    """What a process counts of something else than its projections, such as the webhooks that it delivers."""

    def collect(self) -> Sequence[Metric]:
        """What has been counted, as of now."""

    @property
    def fault(self) -> str | None:
        """Why the process does not do it; None when it does."""


class Probe:
    """
    What answers ``/metrics``, ``/livez``, ``/readyz`` and ``/lagz``.

    Args:
        database: Is asked whether it answers.
        snapshots: Snapshots of the database.
        collect: All metrics; of None, when the database tells nothing.
        lags: The lags to check.
        fault: Why the process is not ready, the database aside; None when it is.
        vacancies: Whether ``/readyz`` also names roles that are needed and have nobody.
    """

    def __init__(
        self,
        database: Database,
        snapshots: Cache[Snapshot],
        collect: Callable[[Snapshot | None], Iterable[Metric]],
        lags: Callable[[Snapshot], dict[Place, timedelta]],
        fault: Callable[[], str | None],
        *,
        vacancies: bool = False,
    ) -> None:
        self._database = database
        self._snapshots = snapshots
        self._answers = Cache(self._ask, keep=_READY_FOR, patience=_READY_WITHIN)
        self._collect = collect
        self._lags = lags
        self._fault = fault
        self._vacancies = vacancies
        self._checks = LagChecks()
        self._name: str | None = None

    @property
    def routes(self) -> list[Route]:
        """One for each."""
        return [
            Route("/metrics", self._metrics),
            Route("/livez", self._livez),
            Route("/readyz", self._readyz),
            Route("/lagz", self._lagz),
        ]

    @asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        """Ends what is under way."""
        async with closing(self._snapshots), closing(self._answers):
            yield

    async def _ask(self) -> None:
        async with self._database.session() as session:
            await session.fetchval("SELECT 1")

    async def _metrics(self, request: Request) -> Response:
        try:
            snapshot = await self._snapshots.get()
            self._name = snapshot.database
        except LookFailed:
            snapshot = None
        metrics = [database_up(up=snapshot is not None), *self._collect(snapshot)]
        text, content_type = write_metrics(metrics, request.headers.get("accept", ""), self._name)
        return Response(text, headers={"content-type": content_type})

    async def _livez(self, _: Request) -> Response:
        turn = await time_of_a_turn()
        return _health(ok=turn <= SLOW_TURN, event_loop_turn_seconds=turn.total_seconds())

    async def _readyz(self, request: Request) -> Response:
        """Say no names to who has no token."""
        fault, told = self._fault(), {}
        try:
            await self._answers.get()
            if self._vacancies and request.scope.get(TRUSTED):
                vacant = (await self._snapshots.get()).vacancies
                told = {"vacant_roles": sorted({one.role for one in vacant})}
        except LookFailed:
            fault = "the database does not answer"
        return _health(ok=fault is None, **({} if fault is None else {"reason": fault}), **told)

    async def _lagz(self, request: Request) -> Response:
        try:
            above = parse_duration(request.query_params.get("above", "30s"))
            lasting = parse_duration(request.query_params.get("for", "5m"))
            snapshot = await self._snapshots.get()
        except InvalidDuration as error:
            return JSONResponse({"status": "invalid", "reason": str(error)}, 400)
        except LookFailed as error:
            return _health(ok=False, reason=str(error))
        if snapshot.unreached:  # nobody knows its lag
            return _health(ok=False, reason="; ".join(snapshot.unreached.values()))
        lagging = self._checks.observe(above, lasting, snapshot.at, self._lags(snapshot))
        return _health(
            ok=not lagging,
            above_seconds=above.total_seconds(),
            for_seconds=lasting.total_seconds(),
            lagging=[_lagging(one) for one in lagging],
        )


def worker_app(
    metrics: WorkerMetrics,
    database: Database,
    webhooks: Counted | None = None,
    journal: Journals = None,
) -> Starlette:
    """
    What a worker serves: its own counts, and what the database tells of the ranges that it holds.

    Args:
        metrics: What ``run(observer=...)`` counts with, or ``run_webhooks(observer=...)``.
        database: What the worker runs on.
        webhooks: What ``run_webhooks(delivery_observer=...)`` counts with.
        journal: What it reads, if that is in another database.
    """

    def held(snapshot: Snapshot) -> Snapshot:
        mine = [
            replace(one, ranges=[part for part in one.ranges if metrics.owns(part)])
            for one in snapshot.projections
        ]
        return snapshot._replace(projections=mine)

    def collect(snapshot: Snapshot | None) -> Iterable[Metric]:
        delivered = [] if webhooks is None else webhooks.collect()
        if snapshot is None:
            return [*metrics.collect(), *delivered]
        metrics.forget(snapshot)
        ranges = [(one.name, part) for one in held(snapshot).projections for part in one.ranges]
        return [*metrics.collect(), *delivered, *range_metrics(snapshot.at, ranges), journals_up(snapshot)]

    def fault() -> str | None:
        return metrics.fault or (None if webhooks is None else webhooks.fault)

    # Not of everything: each worker would count the same, and none of it is its own.
    snapshots = cached_snapshot(database, lambda: metrics.projections, journal=journal)
    probe = Probe(database, snapshots, collect, lambda seen: lags_of(held(seen)), fault)
    return Starlette(routes=probe.routes, lifespan=probe.lifespan)


def delivering_app(webhooks: Counted, database: Database) -> Starlette:
    """
    What a process serves that delivers webhooks and runs no projections.

    Args:
        webhooks: What ``deliver(observer=...)`` counts with.
        database: The database that deliveries are read from.
    """
    system = ProcessCollector(registry=None)

    def collect(_: Snapshot | None) -> Iterable[Metric]:
        return [build_info(), *webhooks.collect(), *system.collect()]

    snapshots = cached_snapshot(database, list)
    probe = Probe(database, snapshots, collect, lambda _: {}, lambda: webhooks.fault)
    return Starlette(routes=probe.routes, lifespan=probe.lifespan)


def monitor_probe(database: Database, journal: Journals = None) -> Probe:
    """
    What a monitor serves alongside its page: what the database tells of all that is monitored.

    Args:
        database: The database of the projections.
        journal: What projections read, if that is in another database.
    """

    def collect(snapshot: Snapshot | None) -> Iterable[Metric]:
        return [build_info(), *(snapshot_metrics(snapshot) if snapshot else ())]

    snapshots = cached_snapshot(database, everything=True, journal=journal)
    return Probe(database, snapshots, collect, lags_of, lambda: None, vacancies=True)


def _lagging(one: Lagging) -> dict[str, object]:
    return {
        one.place.kind: one.place.name,
        "range": str(one.place.slices),
        "lag_seconds": one.lag.total_seconds(),
        "since": one.since.isoformat(),
    }


def _health(*, ok: bool, **details: object) -> Response:
    return JSONResponse({"status": "ok" if ok else "failing", **details}, 200 if ok else 503)


@asynccontextmanager
async def serve_metrics(
    database: Database,
    at: str | Address = "127.0.0.1:9187",
    *,
    workers: WorkerMetrics | None = None,
    webhooks: Counted | None = None,
    token: str | None = None,
    journal: Journals = None,
) -> AsyncIterator[Address]:
    """
    Serve ``/metrics``, ``/livez``, ``/readyz`` and ``/lagz`` of this process for the length of the block.

    Args:
        database: What the process runs on.
        at: Where: ``HOST:PORT``; port 0 takes any that is free.
        workers: What ``run(observer=...)`` counts with; None in a process that runs no projections.
        webhooks: What ``run_webhooks(delivery_observer=...)`` counts with.
        token: What requests must carry; None: as PROJECTIONS_TOKEN or PROJECTIONS_TOKEN_FILE say.
        journal: What projections read, if that is in another database.

    Returns:
        Where it listens.

    Raises:
        ProjectionsError: Nothing can listen there, or other machines reach it and there is no token.
    """
    if workers is not None:
        app = worker_app(workers, database, webhooks, journal)
    elif webhooks is not None:
        app = delivering_app(webhooks, database)
    else:
        raise TypeError("pass workers, webhooks or both: there is nothing else to serve")
    where = parse_address(at) if isinstance(at, str) else at
    async with serving(where, app, token or read_token()) as address:
        log.info(
            "metrics are at http://%s/metrics", address, extra={"action": "serving", "address": str(address)}
        )
        yield address
