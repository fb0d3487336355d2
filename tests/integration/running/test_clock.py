"""A database whose clock was set back while nobody read it."""

from __future__ import annotations

import logging

import pytest

from journal import Database
from tests.fixtures.projections import (
    EFFECTS,
    caught_up,
    each_once,
    effects,
    execute,
    happen,
    recording,
    running,
    until,
    until_effects,
)

_SET_BACK = """
UPDATE projections.projection_ranges
SET horizon = (SELECT max(e.db_timestamp) FROM projections.events AS e) + $1 * interval '1 second'
"""
"""What is stored by a clock that was set back afterwards: a horizon so much after the last event."""
_LATER = "SELECT clock_timestamp() > max(db_timestamp) + interval '0.1 seconds' FROM projections.events"
"""Later than the margin of a reader."""
_MADE_GOOD = "SELECT clock_timestamp() > max(horizon) FROM projections.projection_ranges"


@pytest.fixture
async def journal(database: Database) -> Database:
    await execute(database, EFFECTS)
    await happen(database, "a", "b")
    await caught_up(database, recording())
    return database


async def test_what_is_stamped_before_the_next_reader_comes_is_found(
    journal: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await happen(journal, "new", "a")
    await execute(journal, _SET_BACK, 3600.0)
    await until(journal, _LATER)

    with caplog.at_level(logging.WARNING):
        async with running(journal, recording()):
            await until_effects(journal, 4)
    await caught_up(journal, recording())

    each_once(await effects(journal), a=2, b=1, new=1)
    said = [record for record in caplog.records if getattr(record, "action", None) == "clock_went_back"]
    assert [record.levelname for record in said] == ["WARNING"]


async def test_a_step_that_the_clock_has_made_good_is_seen_by_nobody_until_the_next_event_of_the_source(
    journal: Database,
) -> None:
    """What docs/proof.md says of it."""
    await happen(journal, "new")
    await execute(journal, _SET_BACK, 0.1)
    await until(journal, _MADE_GOOD)
    await caught_up(journal, recording())
    before = await effects(journal)

    await happen(journal, "new")
    await caught_up(journal, recording())

    each_once(before, a=1, b=1)
    each_once(await effects(journal), a=1, b=1, new=2)
