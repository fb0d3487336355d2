"""What cannot be rebuilt is refused by name and with the reason, and what serves is untouched."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journal import (
    Database,
    DatabaseUnavailable,
    Event,
    Session,
    SliceRange,
    append,
)
from projections import AtLeastOnce, EventEnvelope, Recovery, Table, handles, projection
from projections.defining.tables import TableError
from projections.testing import run_until_caught_up
from spark_projections.errors import NotRebuildable, RebuildFailed
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.projections import Happened, execute, fetchval, happen, recording
from tests.fixtures.rebuilds import (
    COUNTS,
    ONE,
    AllKinds,
    Counts,
    Effects,
    Gate,
    fence_passes,
    schemas,
    state_of,
)

SKIPPING = RebuildOptions(splits=1, skip=True)
FROM_FIRST_KEPT = RebuildOptions(splits=1, from_first_kept=True)


@pytest.fixture
async def journal(journal: Database) -> AsyncIterator[Database]:
    """What serves has a row that no rebuild would make."""
    await execute(journal, "INSERT INTO counts (source_id, n) VALUES ('what serves', 1)")
    await execute(journal, "INSERT INTO effects (source_id, seq_nr) VALUES ('what serves', 1)")
    yield journal
    served = "SELECT count(*) FROM counts WHERE source_id = 'what serves'"
    if await state_or_none(journal) != "swapped":
        assert await fetchval(journal, served) == 1
        assert await fetchval(journal, served.replace("counts", "effects")) == 1


async def state_or_none(database: Database) -> str | None:
    return (
        None
        if await fetchval(database, "SELECT count(*) = 0 FROM projections.rebuilds")
        else await state_of(database)
    )


async def write(database: Database, *payloads: Any, source_id: str = "a") -> None:
    async with database.transaction() as session:
        await append(
            session, [Event(source_id, payload, "plane", event_type="Happened") for payload in payloads]
        )
    await fence_passes(database)


def counting(name: str = "counting", table: Table | str = COUNTS, **options: Any) -> type[Any]:
    """A projection of the counts that is defined here."""

    @projection(name, entity_type="plane", tables=(table,), **options)
    class Counting:
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Any:
            return table.upsert(source_id=envelope.source_id, n=1)  # type: ignore[union-attr]

    return Counting


# By its definition


async def test_effects_outside_the_database_are_refused(journal: Database, dsn: str) -> None:
    definition = recording(name="mails", delivery=AtLeastOnce(), tables=("effects",))

    with pytest.raises(
        NotRebuildable, match=r"'mails' cannot be rebuilt: its delivery is AtLeastOnce.*outside"
    ):
        await rebuild(journal, dsn, definition, ONE)


async def test_handlers_that_do_not_say_what_they_write_are_refused(journal: Database, dsn: str) -> None:
    with pytest.raises(NotRebuildable, match=r"'p' cannot be rebuilt.*declare @projection\(\.\.\., tables="):
        await rebuild(journal, dsn, recording(), ONE)


@pytest.mark.parametrize("definition", [Effects, AllKinds])
async def test_slices_of_tables_whose_rows_do_not_tell_their_source_are_refused(
    journal: Database, dsn: str, definition: type
) -> None:
    with pytest.raises(
        NotRebuildable, match=r"slices 0-99 .* cannot be rebuilt by themselves.*source='column'"
    ):
        await rebuild(journal, dsn, definition, RebuildOptions(slices=SliceRange(0, 99), splits=1))


@pytest.mark.slow
async def test_a_handler_that_writes_to_another_table_is_refused(journal: Database, dsn: str) -> None:
    async def write_elsewhere(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await session.execute("INSERT INTO counts (source_id) VALUES ($1)", envelope.source_id)

    await write(journal, {})
    definition = recording(write_elsewhere, "astray", tables=("effects",))

    with pytest.raises(
        RebuildFailed, match=r"'astray' wrote to public\.counts, which is not one of the tables"
    ):
        await rebuild(journal, dsn, definition, ONE)

    assert await fetchval(journal, "SELECT count(*) FROM counts") == 1


async def test_a_handler_that_names_the_schema_of_its_table_is_refused(journal: Database, dsn: str) -> None:
    async def write_live(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await session.execute(
            "INSERT INTO public.effects (source_id, seq_nr) VALUES ($1, 7)", envelope.source_id
        )

    await write(journal, {})
    definition = recording(write_live, "live", tables=("effects",))

    with pytest.raises(RebuildFailed, match=r"public\.effects.*name it without its schema"):
        await rebuild(journal, dsn, definition, ONE)

    assert await fetchval(journal, "SELECT count(*) FROM effects") == 1


@pytest.mark.slow
async def test_a_table_handler_that_changes_an_undeclared_table_is_refused(
    journal: Database, dsn: str
) -> None:
    others = Table("others", key="source_id", increment="n")

    @projection("undeclared", entity_type="plane", tables=(COUNTS,))
    class Undeclared:
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Any:
            return others.upsert(source_id=envelope.source_id, n=1)

    await write(journal, {})

    with pytest.raises(RebuildFailed, match="changes table others, which is not known"):
        await rebuild(journal, dsn, Undeclared, ONE)


# By its table


async def test_an_unknown_table_is_refused(journal: Database, dsn: str) -> None:
    with pytest.raises(NotRebuildable, match="table nowhere is not in the database"):
        await rebuild(journal, dsn, recording(name="q", tables=("nowhere",)), ONE)

    assert await schemas(journal) == []


async def test_a_table_that_does_not_fit_is_refused(journal: Database, dsn: str) -> None:
    definition = counting(table=Table("counts", key="source_id", increment="nothing", source="source_id"))

    with pytest.raises(TableError, match="nothing"):
        await rebuild(journal, dsn, definition, ONE)

    assert await schemas(journal) == []


# By its events


@pytest.mark.slow
async def test_a_payload_that_does_not_fit_names_source_number_and_field(journal: Database, dsn: str) -> None:
    await write(journal, {"n": 0}, {"n": "many"})

    with pytest.raises(RebuildFailed, match=r"(?s)a.* 2.*\bn\b") as caught:
        await rebuild(journal, dsn, Counts, ONE)

    assert "Happened" in str(caught.value)
    assert await state_of(journal) == "folding"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("definition", "options"),
    [(Counts, SKIPPING), (Effects, SKIPPING), (counting("skips", recovery=Recovery.skip()), ONE)],
    ids=["table", "event", "recovery"],
)
async def test_events_that_can_not_be_handled_are_skipped_where_that_is_asked_for(
    journal: Database, dsn: str, definition: type, options: RebuildOptions
) -> None:
    await write(journal, {"n": 0}, {"n": "many"}, {"n": 0})
    await write(journal, {"n": 0}, source_id="b")

    result = await rebuild(journal, dsn, definition, options)

    assert (result.events, result.skipped, result.sources) == (4, 1, 2)
    table = next(iter(result.rows))
    counted = "sum(n)::int" if table == "counts" else "count(*)"
    assert await fetchval(journal, f"SELECT {counted} FROM {table}") == 3


@pytest.mark.slow
async def test_a_failed_rebuild_goes_on_where_it_stood_once_told_to_skip(journal: Database, dsn: str) -> None:
    await write(journal, {"n": "many"})
    with pytest.raises(RebuildFailed):
        await rebuild(journal, dsn, Counts, ONE)

    result = await rebuild(journal, dsn, Counts, SKIPPING)

    assert (result.resumed, result.skipped, result.events) == (True, 1, 1)


@pytest.fixture
async def cut_off(journal: Database) -> Database:
    """A source whose first event has been deleted."""
    await write(journal, {}, {}, {})
    await execute(journal, "DELETE FROM projections.events WHERE seq_nr = 1")
    return journal


async def test_deleted_history_is_said(cut_off: Database, dsn: str) -> None:
    with pytest.raises(
        RebuildFailed, match=r"a.*2.* follows seq_nr 0: .* no longer in the journal.*--from-first-kept"
    ):
        await rebuild(cut_off, dsn, Counts, ONE)


@pytest.mark.slow
async def test_what_is_left_of_the_history_is_used_where_that_is_asked_for(
    cut_off: Database, dsn: str
) -> None:
    result = await rebuild(cut_off, dsn, Counts, FROM_FIRST_KEPT)

    assert result.events == 2
    assert await fetchval(cut_off, "SELECT n FROM counts WHERE source_id = 'a'") == 2


@pytest.mark.slow
async def test_a_hole_in_the_history_is_refused_whatever_is_asked_for(journal: Database, dsn: str) -> None:
    await write(journal, {}, {}, {})
    await execute(journal, "DELETE FROM projections.events WHERE seq_nr = 2")

    with pytest.raises(RebuildFailed, match=r"follows seq_nr 1: .*restore them"):
        await rebuild(journal, dsn, Counts, FROM_FIRST_KEPT)


async def test_events_that_vanish_while_it_runs_are_noticed(journal: Database, dsn: str) -> None:
    await write(journal, {}, {})

    with pytest.raises(RebuildFailed, match="slices do not add up"):
        await Gate(journal, dsn, Counts).at(
            "verify", lambda: execute(journal, "DELETE FROM projections.events WHERE seq_nr = 2")
        )


@pytest.mark.slow
async def test_a_rebuild_that_lost_what_it_needs_says_so_each_time_and_how_to_begin_again(
    journal: Database, dsn: str
) -> None:
    await write(journal, {}, {})
    said = r"events were deleted, or dropped by force with their partition.*again; to begin again.*--restart"
    with pytest.raises(RebuildFailed, match=said):
        await Gate(journal, dsn, Counts).at(
            "verify", lambda: execute(journal, "DELETE FROM projections.events WHERE seq_nr = 1")
        )
    with pytest.raises(RebuildFailed, match=said):
        await rebuild(journal, dsn, Counts, ONE)

    result = await rebuild(journal, dsn, Counts, replace(FROM_FIRST_KEPT, restart=True))

    assert (result.resumed, result.events) == (False, 1)


async def test_rows_that_are_not_what_the_source_makes_are_noticed(journal: Database, dsn: str) -> None:
    await write(journal, {}, {})

    with pytest.raises(RebuildFailed, match="table counts: folding its source again gives"):
        await Gate(journal, dsn, Counts).at(
            "verify", lambda: execute(journal, "UPDATE projections_rebuild_1.counts SET n = 3")
        )


# By where it runs


@pytest.mark.slow
async def test_a_handler_that_tasks_can_not_import_is_said(
    journal: Database, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone_app.py").write_text(
        "from tests.fixtures.rebuilds import Counts\nclass Gone(Counts): pass\n"
    )
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        app = importlib.import_module("gone_app")
    (tmp_path / "gone_app.py").unlink()
    await write(journal, {})
    await write(journal, {}, source_id="b")

    with pytest.raises(RebuildFailed, match="gone_app"):
        await rebuild(journal, dsn, app.Gone, RebuildOptions(splits=2))


async def test_a_dsn_that_leads_nowhere_is_said_without_its_password(journal: Database) -> None:
    nowhere = "postgresql://someone:secret@127.0.0.1:1/nowhere"
    await write(journal, {})

    with pytest.raises(Exception) as caught:
        await rebuild(journal, nowhere, Counts, ONE)

    assert isinstance(caught.value, DatabaseUnavailable)
    assert "secret" not in str(caught.value)


FULL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON projections_rebuild_1.counts FOR EACH ROW EXECUTE FUNCTION full_disk();
"""


