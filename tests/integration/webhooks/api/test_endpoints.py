"""Endpoints, schedules and deliveries over HTTP: what each request does, seen by a tenant."""

from __future__ import annotations

from typing import Any

import pytest

from journal import Database
from projections.webhooks import api
from projections.webhooks.addresses import AddressRules
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.signing import parse_secret
from tests.fixtures.webhooks_api import AUTH, TOKENS, Api, Rows, entry
from tests.fixtures.writable_log import WritableLog

HOOK = {"url": "https://example.com/hook"}


async def test_an_endpoint_is_made_with_a_secret_that_is_shown_once(acme: Api, database: Database) -> None:
    made = (await acme("POST", "/v1/endpoints", HOOK | {"topics": ["user.*"]}, status=201)).json()
    stored = await Endpoints(database).secrets("acme", made["endpoint_id"])
    assert [one.reveal() for one in stored] == [made["secret"]]
    for path in ("/v1/endpoints", f"/v1/endpoints/{made['endpoint_id']}"):
        assert made["secret"] not in (await acme("GET", path, status=200)).text


async def test_secrets_are_told_apart_by_their_fingerprints(acme: Api) -> None:
    made = (await acme("POST", "/v1/endpoints", HOOK, status=201)).json()
    path = f"/v1/endpoints/{made['endpoint_id']}"
    rotated = (await acme("POST", f"{path}/rotate-secret", status=200)).json()
    shown = (await acme.get(path))["secrets"]
    assert [one["fingerprint"] for one in shown] == [
        rotated["fingerprint"],
        parse_secret(made["secret"]).fingerprint,
    ]


async def test_without_grace_the_old_secret_signs_no_more(acme: Api) -> None:
    made = (await acme("POST", "/v1/endpoints", HOOK, status=201)).json()
    path = f"/v1/endpoints/{made['endpoint_id']}"
    rotated = (await acme("POST", f"{path}/rotate-secret", {"grace": 0}, status=200)).json()
    assert [one["fingerprint"] for one in (await acme.get(path))["secrets"]] == [rotated["fingerprint"]]


async def test_of_a_key_pair_only_the_public_half_is_ever_shown(acme: Api) -> None:
    made = (await acme("POST", "/v1/endpoints", HOOK | {"signatures": "v1a"}, status=201)).json()
    path = f"/v1/endpoints/{made['endpoint_id']}"
    rotated = await acme("POST", f"{path}/rotate-secret", status=200)
    texts = [str(made), rotated.text, (await acme("GET", path, status=200)).text]
    assert made["secret"].startswith("whpk_")
    assert not [text for text in texts if "whsk_" in text]


async def test_a_tenant_can_bring_its_own_secret(acme: Api) -> None:
    own = "whsec_" + "QUJD" * 10
    assert (await acme("POST", "/v1/endpoints", HOOK | {"secret": own}, status=201)).json()["secret"] == own


async def test_the_values_of_headers_are_never_shown(acme: Api, acmes: Rows) -> None:
    for path in ("/v1/endpoints", f"/v1/endpoints/{acmes.endpoint_id}", "/v1/attempts?include=endpoint"):
        text = (await acme("GET", path, status=200)).text
        assert ("authorization" in text, "secret-of-acme" in text) == (True, False)


@pytest.mark.slow
async def test_a_change_leaves_what_it_does_not_name(acme: Api, acmes: Rows) -> None:
    path = f"/v1/endpoints/{acmes.endpoint_id}"
    changes = {"rate_limit": 2.5, "policy": {"schedule": [1, 2.5], "disable_after": None}}
    changed = (await acme("PATCH", path, changes, status=200)).json()
    assert (changed["rate_limit"], changed["policy"]["schedule"]) == (2.5, [1, 2.5])
    again = (await acme("PATCH", path, {"rate_limit": None}, status=200)).json()
    assert (again["rate_limit"], again["policy"], again["url"]) == (None, changed["policy"], changed["url"])
    assert again["policy"]["disable_after"] is None
    assert (await acme("PATCH", path, {}, status=200)).json() == again


@pytest.mark.slow
async def test_an_endpoint_is_paused_resumed_disabled_and_enabled(acme: Api, acmes: Rows) -> None:
    path = f"/v1/endpoints/{acmes.endpoint_id}"
    states = [
        (await acme("POST", f"{path}/{action}", {"reason": "a test"}, status=200)).json()["state"]
        for action in ("pause", "resume", "disable", "enable")
    ]
    assert states == ["paused", "active", "disabled", "active"]


@pytest.mark.slow
@pytest.mark.parametrize("action", ["pause", "resume"])
async def test_a_disabled_endpoint_is_enabled_first(action: str, acme: Api, acmes: Rows) -> None:
    path = f"/v1/endpoints/{acmes.endpoint_id}"
    await acme("POST", f"{path}/disable", status=200)
    assert (await acme("POST", f"{path}/{action}", status=409)).json()["code"] == "wrong_state"


