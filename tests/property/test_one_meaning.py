"""The same history gives the same rows, or is refused for the same reason, whatever reads it."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from journal import (
    BEGINNING,
    ConnectionSettings,
    Database,
    HistoricEvent,
    InvalidPayload,
    RawJson,
    connect,
    decode,
    event_type_of,
    import_events,
    read_source,
)
from projections import (
    Event,
    EventEnvelope,
    Inline,
    Recovery,
    Table,
    append,
    events,
    handles,
    projection,
    read_model,
    run,
)
from projections.defining import projection_of
from projections.defining.sql_fields import columns_of, quote_name
from projections.defining.tables import Change
from projections.errors import HandlerFailed
from spark_projections.archive.restore import restore_archive
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from spark_projections.rebuilds.repairing import verify
from spark_projections.source.newest import NewestVersions
from spark_projections.source.options import options_of, parse_options
from spark_projections.source.source import JournalReader, SparkTable
from tests.fixtures.archive import DAY, drop_all, everything, export
from tests.fixtures.examples import examples
from tests.fixtures.meanings import Meaning, histories_of, meanings
from tests.fixtures.projections import NO_RETRY, Told, caught_up, execute
from tests.fixtures.projections import settings as run_settings
from tests.fixtures.read_models import rows
from tests.fixtures.rebuilds import fence_passes, in_this_process

__all__ = ["in_this_process"]

Found = dict[tuple[str, int], str]
"""By event: its row, or why it has none."""
_GROUPED = {"bigint", "numeric", "text", "date", "timestamptz", "timestamp", "time", "interval"}


class Engines:
    """The projections of one model; each kind writes tables of its own."""

    def __init__(self, meaning: Meaning, recovery: Recovery, batch_size: int) -> None:
        self.model = meaning.declare()
        self.columns = columns_of(self.model)
        self.short = {name: f"c{number}" for number, name in enumerate(self.columns)}
        names = list(self.columns)
        key, compared = names[meaning.key], names[meaning.compared]
        self.grouped = {self.columns[one].type for one in (key, compared)} <= _GROUPED
        self.key, self.compared = key, compared
        self.options: dict[str, Any] = {"recovery": recovery, "batch_size": batch_size}

    def handler(self, name: str, entity_type: str = "plane") -> type[Any]:
        each = Table(name, key=("source_id", "seq_nr"), set=tuple(self.short.values()), source="source_id")
        group = Table(f"{name}_groups", key="k", increment="n", minimum="low", maximum="high")
        columns, short, by, of, grouped = self.columns, self.short, self.key, self.compared, self.grouped

        def meant(_self: Any, event: BaseModel, envelope: EventEnvelope) -> Iterator[Change]:
            as_json = event.model_dump(mode="json")
            plain = {
                name: as_json[name] if column.type == "jsonb" else _plain(getattr(event, name))
                for name, column in columns.items()
            }
            yield each.upsert(
                source_id=envelope.source_id,
                seq_nr=envelope.seq_nr,
                **{short[n]: v for n, v in plain.items()},
            )
            if grouped and plain[by] is not None:
                yield group.upsert(k=plain[by], n=1, low=plain[of], high=plain[of])

        meant.__annotations__.update(event=self.model)
        body = {"meant": handles(self.model)(meant)}
        return projection(name, entity_type=entity_type, **self.options)(type(name, (), body))

    def declared(self, name: str, entity_type: str = "plane") -> type[Any]:
        selected = ", ".join(f"{quote_name(one)} AS {short}" for one, short in self.short.items())
        body: dict[str, Any] = {
            "meant": events(self.model),
            name: read_model(f"SELECT source_id, seq_nr, {selected} FROM meant"),
        }
        if self.grouped:
            key, of = quote_name(self.key), quote_name(self.compared)
            body[f"{name}_groups"] = read_model(
                f"SELECT {key} AS k, count(*) AS n, min({of}) AS low, max({of}) AS high FROM meant "
                f"WHERE {key} IS NOT NULL GROUP BY {key}"
            )
        return projection(name, entity_type=entity_type, **self.options)(type(name, (), body))

    async def make(self, database: Database, name: str) -> None:
        """The tables of a handler."""
        columns = ", ".join(f"{self.short[one]} {column.type}" for one, column in self.columns.items())
        await execute(
            database,
            f"CREATE TABLE {name} (source_id text, seq_nr bigint, {columns}, PRIMARY KEY (source_id, seq_nr))",
        )
        key, of = (self.columns[one].type if self.grouped else "int" for one in (self.key, self.compared))
        await execute(
            database,
            f"CREATE TABLE {name}_groups (k {key} PRIMARY KEY, n bigint NOT NULL DEFAULT 0, low {of}, high {of})",
        )

    async def rows(self, database: Database, name: str) -> Found:
        columns = ", ".join(self.short.values())
        found = await rows(database, f"SELECT source_id, seq_nr, row({columns})::text FROM {name}")
        return {(source, seq_nr): values for source, seq_nr, values in found}

    async def groups(self, database: Database, name: str) -> list[Any]:
        if not self.grouped:
            return []
        return sorted(await rows(database, f"SELECT row(k, n, low, high)::text FROM {name}_groups"))


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


class Way(NamedTuple):
    """How a history is handled, and how often."""

    recovery: Recovery
    batch_size: int
    ranges: int
    cut: int
    drivers: tuple[Any, Any]
    again: bool
    inline: bool
    splits: int
    archived: bool


ways = st.builds(
    Way,
    recovery=st.sampled_from([Recovery.skip(), NO_RETRY]),
    batch_size=st.sampled_from([1000, 1, 3]),
    ranges=st.sampled_from([1, 3]),
    cut=st.integers(0, 10),
    drivers=st.sampled_from([("asyncpg", "psycopg"), ("psycopg", "asyncpg")]),
    again=st.booleans(),
    inline=st.booleans(),
    splits=st.sampled_from([1, 4]),
    archived=st.integers(0, 7).map(lambda drawn: drawn == 7),
)


def refused(told: Told, name: str) -> Found:
    """Why events have no row."""
    given_up = [*told.all("skipped"), *told.all("parked")]
    return {
        (envelope.source_id, envelope.seq_nr): reason(error) for of, envelope, error in given_up if of == name
    }


def reason(error: BaseException) -> str:
    """The model's own words; what fits the model, and not the column, each engine says in its own."""
    found = str(error.__cause__ or error)
    return found[found.index("does not fit Meant") :] if "does not fit Meant" in found else "(refused)"


