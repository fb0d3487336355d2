"""`projections webhooks deliver`, `listen` and `serve` as a user runs them: processes, their output, and signals."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from journal import Database, Event, append
from projections.webhooks.addresses import AddressRules
from projections.webhooks.endpoints import Endpoints, EndpointSettings
from projections.webhooks.fan_out import FanOut
from projections.webhooks.messages import send
from projections.webhooks.signing import Secret, generate_secret
from tests.fixtures.commands import COMMAND, Running, called, environment
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import caught_up, fetchval, until
from tests.fixtures.raw_server import Exchange, RawServer, respond

ALLOWED = ("--allow-address", "127.0.0.0/8")
LOCAL = AddressRules(allow=("127.0.0.0/8",))
IN_STATE = "SELECT count(*) = $1 FROM projections.webhook_deliveries WHERE state = $2"
PARTITIONED = "SELECT count(*) > 0 FROM projections.partitions WHERE NOT is_default"
SIGNALS = {signal.SIGTERM: 0, signal.SIGINT: 130}
APP = """
from projections.webhooks import FanOut, Message

landed = FanOut("plane", lambda envelope: Message("acme", "flight.landed"))
"""

SPAN = f"00-{'1' * 32}-{'2' * 16}-01"
TRACED_APP = (
    APP
    + """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

def told(span):
    return f"{span.name.split()[0]} {span.parent.trace_id:032x} {span.parent.span_id:016x}\\n"