async def test_a_deleted_endpoint_is_gone_and_its_attempts_stay(acme: Api, acmes: Rows) -> None:
    await acme("DELETE", f"/v1/endpoints/{acmes.endpoint_id}", status=204)
    await acme.get(f"/v1/endpoints/{acmes.endpoint_id}", 404)
    page = await acme.get("/v1/attempts", include="endpoint")
    assert [("endpoint" in each, each["endpoint_id"]) for each in page["data"]] == [
        (False, acmes.endpoint_id)
    ] * 3


async def test_stats_tell_how_an_endpoint_fares(acme: Api, acmes: Rows) -> None:
    one = await acme.get(f"/v1/endpoints/{acmes.endpoint_id}/stats")
    assert (one["dead"], one["pending"], one["state"]) == (1, 1, "active")
    assert (await acme.get("/v1/endpoint-stats"))["data"][0]["dead"] == 1


async def paged(api: Api, path: str, key: str) -> list[str]:
    """The ids of a list in pages of two."""
    seen: list[str] = []
    following: str | None = ""
    while following is not None:
        page = await api.get(path, limit=2, next=following)
        seen += [each[key] for each in page["data"]]
        following = page["next"]
    return seen


async def test_pages_of_endpoints_join_without_gap(acme: Api) -> None:
    made = {(await acme("POST", "/v1/endpoints", HOOK, status=201)).json()["endpoint_id"] for _ in range(5)}
    for path in ("/v1/endpoints", "/v1/endpoint-stats"):
        assert await paged(acme, path, "endpoint_id") == sorted(made)


async def test_pages_of_schedules_join_without_gap(acme: Api) -> None:
    due = {"cron": "0 1 * * *", "topic": "a.b", "data": {}}
    asked = [due | {"name": str(number)} for number in range(3)]
    made = [(await acme("POST", "/v1/schedules", body, status=201)).json()["schedule_id"] for body in asked]

    assert await paged(acme, "/v1/schedules", "schedule_id") == sorted(made)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "http://example.com"}, "https"),
        ({"url": "https://127.0.0.1/"}, "public"),
        ({"url": "https://[::ffff:169.254.169.254]/"}, "public"),
        ({"url": "https://2130706433/"}, "public"),
        ({"url": "https://u:p@example.com/"}, "password"),
        ({"url": "https://example.com:5432/"}, "port"),
        ({"url": "https://example.com", "headers": {"x": "a\r\nb: c"}}, "header"),
        ({"url": "https://example.com", "headers": {"Webhook-Id": "1"}}, "header"),
        ({"url": "https://example.com", "topics": ["a b"]}, "topic"),
        ({"url": "https://example.com", "topics": []}, "topics"),
        ({"url": "https://example.com", "filter": {"data": {"a": {"$regex": ".*"}}}}, "$regex"),
        ({"url": "https://example.com", "filter": {"other": 1}}, "other"),
    ],
)
async def test_an_endpoint_that_can_not_be_is_refused(
    settings: Any, said: str, acme: Api, acmes: Rows
) -> None:
    for method, path in (("POST", "/v1/endpoints"), ("PATCH", f"/v1/endpoints/{acmes.endpoint_id}")):
        response = await acme(method, path, settings, status=422)
        assert said in response.json()["detail"]


async def test_what_may_be_reached_is_for_who_runs_the_application(database: Database) -> None:
    rules = AddressRules(allow=("127.0.0.0/8",))
    asked = Api(api.webhooks_app(database, AUTH, rules=rules, allow_http=True), TOKENS["acme"])
    async with asked.client:
        await asked("POST", "/v1/endpoints", {"url": "http://127.0.0.1:8000/"}, status=201)
        await asked("POST", "/v1/endpoints", {"url": "http://10.0.0.1/"}, status=422)


async def test_an_endpoint_that_asks_for_none_of_the_topics_that_there_are_is_refused(
    database: Database,
) -> None:
    asked = Api(api.webhooks_app(database, AUTH, topics=["user.created", "order.paid"]), TOKENS["acme"])
    async with asked.client:
        made = await asked("POST", "/v1/endpoints", HOOK | {"topics": ["user.*", "order.paid"]}, status=201)
        path = f"/v1/endpoints/{made.json()['endpoint_id']}"
        refused = [
            await asked("POST", "/v1/endpoints", HOOK | {"topics": ["user.*", "user.gone"]}, status=422),
            await asked("PATCH", path, {"topics": ["invoice.*"]}, status=422),
        ]
        await asked("PATCH", path, {"topics": ["**"]}, status=200)

    told = [response.json()["detail"] for response in refused]
    assert "there is no topic 'user.gone'; topics are: order.paid, user.created" in told[0]
    assert "there is no topic 'invoice.*'" in told[1]


