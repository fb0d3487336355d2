"""Links, themes, topics and filled-in values of the page for tenants, without a database."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic import BaseModel
from starlette.requests import Request

from journal import InvalidValue, RawJson
from projections.http.cross_site import foreign_form
from projections.webhooks import Topic, signed_tokens
from projections.webhooks.api import Caller, TokenAuth
from projections.webhooks.page import PageLinks, PageTheme
from projections.webhooks.page.rendering import SAID, Templates

KEY, OTHER = b"k" * 32, b"o" * 32
LINKS = PageLinks("https://app.example.com/hooks/", [KEY])
PACKAGE = Path(signed_tokens.__file__).parent / "page"


class Delayed(BaseModel):
    flight: str
    minutes: int = 0


class Lambda(BaseModel):
    call: Callable[[int], int]


def token_of(link: str) -> str:
    (token,) = parse_qs(urlsplit(link).query)["token"]
    return token


def with_cookie(value: str) -> Request:
    return Request({"type": "http", "headers": [(b"cookie", f"__Host-webhooks={value}".encode())]})


def test_a_link_leads_to_the_page_and_tells_its_tenant() -> None:
    link = LINKS.link("gl✓bex")
    assert link.startswith("https://app.example.com/hooks/enter?token=pwl1.")
    tenant, first = LINKS.read(token_of(link)) or ("", "")
    assert tenant == "gl✓bex"
    _, second = LINKS.read(token_of(LINKS.link("gl✓bex"))) or ("", "")
    assert first != second


def test_a_link_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    token = token_of(LINKS.link("acme"))
    now = signed_tokens.time.time()
    monkeypatch.setattr(signed_tokens.time, "time", lambda: now + 299)
    assert LINKS.read(token) is not None
    monkeypatch.setattr(signed_tokens.time, "time", lambda: now + 301)
    assert LINKS.read(token) is None


def test_a_link_of_an_older_key_is_good_while_that_is_known() -> None:
    token = token_of(LINKS.link("acme"))
    both = PageLinks("https://app.example.com/hooks", [OTHER, KEY])
    assert (both.read(token) or ("",))[0] == "acme"
    newest = PageLinks("https://app.example.com/hooks", [OTHER])
    assert newest.read(token) is None
    assert (newest.read(token_of(both.link("acme"))) or ("",))[0] == "acme"


CHANGES: dict[str, Callable[[str], str]] = {
    "cut off": lambda token: token[:-4],
    "longer": lambda token: f"{token}A",
    "another beginning": lambda token: f"x{token}",
    "another purpose": lambda token: token.replace("pwl1", "pws1"),
    "nothing": lambda _: "",
    "not ASCII": lambda _: "é" * 9,
    "half a character": lambda _: "\ud800",
    "too long": lambda _: "x" * 9000,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_link_is_no_link(change: Callable[[str], str]) -> None:
    assert LINKS.read(change(token_of(LINKS.link("acme")))) is None


async def test_no_token_is_good_for_another_purpose() -> None:
    auth = TokenAuth(signing_keys=[KEY])
    link = token_of(LINKS.link("acme"))
    bearer = auth.issue("acme", timedelta(hours=1))
    assert LINKS.read(bearer) is None
    for token in (link, bearer):
        assert await LINKS(with_cookie(token)) is None
    session = LINKS._sessions.issue({"tenant": "acme"}, timedelta(minutes=1))
    assert await LINKS(with_cookie(session)) == Caller("acme")
    for token in (link, session):
        headers = [(b"authorization", f"Bearer {token}".encode())]
        assert await auth(Request({"type": "http", "headers": headers})) is None
    assert LINKS.read(session) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://app.example.com/hooks", "app.example.com", "https://", "ftp://app.example.com/", "https://a@b.example/",
        "https://app.example.com/?a=b", "https://app.example.com/#a", "https://app.example.com/a b", "https://[::1/",
        "https://app.example.com:99999/", "https://app.example.com/;path=/", "",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue, match="the page cannot be at"):
        PageLinks(url, [KEY])


@pytest.mark.parametrize("url", ["http://127.0.0.1:8765", "http://localhost/hooks", "http://[::1]:8765/"])
def test_a_loopback_host_needs_no_tls(url: str) -> None:
    assert not PageLinks(url, [KEY]).secure


def test_keys_and_times_have_bounds_and_are_in_no_text() -> None:
    with pytest.raises(InvalidValue, match="32 random bytes") as short:
        PageLinks("https://a.example", [b"secret"])
    assert "secret" not in str(short.value)
    with pytest.raises(InvalidValue, match="pass signing_keys"):
        PageLinks("https://a.example", [])
    for session in (timedelta(seconds=59), timedelta(hours=25)):
        with pytest.raises(InvalidValue, match="a session takes"):
            PageLinks("https://a.example", [KEY], session=session)
    for time in (timedelta(0), timedelta(hours=25)):
        with pytest.raises(InvalidValue):
            LINKS.link("acme", expires_in=time)
    for tenant in ("", "x" * 201):
        with pytest.raises(InvalidValue, match="a tenant has"):
            LINKS.link(tenant)
    assert KEY.decode() not in repr(LINKS) + repr(LINKS._links) + repr(vars(LINKS))


def test_a_theme_is_colours_that_can_be_read_and_nothing_else(tmp_path: Path) -> None:
    assert "--accent: #7a1fa2; --on-accent: #ffffff;" in PageTheme(accent="#7a1fa2").stylesheet
    for options, said in (
        ({"accent": "#ffff00"}, "take a darker one"),
        ({"accent_dark": "#202020"}, "take a lighter one"),
        ({"accent": "red; } body { display: none"}, "is a colour such as"),
        ({"accent": "#0b6b7a\n"}, "is a colour such as"),
        ({"name": ""}, "name has 1 to 80"),
        ({"name": "n" * 81}, "name has 1 to 80"),
        ({"home": "javascript:alert(1)"}, "home is a URL"),
        ({"logo": tmp_path / "logo.html"}, "logo is a file of"),
        ({"logo": tmp_path / "none.svg"}, "cannot be read"),
    ):
        with pytest.raises(InvalidValue, match=re.escape(said)):
            PageTheme(**options)
    (tmp_path / "large.png").write_bytes(b"x" * 262_145)
    with pytest.raises(InvalidValue, match="more than 262,144"):
        PageTheme(logo=tmp_path / "large.png")


def test_a_topic_tells_its_schema_and_examples_as_messages_are_written() -> None:
    topic = Topic(
        "flight.delayed", "Late.", Delayed, [Delayed(flight="UA 1"), {"flight": "UA 2", "minutes": 3}]
    )
    assert topic.schema is not None
    assert topic.schema["properties"]["minutes"]["type"] == "integer"
    assert topic.written_examples == ({"flight": "UA 1", "minutes": 0}, {"flight": "UA 2", "minutes": 3})
    assert topic.schema is topic.schema
    assert Topic("a.b").schema is None
    with pytest.raises(InvalidValue, match=r"example 1 of topic 'a\.b' does not fit Delayed"):
        Topic("a.b", "", Delayed, [{"minutes": 1}])
    with pytest.raises(InvalidValue, match="a topic is segments"):
        Topic("a b")
    with pytest.raises(InvalidValue, match=r"the model of topic 'a\.b' has no JSON Schema"):
        Topic("a.b", "", Lambda)
    with pytest.raises(InvalidValue, match=r"example 1 of topic 'a\.b' is not JSON"):
        Topic("a.b", examples=[object()])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://app.example.com", "host": "inner:8000"}, None),
        ({"origin": "https://app.example.com", "host": "app.example.com"}, None),
        ({"origin": "https://inner", "host": "inner", "sec-fetch-site": "same-origin"}, None),
        ({"host": "app.example.com"}, 403),
        ({"origin": "null", "host": "app.example.com"}, 403),
        ({"origin": "https://evil.example", "host": "app.example.com"}, 403),
        ({"origin": "https://app.example.com", "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "https://app.example.com", "sec-fetch-site": "same-site"}, 403),
    ],
)
def test_a_form_is_of_this_site(headers: dict[str, str], status: int | None) -> None:
    found = foreign_form(headers, {"https://app.example.com"})
    assert (None if found is None else found.status) == status


def templates() -> Iterator[str]:
    for file in sorted((PACKAGE / "templates").glob("*.html")):
        yield file.read_text()


def test_templates_have_nothing_inline_and_escape_all() -> None:
    for text in templates():
        assert not re.search(
            r"\sstyle=|<style|\son\w+=|javascript:|\|\s*safe|autoescape false|https?://", text
        )
        assert not re.search(r"<script(?![^>]*\ssrc=)", text)
        for form in re.findall(r'<form[^>]*method="post".*?</form>', text, re.DOTALL):
            assert "token()" in form or 'name="token"' in form, form


def test_what_was_done_is_said_in_words_of_the_page_alone() -> None:
    used = set()
    for file in PACKAGE.glob("*.py"):
        used |= set(re.findall(r'(?:said=|_back\(visit, )"([a-z-]+)"', file.read_text()))
        used |= set(re.findall(r'"((?:all|some)-retried|verified|unverified)"', file.read_text()))
    assert used == set(SAID)


def test_values_are_escaped_and_payloads_stay_as_they_were_written() -> None:
    environment = Templates(PageTheme())._environment
    shown = environment.from_string("{{ value | pretty }}").render(value=RawJson('{"a":1e2,"b":"<script>"}'))
    assert shown == "{&#34;a&#34;:1e2,&#34;b&#34;:&#34;&lt;script&gt;&#34;}"
    assert environment.from_string("{{ 0.9999 | percent }}").render() == "99.9 %"