trace.set_tracer_provider(TracerProvider())
exporter = ConsoleSpanExporter(out=open("spans", "w"), formatter=told)
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
"""
)


@contextmanager
def running(command: str, *arguments: str, cwd: Path | None = None, **variables: str) -> Iterator[Running]:
    """A command with its log as JSON, for the length of the block, killed at its end if need be."""
    with subprocess.Popen(
        [*COMMAND, "webhooks", command, *arguments, "--log-format", "json"], cwd=cwd, stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL, text=True, env=environment(**variables),
    ) as process:  # fmt: skip
        try:
            yield Running(process)
        finally:
            process.kill()


class Listening:
    """`listen`, with its lines as JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.url = self.next()["listening"]

    def next(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def rest(self) -> list[Any]:
        assert self.process.stdout is not None
        return [json.loads(line) for line in self.process.stdout]


@contextmanager
def listening(*arguments: str) -> Iterator[Listening]:
    command = [*COMMAND, "webhooks", "listen", "--http", "127.0.0.1:0", "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            yield Listening(process)
        finally:
            process.kill()


async def endpoint(database: Database, url: str, secret: Secret | None = None, **settings: Any) -> str:
    service = Endpoints(database, rules=LOCAL, allow_http=True)
    made = await service.create("acme", EndpointSettings(url=url, **settings), secret)
    return made.endpoint.endpoint_id


async def message(database: Database, topic: str = "a.b") -> str:
    async with database.transaction() as session:
        return str((await send(session, "acme", topic, {"n": 1})).event_id)


def get(url: str, token: str | None = None) -> tuple[int, str]:
    return asked(Request(url, headers={} if token is None else {"Authorization": f"Bearer {token}"}))


def post(url: str, token: str, body: Any) -> tuple[int, str]:
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json", "idempotency-key": "k"}
    return asked(Request(url, json.dumps(body).encode(), headers))


def asked(request: Request) -> tuple[int, str]:
    try:
        with urlopen(request, timeout=300) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.slow
async def test_what_is_sent_arrives_signed_over_failures(
    database: Database, dsn: str, tmp_path: Path
) -> None:
    secret = generate_secret()
    (tmp_path / "secret").write_text(secret.reveal())
    (tmp_path / "app.py").write_text(APP)
    options = ("--secret-file", str(tmp_path / "secret"), "--fail-rate", "0.5", "--seed", "1", "--count", "5")
    with listening(*options) as receiver:
        add = (
            "endpoints",
            "add",
            "acme",
            receiver.url,
            "--retry",
            "10ms," * 19 + "10ms",
            "--allow-http",
            *ALLOWED,
        )
        policy = ("--policy", '{"breaker_failures": 1000}', "--secret-file", str(tmp_path / "secret"))
        assert called("webhooks", *add, *policy, "--dsn", dsn).returncode == 0
        with running("deliver", "app:landed", *ALLOWED, "--dsn", dsn, cwd=tmp_path) as deliver:
            deliver.until("delivering")
            messages = {await message(database) for _ in range(4)}
            async with database.transaction() as session:
                (landed,) = await append(session, [Event("N1", {}, "plane", "Landed")])
            lines = await asyncio.to_thread(receiver.rest)
            code = receiver.process.wait(30)
            await until(database, IN_STATE, 5, "done")
            deliver.signal(signal.SIGTERM)
            ended = deliver.end()

    totals = lines.pop()["totals"]
    accepted = [line["message_id"] for line in lines if line["status"] == 204]
    assert (code, ended) == (0, 0)
    assert {line["verification"] for line in lines} == {"verified"}
    assert sorted(accepted) == sorted(messages | {str(landed.event_id)})
    assert totals == {
        "requests": len(lines), "messages": 5, "duplicates": 0, "failed": len(lines) - 5, "refused": 0
    }  # fmt: skip
    assert totals["failed"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), SIGNALS.items())
async def test_a_signal_waits_for_the_requests_on_their_way(
    database: Database, dsn: str, number: signal.Signals, code: int
) -> None:
    gate = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await gate.wait()
        await respond(204)(exchange)

    async with RawServer(held) as server:
        await endpoint(database, server.url)
        event = await message(database)
        with running("deliver", *ALLOWED, "--dsn", dsn) as deliver:
            await server.received(1)
            deliver.signal(number)
            await asyncio.to_thread(deliver.until, "stopping")
            gate.set()
            ended = await asyncio.to_thread(deliver.end)
        (one,) = await _deliveries(dsn)

    assert ended == code
    assert (one["event_id"], one["state"], one["attempts"]) == (event, "done", 1)


@pytest.mark.slow
async def test_a_second_signal_ends_at_once_and_the_lease_brings_the_delivery_back(
    database: Database, dsn: str
) -> None:
    async def held(exchange: Exchange) -> None:
        await exchange.until_gone()

    async with RawServer(held) as server:
        await endpoint(database, server.url)
        await message(database)
        with running("deliver", *ALLOWED, "--dsn", dsn) as deliver:
            await server.received(1)
            deliver.signal(signal.SIGTERM)
            await asyncio.to_thread(deliver.until, "stopping")
            deliver.signal(signal.SIGTERM)
            ended = await asyncio.to_thread(deliver.end)
        (one,) = await _deliveries(dsn)

    assert ended == -signal.SIGTERM
    assert one["state"] == "leased"


@pytest.mark.slow
async def test_a_process_that_only_sends_maintains_and_tells_its_attempts_in_log_and_metrics(
    database: Database, dsn: str
) -> None:
    async with RawServer(respond(500), respond(204)) as server:
        name = await endpoint(database, server.url, policy={"schedule": [0]})
        event = await message(database)
        await caught_up(database, FanOut(), ranges=1)
        quick = ("--maintain-every", "50ms", "--driver", "psycopg")
        options = ("--only-send", "--http", "127.0.0.1:0", "--log-level", "debug", *quick)
        with running("deliver", *options, *ALLOWED, "--dsn", dsn) as deliver:
            address = (await asyncio.to_thread(deliver.until, "serving"))["address"]
            attempts = await asyncio.to_thread(deliver.until_all, "webhook_attempt", 2)
            await until(database, PARTITIONED)
            ready = await asyncio.to_thread(get, f"http://{address}/readyz")
            metrics = await asyncio.to_thread(get, f"http://{address}/metrics")
            deliver.signal(signal.SIGTERM)
            ended = await asyncio.to_thread(deliver.end)

    told = [(one["event_id"], one["endpoint"], one["code"], one["verdict"]) for one in attempts]
    assert told == [(event, name, "500", "retry"), (event, name, "204", "done")]
    assert (ended, ready[0]) == (0, 200)
    for code, verdict in (("2xx", "done"), ("5xx", "retry")):
        counted = f'projections_webhook_attempts_total{{code="{code}",.*verdict="{verdict}"}} 1.0'
        assert re.search(counted, metrics[1])
    assert re.search("projections_webhook_attempt_duration_seconds_count{.*} 2.0", metrics[1])
    assert server.url not in json.dumps(deliver.log)


@pytest.mark.slow
async def test_an_address_that_is_not_allowed_is_never_asked(database: Database, dsn: str) -> None:
    async with RawServer(respond(204)) as server:
        await endpoint(database, server.url)
        await message(database)
        with running("deliver", "--dsn", dsn) as deliver:
            told = await asyncio.to_thread(deliver.until, "webhook_attempt")
            deliver.signal(signal.SIGTERM)
            await asyncio.to_thread(deliver.end)

    assert (told["code"], server.requests) == ("blocked_address", [])


async def test_a_wrong_signature_is_shown_and_told_by_the_exit_code(database: Database, dsn: str) -> None:
    secret = generate_secret().reveal()
    command = [*COMMAND, "webhooks", "listen", "--http", "127.0.0.1:0", "--secret", secret]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as receiver:
        assert receiver.stdout is not None
        url = receiver.stdout.readline().split()[2].rstrip(",")
        name = await endpoint(database, url)
        tested = await asyncio.to_thread(
            called, "webhooks", "endpoints", "test", name, *ALLOWED, "--dsn", dsn
        )
        line = receiver.stdout.readline()
        receiver.send_signal(signal.SIGINT)
        rest = receiver.stdout.read()
        code = receiver.wait(30)

    assert "401  webhooks.test" in line
    assert "NOT VERIFIED, no signature of this webhook is by a known secret" in line
    assert secret not in line + rest
    assert rest == "1 requests: 0 messages accepted, 0 duplicates, 0 failed by chance, 1 not verified\n"
    assert (tested.returncode, code) == (1, 1)


@pytest.mark.slow
async def test_the_api_is_served_to_who_has_the_token(database: Database, dsn: str) -> None:
    name = await endpoint(database, "http://127.0.0.1:9000/")
    token = "a token of thirty characters.."
    with running("serve", "--http", "127.0.0.1:0", "--dsn", dsn, PROJECTIONS_TOKEN=token) as serve:
        address = (await asyncio.to_thread(serve.until, "serving"))["address"]
        url = f"http://{address}/v1/endpoints"
        without, with_it, document = [
            await asyncio.to_thread(get, *what)
            for what in ((url,), (url, token), (f"http://{address}/openapi.json",))
        ]
        serve.signal(signal.SIGTERM)
        ended = await asyncio.to_thread(serve.end)

    assert (without[0], with_it[0], document[0], ended) == (401, 200, 200, 0)
    assert name in with_it[1]
    assert json.loads(document[1])["openapi"].startswith("3.")


@pytest.mark.slow
async def test_a_request_with_a_key_is_followed_as_a_whole_or_not_at_all(
    database: Database, dsn: str
) -> None:
    token = "a token of thirty characters.."
    new = {"url": "https://example.com/hook", "tenant": "acme"}

    def ask(served: Running) -> tuple[int, str]:
        url = f"http://{served.until('serving')['address']}/v1/endpoints"
        # Until the server sees that who asked before is not there any more.
        return next(answer for _ in count() if (answer := post(url, token, new))[0] != 409)

    def serve() -> AbstractContextManager[Running]:
        return running("serve", "--http", "127.0.0.1:0", "--dsn", dsn, PROJECTIONS_TOKEN=token)

    with serve() as killed:
        async with database.transaction() as session:  # all is done, but for the answer
            await session.execute("LOCK TABLE projections.webhook_answers IN SHARE MODE")
            lost = asyncio.create_task(asyncio.to_thread(ask, killed))
            await until(database, f"SELECT EXISTS (SELECT FROM {WAITING} WHERE w.locktype = 'relation')")
            killed.signal(signal.SIGKILL)
            with pytest.raises(OSError):
                await lost
    with serve() as served:
        status, _ = await asyncio.to_thread(ask, served)

    made = await fetchval(database, "SELECT count(*) FROM projections.webhook_endpoints")
    assert (status, made) == (201, 1)


@pytest.mark.slow
async def test_requests_are_traced_from_who_sends(database: Database, dsn: str, tmp_path: Path) -> None:
    (tmp_path / "traced.py").write_text(TRACED_APP)
    async with RawServer(respond(204)) as server:
        await endpoint(database, server.url)
        with running("deliver", "traced:landed", "--traces", "--dsn", dsn, *ALLOWED, cwd=tmp_path) as deliver:
            async with database.transaction() as session:
                await append(session, [Event("p", {}, "plane", "Landed", metadata={"traceparent": SPAN})])
            await until(database, IN_STATE, 1, "done")
            deliver.signal(signal.SIGTERM)
            ended = await asyncio.to_thread(deliver.end)
    spans = [line.split() for line in (tmp_path / "spans").read_text().splitlines()]
    trace_id, span_id = SPAN.split("-")[1:3]
    assert (ended, spans) == (0, [["handle", trace_id, span_id], ["deliver", trace_id, span_id]])


@pytest.mark.parametrize("command", ["deliver", "serve"])
def test_what_others_reach_needs_a_token(dsn: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROJECTIONS_TOKEN", raising=False)
    result = called("webhooks", command, "--http", "0.0.0.0:0", "--dsn", dsn)

    assert result.returncode == 1
    assert "0.0.0.0:0 can be reached from other machines: set PROJECTIONS_TOKEN" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("deliver", "--only-send", "a:b"), 2, "--only-send"),
        (("deliver", "no_such_module:x"), 2, "no_such_module"),
        (("deliver", "--allow-address", "10.0.0.0/99"), 2, "10.0.0.0/99"),
        (("listen", "--secret", "guess"), 2, "whsec_"),
        (("listen", "--fail-rate", "nan"), 2, "nan"),
        (("listen", "--fail-rate", "1.5"), 2, "1.5"),
        (("serve", "--http", "nowhere"), 2, "'nowhere' is not an address"),
    ],
)
def test_what_can_not_start_says_why(arguments: tuple[str, ...], code: int, said: str) -> None:
    result = called("webhooks", *arguments)

    assert (result.returncode, result.stdout) == (code, "")
    assert said in result.stderr


async def _deliveries(dsn: str) -> list[Any]:
    result = await asyncio.to_thread(called, "webhooks", "deliveries", "--json", "--dsn", dsn)
    found: list[Any] = json.loads(result.stdout)["deliveries"]
    return found
