"""Tokens of appends: short, safe in a URL, and read as they were written or refused."""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal import Appended, AppendedEvents, InvalidToken
from journal.tokens import AwaitedEvent, read_token, write_token

AT = datetime(2026, 5, 4, 12, 30, 1, 234567, tzinfo=UTC)
TIMES = st.integers(min_value=1, max_value=7 * 10**16).map(
    lambda micros: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
)
IDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=255)
EVENTS = st.builds(AwaitedEvent, IDS, st.integers(1, 2**63 - 1), TIMES, st.integers(1, 2**31 - 1))


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def sealed(*parts: str) -> str:
    """A token of these parts, with its checksum."""
    text = ".".join(encoded(part.encode()) for part in parts)
    return f"{text}.{encoded(hashlib.blake2b(text.encode(), digest_size=6).digest())}"


def appended(source_id: str, seq_nr: int) -> Appended:
    return Appended(source_id, seq_nr, AT + timedelta(seconds=seq_nr), UUID(int=seq_nr), 1)


@given(st.lists(EVENTS, min_size=1, max_size=4, unique_by=lambda event: event.source_id))
def test_a_token_is_read_as_it_was_written_and_is_safe_in_a_url(events: list[AwaitedEvent]) -> None:
    token = write_token(events)

    assert read_token(token) == events
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", token)


@given(st.text(max_size=60))
def test_any_other_text_is_refused(text: str) -> None:
    try:
        events = read_token(text)
    except InvalidToken:
        return
    assert read_token(write_token(events)) == events


@pytest.mark.parametrize(
    "written",
    [
        "0.1.1.a",
        "1.0.1.a",
        "1.1.0.a",
        "80000000.1.1.a",
        "1.8000000000000000.1.a",
        "1.1.1.",
    ],
)
def test_numbers_that_no_event_has_are_refused(written: str) -> None:
    assert read_token(sealed("1.1.1.a"))

    with pytest.raises(InvalidToken, match="is not a token"):
        read_token(sealed(written))


def test_a_token_that_was_changed_or_cut_is_refused() -> None:
    token = AppendedEvents([appended("order-4711", 3), appended("b", 1)]).token
    changed = {
        token[:place] + other + token[place + 1 :]
        for place in range(len(token))
        for other in "".join(map(chr, range(33, 127)))
    } - {token}
    cut = {token[:end] for end in range(len(token))}
    longer = {f"{token}.", f".{token}", f"{token}=", f"{token}\n", f" {token}"}

    for wrong in changed | cut | longer:
        with pytest.raises(InvalidToken):
            read_token(wrong)


def test_a_token_is_short() -> None:
    token = appended("order-4711", 3).token

    assert len(token) < 60


def test_of_each_source_the_last_event_is_named() -> None:
    several = AppendedEvents([appended("a", 1), appended("b", 7), appended("a", 2)])

    assert [event[:2] for event in read_token(several.token)] == [("a", 2), ("b", 7)]


def test_a_token_of_too_many_sources_says_what_to_do_instead() -> None:
    few, many = (AppendedEvents(appended(f"s{number}", 1) for number in range(most)) for most in (100, 300))

    assert len(read_token(few.token)) == 100
    with pytest.raises(
        ValueError,
        match=r"6,000 characters at most, .* 300 sources has \d,\d+: pass what append\(\) returned",
    ):
        _ = many.token


def test_a_text_longer_than_a_token_is_not_looked_at() -> None:
    with pytest.raises(InvalidToken):
        read_token(sealed(*["1.1.1.a"] * 1000))
