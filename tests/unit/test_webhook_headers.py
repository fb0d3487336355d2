"""Headers of a tenant's own: which can be sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.webhooks.errors import InvalidEndpoint
from projections.webhooks.headers import checked_headers, is_reserved

RESERVED = (
    *(
        "content-type",
        "Content-Length",
        "CONTENT-ENCODING",
        "Host",
        "cOnnection",
        "Transfer-Encoding",
        "User-Agent",
    ),
    *(
        "webhook-id",
        "Webhook-Signature",
        "WEBHOOK-ANYTHING",
        "traceparent",
        "TraceState",
        "baggage",
        "Expect",
        "TE",
    ),
    *("Accept-Encoding", "Upgrade", "Keep-Alive", "Proxy-Authorization", "Trailer"),
)


def test_headers_are_kept_as_they_are_but_for_blanks_around() -> None:
    given = {"Authorization": "Bearer s3cret", "X-Tenant": "  a b\t", "x-empty": ""}

    assert checked_headers(given) == {"Authorization": "Bearer s3cret", "X-Tenant": "a b", "x-empty": ""}


@pytest.mark.parametrize(
    "value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "a\x7fb", "a\x0bb", "ä", "\u2028", 5, None]
)
def test_header_injection_in_values(value: Any) -> None:
    with pytest.raises(InvalidEndpoint, match="'X-A'") as refused:
        checked_headers({"X-A": value})

    assert "Evil" not in str(refused.value)


@pytest.mark.parametrize("name", ["", "X A", "X:A", "X\r\nY", "X\0", "Ä", "X\n", "(x)", "x" * 101, 5])
def test_header_injection_in_names(name: Any) -> None:
    with pytest.raises(InvalidEndpoint, match="cannot be the name"):
        checked_headers({name: "a"})


@pytest.mark.parametrize("name", RESERVED)
def test_header_injection_of_reserved_names_in_any_case(name: str) -> None:
    assert is_reserved(name)
    with pytest.raises(InvalidEndpoint, match="set by the sender"):
        checked_headers({name: "a"})


def test_header_injection_of_duplicates_in_other_case() -> None:
    with pytest.raises(InvalidEndpoint, match=r"'x-a' is there twice"):
        checked_headers({"X-A": "1", "x-a": "2"})


def test_thirty_headers_are_the_most() -> None:
    most = {f"X-{number}": "a" for number in range(30)}

    assert checked_headers(most) == most
    with pytest.raises(InvalidEndpoint, match="31 headers"):
        checked_headers({**most, "X-30": "a"})


def test_long_values_are_refused_alone_and_together() -> None:
    with pytest.raises(InvalidEndpoint, match="4097 characters"):
        checked_headers({"X-A": "a" * 4097})
    with pytest.raises(InvalidEndpoint, match="too long together"):
        checked_headers({f"X-{number}": "a" * 3000 for number in range(3)})


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=3))
def test_whatever_is_accepted_is_one_line_each(headers: dict[str, str]) -> None:
    try:
        checked = checked_headers(headers)
    except InvalidEndpoint:
        return

    lines = "".join(f"{name}: {value}\r\n" for name, value in checked.items())
    assert lines.count("\r") == lines.count("\n") == len(headers)
    assert lines.isascii()
