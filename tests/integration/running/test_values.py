"""JSON in histories: rows and parked sources are those of a table handler, whatever runs the SQL."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from journal import Database, connect
from projections import (
    Changes,
    Event,
    EventEnvelope,
    RawJson,
    Table,
    append,
    events,
    handles,
    projection,
    read_model,
    run,
)
from projections.defining.sql_fields import columns_of
from projections.testing import run_until_caught_up
from tests.fixtures.projections import NO_RETRY, execute
from tests.fixtures.projections import settings as run_settings
from tests.fixtures.read_models import rows
from tests.fixtures.values import Values, payload

# Columns that both kinds of projections have; jsonb is compared by the property tests.
COLUMNS = {name: column for name, column in columns_of(Values).items() if column.type != "jsonb"}
FIELDS = {name: column.type for name, column in COLUMNS.items()}
SHORT = {name: name[:20] + str(n) for n, name in enumerate(FIELDS)}
_COLUMNS = ", ".join(f'"{short}"' for short in SHORT.values())
_OPTIONS: dict[str, Any] = {"entity_type": "t", "recovery": NO_RETRY}
BY_HANDLER = Table("by_handler", key="source_id", set=tuple(SHORT.values()), source="source_id")

FEW = [
    ("number", "1e2"), ("number", "true"), ("number", '"0x1F"'), ("flag", '"yes"'), ("text", "5"), ("text", '"5"'),
    ("at", '"now"'), ("at", "1578182400"), ("at", '"2025-12-31T23:59:59.9999999Z"'), ("day", '"Jan 5 2020"'),
    ("day", '"9999-12-31"'), ("colour", '"green"'), ("lasts", '"-PT0.5S"'), ("lasts", '"P1Y"'), ("dotted", '"A"'),
    ("shouted", '"é"'), ("long", "5"), ("longer", '"a"'), ("given", "null"), ("given", "6"), ("positive", "-5"),
]  # fmt: skip


def _projections() -> list[Any]:
    @projection("handler", **_OPTIONS)
    class ByHandler:
        @handles(Values)
        def values(self, event: Values, envelope: EventEnvelope) -> Changes:
            found = {short: getattr(event, name) for name, short in SHORT.items()}
            plain = {name: getattr(value, "value", value) for name, value in found.items()}
            return BY_HANDLER.upsert(source_id=envelope.source_id, **plain)

    def by_sql(where: str, *, only_models: bool) -> Any:
        fields = [name for name, column in COLUMNS.items() if (column.test is None) is only_models]
        selected = ", ".join(f'"{name}" AS "{SHORT[name]}"' for name in fields)

        class BySql:
            stored = events(Values)
            model = read_model(f"SELECT source_id, seq_nr, {selected} FROM stored", table=where)

        return projection(where, **_OPTIONS)(BySql)

    # A statement with one field that only models read has all of its events read by them.
    names = {"here": False, "here_rest": True, "elsewhere": False, "elsewhere_rest": True}
    return [ByHandler, *(by_sql(name, only_models=only) for name, only in names.items())]


def _event(field: str, spelling: str) -> Event:
    return Event(f"{field} {spelling}", RawJson(payload(field, spelling)), "t", event_type="Values")


async def _compare(database: Database, dsn: str, spelled: list[tuple[str, str]]) -> None:
    columns = ", ".join(f'"{SHORT[name]}" {kind}' for name, kind in FIELDS.items())
    await execute(database, f"CREATE TABLE by_handler (source_id text PRIMARY KEY, {columns})")
    by_handler, here, here_rest, *elsewhere = _projections()
    async with database.transaction() as session:
        for field, spelling in spelled:
            await append(session, [_event(field, spelling)])

    quick: dict[str, Any] = {"settings": run_settings(alike_failures=10_000), "until_caught_up": True}
    async with connect(dsn) as other:
        await run(database, by_handler, here, here_rest, **quick)
        await run(other, *elsewhere, journal=database, **quick)

    async def of(*tables: str) -> Any:
        joined = " NATURAL JOIN ".join(tables)
        stored = await rows(database, f"SELECT source_id, {_COLUMNS} FROM {joined} ORDER BY source_id")
        why = (
            "SELECT source_id, error FROM projections.parked_sources AS k "
            "INNER JOIN projections.projections AS p ON k.projection_id = p.projection_id WHERE p.name = ANY ($1)"
        )
        parked = await rows(database, why, [table.removeprefix("by_") for table in tables])
        # What fits the model, and not the column, each says in its own words.
        refused = {source: error if "does not fit Values" in error else "" for source, error in parked}
        return {source: repr(values) for source, *values in stored} | refused  # NaN is not itself

    expected = await of("by_handler")
    for table in ("here", "elsewhere"):
        found = await of(table, f"{table}_rest")
        assert {
            one: (found.get(one), is_so) for one, is_so in expected.items() if found.get(one) != is_so
        } == {}
        assert found.keys() == expected.keys()


async def test_a_few_values_are_the_same_everywhere(database: Database, dsn: str) -> None:
    await _compare(database, dsn, FEW)


class Named(BaseModel):
    """One that JSON may also have by the names of its fields."""

    model_config = ConfigDict(populate_by_name=True)

    given: int | None = Field(default=None, alias="Given")
    other: int = Field(default=7, alias="Other")
    third: int | None = Field(default=3, alias="Third")


async def test_fields_are_found_by_both_of_their_names(database: Database) -> None:
    by_handler = Table("named", key="source_id", set=("given", "other", "third"), source="source_id")

    @projection("handler", **_OPTIONS)
    class ByHandler:
        @handles(Named)
        def named(self, event: Named, envelope: EventEnvelope) -> Changes:
            return by_handler.upsert(source_id=envelope.source_id, **event.model_dump())

    @projection("sql", **_OPTIONS)
    class BySql:
        named = events(Named)
        declared = read_model("SELECT source_id, seq_nr, given, other, third FROM named")

    await execute(
        database, "CREATE TABLE named (source_id text PRIMARY KEY, given bigint, other bigint, third bigint)"
    )
    names = ["given", "Given", "other", "Other", "third", "Third"]
    payloads = ["{}", *(f'{{"{one}": 5}}' for one in names), *(f'{{"{one}": null}}' for one in names)]
    async with database.transaction() as session:
        for payload_ in [*payloads, '{"Given": 1, "given": 2}', '{"Given": null, "given": 2}']:
            await append(session, [Event(payload_, RawJson(payload_), "t", event_type="Named")])

    await run_until_caught_up(database, ByHandler, BySql)

    taken = "SELECT source_id, given, other, third FROM {} ORDER BY source_id"
    found = await rows(database, taken.format("named"))
    assert await rows(database, taken.format("declared")) == found
    assert len(found) == len(payloads) + 2 - 2  # other may not be null
