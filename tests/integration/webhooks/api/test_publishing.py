"""Messages over HTTP: sent once by their id, byte by byte as they were written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from journal import Database, Event, append
from tests.fixtures.webhooks_api import Api, Rows

JSON = {"content-type": "application/json"}
SPAN = f"00-{'1' * 32}-{'2' * 16}-01"
STORED = "SELECT payload::text FROM projections.events WHERE event_id = $1::text::uuid"
COUNT = "SELECT count(*) FROM projections.events WHERE entity_type = 'webhook-message'"


async def stored(database: Database, event_id: str) -> str:
    async with database.session() as session:
        return str(await session.fetchval(STORED, event_id))


async def count(database: Database) -> int:
    async with database.session() as session:
        return int(await session.fetchval(COUNT))


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        '{"z": 1.0, "a" : 1e2,  "n": 123456789012345678901234567890}',
        '{"b":1,"a":2,"b":3}',
        '"text with \\u00e9, é and \\" in it"',
        "[1.10, -0.0, 1E+5]",
        "null",
        "3.000",
    ],
)
async def test_data_is_stored_as_it_was_written(data: str, acme: Api, database: Database) -> None:
    body = f'{{ "topic" : "a.b" ,\n\t"data":\r\n{data} , "metadata":{{}}}}'
    sent = await acme("POST", "/v1/messages", status=202, content=body.encode(), headers=JSON)
    assert await stored(database, sent.json()["event_id"]) == data


async def test_the_same_message_with_the_same_id_is_sent_once(acme: Api, database: Database) -> None:
    body = {"topic": "a.b", "data": {"n": 1}, "id": "order-7"}
    first, second = [(await acme("POST", "/v1/messages", body, status=202)).json() for _ in range(2)]
    assert first["event_id"] == second["event_id"]
    assert [first["duplicate"], second["duplicate"], await count(database)] == [False, True, 1]


async def test_the_order_of_a_message_is_that_of_the_first_with_its_id(acme: Api, database: Database) -> None:
    body = {"topic": "a.b", "data": {"n": 1}, "id": "order-7"}
    keys: list[dict[str, Any]] = [{"order_key": "a"}, {"order_key": "b"}, {}]
    answers = [(await acme("POST", "/v1/messages", body | key, status=202)).json() for key in keys]
    assert [answer["duplicate"] for answer in answers] == [False, True, True]
    assert len({answer["event_id"] for answer in answers}) == 1
    assert await count(database) == 1


@pytest.mark.slow
async def test_of_many_that_send_the_same_at_once_one_is_told_that_it_was_new(
    acme: Api, database: Database
) -> None:
    body = {"topic": "a.b", "data": {"n": 1}, "id": "order-7"}
    answers = await asyncio.gather(*(acme("POST", "/v1/messages", body, status=202) for _ in range(8)))
    assert sorted(answer.json()["duplicate"] for answer in answers) == [False] + [True] * 7
    assert await count(database) == 1


async def test_the_header_is_as_good_as_the_id(acme: Api) -> None:
    body = {"topic": "a.b", "data": 1}
    first = await acme("POST", "/v1/messages", body, status=202, headers={"idempotency-key": "k"})
    second = await acme("POST", "/v1/messages", body | {"id": "k"}, status=202)
    assert (second.json()["duplicate"], second.json()["event_id"]) == (True, first.json()["event_id"])


async def test_a_header_that_is_not_the_id_is_refused(acme: Api) -> None:
    body = {"topic": "a.b", "data": 1, "id": "one"}
    response = await acme("POST", "/v1/messages", body, status=400, headers={"idempotency-key": "other"})
    assert response.json()["code"] == "invalid_idempotency_key"


async def test_an_id_that_was_used_for_other_content_is_a_conflict(acme: Api) -> None:
    await acme("POST", "/v1/messages", {"topic": "a.b", "data": 1, "id": "k"}, status=202)
    response = await acme("POST", "/v1/messages", {"topic": "a.b", "data": 2, "id": "k"}, status=409)
    assert response.json()["code"] == "id_conflict"


async def test_an_id_is_the_tenants_own(acme: Api, globex: Api, database: Database) -> None:
    for api in (acme, globex):
        sent = await api("POST", "/v1/messages", {"topic": "a.b", "data": 1, "id": "k"}, status=202)
        assert sent.json()["duplicate"] is False
    assert await count(database) == 2


async def test_a_message_that_nobody_wanted_is_shown_without_endpoints(
    acme: Api, globex: Api, admin: Api, database: Database
) -> None:
    body = {"topic": "a.b", "data": {"n": 1.0}, "metadata": {"of": "me"}, "eligible_for_retry": False}
    sent = (await acme("POST", "/v1/messages", body, status=202)).json()["event_id"]
    path = f"/v1/events/{sent}"

    shown = await acme.get(path)

    assert shown == {
        "event_id": sent, "tenant": "acme", "topic": "a.b", "time": shown["time"], "endpoint_ids": [],
        "eligible_for_retry": False, "metadata": {"of": "me"}, "data": {"n": 1.0},
        "erased_at": None,
    }  # fmt: skip
    assert (await admin.get(path), await admin.get(path, tenant="acme")) == (shown, shown)
    await globex.get(path, 404)
    await admin.get(path, 404, tenant="globex")


async def test_an_event_that_is_no_message_is_not_in_the_log(admin: Api, database: Database) -> None:
    async with database.transaction() as session:
        (other,) = await append(session, [Event("p", {}, "plane", "Landed", metadata={"tenant": "acme"})])
    await admin.get(f"/v1/events/{other.event_id}", 404)


@pytest.mark.parametrize(("header", "kept"), [(SPAN, True), ("00-b7ad", False)])
async def test_a_message_comes_from_the_span_that_its_header_names(
    header: str, kept: bool, acme: Api, database: Database
) -> None:
    body = {"topic": "a.b", "data": 1}
    sent = await acme("POST", "/v1/messages", body, status=202, headers={"traceparent": header})
    async with database.session() as session:
        origin = await session.fetchval(
            "SELECT metadata ->> 'traceparent' FROM projections.events WHERE event_id = $1::text::uuid",
            sent.json()["event_id"],
        )
    assert origin == (header if kept else None)


async def test_without_an_id_each_request_sends(acme: Api, database: Database) -> None:
    for _ in range(2):
        sent = await acme("POST", "/v1/messages", {"topic": "a.b", "data": 1}, status=202)
        assert sent.json()["duplicate"] is False
    assert await count(database) == 2


async def test_an_administrator_sends_for_a_tenant(admin: Api) -> None:
    await admin("POST", "/v1/messages", {"topic": "a.b", "data": 1, "tenant": "acme"}, status=202)
    await admin("POST", "/v1/messages?tenant=acme", {"topic": "a.b", "data": 1}, status=202)


@pytest.mark.slow
async def test_what_else_a_message_can_have_is_kept(acme: Api, acmes: Rows, database: Database) -> None:
    body = {
        "topic": "a.b", "data": 1, "order_key": "k", "not_before": "2030-01-01T00:00:00+01:00",
        "endpoint_id": acmes.endpoint_id, "eligible_for_retry": False, "metadata": {"a": "b"},
    }  # fmt: skip
    sent = (await acme("POST", "/v1/messages", body, status=202)).json()
    async with database.session() as session:
        kept = await session.fetchval(
            "SELECT metadata::text::jsonb = $2::text::jsonb FROM projections.events WHERE event_id = $1::text::uuid",
            sent["event_id"],
            '{"tenant":"acme","order_key":"k","not_before":"2029-12-31T23:00:00+00:00","eligible_for_retry":false,'
            f'"endpoint_id":"{acmes.endpoint_id}","labels":{{"a":"b"}}}}',
        )
    assert kept


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "code"),
    [
        ('{"a":"\\u0000"}', "invalid_message"),
        ('{"a":"\\ud800"}', "invalid_message"),
        ('{"\\ud800":1}', "invalid_message"),
        ("1e400", "invalid_message"),
        ("9" * 5000, "invalid_message"),
        ("[" * 900 + "]" * 900, "invalid_message"),
        ("[" * 100_000 + "]" * 100_000, "malformed_json"),
        ("NaN", "malformed_json"),
        ("-Infinity", "malformed_json"),
    ],
    ids=lambda text: text[:20],
)
async def test_data_that_can_not_be_stored_is_refused(data: str, code: str, acme: Api) -> None:
    body = f'{{"topic":"a.b","data":{data}}}'
    response = await acme("POST", "/v1/messages", content=body, headers=JSON)
    assert (response.json()["code"], response.status_code) == (
        code,
        422 if code == "invalid_message" else 400,
    )


@pytest.mark.slow
async def test_a_test_message_goes_to_its_endpoint_alone(acme: Api, database: Database) -> None:
    made = (
        await acme("POST", "/v1/endpoints", {"url": "https://e.com", "topics": ["a.*"]}, status=201)
    ).json()
    path = f"/v1/endpoints/{made['endpoint_id']}/test"
    sent = (await acme("POST", path, status=202)).json()
    assert sent["topic"] == "a.test"
    async with database.session() as session:
        aim = await session.fetchval(
            "SELECT metadata ->> 'endpoint_id' FROM projections.events WHERE event_id = $1::text::uuid",
            sent["event_id"],
        )
    assert aim == made["endpoint_id"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "body", [{"topic": "b.c"}, {"topic": "a.b", "data": {"n": 2}}], ids=["topic", "filter"]
)
async def test_a_test_message_that_would_not_arrive_is_refused(body: Any, acme: Api) -> None:
    settings = {"url": "https://e.com", "topics": ["a.*"], "filter": {"data": {"n": 1}}}
    made = (await acme("POST", "/v1/endpoints", settings, status=201)).json()
    path = f"/v1/endpoints/{made['endpoint_id']}/test"
    assert (await acme("POST", path, body, status=400)).json()["code"] == "not_wanted"
    await acme("POST", path, {"data": {"n": 1}}, status=202)


async def test_a_test_message_that_the_filter_may_not_look_at_is_refused(acme: Api) -> None:
    searches = {"data": {"$or": [{"$in": f"{'a' * 99}{number}"} for number in range(98)]}}
    made = (
        await acme("POST", "/v1/endpoints", {"url": "https://e.com", "filter": searches}, status=201)
    ).json()
    path = f"/v1/endpoints/{made['endpoint_id']}/test"
    response = await acme("POST", path, {"data": "a" * 1_000_000}, status=400)
    assert response.json()["code"] == "filter_too_costly"
