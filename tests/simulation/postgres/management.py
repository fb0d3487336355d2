"""Models of what people ask about projections, and of what they decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.statements import Touched, statement
from tests.simulation.postgres.storage import Row


@statement(
    """
    UPDATE projections.parked_sources SET decision = $4
    WHERE projection_id = ANY($1) AND ($2::text IS NULL OR source_id = $2) AND ($3::bigint IS NULL OR seq_nr = $3)
        AND decision = 'waiting'
    """
)
async def decide(
    db: Backend, numbers: Sequence[int], source_id: str | None, seq_nr: int | None, decision: str
) -> Touched:
    decided = await db.update(
        "parked_sources",
        lambda k: (
            k["projection_id"] in numbers
            and k["source_id"] == (source_id or k["source_id"])
            and k["seq_nr"] == (seq_nr or k["seq_nr"])
            and k["decision"] == "waiting"
        ),
        lambda _: {"decision": decision},
    )
    return Touched(len(decided))


@statement(
    """
    SELECT
        p.name AS projection, p.name || '@' || coalesce(p.journal, 'journal') AS part, p.projection_id,
        projections._part_name_v1(p.name, p.journal) AS name, p.entity_types, p.paused, p.evicted_before, p.mode,
        p.journal, p.version
    FROM projections.projections AS p
    WHERE $1::text[] IS NULL OR p.name = ANY($1) OR p.name || '@' || coalesce(p.journal, 'journal') = ANY($1)
    ORDER BY p.name, p.projection_id
    """
)
async def find(db: Backend, names: Sequence[str] | None) -> list[Row]:
    found = db.select("projections", lambda p: names is None or p["name"] in names or _part(p) in names)
    columns = (
        "projection_id",
        "name",
        "entity_types",
        "paused",
        "evicted_before",
        "mode",
        "journal",
        "version",
    )
    return [
        {
            "projection": p["name"],
            "part": _part(p),
            **{column: p[column] for column in columns},
            "name": _name(db, p),
        }
        for p in sorted(found, key=lambda p: (p["name"], p["projection_id"]))
    ]


def _part(projection: Row) -> str:
    return f"{projection['name']}@{projection['journal'] or 'journal'}"


def _name(db: Backend, projection: Row) -> str:
    """``_part_name_v1``."""
    parts = db.select("projections", lambda p: p["name"] == projection["name"])
    return _part(projection) if len(parts) > 1 else str(projection["name"])


@statement(
    """
    SELECT projections._part_name_v1(p.name, p.journal) AS name FROM projections.projections AS p
    ORDER BY p.name, p.projection_id
    """
)
async def names(db: Backend) -> list[Row]:
    found = sorted(db.select("projections"), key=lambda p: (p["name"], p["projection_id"]))
    return [{"name": _name(db, p)} for p in found]


@statement("UPDATE projections.projections SET paused = $2 WHERE projection_id = ANY($1)")
async def set_paused(db: Backend, numbers: Sequence[int], paused: bool) -> Touched:
    updated = await db.update(
        "projections", lambda p: p["projection_id"] in numbers, lambda _: {"paused": paused}
    )
    return Touched(len(updated))


@statement(
    """
    SELECT
        r.projection_id, r.min_slice, r.max_slice, r.epoch, r.owner, r.assigned_to, r.claimed_at, r.horizon,
        r.handled_until, r.handled_at, r.handled, r.failures, r.error, r.restarts_at,
        w.lease_until, coalesce(w.lease_until > clock_timestamp(), FALSE) AS alive, r.import_id
    FROM projections.projection_ranges AS r LEFT JOIN projections.workers AS w ON r.owner = w.owner
    WHERE r.projection_id = ANY($1) ORDER BY r.projection_id, r.min_slice
    """
)
async def ranges(db: Backend, numbers: Sequence[int]) -> list[Row]:
    snapshot, now = db.snapshot(), db.clock()
    leases = {w["owner"]: w["lease_until"] for w in db.select("workers", None, snapshot)}
    found = db.select("projection_ranges", lambda r: r["projection_id"] in numbers, snapshot)
    columns = (
        "projection_id", "min_slice", "max_slice", "epoch", "owner", "assigned_to", "claimed_at", "horizon",
        "handled_until", "handled_at", "handled", "failures", "error", "restarts_at",
    )  # fmt: skip

    def row(r: Row) -> dict[str, Any]:
        lease = leases.get(r["owner"])
        alive = lease is not None and lease > now
        return {
            **{c: r[c] for c in columns},
            "lease_until": lease,
            "alive": alive,
            "import_id": r["import_id"],
        }

    return [row(r) for r in sorted(found, key=lambda r: (r["projection_id"], r["min_slice"]))]


@statement(
    """
    SELECT m.table_name, p.name
    FROM projections.read_models AS m INNER JOIN projections.projections AS p USING (projection_id, version)
    WHERE m.projection_id = ANY($1) AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_class AS c INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
        WHERE m.table_name IN (c.relname, n.nspname || '.' || c.relname)
    ) ORDER BY m.name
    """
)
async def missing_tables(db: Backend, numbers: Sequence[int]) -> list[Row]:
    return []  # no projection of a simulation has read models in SQL
