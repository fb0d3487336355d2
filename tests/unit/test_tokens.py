"""Tokens of appends: short, safe in a URL, and read as they were written or refused."""

from __future__ import annotations

import base64
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


def appended(source_id: str, seq_nr: int) -> Appended:
    return Appended(source_id, seq_nr, AT + timedelta(seconds=seq_nr), UUID(int=seq_nr), 1)


@given(st.lists(EVENTS, min_size=1, max_size=100, unique_by=lambda event: event.source_id))
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

    token = base64.urlsafe_b64encode(written.encode()).decode().rstrip("=")

    with pytest.raises(InvalidToken, match="is not a token"):
        read_token(token)


def test_a_token_is_short() -> None:
    token = appended("order-4711", 3).token

    assert len(token) < 60


def test_of_each_source_the_last_event_is_named() -> None:
    several = AppendedEvents([appended("a", 1), appended("b", 7), appended("a", 2)])

    assert [event[:2] for event in read_token(several.token)] == [("a", 2), ("b", 7)]


def test_a_token_of_too_many_sources_says_what_to_do_instead() -> None:
    several = AppendedEvents(appended(f"s{number}", 1) for number in range(101))

    with pytest.raises(ValueError, match=r"100 sources at most, .* of 101: pass what append\(\) returned"):
        _ = several.token
