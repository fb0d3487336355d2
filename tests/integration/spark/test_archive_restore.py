"""Archived partitions back in the journal."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from journal import Database, DatabaseError, HistoricEvent, append, import_events
from journal.partitions.making import make_partitions
from offsets.management import set_offset
from projections import EventEnvelope, Session
from spark_projections.archive import restore
from spark_projections.archive.files import ArchiveError, Bounds
from spark_projections.archive.manifest import Manifest
from spark_projections.archive.restore import Restored, restore_archive
from tests.fixtures.archive import (
    DAY,
    ONE_DAY,
    SOURCES,
    change,
    drop,
    drop_all,
    everything,
    export,
    filled,
    history,
    killed,
    partitions,
    query,
)
from tests.fixtures.journal import event, uuid7
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import (
    EFFECTS,
    Happened,
    caught_up,
    each_once,
    effects,
    execute,
    recording,
    running,
    until_effects,
)


@pytest.fixture
async def journal(database: Database) -> Database:
    return await filled(database)


@pytest.mark.slow
async def test_restored_events_are_what_they_were(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive)
    before, names = everything(dsn), partitions(dsn)
    drop(dsn, names[0])
    drop(dsn, names[1])

    done = restore_archive(dsn, archive)

    days = [Bounds(DAY + n * ONE_DAY, DAY + (n + 1) * ONE_DAY) for n in range(3)]
    assert everything(dsn) == before
    assert partitions(dsn) == names
    assert done == [
        Restored(names[0], days[0], 20 * SOURCES, 0),
        Restored(names[1], days[1], 10 * SOURCES, 0),
        Restored(names[2], days[2], 0, 10 * SOURCES),
    ]


@pytest.mark.slow
async def test_restored_partition_has_the_indexes_of_the_others(
    journal: Database, dsn: str, archive: Path
) -> None:
    count = "SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass AND indisvalid"
    export(dsn, archive)
    name = f"projections.{partitions(dsn)[0]}"
    before = query(dsn, count, name)
    drop(dsn, partitions(dsn)[0])

    restore_archive(dsn, archive)

    assert query(dsn, count, name) == before
    assert query(dsn, "SELECT count(*) FROM pg_constraint WHERE conname = 'within_bounds'") == [(0,)]


@pytest.mark.slow
async def test_types_and_times_choose_what_is_restored(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive)
    before = everything(dsn)
    drop_all(dsn)

    ships = restore_archive(dsn, archive, entity_types=["ship/of=war %"])
    planes = restore_archive(
        dsn, archive, entity_types=["plane"], since=DAY + ONE_DAY, until=DAY + 2 * ONE_DAY
    )
    rest = restore_archive(dsn, archive)

    assert [(each.events, each.present) for each in ships] == [(10 * SOURCES, 0)]
    assert [each.bounds.from_timestamp for each in planes] == [DAY + ONE_DAY]
    assert [(each.events, each.present) for each in rest] == [
        (10 * SOURCES, 10 * SOURCES),
        (0, 10 * SOURCES),
        (10 * SOURCES, 0),
    ]
    assert everything(dsn) == before


@pytest.mark.slow
async def test_restoring_what_is_there_changes_nothing(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive)
    before = everything(dsn)

    done = restore_archive(dsn, archive)

    assert sum(each.events for each in done) == 0
    assert everything(dsn) == before


@pytest.mark.slow
async def test_detached_table_that_is_still_there_is_to_be_attached(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    before, name = everything(dsn), partitions(dsn)[0]
    change(dsn, f"ALTER TABLE projections.events DETACH PARTITION projections.{name}")

    with pytest.raises(ArchiveError, match="is there, detached") as caught:
        restore_archive(dsn, archive)
    change(dsn, str(caught.value).split("`")[1])

    assert everything(dsn) == before


async def test_archive_of_another_journal_is_refused(
    journal: Database, dsn: str, archive: Path, databases: Any, template: str
) -> None:
    export(dsn, archive)
    with databases.fresh(template) as other:
        with pytest.raises(ArchiveError, match=r"not the journal that the archive was made from: source 'N"):
            restore_archive(other, archive)

        assert (everything(other), partitions(other)) == ([], [])


async def test_changed_file_is_not_restored(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive)
    path = archive / Manifest.load(archive).files[0].path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    drop(dsn, partitions(dsn)[0])
    before = everything(dsn)

    with pytest.raises(ArchiveError, match=r"is not what was written \(SHA-256\)"):
        restore_archive(dsn, archive)

    assert everything(dsn) == before


@pytest.mark.slow
async def test_events_imported_since_keep_their_place_beside_the_restored(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    before = everything(dsn)
    drop(dsn, partitions(dsn)[0])
    late = replace(next(history(prefix="late")), db_timestamp=DAY + ONE_DAY / 2)
    await import_events(journal, [late])

    with pytest.raises(ArchiveError, match="lie in the default partition: run `projections maintain`"):
        restore_archive(dsn, archive)
    await make_partitions(journal, ahead=1)
    restore_archive(dsn, archive)

    assert [row for row in everything(dsn) if "late" not in row[0]] == before
    assert len(everything(dsn)) == len(before) + 1


@pytest.mark.slow
async def test_restore_tries_again_when_an_import_stands_in_the_way(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    before = everything(dsn)
    drop(dsn, partitions(dsn)[0])
    with psycopg.connect(dsn) as importer:
        importer.execute("LOCK TABLE projections.imports IN SHARE ROW EXCLUSIVE MODE")
        restoring = asyncio.create_task(asyncio.to_thread(restore_archive, dsn, archive))
        waits = f"SELECT count(*) > 0 FROM {WAITING} WHERE relation = 'projections.imports'::regclass"
        while not (await asyncio.to_thread(query, dsn, waits))[0][0]:
            pass

    await restoring

    assert everything(dsn) == before


async def test_live_projection_does_not_handle_restored_events_again(
    database: Database, dsn: str, archive: Path
) -> None:
    await import_events(database, happened())
    await make_partitions(database, ahead=1)
    await execute(database, EFFECTS)
    total = 20 * SOURCES
    projection = recording()
    async with running(database, projection):
        await until_effects(database, total)
        export(dsn, archive)
        drop(dsn, partitions(dsn)[0])
        restored = await asyncio.to_thread(restore_archive, dsn, archive)
        async with database.transaction() as session:
            await append(session, [event("N0é", event_type="Happened")])
        await until_effects(database, total + 1)
    async with running(database, projection):
        async with database.transaction() as session:
            await append(session, [event("N1é", event_type="Happened")])
        await until_effects(database, total + 2)

    assert sum(each.events for each in restored) == 10 * SOURCES
    each_once(await effects(database), **{f"N{n}é": 20 + (n < 2) for n in range(SOURCES)})


async def test_restored_events_are_handled_by_a_projection_from_all_sources_or_from_none(
    database: Database, dsn: str, archive: Path
) -> None:
    await import_events(database, happened())
    await import_events(database, happened(last=10, prefix="Q"))  # all of it leaves
    await make_partitions(database, ahead=1)
    await execute(database, EFFECTS)
    await execute(database, "CREATE TABLE handled (name text, source_id text, seq_nr bigint)")
    before, back, between, after = map(noting, ("before", "set back", "between", "after"))
    await caught_up(database, before, back)
    export(dsn, archive)
    drop(dsn, partitions(dsn)[0])
    await caught_up(database, between)
    async with database.session() as session:
        await set_offset(session, "set back", DAY)
    restore_archive(dsn, archive)
    # Some sources become active again, and have their restored events right before; the others do not.
    active = [f"Q{n}é" for n in range(SOURCES // 2)]
    async with database.transaction() as session:
        await append(session, [event(source, event_type="Happened") for source in active])

    await caught_up(database, before, back, between, after)

    sources = [f"{prefix}{n}é" for prefix in "NQ" for n in range(SOURCES)]
    left = {source: list(range(11, 21)) if source.startswith("N") else [] for source in sources}
    later = {source: numbers + [11] * (source in active) for source, numbers in left.items()}
    whole = {source: [*range(1, 11), *numbers] for source, numbers in later.items()}
    again = {source: sorted([*whole[source], *range(1, 11), *left[source]]) for source in sources}
    found = await handled(database, sources)
    assert found == {"before": whole, "between": later, "after": whole, "set back": again}


@pytest.mark.slow
async def test_projections_go_on_and_pass_the_time_while_a_restore_waits(
    database: Database, dsn: str, archive: Path
) -> None:
    await import_events(database, happened())
    await import_events(database, happened(last=10, prefix="Q"))  # all of it leaves
    await make_partitions(database, ahead=1)
    await execute(database, EFFECTS)
    await execute(database, "CREATE TABLE handled (name text, source_id text, seq_nr bigint)")
    export(dsn, archive)
    drop(dsn, partitions(dsn)[0])
    before, meanwhile = noting("before"), noting("meanwhile")
    await caught_up(database, before)  # has lost what is restored
    with psycopg.connect(dsn) as holder:
        holder.execute("LOCK TABLE projections.imports IN SHARE MODE")
        restoring = asyncio.create_task(asyncio.to_thread(restore_archive, dsn, archive))
        waits = f"SELECT count(*) > 0 FROM {WAITING} WHERE relation = 'projections.imports'::regclass"
        while not (await asyncio.to_thread(query, dsn, waits))[0][0]:
            pass
        async with database.transaction() as session:
            await append(session, [event("Q0é", event_type="Happened")])
        await caught_up(database, before, meanwhile)
        goes_on = not restoring.done()

    await restoring
    await caught_up(database, before, meanwhile)

    assert goes_on
    later = {}
    for number in range(SOURCES):
        later |= {f"N{number}é": [*range(11, 21)], f"Q{number}é": [11] if number == 0 else []}
    # Both have passed the time before the events were back.
    assert await handled(database, list(later)) == {"before": later, "meanwhile": later}


@pytest.mark.slow
async def test_projection_that_an_import_has_set_back_handles_restored_events_from_no_source(
    database: Database, dsn: str, archive: Path
) -> None:
    await import_events(database, happened())
    await import_events(database, happened(last=10, prefix="Q"))  # all of it leaves
    await make_partitions(database, ahead=1)
    await execute(database, EFFECTS)
    await execute(database, "CREATE TABLE handled (name text, source_id text, seq_nr bigint)")
    export(dsn, archive)
    drop(dsn, partitions(dsn)[0])
    between = noting("between")
    await caught_up(database, between)
    await import_events(database, [replace(next(happened(prefix="L")), db_timestamp=DAY - ONE_DAY)])
    # As a worker leaves it that has begun to read again and is stopped.
    await execute(
        database,
        "UPDATE projections.projection_ranges SET horizon = $1, "
        "import_id = (SELECT max(i.import_id) FROM projections.imports AS i)",
        DAY - ONE_DAY,
    )

    restore_archive(dsn, archive)
    await caught_up(database, between)

    later = {f"N{n}é": list(range(11, 21)) for n in range(SOURCES)} | {f"Q{n}é": [] for n in range(SOURCES)}
    assert await handled(database, [*later, "L0é"]) == {"between": later | {"L0é": [1]}}


def noting(name: str) -> type[Any]:
    async def note(session: Session, _: Happened, envelope: EventEnvelope) -> None:
        await session.execute(
            "INSERT INTO handled (name, source_id, seq_nr) VALUES ($1, $2, $3)",
            name, envelope.source_id, envelope.seq_nr,
        )  # fmt: skip

    return recording(note, name)


async def handled(database: Database, sources: list[str]) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    async with database.session() as session:
        for row in await session.fetch("SELECT name, source_id, seq_nr FROM handled ORDER BY name, seq_nr"):
            by_source = found.setdefault(row["name"], {source: [] for source in sources})
            by_source[row["source_id"]].append(row["seq_nr"])
    return found


@pytest.mark.slow
async def test_projection_that_is_reading_on_while_its_events_come_back_handles_them_all(
    database: Database, dsn: str, archive: Path
) -> None:
    await import_events(database, happened())
    await make_partitions(database, ahead=1)
    await execute(database, EFFECTS)
    export(dsn, archive)
    drop(dsn, partitions(dsn)[0])
    reads, goes_on = asyncio.Event(), asyncio.Event()

    async def wait(*_: Any) -> None:
        reads.set()
        await goes_on.wait()

    async with running(database, recording(wait)):
        await reads.wait()
        await asyncio.to_thread(restore_archive, dsn, archive)
        goes_on.set()
        await until_effects(database, 20 * SOURCES)

    each_once(await effects(database), **{f"N{n}é": 20 for n in range(SOURCES)})


@pytest.mark.slow
async def test_source_that_lost_unread_events_and_one_that_is_parked_are_not_mixed_up(
    database: Database, dsn: str, archive: Path
) -> None:
    await import_events(database, happened())
    await make_partitions(database, ahead=1)
    await execute(database, EFFECTS)
    await caught_up(database, recording())
    export(dsn, archive)
    drop(dsn, partitions(dsn)[0])
    await execute(
        database, "UPDATE projections.source_offsets SET seq_nr = 5 WHERE source_id IN ('N0é', 'N1é')"
    )
    await execute(
        database,
        "INSERT INTO projections.parked_sources (projection_id, source_id, slice, seq_nr, event_type, error, attempts) "
        "SELECT projection_id, source_id, slice, 6, 'Happened', 'x', 1 FROM projections.source_offsets "
        "WHERE source_id = 'N1é'",
    )

    restore_archive(dsn, archive)

    found = query(
        dsn,
        "SELECT source_id, seq_nr FROM projections.source_offsets WHERE source_id < 'N2' ORDER BY source_id",
    )
    assert found[0] == ("N0é", 10)
    assert [seq_nr for source, seq_nr in found if source == "N1é"] == [5]


@pytest.mark.slow
async def test_restore_that_is_frozen_before_its_commit_keeps_nobody_waiting(
    journal: Database, dsn: str, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(dsn, archive)
    drop(dsn, partitions(dsn)[0])
    before = everything(dsn)
    tried, frozen, goes_on = restore._tried, threading.Event(), threading.Event()

    def freeze(*arguments: Any) -> bool:
        done = tried(*arguments)
        frozen.set()
        goes_on.wait()
        return done

    monkeypatch.setattr(restore, "_tried", freeze)
    monkeypatch.setattr(restore, "_SILENCE", "50ms")
    restoring = asyncio.create_task(asyncio.to_thread(restore_archive, dsn, archive))
    await asyncio.to_thread(frozen.wait)
    await asyncio.to_thread(change, dsn, "LOCK TABLE projections.events")
    goes_on.set()

    with pytest.raises(DatabaseError):
        await restoring

    assert everything(dsn) == before


@pytest.mark.slow
async def test_restore_is_not_ended_by_a_limit_of_the_role_while_it_moves_offsets(
    journal: Database, dsn: str, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(dsn, archive)
    before = everything(dsn)
    drop(dsn, partitions(dsn)[0])
    limited = make_conninfo(dsn, options="-c idle_in_transaction_session_timeout=200")
    monkeypatch.setattr(restore._Restoring, "_pass", lambda *_: time.sleep(0.4))

    await asyncio.to_thread(restore_archive, limited, archive)

    assert everything(dsn) == before


@pytest.mark.slow
async def test_restore_is_refused_while_a_projection_of_its_type_is_rebuilt(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    drop(dsn, partitions(dsn)[0])
    change(
        dsn,
        "INSERT INTO projections.projections (name, entity_types) VALUES ('rebuilt', '{plane}')",
        "SELECT projections._begin_rebuild_v1(projection_id, 0, 1023, 1, now(), 0, '', 'rename', "
        "'{0}', '{1023}', '{}', '{}', '{}', '{}', '{plane}') FROM projections.projections",
    )
    before = everything(dsn)

    with pytest.raises(DatabaseError, match="projection rebuilt is being rebuilt"):
        restore_archive(dsn, archive)

    assert everything(dsn) == before


def happened(last: int = 20, prefix: str = "N") -> Iterator[HistoricEvent]:
    for each in history(last=last, prefix=prefix):
        yield replace(each, event_type="Happened", payload={"n": 1}, version=1)


@pytest.mark.slow
async def test_event_id_and_time_of_an_archived_event_survive_a_restore(
    database: Database, dsn: str, archive: Path
) -> None:
    event_id = uuid7(DAY)
    await import_events(database, [replace(next(history()), event_id=event_id)])
    await make_partitions(database, ahead=1)
    export(dsn, archive)
    drop(dsn, partitions(dsn)[0])

    restore_archive(dsn, archive)

    assert query(dsn, "SELECT event_id, db_timestamp FROM projections.events") == [(event_id, DAY)]


@pytest.mark.slow
async def test_restore_that_was_killed_before_its_commit_leaves_nothing_and_goes_on(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    before = everything(dsn)
    drop_all(dsn)
    killed(
        "from spark_projections.archive import restore\n"
        "tried, calls = restore._tried, []\n"
        "def dying(*arguments):\n    done = tried(*arguments)\n    calls.append(1)\n"
        "    if len(calls) == 2: kill()\n    return done\n"
        "restore._tried = dying\n"
        "restore.restore_archive(sys.argv[1], Path(sys.argv[2]))",
        dsn,
        archive,
    )
    there = partitions(dsn)

    done = restore_archive(dsn, archive)

    assert len(there) == 1
    assert [each.present for each in done] == [20 * SOURCES, 0, 0]
    assert everything(dsn) == before