async def forget(database: Database) -> None:
    async with database.session() as session:
        found = await session.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
        )
        for row in found:
            await session.execute(f"DROP TABLE {row['relname']}")
        schemas = await session.fetch(
            "SELECT nspname FROM pg_namespace WHERE nspname ~ '^projections_(old|rebuild)_'"
        )
        for row in schemas:
            await session.execute(f"DROP SCHEMA {row['nspname']} CASCADE")
        await session.execute(
            "TRUNCATE projections.events, projections.sources, projections.imports, projections.projections CASCADE"
        )


def difference(expected: Any, found: Any) -> dict[Any, Any]:
    return {
        one: (expected.get(one), found.get(one))
        for one in sorted(expected.keys() | found.keys())
        if expected.get(one) != found.get(one)
    }


async def compare(dsn: str, archive: Path, meaning: Meaning, histories: Any, way: Way) -> None:
    engines = Engines(meaning, way.recovery, way.batch_size)
    model = event_type_of(engines.model).name
    handler, other_handler = engines.handler("handler"), engines.handler("other_handler")
    here, elsewhere = engines.declared("here"), engines.declared("elsewhere")
    # Each source has one event in turn, as in a journal that many write.
    flat = [
        (f"s{number}", *found[turn])
        for turn in range(4)
        for number, found in enumerate(histories)
        if turn < len(found)
    ]
    flat.insert(0, ("first", meaning.good(), 1))
    told = Told()
    pools = [ConnectionSettings(driver=driver, max_connections=15) for driver in way.drivers]
    async with connect(dsn, pools[0]) as database, connect(dsn, pools[1]) as other:
        await forget(database)
        for name in ("handler", "other_handler"):
            await engines.make(database, name)
        chosen: dict[str, Any] = {
            "ranges": way.ranges, "until_caught_up": True, "observer": told,
            "settings": run_settings(alike_failures=10_000),
        }  # fmt: skip
        # Of a journal elsewhere, an import is left out that is older than what its readers remember.
        cut = len(flat) if way.archived else 1 + len(flat) * way.cut // 10
        for part in (flat[:cut], flat[cut:]):
            await write(database, part, model, imported=way.archived)
            await run(database, handler, here, **chosen)
            await run(other, other_handler, **chosen)
            await run(other, elsewhere, journal=database, **chosen)
            if way.again:  # as after a restart that remembers no horizon
                await execute(database, f"UPDATE projections.projection_ranges SET horizon = '{BEGINNING}'")
        expected = await engines.rows(database, "handler") | refused(told, "handler")
        groups = await engines.groups(database, "handler")
        for name in ("other_handler", "here", "elsewhere"):
            found = await engines.rows(database, name) | refused(told, name)
            assert difference(expected, found) == {}, name
            assert await engines.groups(database, name) == groups, name
        if way.recovery == Recovery.skip() or not refused(told, "handler"):
            await read(database, dsn, engines, expected)
            if way.archived:
                archive_and_restore(dsn, archive)
            await again(database, dsn, engines, [handler, here], way.splits)
        if way.inline:
            await inline(database, engines, flat, expected, way)