@pytest.mark.slow
async def test_a_full_disk_fails_no_event_and_the_next_run_goes_on(journal: Database, dsn: str) -> None:
    await write(journal, {}, {})
    with pytest.raises(RebuildFailed, match="No space left on device"):
        await Gate(journal, dsn, Counts).at("fold", lambda: execute(journal, FULL))
    await execute(journal, "DROP TRIGGER full_disk ON projections_rebuild_1.counts")

    result = await rebuild(journal, dsn, Counts, ONE)

    assert (result.resumed, result.skipped, result.events) == (True, 0, 2)


@pytest.mark.slow
async def test_a_source_whose_events_are_all_gone_goes_on_after_a_rebuild(
    journal: Database, dsn: str
) -> None:
    await write(journal, {}, {})
    await write(journal, {}, source_id="b")
    await run_until_caught_up(journal, Counts)
    await execute(journal, "DELETE FROM projections.events WHERE source_id = 'a'")
    await rebuild(journal, dsn, Counts, FROM_FIRST_KEPT)
    await happen(journal, "a", "b")

    await asyncio.wait_for(run_until_caught_up(journal, Counts), 300)

    rows = 'SELECT array_agg(source_id || n ORDER BY source_id COLLATE "C") FROM counts'
    assert await fetchval(journal, rows) == ["a1", "b2"]


@pytest.mark.slow
async def test_a_handler_may_use_temporary_tables(journal: Database, dsn: str) -> None:
    async def use_temporary_table(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await session.execute("CREATE TEMPORARY TABLE IF NOT EXISTS mine (n int) ON COMMIT DROP")
        await session.execute("INSERT INTO mine VALUES (1)")

    await write(journal, {}, {})
    definition = recording(use_temporary_table, "temporary", tables=("effects",))

    result = await rebuild(journal, dsn, definition, ONE)

    assert result.rows == {"effects": 2}


@pytest.mark.slow
async def test_a_handler_that_appends_is_refused_and_its_events_are_not_there(
    journal: Database, dsn: str
) -> None:
    async def append_another(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await append(session, [Event("another", Happened(), "car")])

    await write(journal, {})
    definition = recording(append_another, "appending", tables=("effects",))

    with pytest.raises(RebuildFailed, match="'appending' appended events"):
        await rebuild(journal, dsn, definition, ONE)

    assert await fetchval(journal, "SELECT count(*) FROM projections.events") == 1