@pytest.mark.slow
async def test_a_delivery_is_shown_with_its_data(acme: Api, acmes: Rows) -> None:
    path = f"/v1/endpoints/{acmes.endpoint_id}/deliveries/{acmes.event_id}"
    response = await acme("GET", path, status=200)
    assert '"data":{"b":1.0,"a":1e2}' in response.text


async def test_a_dead_letter_is_tried_again(acme: Api, acmes: Rows) -> None:
    path = f"/v1/endpoints/{acmes.endpoint_id}/deliveries/{acmes.event_id}"
    await acme("POST", f"{path}/retry", status=202)
    shown = await acme.get(path)
    assert (shown["state"], shown["manual"]) == ("pending", True)


async def test_of_two_that_retry_at_the_same_time_both_are_told_that_it_will_be(
    acme: Api, acmes: Rows
) -> None:
    path = f"/v1/endpoints/{acmes.endpoint_id}/deliveries/{acmes.event_id}/retry"
    assert [(await acme("POST", path)).status_code for _ in range(2)] == [202, 202]


@pytest.mark.slow
async def test_what_is_on_its_way_is_neither_retried_nor_dropped(
    acme: Api, acmes: Rows, database: Database
) -> None:
    async with database.session() as session:
        await session.execute("UPDATE projections.webhook_deliveries SET state = 'leased'")
    path = f"/v1/endpoints/{acmes.endpoint_id}/deliveries/{acmes.event_id}"
    for action in ("retry", "drop"):
        assert (await acme("POST", f"{path}/{action}", status=409)).json()["code"] == "delivery_in_flight"


@pytest.mark.slow
async def test_nothing_is_retried_for_a_disabled_endpoint(acme: Api, acmes: Rows) -> None:
    await acme("POST", f"/v1/endpoints/{acmes.endpoint_id}/disable", status=200)
    path = f"/v1/endpoints/{acmes.endpoint_id}/deliveries/{acmes.event_id}/retry"
    assert (await acme("POST", path, status=400)).json()["code"] == "not_retriable"


async def test_what_has_arrived_is_not_dropped(acme: Api, acmes: Rows) -> None:
    path = f"/v1/endpoints/{acmes.endpoint_id}/deliveries"
    await acme("POST", f"{path}/{acmes.event_id}/drop", status=204)
    await acme("POST", f"{path}/{acmes.done_id}/drop", status=400)


@pytest.mark.slow
async def test_dead_letters_are_listed_with_what_they_carry(acme: Api, acmes: Rows) -> None:
    response = await acme("GET", "/v1/dead-letters", status=200)
    assert [each["event_id"] for each in response.json()["data"]] == [acmes.event_id]
    assert '"data":{"b":1.0,"a":1e2}' in response.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "count"),
    [
        ({}, 1),
        ({"since": "2026-01-01T12:00:00Z", "until": "2026-01-01T12:00:01Z"}, 1),
        ({"since": "2026-01-01T12:00:01Z"}, 0),
        ({"until": "2026-01-01T12:00:00Z"}, 0),
        ({"topics": ["acme.happened"]}, 1),
        ({"topics": ["other"]}, 0),
        ({"endpoint_id": "ep_other"}, 0),
    ],
)
@pytest.mark.parametrize(("decide", "done"), [("retry", "retried"), ("drop", "dropped")])
async def test_dead_letters_that_fit_are_tried_again_or_dropped(  # noqa: PLR0917 - pytest passes all by name
    decide: str, done: str, which: Any, count: int, acme: Api, acmes: Rows
) -> None:
    answer = (await acme("POST", f"/v1/dead-letters/{decide}", which, status=202)).json()
    assert answer == {done: count, "complete": True}
    assert len((await acme.get("/v1/dead-letters"))["data"]) == 1 - count


async def test_an_empty_list_of_topics_fits_no_dead_letter(acme: Api, acmes: Rows) -> None:
    for decide, done in (("retry", "retried"), ("drop", "dropped")):
        answer = await acme("POST", f"/v1/dead-letters/{decide}", {"topics": []}, status=202)
        assert answer.json() == {done: 0, "complete": True}


@pytest.mark.slow
async def test_what_had_arrived_is_sent_anew_when_that_is_asked_for(acme: Api, acmes: Rows) -> None:
    answer = (await acme("POST", "/v1/deliveries/retry", {"states": ["done", "dead"]}, status=202)).json()
    assert answer["retried"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, 3),
        ({"states": ["dead", "done"]}, 2),
        ({"topics": "other"}, 0),
        ({"since": "2026-01-01T12:01:00Z"}, 2),
        ({"until": "2026-01-01T12:01:00Z"}, 1),
        ({"endpoint_id": "other"}, 0),
    ],
)
async def test_deliveries_are_listed_by_what_they_are(query: Any, found: int, acme: Api, acmes: Rows) -> None:
    assert len((await acme.get("/v1/deliveries", **query))["data"]) == found