async def write(
    database: Database, part: list[tuple[str, RawJson, int]], model: str, *, imported: bool
) -> None:
    written = [(source, payload, "plane", model, version) for source, payload, version in part]
    if not imported:
        async with database.transaction() as session:
            for each in written:
                await append(session, [Event(*each)])
        return
    seq_nrs = {
        row[0]: row[1] for row in await rows(database, "SELECT source_id, seq_nr FROM projections.sources")
    }
    historic: list[HistoricEvent] = []
    for number, each in enumerate(written):
        seq_nr = seq_nrs[each[0]] = seq_nrs.get(each[0], 0) + 1
        at = DAY + timedelta(hours=10 * seq_nr, microseconds=number)
        historic.append(HistoricEvent(*each, seq_nr=seq_nr, db_timestamp=at))
    await import_events(database, historic)


def archive_and_restore(dsn: str, archive: Path) -> None:
    before = everything(dsn)
    export(dsn, archive)
    drop_all(dsn)
    restore_archive(dsn, archive)
    assert everything(dsn) == before
    shutil.rmtree(archive)


async def read(database: Database, dsn: str, engines: Engines, expected: Found) -> None:
    """Envelopes, typed events and the tasks of a DataFrame give the event that handlers get, or the same reason."""

    def of(find: Callable[..., object], *args: object) -> str:
        try:
            return repr(find(*args))
        except InvalidPayload as error:
            return reason(error)

    at_once, why = dict[tuple[str, int], tuple[int, str]](), ""
    try:
        at_once = shown_to_spark(dsn, engines.model)
    except InvalidPayload as error:
        why = reason(error)
    async with database.session() as session:
        for source in sorted({source for source, _ in expected}):
            async for envelope in read_source(session, source):
                place = source, envelope.seq_nr
                found = of(decode, engines.model, envelope)
                if found.startswith("does not fit"):
                    assert expected.get(place, found) == found
                assert of(getattr, envelope, "event") == found
                if not why:
                    version, payload = at_once[place]
                    newest = envelope._replace(version=version, payload_json=payload)
                    assert of(decode, engines.model, newest) == found, place
    assert not why or why in expected.values()


