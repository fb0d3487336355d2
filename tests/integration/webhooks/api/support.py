"""What tests of the API share: an application, who asks it, and rows of two tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from journal import Database, RawJson
from projections.webhooks.api import ApiSettings, TokenAuth, webhooks_app
from projections.webhooks.api.app import OPERATIONS
from projections.webhooks.api.operations import Operation
from projections.webhooks.endpoints import Endpoints, EndpointSettings
from projections.webhooks.log import AttemptWithEvent, LoggedAttempt, LoggedEvent
from projections.webhooks.schedules import Schedules
from tests.fixtures.writable_log import WritableLog

ADMIN = "the-token-of-administrators"
TOKENS = {"acme": "the-token-of-acme-alone", "globex": "the-token-of-globex-alone"}
AUTH = TokenAuth(admin_token=ADMIN, tenant_tokens=TOKENS)
FIRST = datetime(2026, 1, 1, 12, tzinfo=UTC)

# What a request of each operation needs beside the path.
BODIES: dict[str, Any] = {
    "create_endpoint": {"url": "https://example.com/hook"},
    "change_endpoint": {"description": "taken over"},
    "send_test": {"data": {}},
    "send_message": {"topic": "a.b", "data": {}},
    "create_schedule": {"name": "n", "cron": "0 1 * * *", "topic": "a.b", "data": {}},
    "change_schedule": {"name": "taken over"},
    "retry_deliveries": {"states": ["dead", "done", "dropped"]},
}
SPAN = {"since": "2025-12-01T00:00:00Z", "until": "2026-02-01T00:00:00Z"}
QUERIES: dict[str, Any] = {
    "measure_events": SPAN | {"dimensions": ["topic", "endpoint_id"]},
    "measure_attempts": SPAN | {"dimensions": ["topic", "endpoint_id"]},
    "list_attempts": {"include": ["event.data", "response_data", "endpoint"]},
    "list_events": {"include": "data"},
}

_DELIVERY = """
INSERT INTO projections.webhook_deliveries
(endpoint_id, event_id, event_time, tenant, topic, state, attempts, next_at, last_code, finished_at, data)
VALUES ($1, $2, $3, $4, $5, $6, 1, $3, '500', $3, $7)
"""


def application(database: Database, *, auth: Any = AUTH, settings: ApiSettings | None = None) -> Any:
    """The API, as an ASGI application; tests may ask it as often as they like."""
    return webhooks_app(database, auth, settings=settings or ApiSettings(tenant_rate=None))


class Unasked:
    """Stands where a database would: it has connections, and none can be had."""

    max_connections = 1


class Api:
    """Asks an application in this process, and checks what every answer has to be."""

    def __init__(self, app: Any, token: str | None) -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        # What the application raises is an answer of it, or a failure of the test.
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://webhooks.test", headers=headers
        )

    async def __call__(
        self, method: str, path: str, body: Any = None, status: int | None = None, **options: Any
    ) -> httpx.Response:
        """
        Ask.

        Args:
            method: Of HTTP.
            path: With its query.
            body: JSON.
            status: What the answer must have; None for any that is not the fault of the server.
            options: For httpx.
        """
        if body is not None:
            options["json"] = body
        if method == "PATCH":  # whatever it is, where a test says nothing else
            options["headers"] = {"if-match": "*"} | options.get("headers", {})
        response = await self.client.request(method, path, **options)
        expected = status or response.status_code
        assert (response.status_code, response.status_code < 500 or bool(status)) == (expected, True), (
            response.text
        )
        assert response.headers["x-request-id"]
        assert response.headers["cache-control"] == "no-store"
        assert not [name for name in response.headers if name.startswith("access-control")]
        if response.status_code >= 400:
            check_problem(response)
        return response

    async def get(self, path: str, status: int = 200, **query: Any) -> Any:
        return (await self("GET", path, status=status, params=query)).json()


def check_problem(response: httpx.Response) -> None:
    """Every refusal is of one form."""
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert set(problem) == {"title", "status", "code", "detail", "request_id", "errors"}
    assert problem["status"] == response.status_code
    assert problem["request_id"] == response.headers["x-request-id"]
    for inside in (
        "Traceback",
        "asyncpg",
        "psycopg",
        "SELECT ",
        "relation ",
        "webhook_endpoints",
        "/projections/",
    ):
        assert inside not in response.text


@dataclass(frozen=True)
class Rows:
    """What a tenant has: an endpoint, a schedule, events, attempts, and deliveries that are dead, done and pending."""

    tenant: str
    endpoint_id: str
    schedule_id: str
    event_id: str
    """Of a dead letter."""
    attempt_id: str
    done_id: str
    pending_id: str

    @property
    def place(self) -> Mapping[str, str]:
        """Values of paths."""
        return {
            "endpoint_id": self.endpoint_id, "schedule_id": self.schedule_id, "event_id": self.event_id,
            "attempt_id": self.attempt_id,
        }  # fmt: skip

    @property
    def marks(self) -> Sequence[str]:
        """What no other tenant may read in an answer."""
        return (
            self.tenant, self.endpoint_id, self.schedule_id, self.event_id, self.attempt_id, self.done_id,
            self.pending_id,
        )  # fmt: skip


async def rows_of(database: Database, tenant: str, payload: str = '{"b":1.0,"a":1e2}') -> Rows:
    """Write rows of a tenant."""
    made = await Endpoints(database).create(
        tenant,
        EndpointSettings(
            url=f"https://{tenant}.example.com/hook", headers={"authorization": f"secret-of-{tenant}"}
        ),
    )
    endpoint_id = made.endpoint.endpoint_id
    schedule = await Schedules(database).create(
        tenant, f"of {tenant}", "0 5 * * *", timezone="UTC", topic=f"{tenant}.due", data=RawJson(payload)
    )
    rows = Rows(
        tenant, endpoint_id, schedule.schedule_id, f"evt-{tenant}-dead", f"att-{tenant}", f"evt-{tenant}-done",
        f"evt-{tenant}-pending",
    )  # fmt: skip
    states = {rows.event_id: "dead", rows.done_id: "done", rows.pending_id: "pending"}
    entries = [
        entry(
            tenant,
            endpoint_id,
            event_id,
            rows.attempt_id if state == "dead" else f"att-{event_id}",
            place=place,
            payload=payload,
        )
        for place, (event_id, state) in enumerate(states.items())
    ]
    await WritableLog(database).insert_many(entries)
    async with database.transaction() as session:
        for each in entries:
            event = each.event
            assert event is not None
            state = states[event.event_id]
            await session.execute(
                _DELIVERY, endpoint_id, event.event_id, event.time, tenant, event.topic, state,
                payload if state == "dead" else None,
            )  # fmt: skip
    return rows


def entry(
    tenant: str, endpoint_id: str, event_id: str, attempt_id: str, *, place: int = 0, payload: str = "{}"
) -> AttemptWithEvent:
    """A failed attempt and its event."""
    time = FIRST + timedelta(minutes=place)
    event = LoggedEvent(
        event_id=event_id, tenant=tenant, topic=f"{tenant}.happened", time=time, endpoint_ids=(endpoint_id,),
        metadata={"of": tenant}, data=payload,
    )  # fmt: skip
    attempt = LoggedAttempt(
        attempt_id=attempt_id, tenant=tenant, event_id=event_id, event_time=time, topic=event.topic,
        endpoint_id=endpoint_id, status="failed", time=time, code="500", response=f"answer of {tenant}",
        took=timedelta(milliseconds=20),
    )  # fmt: skip
    return AttemptWithEvent(attempt, event)


def filled(operation: Operation, rows: Rows) -> str:
    """The path of an operation for what a tenant has."""
    return operation.path.format(**rows.place)


def operation_named(name: str) -> Operation:
    return next(each for each in OPERATIONS if each.name == name)
