"""Any text survives the wire: what a client of the format makes of a block is what was put into it."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.http.server_sent_events import frame

TEXT = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\r\n\0: \u2028\u2029\u0085\v\f\ufeffdataid")
)


def dispatched(stream: bytes) -> list[tuple[str, str, str]]:
    """
    The events (type, data, last id) that a browser hears, by the rules of the standard.

    https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
    """
    events, data, kind, last_id = [], "", "", ""
    for line in re.split(r"\r\n|\n|\r", stream.decode()):
        if not line:
            if data:
                events.append((kind or "message", data.removesuffix("\n"), last_id))
            data, kind = "", ""
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data += value + "\n"
        elif name == "event":
            kind = value
        elif name == "id" and "\0" not in value:
            last_id = value
    return events


def lines_joined(text: str) -> str:
    return re.sub(r"\r\n|\r", "\n", text)


@given(texts=st.lists(TEXT, max_size=5))
def test_data_arrives_with_line_feeds_for_other_line_ends(texts: list[str]) -> None:
    stream = b"".join(frame(text, id=str(number)) for number, text in enumerate(texts))

    assert dispatched(stream) == [
        ("message", lines_joined(text), str(number)) for number, text in enumerate(texts)
    ]


@given(data=TEXT, event=TEXT, name=TEXT, comment=TEXT)
def test_no_field_breaks_out_of_its_line(data: str, event: str, name: str, comment: str) -> None:
    found = dispatched(frame(data, event=event, id=name, comment=comment))

    single = [re.sub(r"\r\n|\r|\n", " ", text).replace("\0", "") for text in (event, name)]
    assert found == [(single[0] or "message", lines_joined(data), single[1])]


def test_without_data_no_event_comes_of_it_and_the_id_is_kept() -> None:
    stream = frame(id="7", retry=timedelta(milliseconds=10), comment="") + frame("x")

    assert dispatched(stream) == [("message", "x", "7")]


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_what_is_no_unicode_is_sent_as_a_question_mark(text: str) -> None:
    assert dispatched(frame(text)) == [("message", re.sub("[\ud800-\udfff]", "?", text), "")]


def test_bytes_are_framed_as_they_are() -> None:
    assert frame("é\r\nb".encode(), event="e") == b"event: e\ndata: \xc3\xa9\ndata: b\n\n"
