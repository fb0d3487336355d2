"""Requests that cannot be followed: each is refused with a code of its own, and none is the server's fault."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from datetime import timedelta
from typing import Any, cast

import pytest

from journal import Database
from projections.webhooks.api import ApiSettings
from projections.webhooks.api.app import OPERATIONS
from projections.webhooks.api.operations import Operation
from tests.fixtures.webhooks_api import BODIES, TOKENS, Api, Rows, Unasked, application

JSON = {"content-type": "application/json"}
MESSAGE = {"topic": "a.b", "data": {}}
LISTS = [each for each in OPERATIONS if each.method == "GET" and not each.parameters]


def named(operation: Operation) -> str:
    return operation.name


def code_of(response: Any) -> str:
    return str(response.json()["code"])


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "malformed_json"),
        (b"{", 400, "malformed_json"),
        (b'{"topic":', 400, "malformed_json"),
        (b'{"topic":"a.b","data":1', 400, "malformed_json"),
        (b'{"topic":"a.b","data":1},', 400, "malformed_json"),
        (b'{"topic":"a.b","data":1}{}', 400, "malformed_json"),
        (b'{"topic":"a.b",}', 400, "malformed_json"),
        (b"{topic:1}", 400, "malformed_json"),
        (b'{"topic" "a.b"}', 400, "malformed_json"),
        (b"[]", 400, "malformed_json"),
        (b"null", 400, "malformed_json"),
        (b'\xef\xbb\xbf{"topic":"a.b","data":1}', 400, "malformed_json"),
        (b'{"topic":"\xff","data":1}', 400, "malformed_json"),
        (b'{"topic":"a.b","topic":"a.c","data":1}', 400, "malformed_json"),
        (b'{"topic":"a\nb","data":1}', 400, "malformed_json"),
        (b'{"data":1}', 422, "invalid_body"),
        (b'{"topic":"a.b"}', 422, "invalid_body"),
        (b'{"topic":"a.b","data":1,"other":1}', 422, "invalid_body"),
        (b'{"topic":1,"data":1}', 422, "invalid_body"),
        (b'{"topic":"a.b","data":1,"id":""}', 422, "invalid_body"),
        (b'{"topic":"a.b","data":1,"id":"a\\u0000b"}', 422, "invalid_body"),
        (b'{"topic":"a.b","data":1,"id":"\\udc00"}', 422, "invalid_body"),
        (b'{"topic":"a.b","data":1,"\\udc00":1}', 422, "invalid_body"),
        (b'{"topic":"a.b","data":1,"metadata":{"\\u0000":"a"}}', 422, "invalid_body"),
        (b'{"topic":"a.b","data":1,"metadata":{"a":"\\ud800"}}', 422, "invalid_body"),
        (b'{"topic":"a.b","data":1,"not_before":"2026-01-01T00:00:00"}', 422, "invalid_body"),
        (b'{"topic":"a.b","data":1,"not_before":"0001-01-01T00:00:00+14:00"}', 422, "invalid_body"),
        (b'{"topic":"a.b","data":1,"not_before":"9999-12-31T23:59:59-14:00"}', 422, "invalid_body"),
        (b'{"topic":"a.b","data":1,"not_before":1e400}', 422, "invalid_body"),
        (b'{"topic":"a.b","data":1,"id":"' + b"x" * 256 + b'"}', 422, "invalid_body"),
    ],
    ids=lambda value: repr(value)[:60] if isinstance(value, bytes) else "",
)
async def test_a_body_that_can_not_be_is_refused(body: bytes, status: int, code: str, unasked: Api) -> None:
    response = await unasked("POST", "/v1/messages", status=status, content=body, headers=JSON)
    assert code_of(response) == code


@pytest.mark.parametrize(
    "settings",
    [
        {"max_in_flight": 10**30},
        {"max_in_flight": int("9" * 1000)},
        {"rate_limit": 1e300},
        {"policy": {"timeout": 1e300}},
        {"policy": {"schedule": [-1]}},
        {"policy": {"breaker_pause": {"first": 10, "longest": 1}}},
        {"description": "a\0b"},
        {"headers": {"a": "\ud800"}},
        {"topics": ["\0"]},
        {"filter": {"data": {"a": "\0"}}},
        {"filter": {"data": {"\ud800": 1}}},
        {"filter": {"data": {"a": int("9" * 4000)}}},
        {"url": None},
        {"state": "active"},
        {"secret": "whsec_short"},
        {"secret": "whpk_" + "QUJD" * 10 + "QUI="},
        {"tenant": "x" * 201},
        {"gzip": 2},
    ],
    ids=lambda value: repr(value)[:50],
)
async def test_settings_that_can_not_be_are_refused(settings: Any, unasked: Api) -> None:
    body = json.dumps({"url": "https://example.com"} | settings)
    await unasked("POST", "/v1/endpoints", status=422, content=body, headers=JSON)


async def test_a_filter_that_is_a_bomb_of_levels_is_refused(unasked: Api) -> None:
    for depth in (51, 500, 100_000):
        body = '{"url":"https://example.com","filter":' + '{"$not":' * depth + "1" + "}" * depth + "}"
        response = await unasked("POST", "/v1/endpoints", content=body, headers=JSON)
        assert response.status_code in {400, 413, 422}


async def test_validation_names_the_field_and_not_the_value(unasked: Api) -> None:
    body = {"url": "https://example.com", "policy": {"jitter": "a-secret-value"}, "rate_limit": -1}
    response = await unasked("POST", "/v1/endpoints", body, status=422)
    assert sorted(each["field"] for each in response.json()["errors"]) == ["policy.jitter", "rate_limit"]
    assert "a-secret-value" not in response.text


async def test_a_malformed_secret_is_not_said_again(unasked: Api) -> None:
    body = {"url": "https://example.com", "secret": "whsec_my-secret-of-old"}
    assert "my-secret" not in (await unasked("POST", "/v1/endpoints", body, status=422)).text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
    ids=str,
)
async def test_a_body_of_another_type_is_refused(headers: dict[str, str], unasked: Api) -> None:
    await unasked("POST", "/v1/messages", status=415, content=json.dumps(MESSAGE), headers=headers)


@pytest.mark.slow
@pytest.mark.parametrize("charset", ["", ";charset=utf-8", '; charset="UTF-8"'])
async def test_json_in_utf_8_is_taken_however_that_is_said(charset: str, acme: Api) -> None:
    headers = {"content-type": f"application/json{charset}"}
    await acme("POST", "/v1/messages", status=202, content=json.dumps(MESSAGE), headers=headers)


@pytest.mark.slow
async def test_a_body_up_to_the_limit_is_taken_and_a_larger_one_refused(acme: Api) -> None:
    text = '{"topic":"a.b","data":"%s"}' % ("x" * (1_048_576 - 25))
    assert len(text) == 1_048_576
    await acme("POST", "/v1/messages", status=202, content=text, headers=JSON)
    response = await acme("POST", "/v1/messages", status=413, content=text + " ", headers=JSON)
    assert code_of(response) == "body_too_large"


async def test_a_body_without_a_length_is_not_read_beyond_the_limit(unasked: Api) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 65_536
            yield b" " * 65_536

    await unasked("POST", "/v1/messages", status=413, content=endless(), headers=JSON)
    assert read < 2_000_000


@pytest.mark.slow
@pytest.mark.parametrize("length", ["-1", "9" * 5000, "1e9", "4_8"])
async def test_a_length_that_is_none_is_no_fault_of_the_server(length: str, acme: Api) -> None:
    headers = JSON | {"content-length": length}
    response = await acme("POST", "/v1/messages", content=json.dumps(MESSAGE), headers=headers)
    assert response.status_code in {202, 413}


async def test_a_body_that_does_not_arrive_is_given_up(database: Database) -> None:
    never = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield b"{"
        await never.wait()

    app = application(database, settings=ApiSettings(body_timeout=timedelta(milliseconds=20)))
    api = Api(app, TOKENS["acme"])
    async with api.client:
        response = await api("POST", "/v1/messages", status=408, content=stuck(), headers=JSON)
    assert code_of(response) == "body_too_slow"


@pytest.mark.parametrize("operation", OPERATIONS, ids=named)
async def test_a_parameter_that_is_not_known_is_refused(operation: Operation) -> None:
    """Before the database is looked at: there is none."""
    api = Api(application(cast("Database", Unasked())), TOKENS["acme"])
    async with api.client:
        response = await api(operation.method, operation.path, params={"no_such": "1"}, status=422)
    assert code_of(response) == "invalid_query"
    assert "no_such" in {each["field"] for each in response.json()["errors"]}


@pytest.mark.slow
@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each.parameters], ids=named)
async def test_an_id_that_can_not_be_is_not_found(operation: Operation, admin: Api) -> None:
    for value in ("a%00b", "x" * 256, "%F0%9F%92%A9", "..%2F..", "%27%20OR%201=1--"):
        path = operation.path.format(**dict.fromkeys(operation.parameters, value))
        await admin(operation.method, path, BODIES.get(operation.name), status=404)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/attempts?limit=0", 422),
        ("/v1/attempts?limit=-1", 422),
        ("/v1/attempts?limit=1.5", 422),
        ("/v1/attempts?limit=" + "9" * 5000, 422),
        ("/v1/attempts?limit=1&limit=2", 422),
        ("/v1/attempts?dir=sideways", 422),
        ("/v1/attempts?order_by=code", 422),
        ("/v1/attempts?status=fine", 422),
        ("/v1/attempts?since=yesterday", 422),
        ("/v1/attempts?since=2026-01-01T00:00:00", 422),
        ("/v1/attempts?since=0001-01-01T00:00:00%2B14:00", 422),
        ("/v1/attempts?lt=9999-12-31T23:59:59-14:00", 422),
        ("/v1/attempts?since=99999999999999999999", 422),
        ("/v1/attempts?topics=a%00b", 422),
        ("/v1/attempts?a%00b=1", 422),
        ("/v1/attempts?topics=", 422),
        ("/v1/attempts?include=everything", 422),
        ("/v1/attempts?" + "&".join(["topics=a"] * 101), 422),
        ("/v1/attempts?next=!!!invalid!!!", 422),
        ("/v1/attempts?next=abcdef123456", 422),
        ("/v1/attempts?next=" + "a" * 513, 422),
        ("/v1/attempts?next=a%00b", 422),
        ("/v1/deliveries?next=-1", 422),
        ("/v1/deliveries?next=" + "9" * 19, 422),
        ("/v1/deliveries?next=" + "9" * 5000, 422),
        ("/v1/deliveries?next=%D9%A1", 422),
        ("/v1/deliveries?states=lost", 422),
        ("/v1/endpoints?limit=0", 422),
        ("/v1/endpoints?tenant=" + "x" * 201, 422),
        ("/v1/endpoint-stats?minutes=999999999999", 422),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_a_query_that_can_not_be_is_refused(path: str, status: int, unasked: Api) -> None:
    await unasked("GET", path, status=status)


@pytest.mark.slow
async def test_a_query_that_is_odd_is_followed(admin: Api) -> None:
    for query in ("topics=%FF%FE", "tenant=a&tenant=b", "next="):
        await admin("GET", f"/v1/attempts?{query}", status=200)
    await admin("GET", "/v1/endpoints?tenant=a&tenant=b", status=422)


@pytest.mark.parametrize("body", [{"topic": "a b", "data": 1}, {"topic": "*", "data": 1}], ids=str)
async def test_a_topic_that_can_not_be_is_refused(body: Any, acme: Api) -> None:
    assert code_of(await acme("POST", "/v1/messages", body, status=422)) == "invalid_message"


@pytest.mark.parametrize("kind", ["events", "attempts"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"measures": "magic"},
        {"dimensions": "colour"},
        {"since": "2026-01-02T00:00:00Z"},
        {"since": "2027-01-02T00:00:00Z"},
        {"since": ""},
        {"until": None},
        {"granularity": "1x"},
        {"granularity": "61s"},
        {"granularity": "0s"},
        {"granularity": "1h; DROP TABLE x"},
        {"since": "1971-01-01T00:00:00Z", "granularity": "1s"},
        {"since": "1960-01-01T00:00:00Z"},
        {"tenant": ""},
        {"other": "1"},
    ],
    ids=str,
)
async def test_metrics_that_can_not_be_are_a_bad_request(
    kind: str, wrong: dict[str, Any], unasked: Api
) -> None:
    query = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"} | wrong
    params = {name: value for name, value in query.items() if value is not None}
    await unasked("GET", f"/v1/metrics/{kind}", status=422, params=params)


INJECTIONS = [
    "' OR '1'='1",
    "'; DROP TABLE projections.webhook_endpoints; --",
    "$1",
    "%",
    "_",
    "\\",
    '"',
    "{acme}",
    "*",
]


@pytest.mark.slow
@pytest.mark.parametrize("text", INJECTIONS)
async def test_what_looks_like_sql_is_a_value_like_any_other(text: str, admin: Api, acmes: Rows) -> None:
    for name in ("topics", "endpoint_id", "event_id", "endpoint_type", "tenant"):
        assert (await admin.get("/v1/attempts", **{name: text}))["data"] == []
    for path in ("/v1/events", "/v1/deliveries", "/v1/dead-letters"):
        assert (await admin.get(path, topics=text))["data"] == []
    span = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}
    found = await admin.get("/v1/metrics/attempts", **span, code=text, topics=text, endpoint_id=text)
    assert not any(each["measures"]["count"] for each in found["data"])
    for path in ("/v1/endpoints", "/v1/schedules", "/v1/endpoint-stats"):
        assert (await admin.get(path, tenant=text))["data"] == []
    await admin("POST", "/v1/messages", {"topic": "a.b", "data": 1, "tenant": text, "id": text}, status=202)
    assert (await admin.get(f"/v1/endpoints/{acmes.endpoint_id}"))["tenant"] == "acme"


@pytest.mark.parametrize("operation", LISTS, ids=named)
async def test_a_huge_cursor_is_refused_before_anything_is_asked(operation: Operation) -> None:
    """As a server would pass it on: httpx sends no URL as long as that."""
    told: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("nothing is to be read")

    async def send(message: MutableMapping[str, Any]) -> None:
        told.append(message)

    scope = {
        "type": "http", "method": "GET", "path": operation.path, "raw_path": operation.path.encode(), "root_path": "",
        "query_string": b"next=" + b"Z" * 100_000, "headers": [(b"host", b"localhost")], "scheme": "http",
        "http_version": "1.1", "server": ("localhost", 80), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    await application(cast("Database", Unasked()))(scope, receive, send)
    assert told[0]["status"] == 414


async def test_headers_that_are_too_long_are_refused(unasked: Api) -> None:
    response = await unasked("GET", "/v1/attempts", status=431, headers={"x-much": "x" * 16_384})
    assert code_of(response) == "headers_too_large"


@pytest.mark.parametrize(
    "path", ["/v2/endpoints", "/v1/endpoints/", "/v1", "/v1/endpoints/a/b/c", "//v1/endpoints"]
)
async def test_a_path_that_is_none_is_not_found(path: str, unasked: Api) -> None:
    assert code_of(await unasked("GET", path, status=404)) == "not_found"


async def test_a_method_that_a_path_has_not_is_told_which_it_has(unasked: Api) -> None:
    response = await unasked("PUT", "/v1/endpoints", status=405)
    assert {*response.headers["allow"].split(", ")} == {"GET", "HEAD", "POST"}
    await unasked("OPTIONS", "/v1/endpoints", status=405, headers={"origin": "https://evil.example"})


async def test_head_is_answered_as_get_is(admin: Api) -> None:
    assert (await admin("HEAD", "/v1/endpoints", status=200)).headers["content-type"] == "application/json"


@pytest.mark.slow
@pytest.mark.parametrize(("given", "kept"), [("req-7", True), ("a b", False), ("x" * 65, False), ("", False)])
async def test_a_request_brings_its_own_id_if_it_can_be_one(given: str, kept: bool, admin: Api) -> None:
    response = await admin("GET", "/v1/endpoints", status=200, headers={"x-request-id": given})
    assert (response.headers["x-request-id"] == given) is kept