@pytest.mark.slow
async def test_pages_of_deliveries_join_without_gap(acme: Api, acmes: Rows) -> None:
    first = await acme.get("/v1/deliveries", limit=2)
    second = await acme.get("/v1/deliveries", limit=2, next=first["next"])
    assert second["next"] is None
    seen = [each["event_id"] for each in (*first["data"], *second["data"])]
    assert sorted(seen) == sorted([acmes.event_id, acmes.done_id, acmes.pending_id])


@pytest.mark.slow
async def test_a_schedule_is_made_changed_paused_resumed_sent_and_removed(acme: Api, acmes: Rows) -> None:
    body = {
        "name": "daily",
        "cron": "0 5 * * *",
        "timezone": "Europe/Paris",
        "topic": "report.due",
        "data": {},
    }
    made = (await acme("POST", "/v1/schedules", body, status=201)).json()
    path = f"/v1/schedules/{made['schedule_id']}"
    changed = (await acme("PATCH", path, {"cron": "0 6 * * *"}, status=200)).json()
    assert (changed["cron"], changed["timezone"]) == ("0 6 * * *", "Europe/Paris")
    assert changed["next_at"] != made["next_at"]
    assert (await acme("PATCH", path, {}, status=200)).json() == changed
    assert (await acme("POST", f"{path}/pause", status=200)).json()["paused"]
    assert not (await acme("POST", f"{path}/resume", status=200)).json()["paused"]
    assert (await acme("POST", f"{path}/send", status=202)).json()["event_id"]
    assert len((await acme.get("/v1/schedules"))["data"]) == 2
    await acme("DELETE", path, status=204)
    await acme.get(path, 404)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        {"cron": "61 * * * *"},
        {"timezone": "Mars/Olympus"},
        {"topic": "a b"},
        {"name": "of acme"},
        {"missed": "never"},
    ],
    ids=str,
)
async def test_a_schedule_that_can_not_be_is_refused(wrong: Any, acme: Api, acmes: Rows) -> None:
    body = {"name": "daily", "cron": "0 5 * * *", "topic": "report.due", "data": {}} | wrong
    await acme("POST", "/v1/schedules", body, status=422)


async def test_the_data_of_a_schedule_stays_as_it_was_written(acme: Api) -> None:
    body = '{"name":"n","cron":"0 5 * * *","topic":"a.b","data": {"z":1.0, "a":1e2}}'
    json = {"content-type": "application/json"}
    made = await acme("POST", "/v1/schedules", status=201, content=body, headers=json)
    assert '"data":{"z":1.0, "a":1e2}' in made.text
    path = f"/v1/schedules/{made.json()['schedule_id']}"
    changed = await acme("PATCH", path, status=200, content='{"data":[1.50]}', headers=json)
    assert '"data":[1.50]' in changed.text


@pytest.mark.slow
async def test_an_attempt_is_shown_with_what_is_asked_for(acme: Api, acmes: Rows) -> None:
    path = f"/v1/attempts/{acmes.attempt_id}"
    bare = await acme.get(path)
    assert not {"event", "endpoint", "response_data"} & set(bare)
    assert (bare["took"], bare["code"], bare["status"]) == (0.02, "500", "failed")
    event = (await acme.get(path, include="event"))["event"]
    assert ("data" in event, event["event_id"]) == (False, acmes.event_id)
    full = await acme(
        "GET", path, status=200, params={"include": ["event.data", "response_data", "endpoint"]}
    )
    assert '"data":{"b":1.0,"a":1e2}' in full.text
    assert full.json()["response_data"] == "answer of acme"
    assert full.json()["endpoint"]["url"] == "https://acme.example.com/hook"


async def test_an_event_that_is_no_json_is_shown_as_text(admin: Api, database: Database) -> None:
    await WritableLog(database).insert_many([entry("acme", "ep", "odd", "att-odd", payload="{broken")])
    assert (await admin.get("/v1/events/odd"))["data"] == "{broken"


@pytest.mark.slow
async def test_attempts_are_counted(acme: Api, acmes: Rows) -> None:
    found = await acme.get(
        "/v1/metrics/attempts", since="2026-01-01T00:00:00Z", until="2026-01-02T00:00:00Z", granularity="12h",
        measures=["count", "error_rate"], dimensions="status", code="500", manual="false", attempt_number="1",
    )  # fmt: skip
    assert [(each["dimensions"], each["measures"]) for each in found["data"]] == [
        ({"status": "failed"}, {"count": 0, "error_rate": 0}),
        ({"status": "failed"}, {"count": 3, "error_rate": 1}),
    ]
