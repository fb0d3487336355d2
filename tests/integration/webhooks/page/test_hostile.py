"""Whoever is no tenant, another tenant, or another site; and text that is made to hurt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from journal import Database, DatabaseUnavailable
from projections.webhooks import Endpoints, EndpointSettings, signed_tokens
from projections.webhooks.api import ApiSettings, Caller, TokenAuth
from projections.webhooks.credentials import OAuthFacts
from projections.webhooks.page import PageLinks
from projections.webhooks.page.views import FORMS, PAGES
from tests.fixtures.certificates import Authority
from tests.fixtures.projections import execute
from tests.fixtures.webhook_page import (
    KEY,
    LINKS,
    MARK,
    SESSION,
    SITE,
    TOPICS,
    Browser,
    entered,
    fields_of,
    page_of,
)
from tests.fixtures.webhooks_api import Rows, rows_of

NASTY = "<img src=x onerror=alert(1)>\"'</pre></textarea><script>alert(1)</script>"
STATE = """
SELECT json_build_array(
    (SELECT json_agg(e ORDER BY e.endpoint_id) FROM projections.webhook_endpoints AS e WHERE e.tenant = $1),
    (SELECT json_agg(d ORDER BY d.delivery_id) FROM projections.webhook_deliveries AS d WHERE d.tenant = $1),
    (SELECT count(*) FROM projections.webhook_secrets),
    (SELECT json_agg(c ORDER BY c.endpoint_id, c.kind) FROM projections.webhook_credentials AS c),
    (SELECT json_agg(v ORDER BY v.event_id) FROM projections.webhook_events AS v WHERE v.tenant = $1),
    (SELECT count(*) FROM projections.events AS e WHERE e.metadata ->> 'tenant' = $1)
)::text
"""


OF_ACME = ("answer of acme", "the certificate of acme", "the client of acme")


async def state_of(database: Database, tenant: str) -> str:
    async with database.session() as session:
        return str(await session.fetchval(STATE, tenant))


CERTIFICATE = Authority().client("the certificate of acme")
CLIENT = OAuthFacts(token_url="https://login.example.com/", client_id="the client of acme")


@pytest.fixture
async def acmes(database: Database) -> Rows:
    rows = await rows_of(database, "acme")
    await Endpoints(database).set_certificate("acme", rows.endpoint_id, CERTIFICATE)
    await Endpoints(database).set_oauth("acme", rows.endpoint_id, CLIENT, "hidden-of-acme")
    return rows


def filled(path: str, rows: Rows) -> str:
    places = {"endpoint_id": rows.endpoint_id, "attempt_id": rows.attempt_id, "event_id": rows.event_id}
    return path.format(topic="flight.delayed", **places)


FILLED: dict[str, dict[str, str]] = {
    "/endpoints/{endpoint_id}/change": {"url": "https://evil.example/", "version": "1", "timeout": "5s",
        "max_in_flight": "1", "patterns": "**", "ordering": "none", "on_dead": "skip", "when_disabled": "keep"},
    "/endpoints/{endpoint_id}/rotate": {"once": "x" * 24, "grace": "0"},
    "/endpoints/{endpoint_id}/test": {"once": "x" * 24, "topic": "acme.test", "data": "{}"},
    "/endpoints/{endpoint_id}/certificate": {"version": "3", "pem": Authority().client("globex")},
    "/endpoints/{endpoint_id}/oauth": {"version": "3", "token_url": "https://globex.example/", "client_id": "g",
        "client_secret": "s", "scope": "", "method": "basic"},
}  # fmt: skip


async def test_a_tenant_sees_nothing_of_another_one(database: Database, acmes: Rows) -> None:
    await rows_of(database, "globex")
    globex = await entered(page_of(database), "globex")
    for path in PAGES:
        status = 404 if "{endpoint_id}" in path or "{attempt_id}" in path or "{event_id}" in path else None
        response = await globex.client.get(f"/hooks{filled(path, acmes)}")
        assert response.status_code == (status or response.status_code), path
        assert not [
            mark for mark in acmes.marks[1:] if mark in response.text and mark not in filled(path, acmes)
        ], path
        assert not [mark for mark in (*OF_ACME, "hidden-of-acme") if mark in response.text], path
    for query in (f"endpoint={acmes.endpoint_id}", f"event={acmes.event_id}", "topic=acme.happened"):
        for path in ("attempts", "failed"):
            text = await globex.open(f"/{path}?{query}")
            assert "answer of acme" not in text
            assert acmes.attempt_id not in text
            assert f"/events/{acmes.event_id}" not in text


@pytest.mark.slow
async def test_a_tenant_changes_nothing_of_another_one(database: Database, acmes: Rows) -> None:
    globex = await entered(page_of(database), "globex")
    form = fields_of(await globex.open("/endpoints/new"), "/hooks/endpoints/new")
    before = await state_of(database, "acme")
    for path in FORMS:
        fields = {
            "form_token": form["form_token"],
            "endpoint_id": acmes.endpoint_id,
            "event_id": acmes.event_id,
        }
        fields |= FILLED.get(path, {})
        if path == "/endpoints/new":
            continue
        headers = {"origin": SITE, "sec-fetch-site": "same-origin"}
        answer = await globex.client.post(f"/hooks{filled(path, acmes)}", data=fields, headers=headers)
        # Of all that have failed it tries none: none are its own.
        assert answer.status_code == (303 if path == "/failed/retry-all" else 404), path
        assert await state_of(database, "acme") == before, path


@pytest.mark.slow
async def test_keys_and_secrets_of_credentials_are_shown_to_nobody(database: Database, acmes: Rows) -> None:
    acme = await entered(page_of(database))
    path = f"/hooks/endpoints/{acmes.endpoint_id}"
    seen = [await acme.open(f"{path}{page}") for page in ("", "/certificate", "/oauth", "/change")]
    # Nor where they are refused: what was written does not come back.
    lines = CERTIFICATE.partition("-----BEGIN PRIVATE KEY-----")[2].split()[:1]
    spoilt = CERTIFICATE.replace("-----END CERTIFICATE-----", "-----END-----")
    seen.append(await acme.fill(seen[1], f"{path}/certificate", 422, pem=spoilt))
    seen.append(
        await acme.fill(seen[2], f"{path}/oauth", 422, client_secret="hidden-of-acme", token_url="ftp://x/")
    )
    for page in seen:
        assert not [word for word in ("PRIVATE", "hidden-of-acme", *lines) if word in page]
    assert "the certificate of acme" in seen[0]
    assert 'value="ftp://x/"' in seen[-1]


@pytest.mark.slow
async def test_a_new_endpoint_is_of_who_is_signed_in(database: Database) -> None:
    globex = await entered(page_of(database), "globex")
    form = await globex.open("/endpoints/new")
    await globex.fill(form, "/hooks/endpoints/new", 201, url="https://example.com/", tenant="acme")
    assert await Endpoints(database).list("acme") == []
    (made,) = await Endpoints(database).list("globex")
    assert made.tenant == "globex"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path"), [("GET", path) for path in PAGES] + [("POST", path) for path in FORMS]
)
async def test_nobody_is_shown_anything(database: Database, method: str, path: str) -> None:
    browser = Browser(page_of(database))
    headers = {"origin": SITE, "sec-fetch-site": "same-origin"}
    address = f"/hooks{path}".replace("{", "").replace("}", "")
    answer = await browser.client.request(method, address, headers=headers)
    assert browser.checked(answer, 401)


async def test_an_administrator_is_no_tenant(database: Database) -> None:
    async def administrator(_: Any) -> Caller:
        return Caller(None)

    browser = Browser(page_of(database, administrator))
    assert "this page is for tenants" in (await browser.open("/", 403)).lower()


async def test_a_link_lets_in_once(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    page, link = page_of(database), LINKS.link("acme")
    first, second, third = Browser(page), Browser(page), Browser(page)
    # Looking at it does not use it, as programs do that preview links.
    for browser in (first, second):
        looked = await browser.client.get(link[len(SITE) :])
        assert looked.headers["referrer-policy"] == "no-referrer"
        assert "set-cookie" not in looked.headers
    await first.enter(link)
    await second.enter(link, 401)
    assert SESSION not in second.client.cookies
    # Also in another process, which has the database alone in common.
    other = Browser(page_of(database))
    await other.enter(link, 401)
    await third.open("/", 401)
    assert link.partition("token=")[2] not in caplog.text


async def test_a_link_is_known_to_be_used_for_as_long_as_it_is_good(database: Database) -> None:
    link, page = LINKS.link("acme", expires_in=timedelta(hours=24)), page_of(database)
    await Browser(page).enter(link)
    await execute(
        database, "UPDATE projections.webhook_answers SET expires_at = expires_at - interval '23 hours'"
    )
    await Browser(page).enter(link, 401)


@pytest.mark.slow
async def test_a_link_that_another_browser_is_using_is_refused_until_that_has_ended(
    database: Database,
) -> None:
    link, browser = LINKS.link("acme"), Browser(page_of(database))
    _, link_id = LINKS.read(link.partition("token=")[2]) or ("", "")
    async with database.session() as session, session.transaction():
        row = await session.fetchrow(
            "SELECT free FROM projections._recall_answer_v1('', $1)", f"page-link/{link_id}"
        )
        assert row is not None
        assert row["free"]
        await browser.enter(link, 401)
    # The other one did not come to an end: the link is still good.
    await browser.enter(link)
    await browser.enter(link, 401)


async def test_a_session_is_a_strict_cookie_that_ends(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = Browser(page_of(database))
    shown = await browser.open(LINKS.link("acme")[len(SITE) :])
    answer = await browser.client.post(
        "/hooks/enter", data=fields_of(shown, "/hooks/enter"), headers={"origin": "null"}
    )
    assert answer.headers["location"] == "/hooks/"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{SESSION}=pws1.")
    for part in ("HttpOnly", "SameSite=strict", "Secure", "Path=/", "Max-Age=1800"):
        assert part in cookie
    page = await browser.client.get("/hooks/")
    assert "HttpOnly" in page.headers["set-cookie"]
    assert "SameSite=strict" in page.headers["set-cookie"]
    await browser.open("/")

    now = signed_tokens.time.time()
    monkeypatch.setattr(signed_tokens.time, "time", lambda: now + 1801)
    await browser.open("/", 401)


async def test_who_signs_out_is_out(database: Database) -> None:
    browser = await entered(page_of(database))
    page = await browser.open("/")
    await browser.send("/leave", fields_of(page, "/hooks/leave"), 403, {"origin": "https://evil.example"})
    await browser.open("/")
    assert "You are signed out" in await browser.fill(page, "/hooks/leave")
    await browser.open("/", 401)


@pytest.mark.parametrize(
    "token",
    [
        "", "x", "pwl1..", "x" * 9000, "\0",
        PageLinks(f"{SITE}/hooks", [b"o" * 32]).link("acme").partition("token=")[2],
        TokenAuth(signing_keys=[KEY]).issue("acme", timedelta(hours=1)),
        LINKS.link("acme").partition("token=")[2][:-6],
    ],
    ids=["none", "short", "empty", "long", "NUL", "another key", "a token of the API", "cut off"],
)  # fmt: skip
async def test_a_forged_link_lets_nobody_in(database: Database, token: str) -> None:
    browser = Browser(page_of(database))
    looked = await browser.client.get(f"/hooks/enter?{urlencode({'token': token})}")
    assert looked.status_code in {401, 414}
    entered = await browser.client.post("/hooks/enter", data={"token": token}, headers={"origin": "null"})
    assert entered.status_code == (413 if len(token) > 8192 else 401)
    assert SESSION not in browser.client.cookies


async def test_another_site_cannot_press_the_button_of_a_link(database: Database) -> None:
    browser = Browser(page_of(database))
    fields = fields_of(await browser.open(LINKS.link("evil")[len(SITE) :]), "/hooks/enter")
    await browser.send(
        "/enter", fields, 403, {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    )
    assert SESSION not in browser.client.cookies


FORGED: dict[str, dict[str, str]] = {
    "another site's": {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    "another site's, of an older browser": {
        "origin": "https://evil.example",
        "sec-fetch-site": "same-origin",
    },
    "of a sandbox": {"origin": "null", "sec-fetch-site": "same-origin"},
    "of another host of the domain": {"origin": "https://other.page.test", "sec-fetch-site": "same-site"},
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
async def test_a_form_of_another_site_does_nothing(
    database: Database, acmes: Rows, forged: dict[str, str]
) -> None:
    browser = await entered(page_of(database))
    path = f"/hooks/endpoints/{acmes.endpoint_id}"
    fields = fields_of(await browser.open(path), f"{path}/pause")
    await browser.send(f"{path}/pause", fields, 403, forged)
    assert (await Endpoints(database).get("acme", acmes.endpoint_id)).state == "active"


async def test_a_form_without_its_token_does_nothing(database: Database, acmes: Rows) -> None:
    browser, globex = await entered(page_of(database)), await entered(page_of(database), "globex")
    path = f"/hooks/endpoints/{acmes.endpoint_id}"
    own = fields_of(await browser.open(path), f"{path}/pause")
    theirs = fields_of(await globex.open("/endpoints/new"), "/hooks/endpoints/new")
    for token in ("", "x", "é", own["form_token"][:-1], theirs["form_token"]):
        await browser.send(f"{path}/pause", {"form_token": token}, 403)
    # Of the same browser, after somebody else has signed in there.
    mark = browser.client.cookies[MARK]
    await browser.enter(LINKS.link("globex"))
    assert browser.client.cookies[MARK] == mark
    await browser.send("/failed/retry-all", own, 403)
    # A cookie that somebody has planted and knows is none of ours.
    browser.client.cookies.clear()
    assert (await Endpoints(database).get("acme", acmes.endpoint_id)).state == "active"


@pytest.mark.slow
async def test_text_that_is_made_to_hurt_is_text(database: Database) -> None:
    made = await Endpoints(database).create(
        NASTY,
        EndpointSettings(
            url="https://example.com/?q=%3Cscript%3E", description=NASTY, filter={"data": {NASTY: NASTY}}
        ),
    )
    browser = await entered(page_of(database, topics=TOPICS), NASTY)
    endpoint_id = made.endpoint.endpoint_id
    await Endpoints(database).set_certificate(NASTY, endpoint_id, Authority().client(NASTY[:60]))
    client = OAuthFacts(token_url="https://example.com/", client_id=NASTY, scope=NASTY)
    await Endpoints(database).set_oauth(NASTY, endpoint_id, client, "s")
    async with database.session() as session:
        await session.execute(
            "UPDATE projections.webhook_endpoints SET reason = $1, state = 'paused' WHERE endpoint_id = $2",
            NASTY,
            endpoint_id,
        )
    for path in (
        "/",
        f"/endpoints/{endpoint_id}",
        f"/endpoints/{endpoint_id}/change",
        f"/endpoints/{endpoint_id}/remove",
        f"/endpoints/{endpoint_id}/certificate",
        f"/endpoints/{endpoint_id}/oauth",
    ):
        page = await browser.open(path)
        assert NASTY not in page
        assert "<img" not in page
        assert "&lt;img src=x" in page
    for query in ("topic", "event", "endpoint", "said", "span", "next"):
        response = await browser.client.get(f"/hooks/attempts?{urlencode({query: NASTY})}")
        assert "<img" not in response.text
    assert "<img" not in await browser.open(f"/topics/{NASTY.replace('/', '')}", 404)


@pytest.mark.slow
async def test_an_answer_that_is_made_to_hurt_is_text(database: Database, acmes: Rows) -> None:
    async with database.session() as session:
        await session.execute("UPDATE projections.webhook_attempts SET response = $1, code = '<b>'", NASTY)
        await session.execute(
            "UPDATE projections.webhook_events SET data = $1",
            f'{{"a":"{NASTY.split(chr(34), maxsplit=1)[0]}"}}',
        )
    browser = await entered(page_of(database))
    for path in (f"/attempts/{acmes.attempt_id}", "/attempts", f"/events/{acmes.event_id}", "/failed"):
        page = await browser.open(path)
        assert "<img" not in page
        assert "<script>alert" not in page
        assert "<b>" not in page


@pytest.mark.slow
async def test_too_much_is_refused_before_it_is_read(database: Database) -> None:
    browser = await entered(page_of(database, settings=ApiSettings(tenant_rate=None, max_body_bytes=8192)))
    form = fields_of(await browser.open("/endpoints/new"), "/hooks/endpoints/new")
    await browser.send("/endpoints/new", form | {"description": "x" * 9000}, 413)
    await browser.send("/endpoints/new", form | {"topic": ["a"] * 600}, 400)
    await browser.open(f"/?next={'x' * 9000}", 414)
    await browser.open(f"/endpoints/{'x' * 300}", 404)
    await browser.open("/attempts?topic=a%00b", 422)
    await browser.send("/endpoints/new", form | {"description": "a\0b", "url": "https://example.com/"}, 422)
    deep = '{"a":' * 60 + "1" + "}" * 60
    await browser.send("/endpoints/new", form | {"url": "https://example.com/", "filter": deep}, 422)
    own = {"origin": SITE, "content-type": "text/plain"}
    answer = await browser.client.post("/hooks/endpoints/new", content=b"x", headers=own)
    assert answer.status_code == 415
    own["content-type"] = "application/x-www-form-urlencoded"
    answer = await browser.client.post("/hooks/endpoints/new", content=b"a=%ff", headers=own)
    assert answer.status_code == 400


@pytest.mark.slow
async def test_an_event_of_many_endpoints_and_much_data_is_a_small_page(database: Database) -> None:
    rows = await rows_of(database, "acme", payload='{"text":"' + "x" * 300_000 + '"}')
    ids = [f"ep_{number:032x}" for number in range(60)]
    async with database.session() as session:
        await session.execute(
            "UPDATE projections.webhook_events SET endpoint_ids = endpoint_ids || $1::text[]", ids
        )
    browser = await entered(page_of(database, settings=ApiSettings(tenant_rate=20)))
    page = await browser.open(f"/events/{rows.event_id}")
    assert "These are the first 65,536 of 300,011 characters." in page
    assert len(page) < 100_000
    assert f"/events/{rows.event_id}?endpoint={ids[-1]}" in page
    assert len(await browser.open("/failed")) < 20_000
    assert rows.endpoint_id in await browser.open(f"/events/{rows.event_id}?endpoint={rows.endpoint_id}")


async def test_a_database_that_is_away_is_said_to_be(database: Database) -> None:
    @asynccontextmanager
    async def away() -> AsyncIterator[Any]:
        raise DatabaseUnavailable("no connection to the database: postgresql://user:secret@inside")
        yield

    async def tenant(_: Any) -> Caller:
        return Caller("acme")

    monkeyed = SimpleNamespace(session=away, max_connections=1, dsn="")
    browser = Browser(page_of(monkeyed, tenant))  # type: ignore[arg-type]
    page = await browser.open("/", 503)
    assert "the database does not answer" in page.lower()
    assert "secret" not in page


async def by_header(request: Any) -> Caller | None:
    user = request.headers.get("x-user")
    return Caller(user) if user else None


async def test_a_tenant_that_asks_too_often_is_refused_and_others_are_not(database: Database) -> None:
    # One request, and another after a quarter of an hour: however slow the machine is.
    page = page_of(database, by_header, settings=ApiSettings(tenant_rate=0.001))
    acme, globex, initech = (Browser(page, own={"x-user": user}) for user in ("acme", "globex", "initech"))
    await acme.open("/topics")
    refused = await acme.client.get("/hooks/topics")
    assert (refused.status_code, int(refused.headers["retry-after"]) > 900) == (429, True)
    await globex.open("/topics")
    # A form counts before it is read.
    await initech.send("/endpoints/new", {"url": "x" * 100}, 403)
    await initech.send("/endpoints/new", {"url": "x" * 100}, 429)


@pytest.mark.slow
async def test_a_tenant_makes_no_more_endpoints_than_it_may(database: Database) -> None:
    browser = await entered(page_of(database, settings=ApiSettings(tenant_rate=None, endpoints_per_tenant=1)))
    for status in (201, 422):
        form = await browser.open("/endpoints/new")
        page_text = await browser.fill(form, "/hooks/endpoints/new", status, url="https://example.com/")
    assert "at most" in page_text
    assert len(await Endpoints(database).list("acme")) == 1


@pytest.mark.slow
async def test_an_application_tells_who_is_signed_in_in_its_own_way(database: Database, acmes: Rows) -> None:
    outer = Starlette(routes=[Mount("/hooks", page_of(database, by_header))])
    browser = Browser(outer, own={"x-user": "acme"})
    browser.client._transport.app = outer  # type: ignore[attr-defined]
    page = await browser.open("/")
    assert "https://acme.example.com/hook" in page
    assert "Sign out" not in page
    path = f"/hooks/endpoints/{acmes.endpoint_id}"
    await browser.fill(await browser.open(path), f"{path}/pause")
    assert (await Endpoints(database).get("acme", acmes.endpoint_id)).state == "paused"
    browser.client.headers.pop("x-user")
    await browser.open("/", 401)
    await browser.open("/enter?token=x", 404)


@pytest.mark.slow
async def test_what_is_not_a_page_is_told_so(database: Database) -> None:
    browser = await entered(page_of(database))
    assert "there is no such page" in (await browser.open("/nothing", 404)).lower()
    assert (await browser.client.get("/hooks/static/../app.py")).status_code == 404
    for name in ("page.css", "base.css"):
        found = await browser.client.get(f"/hooks/static/{name}")
        assert found.headers["content-type"].startswith("text/css")
    assert "--accent: #0b6b7a" in (await browser.client.get("/hooks/theme.css")).text
    assert (await browser.client.get("/hooks/logo")).status_code == 404
    assert (await browser.client.delete("/hooks/")).status_code == 405
