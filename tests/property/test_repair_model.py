"""Of any journal and any damage, a comparison finds exactly the rows that were damaged, and a repair mends them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from journal import ConnectionSettings, Database, EventEnvelope, connect
from projections import handles, projection
from projections.defining.tables import Change
from projections.testing import run_until_caught_up
from spark_projections.rebuilds.repairing import Comparison, repair, verify
from tests.fixtures.examples import examples
from tests.fixtures.projections import execute
from tests.fixtures.rebuilds import (
    OWN,
    AllKinds,
    Changed,
    append_changes,
    forget_all,
    make_read_models,
    plain_fold,
    tables_of_all_kinds,
)
from tests.property.test_rebuild_model import changes, module_dsn, sources

__all__ = ["module_dsn"]

_DAMAGES = {
    "missing": "DELETE FROM own WHERE (source_id, key) = ($1, $2)",
    "different": "UPDATE own SET times = times + 1 WHERE (source_id, key) = ($1, $2)",
    "surplus": "INSERT INTO own (source_id, key) VALUES ($1, $2)",
}


@projection("own-rows", entity_type="plane", batch_size=7, tables=(OWN,))
class OwnRows:
    """The rows of their own that sources have."""

    @handles(Changed)
    def changed(self, event: Changed, envelope: EventEnvelope) -> Sequence[Change]:
        return [change for change in AllKinds().changed(event, envelope) if change.table is OWN]


damages = st.lists(st.tuples(st.sampled_from(list(_DAMAGES)), st.integers(0, 30)), max_size=8)


async def damage(
    database: Database, rows: list[Any], source_ids: list[str], wanted: Sequence[tuple[str, int]]
) -> dict[Any, str]:
    """Damage rows, each in one way; returns how."""
    done: dict[Any, str] = {}
    for kind, number in wanted:
        if kind == "surplus":
            key = (source_ids[number % len(source_ids)], f"surplus {number}")
        elif rows:
            key = rows[number % len(rows)]
        else:
            continue
        if key not in done:
            done[key] = kind
            assert await execute(database, _DAMAGES[kind], *key) == 1
    return done


def told(found: Comparison) -> dict[Any, str]:
    assert found.differing == len(found.differences)
    return {(row.key["source_id"], row.key["key"]): row.kind for row in found.differences}


async def damaged_and_mended(dsn: str, events: list[tuple[str, Changed]], wanted: Any) -> None:
    async with connect(dsn, ConnectionSettings(max_connections=8)) as database:
        await make_read_models(database)
        await forget_all(database)
        await append_changes(database, events)
        await run_until_caught_up(database, OwnRows, ranges=3)
        right, source_ids = plain_fold(events)["own"], sorted({source_id for source_id, _ in events})
        done = await damage(database, sorted(right), source_ids, wanted)

        assert told(await verify(database, OwnRows)) == done
        assert told(await verify(database, OwnRows, sources=None)) == done
        assert told(await repair(database, OwnRows, source_ids)) == done
        assert (await verify(database, OwnRows, sources=None)).differing == 0
        assert (await tables_of_all_kinds(database))["own"] == right


@settings(max_examples=examples(12, daily=2), suppress_health_check=list(HealthCheck))
@given(events=st.lists(st.tuples(sources, changes), min_size=1, max_size=30), wanted=damages)
@example(events=[("a", Changed())], wanted=[("surplus", 0)])
def test_what_is_damaged_is_found_and_mended(
    module_dsn: str, events: list[tuple[str, Changed]], wanted: list[tuple[str, int]]
) -> None:
    asyncio.run(damaged_and_mended(module_dsn, events, wanted))