def shown_to_spark(dsn: str, model: type[BaseModel]) -> dict[tuple[str, int], tuple[int, str]]:
    """By event, the version and the payload that a task of a DataFrame reads."""
    schema = StructType().add("source_id", StringType()).add("seq_nr", LongType())
    schema = schema.add("version", IntegerType()).add("payload", StringType())
    asked = options_of(entity_type="plane", models=NewestVersions.of([model]), seq_nrs=(1, 1000), splits=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROJECTIONS_DSN", dsn)
        options = parse_options(asked)
        reader = JournalReader(options, SparkTable(schema, options.mode, options.models))
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return {
        (row["source_id"], row["seq_nr"]): (row["version"], row["payload"])
        for row in pa.Table.from_batches(batches).to_pylist()
    }


async def again(database: Database, dsn: str, engines: Engines, definitions: list[Any], splits: int) -> None:
    """What verifies finds no difference, and what is rebuilt is what it was."""
    for definition in definitions:
        name = projection_of(definition).name
        before = await engines.rows(database, name), await engines.groups(database, name)
        found = await verify(database, definition, sources=None)
        assert (name, found.differing, found.differences) == (name, 0, [])
        await fence_passes(database)
        await rebuild(database, dsn, definition, RebuildOptions(splits=splits, skip=True))
        assert (await engines.rows(database, name), await engines.groups(database, name)) == before, name


async def inline(
    database: Database, engines: Engines, flat: list[tuple[str, RawJson, int]], expected: Found, way: Way
) -> None:
    """What an append handles is what workers have handled."""
    model = event_type_of(engines.model).name
    parks = way.recovery == NO_RETRY
    for name, make in (("inline_handler", engines.handler), ("inline_declared", engines.declared)):
        definition = make(name, name)
        if make == engines.handler:
            await engines.make(database, name)
        await caught_up(database, definition)
        appender = Inline(definition)
        async with database.transaction() as session:
            await appender.set_mode(session, "inline")
        numbers, accepted, found = dict[str, int](), dict[tuple[str, int], tuple[str, int]](), Found()
        over: set[str] = set()
        for source, payload, version in flat:
            if source in over:
                continue
            number = numbers[source] = numbers.get(source, 0) + 1
            try:
                async with database.transaction() as session:
                    done = await appender.append(
                        session, [Event(name + source, payload, name, model, version)]
                    )
                accepted[name + source, done[0].seq_nr] = (source, number)
            except HandlerFailed as error:
                found[source, number] = reason(error)
                over |= {source} if parks else set()
        stored = await engines.rows(database, name)
        found |= {accepted[place]: values for place, values in stored.items()}
        assert difference(expected, found) == {}, name


@pytest.fixture(scope="module")
def module_dsn(databases: Any, template: str) -> Iterator[str]:
    """One database for all examples: making one takes longer than an example."""
    with databases.fresh(template) as fresh:
        yield fresh


_ASKED = int(os.environ.get("HISTORIES") or 0)
"""How many histories to try, about; by default as many as the set of tests has time for."""
_FRESH = settings().max_examples >= 100 or _ASKED > 0
_AT_A_TIME = 40
# The first examples of hypothesis are the smallest ones, and every day there are no others.
_AT_LEAST = 1 if _FRESH else 20
_SEED = int(os.environ.get("HISTORIES_SEED") or (random.randrange(2**32) if _FRESH else 0))
_tried: list[int] = []


@seed(_SEED)
@settings(
    max_examples=2 * _ASKED // _AT_A_TIME or examples(50, daily=2),
    suppress_health_check=list(HealthCheck),
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
)
@given(data=st.data(), meaning=meanings(), way=ways)
@pytest.mark.examples
@pytest.mark.timeout(1200 + _ASKED)
@pytest.mark.usefixtures("in_this_process")
def test_all_readers_give_an_event_one_meaning(
    module_dsn: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, meaning: Meaning, way: Way
) -> None:
    histories = data.draw(histories_of(meaning, _AT_LEAST, _AT_A_TIME), label="histories")
    _tried.append(len(histories))
    print(f"HISTORIES_SEED={_SEED}: {sum(_tried)} histories", flush=True)
    note(f"{meaning!r}\n{way!r}")
    archive = tmp_path_factory.getbasetemp() / "archive"
    asyncio.run(compare(module_dsn, archive, meaning, histories, way))
