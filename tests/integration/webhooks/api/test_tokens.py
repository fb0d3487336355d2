"""Who asks: tokens that are known, and tokens that were signed for a while."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any

import pytest
from starlette.requests import Request

from projections.webhooks import signed_tokens as module
from projections.webhooks.api import (
    Caller,
    InvalidValue,
    TokenAuth,
)

KEY, OTHER = b"k" * 32, b"o" * 32
HOUR = timedelta(hours=1)
AUTH = TokenAuth(admin_token="a" * 16, tenant_tokens={"acme": "b" * 16}, signing_keys=[KEY])


def request(*authorizations: str) -> Request:
    headers = [(b"authorization", value.encode("latin-1")) for value in authorizations]
    return Request({"type": "http", "headers": headers})


async def caller_of(*authorizations: str, auth: TokenAuth = AUTH) -> Caller | None:
    return await auth(request(*authorizations))


@pytest.mark.parametrize(("token", "tenant"), [("a" * 16, None), ("b" * 16, "acme")])
@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "BEARER  {} "])
async def test_a_known_token_tells_its_caller(token: str, tenant: str | None, form: str) -> None:
    assert await caller_of(form.format(token)) == Caller(tenant)


async def test_a_signed_token_tells_its_tenant() -> None:
    assert await caller_of("Bearer " + TokenAuth(signing_keys=[KEY]).issue("gl✓bex", HOUR)) == Caller(
        "gl✓bex"
    )


async def test_a_token_signed_with_the_key_before_is_good_while_both_are_known() -> None:
    both = TokenAuth(signing_keys=[OTHER, KEY])
    for key in (KEY, OTHER):
        assert await caller_of(
            "Bearer " + TokenAuth(signing_keys=[key]).issue("acme", HOUR), auth=both
        ) == Caller("acme")


async def test_a_signed_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    token = "Bearer " + TokenAuth(signing_keys=[KEY]).issue("acme", HOUR)
    now = module.time.time()
    monkeypatch.setattr(module.time, "time", lambda: now + 3599)
    assert await caller_of(token) == Caller("acme")
    monkeypatch.setattr(module.time, "time", lambda: now + 3601)
    assert await caller_of(token) is None


def forged(facts: dict[str, Any], signature: str) -> str:
    content = base64.urlsafe_b64encode(json.dumps(facts).encode()).decode().rstrip("=")
    return f"pwt1.{content}.{signature}"


GENUINE = TokenAuth(signing_keys=[KEY]).issue("acme", HOUR)


@pytest.mark.parametrize(
    "token",
    [
        TokenAuth(signing_keys=[OTHER]).issue("acme", HOUR),
        forged({"tenant": None, "expires": 9e9}, GENUINE.rpartition(".")[2]),
        forged({"tenant": "acme", "expires": 9e9}, ""),
        GENUINE[:-6],
        GENUINE.replace("pwt1", "pwt2"),
        GENUINE.rpartition(".")[0] + ".",
        GENUINE.partition(".")[2],
        "pwt1..",
        "...",
        "é" * 20,
        "x" * 5000,
        "a" * 15,
        "a" * 17,
        "",
    ],
    ids=lambda token: token[:12],
)
async def test_any_other_token_is_nobodys(token: str) -> None:
    assert await caller_of(f"Bearer {token}") is None


@pytest.mark.parametrize("given", ["Basic YTph", "a" * 16, "", "Bearer", f"Token {'a' * 16}"])
async def test_only_bearer_tokens_are_taken(given: str) -> None:
    assert await caller_of(given) is None


async def test_two_headers_are_none() -> None:
    assert await caller_of(f"Bearer {'a' * 16}", f"Bearer {'a' * 16}") is None
    assert await caller_of() is None


@pytest.mark.parametrize(
    "options",
    [
        {"admin_token": "short"},
        {"admin_token": ""},
        {"tenant_tokens": {"acme": "short"}},
        {"admin_token": "s" * 16, "tenant_tokens": {"acme": "s" * 16}},
        {"signing_keys": [b"short"]},
        {"signing_keys": ["k" * 32]},
    ],
    ids=str,
)
def test_what_keeps_nobody_out_is_refused_and_not_repeated(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as refused:
        TokenAuth(**options)
    assert "short" not in str(refused.value)
    assert "sss" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "tenant", "time"),
    [(b"short", "a", HOUR), (KEY, "", HOUR), (KEY, "x" * 201, HOUR), (KEY, "a", -HOUR)],
)
def test_a_token_that_would_be_good_for_nothing_is_not_issued(
    key: bytes, tenant: str, time: timedelta
) -> None:
    with pytest.raises(InvalidValue):
        TokenAuth(signing_keys=[key]).issue(tenant, time)


def test_no_token_is_issued_without_a_key() -> None:
    with pytest.raises(InvalidValue, match="pass signing_keys"):
        TokenAuth(admin_token="a" * 16).issue("acme", HOUR)


async def test_nobody_is_let_in_where_no_token_is_known() -> None:
    assert await caller_of(f"Bearer {'a' * 16}", auth=TokenAuth()) is None
