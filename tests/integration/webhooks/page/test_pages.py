"""What a tenant sees and does on the page, with the real database."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from journal import Database
from projections.webhooks import Deliveries, Endpoints, EndpointSettings
from projections.webhooks.signing import parse_secret
from tests.fixtures.certificates import Authority
from tests.fixtures.webhook_page import TOPICS, Browser, entered, fields_of, page_of, secret_of
from tests.fixtures.webhooks_api import Rows, rows_of

PAGES = ("/", "/endpoints/new", "/topics", "/attempts", "/failed", "/statistics")


@pytest.fixture
async def acmes(database: Database) -> Rows:
    return await rows_of(database, "acme")


@pytest.fixture
async def browser(database: Database) -> Browser:
    return await entered(page_of(database, topics=TOPICS))


@pytest.mark.slow
async def test_every_page_is_shown_when_there_is_nothing_yet(browser: Browser) -> None:
    for path in PAGES:
        page = await browser.open(path)
        assert "Webhooks of <bdi>acme</bdi>" in page
        assert len(re.findall("<h1", page)) == 1


@pytest.mark.slow
async def test_what_there_is_is_shown(browser: Browser, acmes: Rows) -> None:
    listed = await browser.open("/")
    assert "https://acme.example.com/hook" in listed
    shown = await browser.open(f"/endpoints/{acmes.endpoint_id}")
    assert "<code>authorization</code>" in shown
    assert "secret-of-acme" not in shown
    assert acmes.attempt_id in shown

    attempt = await browser.open(f"/attempts/{acmes.attempt_id}")
    assert "answer of acme" in attempt
    body = '{"type":"acme.happened","timestamp":"2026-01-01T12:00:00+00:00","data":{"b":1.0,"a":1e2}}'
    assert body in attempt.replace("&#34;", '"')

    event = await browser.open(f"/events/{acmes.event_id}")
    assert f"/endpoints/{acmes.endpoint_id}" in event
    assert acmes.event_id in await browser.open("/failed")
    assert acmes.attempt_id in await browser.open("/attempts?status=failed&topic=acme.happened")
    assert acmes.attempt_id not in await browser.open("/attempts?status=success")


@pytest.mark.slow
async def test_an_endpoint_is_added_and_its_secret_shown_once(browser: Browser, database: Database) -> None:
    form = await browser.open("/endpoints/new")
    assert "A flight leaves later than planned." in form
    made = await browser.fill(
        form, "/hooks/endpoints/new", 201, url="https://example.com/in", description="billing",
        topic=["flight.delayed", "flight.cancelled"], patterns="", headers="X-Key: very-secret\n",
        filter='{"data": {"minutes": {"$gte": 30}}}', retries="10s, 5m", rate_limit="2.5", gzip="on",
    )  # fmt: skip

    secret = parse_secret(secret_of(made))
    (endpoint,) = await Endpoints(database).list("acme")
    assert (endpoint.url, endpoint.description, endpoint.gzip, endpoint.rate_limit) == (
        "https://example.com/in", "billing", True, 2.5,
    )  # fmt: skip
    assert set(endpoint.topics) == {"flight.delayed", "flight.cancelled"}
    assert endpoint.headers == {"X-Key": "very-secret"}
    assert endpoint.filter == {"data": {"minutes": {"$gte": 30}}}
    assert [pause.total_seconds() for pause in endpoint.policy.schedule] == [10, 300]
    shown = await browser.open(f"/endpoints/{endpoint.endpoint_id}")
    assert secret.fingerprint in shown
    assert secret.reveal() not in shown


async def test_a_form_that_is_sent_twice_makes_one_endpoint(browser: Browser, database: Database) -> None:
    form = await browser.open("/endpoints/new")
    fields = fields_of(form, "/hooks/endpoints/new") | {
        "url": "https://example.com/in",
        "topic": "flight.delayed",
    }
    fields["patterns"] = ""
    secrets = {secret_of(await browser.send("/endpoints/new", fields, 201)) for _ in range(2)}
    assert len(secrets) == 1
    assert len(await Endpoints(database).list("acme")) == 1


@pytest.mark.slow
async def test_a_form_that_is_refused_comes_back_with_what_was_written(
    browser: Browser, database: Database
) -> None:
    form = await browser.open("/endpoints/new")
    page = await browser.fill(
        form, "/hooks/endpoints/new", 422, url="https://example.com/in", filter="{oops", headers="no colon: \nbad",
        retries="5 minutes", rate_limit="many",
    )  # fmt: skip
    assert 'role="alert"' in page
    for name in ("filter", "headers", "retries", "rate_limit"):
        assert f'id="{name}-wrong"' in page, name
        assert f'aria-describedby="{name}-hint {name}-wrong" aria-invalid="true"' in page
    assert "{oops" in page
    assert await Endpoints(database).list("acme") == []

    for url in (
        "http://example.com/",
        "https://127.0.0.1/",
        "https://169.254.169.254/latest",
        "https://localhost/x",
    ):
        page = await browser.fill(form, "/hooks/endpoints/new", 422, url=url, topic="flight.delayed")
        assert f'value="{url}"' in page
        assert "topics" not in page.partition('role="alert"')[2].partition("<form")[0]
    page = await browser.fill(
        form, "/hooks/endpoints/new", 422, url="https://example.com/", patterns="boat.*"
    )
    assert "there is no topic" in page
    assert await Endpoints(database).list("acme") == []


async def test_an_endpoint_is_changed_and_headers_stay_unless_said(
    browser: Browser, database: Database
) -> None:
    settings = EndpointSettings(url="https://example.com/a", topics=("flight.*",), headers={"X-Key": "kept"})
    endpoint_id = (await Endpoints(database).create("acme", settings)).endpoint.endpoint_id
    action = f"/hooks/endpoints/{endpoint_id}/change"
    form = await browser.open(action)
    assert "kept" not in form
    await browser.fill(form, action, url="https://example.com/b", timeout="20s")

    found = await Endpoints(database).get("acme", endpoint_id)
    assert (found.url, found.headers, found.topics) == (
        "https://example.com/b",
        {"X-Key": "kept"},
        ("flight.*",),
    )
    assert found.policy == settings.policy.model_copy(update={"timeout": found.policy.timeout})
    assert found.policy.timeout.total_seconds() == 20

    # The first form is of an earlier version by now.
    page = await browser.fill(form, action, 412, url="https://example.com/c")
    assert 'role="alert"' in page
    assert (await Endpoints(database).get("acme", endpoint_id)).url == "https://example.com/b"
    await browser.fill(await browser.open(action), action, without_headers="on")
    assert (await Endpoints(database).get("acme", endpoint_id)).headers == {}


@pytest.mark.slow
async def test_an_endpoint_is_paused_resumed_enabled_and_removed(
    browser: Browser, acmes: Rows, database: Database
) -> None:
    path = f"/hooks/endpoints/{acmes.endpoint_id}"

    async def state() -> str:
        return (await Endpoints(database).get("acme", acmes.endpoint_id)).state

    page = await browser.fill(await browser.open(path), f"{path}/pause")
    assert "The endpoint is paused." in page
    assert await state() == "paused"
    page = await browser.fill(page, f"{path}/resume")
    assert await state() == "active"
    await Endpoints(database).set_state("acme", acmes.endpoint_id, "disabled", "too many failures")
    page = await browser.open(path)
    assert "too many failures" in page
    await browser.fill(page, f"{path}/enable")
    assert await state() == "active"

    await browser.fill(await browser.open(f"{path}/remove"), f"{path}/remove")
    assert await Endpoints(database).list("acme") == []
    await browser.open(path, 404)


@pytest.mark.slow
async def test_a_new_secret_is_shown_once_and_the_old_one_signs_for_a_while(
    browser: Browser, acmes: Rows, database: Database
) -> None:
    action = f"/hooks/endpoints/{acmes.endpoint_id}/rotate"
    form = await browser.open(action)
    secret = secret_of(await browser.fill(form, action))
    first, second = await Endpoints(database).secrets("acme", acmes.endpoint_id)
    assert first.reveal() == secret != second.reveal()
    await browser.fill(form, action)  # a reload
    assert len(await Endpoints(database).secrets("acme", acmes.endpoint_id)) == 2

    await browser.fill(await browser.open(action), action, grace="0")
    assert len(await Endpoints(database).secrets("acme", acmes.endpoint_id)) == 1
    await browser.fill(await browser.open(action), action, 422, grace="99999999")


@pytest.mark.slow
async def test_a_test_message_is_sent_as_it_was_written(browser: Browser, database: Database) -> None:
    settings = EndpointSettings(url="https://example.com/a", topics=("flight.*",))
    endpoint_id = (await Endpoints(database).create("acme", settings)).endpoint.endpoint_id
    action = f"/hooks/endpoints/{endpoint_id}/test"
    form = await browser.open(action)
    assert fields_of(form, action)["topic"] == "flight.cancelled"
    form = await browser.open(f"{action}?topic=flight.delayed")
    assert json.loads(fields_of(form, action)["data"]) == {"flight": "UA 1545", "minutes": 12}

    page = await browser.fill(form, action, data='{"minutes": 1e2, "flight": "<b>"}')
    assert "{&#34;minutes&#34;: 1e2, &#34;flight&#34;: &#34;&lt;b&gt;&#34;}" in page
    async with database.session() as session:
        sent = await session.fetch(
            "SELECT payload::text AS payload FROM projections.events WHERE entity_type = $1",
            "webhook-message",
        )
    assert [row["payload"] for row in sent] == ['{"minutes": 1e2, "flight": "<b>"}']

    for changes in ({"data": "{oops"}, {"topic": "boat.sunk"}, {"topic": ""}):
        refused = await browser.fill(
            await browser.open(action), action, 400 if "boat.sunk" in changes.values() else 422, **changes
        )
        assert 'role="alert"' in refused


@pytest.mark.slow
async def test_what_has_failed_is_tried_again_and_dropped(
    browser: Browser, acmes: Rows, database: Database
) -> None:
    async def state() -> str:
        found, _ = await Deliveries(database).show("acme", acmes.endpoint_id, acmes.event_id)
        return found.state

    page = await browser.fill(await browser.open("/failed"), "/hooks/failed/retry")
    assert "tried again now" in page
    assert await state() == "pending"
    async with database.session() as session:
        await session.execute(
            "UPDATE projections.webhook_deliveries SET state = 'dead' WHERE event_id = $1", acmes.event_id
        )
    page = await browser.fill(await browser.open("/failed"), "/hooks/failed/retry-all")
    assert "in their order" in page
    assert await state() == "pending"
    async with database.session() as session:
        await session.execute(
            "UPDATE projections.webhook_deliveries SET state = 'dead' WHERE event_id = $1", acmes.event_id
        )
    await browser.fill(await browser.open("/failed"), "/hooks/failed/drop")
    assert await state() == "dropped"


@pytest.mark.slow
async def test_topics_are_told_with_schema_and_example(browser: Browser) -> None:
    page = await browser.open("/topics/flight.delayed")
    shown = page.replace("&#34;", '"')
    assert '"minutes": {' in shown
    assert '"flight": "UA 1545"' in shown
    assert "A flight leaves later than planned." in page
    await browser.open("/topics/nothing", 404)


@pytest.mark.slow
async def test_statistics_count_what_was_tried(browser: Browser, database: Database, acmes: Rows) -> None:
    async with database.session() as session:
        await session.execute(
            "UPDATE projections.webhook_attempts SET attempted_at = now() WHERE tenant = 'acme'"
        )
    for span in ("day", "week", "month", "nonsense"):
        page = await browser.open(f"/statistics?span={span}")
        assert re.search(r"0 arrived, [1-3] failed", page), span
    assert '<rect class="failed"' in page


async def test_a_client_certificate_is_set_replaced_and_removed(
    browser: Browser, acmes: Rows, database: Database
) -> None:
    async def subject() -> str | None:
        found = (await Endpoints(database).get("acme", acmes.endpoint_id)).certificate
        return found and found.subject

    endpoint = f"/hooks/endpoints/{acmes.endpoint_id}"
    action = f"{endpoint}/certificate"
    form = await browser.open(action)
    page = await browser.fill(form, action, pem=Authority().client("first"))
    assert "The client certificate was set." in page
    assert "<dd>CN=first, " in page
    assert 'data-state="active">valid</span>' in page
    # The first form is of an earlier version by now.
    assert 'role="alert"' in await browser.fill(form, action, 412, pem=Authority().client("late"))
    expired = Authority().client("expired", good_for=timedelta(days=-1))
    assert "has expired" in await browser.fill(await browser.open(action), action, 422, pem=expired)
    assert await subject() == "CN=first"
    await browser.fill(await browser.open(action), action, pem=Authority().client("second"))
    assert await subject() == "CN=second"
    page = await browser.fill(await browser.open(action), f"{action}/remove")
    assert "was removed" in page
    assert await subject() is None


@pytest.mark.slow
async def test_a_certificate_that_has_expired_is_marked(
    browser: Browser, acmes: Rows, database: Database
) -> None:
    await Endpoints(database).set_certificate("acme", acmes.endpoint_id, Authority().client("old"))
    yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    async with database.session() as session:
        await session.execute(
            "UPDATE projections.webhook_credentials "
            "SET facts = (facts::jsonb || jsonb_build_object('not_after', $1::text))::json",
            yesterday,
        )
    assert "certificate expired</span>" in await browser.open("/")
    page = await browser.open(f"/endpoints/{acmes.endpoint_id}")
    assert "The client certificate expired at" in page
    assert 'data-state="disabled">expired</span>' in page
    assert "expired</span>" in await browser.open(f"/endpoints/{acmes.endpoint_id}/certificate")


async def test_access_tokens_are_set_and_removed(browser: Browser, acmes: Rows, database: Database) -> None:
    action = f"/hooks/endpoints/{acmes.endpoint_id}/oauth"
    given = {"token_url": "https://login.example.com/token", "client_id": "acme", "scope": "hooks"}
    first = await browser.open(action)
    page = await browser.fill(first, action, client_secret="s3cret", method="post", **given)
    assert "acme, from https://login.example.com/token" in page
    found = await Endpoints(database).credentials("acme", acmes.endpoint_id)
    assert found.oauth is not None
    assert (found.oauth.secret, found.oauth.facts.model_dump()) == ("s3cret", given | {"method": "post"})

    # The first form is of an earlier version by now.
    await browser.fill(first, action, 412, client_secret="late", method="post", **given)
    assert (await Endpoints(database).credentials("acme", acmes.endpoint_id)).oauth == found.oauth
    form = await browser.open(action)
    shown = fields_of(form, action)
    assert {name: shown[name] for name in (*given, "method")} == given | {"method": "post"}
    assert "s3cret" not in form
    refused = await browser.fill(form, action, 422, client_secret="", client_id="x" * 501)
    assert 'id="client_id-wrong"' in refused
    assert 'id="client_secret-wrong"' in refused
    await browser.fill(form, f"{action}/remove")
    assert (await Endpoints(database).get("acme", acmes.endpoint_id)).oauth is None


@pytest.mark.slow
async def test_a_test_message_may_expire(browser: Browser, database: Database) -> None:
    made = await Endpoints(database).create("acme", EndpointSettings(url="https://example.com/a"))
    action = f"/hooks/endpoints/{made.endpoint.endpoint_id}/test"
    form = await browser.open(action)
    await browser.fill(form, action, topic="flight.delayed", expires_at="2100-01-31T12:00")
    async with database.session() as session:
        sent = await session.fetchval(
            "SELECT metadata ->> 'expires_at' FROM projections.events WHERE entity_type = 'webhook-message'"
        )
    assert datetime.fromisoformat(sent) == datetime(2100, 1, 31, 12, tzinfo=UTC)
    for wrong in ("soon", "2100-13-01T00:00", "9999-12-31T00:00"):
        page = await browser.fill(
            await browser.open(action), action, 422, topic="flight.delayed", expires_at=wrong
        )
        assert f'value="{wrong}"' in page
        assert "expires_at" in page.partition('role="alert"')[2].partition("<form")[0]


@pytest.mark.slow
async def test_data_of_an_event_are_erased_after_a_question(
    browser: Browser, acmes: Rows, database: Database
) -> None:
    event = f"/hooks/events/{acmes.event_id}"
    assert f'href="{event}/erase"' in await browser.open(event)
    question = await browser.open(f"{event}/erase")
    assert "This cannot be undone." in question
    found, data = await Deliveries(database).show("acme", acmes.endpoint_id, acmes.event_id)
    assert (found.state, data) == ("dead", '{"b":1.0,"a":1e2}')

    page = await browser.fill(question, f"{event}/erase")
    assert "The data were erased" in page
    assert "Erased at" in page
    assert '<span class="badge" data-state="erased">erased</span>' in page
    assert "1e2" not in page
    assert f"{event}/erase" not in page
    assert "Send it again" not in page
    attempt = await browser.open(f"/attempts/{acmes.attempt_id}")
    assert "It was erased at" in attempt
    assert "answer of acme" not in attempt
    found, data = await Deliveries(database).show("acme", acmes.endpoint_id, acmes.event_id)
    assert (found.state, data) == ("erased", None)


@pytest.mark.slow
async def test_a_delivery_that_has_expired_says_so(browser: Browser, acmes: Rows, database: Database) -> None:
    async with database.session() as session:
        await session.execute(
            "UPDATE projections.webhook_deliveries SET state = 'expired', expires_at = $2 WHERE event_id = $1",
            acmes.event_id,
            datetime(2026, 1, 2, tzinfo=UTC),
        )
    page = await browser.open(f"/events/{acmes.event_id}")
    assert 'data-state="expired">expired</span>' in page
    assert "expired at <time" in page
