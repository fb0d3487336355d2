"""The delivery log in PostgreSQL: tables that are partitioned by time, read by functions of the schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, timedelta
from operator import attrgetter
from typing import Any, Final, Literal

from journal import Database, DatabaseError, Row, Session, generation
from projections.webhooks.errors import InvalidQuery, own_errors
from projections.webhooks.log.metrics import (
    ROW_LIMIT,
    BucketCounts,
    Metrics,
    MetricsQuery,
    MetricsRequest,
    metrics_of,
    query_of,
)
from projections.webhooks.log.paging import ATTEMPTS, EVENTS, LOOKED, RowStep, Walk, page_of, walk_of
from projections.webhooks.log.records import (
    AttemptsRequest,
    AttemptWithEvent,
    EventsRequest,
    ListRequest,
    LoggedAttempt,
    LoggedEvent,
    LogPage,
    checked_text,
)

_PAGE = "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13"
_LIST_EVENTS = f"SELECT * FROM projections._list_logged_events_v1({_PAGE}, $14, p_data => FALSE)"
_LIST_ATTEMPTS = (
    f"SELECT * FROM projections._list_logged_attempts_v1({_PAGE}, "
    "p_looked => $14, p_endpoint_types => $15, p_status => $16, p_response => FALSE)"
)
_EVENTS = (
    "SELECT * FROM projections._list_logged_events_v1("
    "p_tenants => $1, p_event_ids => $2, p_limit => $3, p_data => $4)"
)
_ATTEMPTS = (
    "SELECT * FROM projections._list_logged_attempts_v1(p_tenants => $1, p_attempt_ids => $2, p_limit => $3)"
)
_METRICS = "SELECT * FROM projections._log_metrics_v1($1, $2, $3, $4::text::interval, $5, $6, $7, $8::text::jsonb, $9)"
# Where the role or the server has a limit of its own, that one holds.
_TIMEOUT = "SELECT set_config('statement_timeout', $1, TRUE) WHERE current_setting('statement_timeout') IN ('0', '0ms')"
_OF_PAGES: Final = {"wanted", "is_last", "response_bytes"}
_CANCELLED: Final = "57014"
_LONGEST_QUERY: Final = timedelta(seconds=30)


class PostgresLog:
    """
    Events that were for endpoints of webhooks, and the attempts to deliver them, in PostgreSQL.

    Where a method takes tenants, none means all of them: that is for administrators. What is another tenant's is as
    if it were not there.

    Args:
        database: Where; the role needs projections_reader.
        metrics_timeout: How long a query of metrics may take where the role has no ``statement_timeout`` of its own.
        looked: How many rows a page looks at, at most; where filters let little of that pass, a page is short.
    """

    def __init__(
        self, database: Database, *, metrics_timeout: timedelta = _LONGEST_QUERY, looked: int = LOOKED
    ) -> None:
        self._database = database
        self._metrics_timeout = metrics_timeout
        self._looked = looked

    async def list_events(self, request: EventsRequest) -> LogPage[LoggedEvent]:
        """
        A page of events, by time and id.

        A page may be short, or empty, and have more behind it: only one without ``next`` is the last. A store looks at
        a limited number of rows for a page and no more, however few of them the filters let pass.

        Raises:
            InvalidValue: The cursor is malformed, of another version, order, filter or tenant, there are two, or a
                filter cannot be.
        """
        walk = walk_of(request, EVENTS)  # a request that is wrong needs no connection
        async with self._database.session() as session:
            walk = walk.under(await generation(session))
            rows = await session.fetch(_LIST_EVENTS, *_arguments(request, walk), self._looked)
            steps = [
                RowStep(_event(row), row["wanted"], row["is_last"], request.data * row["data_bytes"])
                for row in rows
            ]
            page = page_of(walk, steps, attrgetter("time", "event_id"))
            if not request.data:
                return page
            found = await _events(session, (one.event_id for one in page.data), data=True)
        # What has been deleted meanwhile is shown without its payload.
        return replace(page, data=tuple(found.get((one.event_id, one.tenant), one) for one in page.data))

    async def list_attempts(self, request: AttemptsRequest) -> LogPage[AttemptWithEvent]:
        """
        A page of attempts, by time and id; short as one of events may be.

        An event and an endpoint have one tenant.

        Raises:
            InvalidValue: As for events.
        """
        walk = walk_of(request, ATTEMPTS)
        async with self._database.session() as session:
            walk = walk.under(await generation(session))
            rows = await session.fetch(
                _LIST_ATTEMPTS,
                *_arguments(request, walk),
                self._looked,
                request.values("endpoint_types"),
                request.status or None,
            )
            sizes = await _payload_bytes(session, rows) if request.event_data else {}
            steps = [
                RowStep(
                    _attempt(row),
                    row["wanted"],
                    row["is_last"],
                    request.response * row["response_bytes"] + sizes.get((row["event_id"], row["tenant"]), 0),
                )
                for row in rows
            ]
            page = page_of(walk, steps, attrgetter("time", "attempt_id"))
            data: Sequence[LoggedAttempt] = page.data
            if request.response:
                data = await _with_responses(session, data)
            return LogPage(
                await _with_events(session, data, payloads=request.event_data), page.next, page.prev
            )

    async def retrieve_event(self, event_id: str, tenant: str | None = None) -> LoggedEvent | None:
        """
        One event; None where there is none of this id, or where it is another tenant's.

        Args:
            event_id: The event's id.
            tenant: Only if it is this tenant's; None: whoever's it is.
        """
        async with self._database.session() as session:
            rows = await session.fetch(_EVENTS, _only(tenant), [checked_text("event_id", event_id)], 1, True)
        return _event(rows[0]) if rows else None

    async def retrieve_attempt(self, attempt_id: str, tenant: str | None = None) -> AttemptWithEvent | None:
        """
        One attempt; None where there is none of this id, or where it is another tenant's.

        Args:
            attempt_id: The attempt's id.
            tenant: Only if it is this tenant's; None: whoever's it is.
        """
        async with self._database.session() as session:
            rows = await session.fetch(_ATTEMPTS, _only(tenant), [checked_text("attempt_id", attempt_id)], 1)
            found = await _with_events(session, [_attempt(row) for row in rows], payloads=True)
        return found[0] if found else None

    async def event_metrics(self, request: MetricsRequest) -> Metrics:
        """
        How many events there were.

        Raises:
            InvalidValue: The request cannot be, would have more than 100,000 rows, or takes too long.
        """
        return await self._measure("event", request)

    async def attempt_metrics(self, request: MetricsRequest) -> Metrics:
        """
        How many attempts there were, and how they ended.

        Raises:
            InvalidValue: The request cannot be, would have more than 100,000 rows, or takes too long.
        """
        return await self._measure("attempt", request)

    async def _measure(self, kind: Literal["event", "attempt"], request: MetricsRequest) -> Metrics:
        query = query_of(request, kind)
        found = {}
        for row in await self._counted(kind, query):
            bucket, dimensions, counts = row.values()
            start = None if bucket is None else bucket.astimezone(UTC)
            found[start, tuple(dimensions)] = BucketCounts(*counts)
        return metrics_of(query, found)

    async def _counted(self, kind: str, query: MetricsQuery) -> Sequence[Row]:
        granularity = query.granularity
        try:
            async with self._database.session() as session, session.transaction():
                await session.execute(_TIMEOUT, f"{self._metrics_timeout // timedelta(milliseconds=1)}ms")
                with own_errors():
                    return await session.fetch(
                        _METRICS,
                        kind,
                        query.start,
                        query.end,
                        None if granularity is None else granularity.interval,
                        None if granularity is None else granularity.origin,
                        list(query.dimensions),
                        query.tenants,
                        json.dumps(query.filters),
                        ROW_LIMIT + 1,
                    )
        except DatabaseError as error:
            if error.sqlstate != _CANCELLED:
                raise
            raise InvalidQuery(
                "the metrics took too long to count: ask for less time, or for one tenant"
            ) from error


async def _payload_bytes(session: Session, attempts: Sequence[Row]) -> dict[tuple[str, str], int]:
    """The bytes of the payload of each event, by its id and tenant."""
    rows = await _event_rows(session, (row["event_id"] for row in attempts if row["wanted"]), data=False)
    return {(row["event_id"], row["tenant"]): row["data_bytes"] for row in rows}


async def _with_responses(session: Session, attempts: Sequence[LoggedAttempt]) -> list[LoggedAttempt]:
    ids = [one.attempt_id for one in attempts]
    rows = await session.fetch(_ATTEMPTS, None, ids, len(ids)) if ids else []
    responses = {row["attempt_id"]: row["response"] for row in rows}
    return [replace(one, response=responses.get(one.attempt_id)) for one in attempts]


async def _with_events(
    session: Session, attempts: Sequence[LoggedAttempt], *, payloads: bool
) -> tuple[AttemptWithEvent, ...]:
    events = await _events(session, (one.event_id for one in attempts), data=payloads)
    return tuple(AttemptWithEvent(one, events.get((one.event_id, one.tenant))) for one in attempts)


async def _events(
    session: Session, event_ids: Iterable[str], *, data: bool
) -> dict[tuple[str, str], LoggedEvent]:
    """Events by id and tenant."""
    rows = await _event_rows(session, event_ids, data=data)
    return {(row["event_id"], row["tenant"]): _event(row) for row in rows}


async def _event_rows(session: Session, event_ids: Iterable[str], *, data: bool) -> Sequence[Row]:
    """Each event is read once, however many of its attempts are on the page."""
    ids = sorted(set(event_ids))
    return await session.fetch(_EVENTS, None, ids, len(ids), data) if ids else ()


def _arguments(request: ListRequest, walk: Walk) -> list[Any]:
    start = walk.start
    place = (None, None, False) if start is None else (start.time, start.id, start.inclusive)
    names = ("tenants", "event_ids", "endpoint_ids", "topics")
    filters = [request.values(name) for name in names]
    return [*filters, *request.times(), walk.ascending, *place, walk.rows + 1]


def _only(tenant: str | None) -> list[str] | None:
    return [checked_text("tenant", tenant)] if tenant else None


def _event(row: Row) -> LoggedEvent:
    return LoggedEvent(
        event_id=row["event_id"],
        tenant=row["tenant"],
        topic=row["topic"],
        time=row["event_time"].astimezone(UTC),
        endpoint_ids=tuple(row["endpoint_ids"]),
        eligible_for_retry=row["eligible_for_retry"],
        metadata=json.loads(row["metadata"]),
        data=row["data"],
        erased_at=None if row["erased_at"] is None else row["erased_at"].astimezone(UTC),
    )


def _attempt(row: Row) -> LoggedAttempt:
    values = {name: value for name, value in row.items() if name not in _OF_PAGES}
    values["time"] = values.pop("attempted_at").astimezone(UTC)
    values["event_time"] = values["event_time"].astimezone(UTC)
    return LoggedAttempt(**values)
