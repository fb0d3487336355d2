"""Where a handler has failed: in the log, with the parked source, and after a retry by hand."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

import offsets
from journal import Database
from projections import AtLeastOnce, EventEnvelope, Recovery, Session
from projections.terminal.logs import _JsonFormatter, _TextFormatter
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    Failure,
    Happened,
    caught_up,
    execute,
    happen,
    recording,
)

DELIVERIES = pytest.mark.parametrize("delivery", [None, AtLeastOnce()], ids=["exactly-once", "at-least-once"])


@pytest.fixture
async def journal(database: Database) -> Database:
    await execute(database, EFFECTS)
    return database


def look_up(source_id: str) -> None:
    raise Failure(f"no carrier \0 of {source_id} at postgresql://me:secret@host/db")


async def fail(session: Session, event: Happened, envelope: EventEnvelope) -> None:
    look_up(envelope.source_id)


async def the_parked(database: Database) -> offsets.ParkedSource:
    async with database.session() as session:
        [found] = await offsets.ParkedSources(session).list("p")
    return found


def lines(caplog: pytest.LogCaptureFixture, action: str) -> list[str]:
    return [
        _TextFormatter().format(record)
        for record in caplog.records
        if getattr(record, "action", None) == action
    ]


@pytest.mark.slow
@DELIVERIES
async def test_what_a_handler_raised_is_logged_and_stored_with_file_and_line(
    journal: Database, delivery: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await happen(journal, "a")

    await caught_up(journal, recording(fail, recovery=Recovery.retry_and_park([0.01]), delivery=delivery))

    found = await the_parked(journal)
    first, second = lines(caplog, "handler_failed")
    [given_up] = lines(caplog, "parked")
    for text in (found.traceback or "", first, given_up):
        assert 'test_handler_tracebacks.py", line' in text
        assert "in look_up" in text
        assert "dispatch.py" not in text
        assert "secret" not in text
    assert "in look_up" not in second
    assert "no carrier" in found.error


@pytest.mark.slow
async def test_text_lines_name_the_projection(journal: Database, caplog: pytest.LogCaptureFixture) -> None:
    await happen(journal, "a")

    await caught_up(journal, recording(fail, recovery=NO_RETRY))
    await happen(journal, "b")
    await caught_up(journal, recording(fail, recovery=Recovery.skip()))

    for action in ("handler_failed", "parked", "skipped"):
        assert all(f" {action}: p: " in line for line in lines(caplog, action)), action


async def test_a_traceback_in_the_log_begins_no_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the text of an event makes of the message of an error."""
    error = Failure("x\n2026-01-01 00:00:00.000 INFO    parked: nothing\x1b[2J")
    logging.getLogger("projections").error("it failed", exc_info=error)

    _, *rest = _TextFormatter().format(caplog.records[0]).splitlines()

    assert all(line.startswith("  ") and line.isprintable() for line in rest)
    assert "Failure: x" in json.loads(_JsonFormatter().format(caplog.records[0]))["exception"]


async def test_a_retry_by_hand_that_fails_again_leaves_a_line_and_the_outcome(
    journal: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_otherwise(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        raise LookupError("no such plane")

    await happen(journal, "a")
    await caught_up(journal, recording(fail, recovery=NO_RETRY))
    before = await the_parked(journal)
    async with journal.session() as session:
        await offsets.ParkedSources(session).retry("p", "a")
    caplog.clear()

    told = await caught_up(journal, recording(fail_otherwise, recovery=NO_RETRY))

    after = await the_parked(journal)
    assert (after.decision, after.attempts) == ("waiting", before.attempts + 1)
    assert after.parked_at > before.parked_at
    assert "LookupError: no such plane" in after.error
    assert "in fail_otherwise" in (after.traceback or "")
    assert len(lines(caplog, "handler_failed")) == len(lines(caplog, "parked")) == 1
    assert told.names("error", "parked") == ["error", "parked"]


async def test_a_retry_by_hand_that_succeeds_leaves_a_line(
    journal: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await happen(journal, "a")
    await caught_up(journal, recording(fail, recovery=NO_RETRY))
    async with journal.session() as session:
        await offsets.ParkedSources(session).retry("p", "a")

    with caplog.at_level(logging.INFO):
        await caught_up(journal, recording())

    [line] = lines(caplog, "unparked")
    assert line.endswith("p: source 'a' is parked no more: it goes on")
