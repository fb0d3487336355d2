"""docs/reference/sql.md, against the functions that a database has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from journal import Database

ROOT = Path(__file__).parent.parent.parent.parent
_ROW = re.compile(r"\| `(\w+)\((.*?)\)` \| (.*?) \| (.*?) \| (.*?) \| (.+?) \|")
_FUNCTIONS = """
SELECT
    p.proname AS name, p.pronargs AS taken, p.pronargdefaults AS optional, p.prosrc AS body,
    p.proargnames AS names, p.proargmodes::text[] AS modes, p.prorettype::regtype::text AS returned,
    ARRAY(
        SELECT a.attname::text FROM pg_type AS t INNER JOIN pg_attribute AS a ON t.typrelid = a.attrelid
        WHERE t.oid = p.prorettype AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
    ) AS columns,
    ARRAY(
        SELECT format_type(t.oid, NULL) FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS t (oid, n) ORDER BY t.n
    ) AS types,
    ARRAY(
        SELECT r FROM unnest(ARRAY['reader', 'worker', 'writer']) AS r
        WHERE has_function_privilege('projections_' || r, p.oid, 'EXECUTE') ORDER BY r
    ) AS roles
FROM pg_proc AS p WHERE p.pronamespace = 'projections'::regnamespace
"""


class Function(NamedTuple):
    arguments: str
    returned: str
    roles: str


def written() -> dict[str, tuple[Function, set[str]]]:
    """Each function of the reference, and the codes that it raises."""
    rows = _ROW.findall((ROOT / "docs/reference/sql.md").read_text())
    return {
        name: (Function(arguments, returned, roles), set(re.findall(r"PJ\d{3}", codes)))
        for name, arguments, returned, _, codes, roles in rows
    }


async def test_the_reference_of_public_functions_is_that_of_the_database(database: Database) -> None:
    public = written()

    known = await _functions(database)

    lines = (ROOT / "docs/reference/sql.md").read_text().count("\n| `")
    assert len(public) == lines > 20
    assert {name: known[name] for name in public} == {
        name: function for name, (function, _) in public.items()
    }


async def test_the_reference_names_the_errors_of_each_function(database: Database) -> None:
    async with database.session() as session:
        bodies = {row["name"]: row["body"] or "" for row in await session.fetch(_FUNCTIONS)}

    for name, (_, codes) in written().items():
        assert set(re.findall(r"PJ\d{3}", bodies[name])) <= codes <= _codes(name, bodies, set()), name


async def test_names_of_functions_show_whether_they_are_public(database: Database) -> None:
    named = {name for name in await _functions(database) if not name.startswith("_")}

    assert named == set(written())


async def test_no_function_is_left_that_nothing_calls_and_no_reference_names(database: Database) -> None:
    python = [
        path.read_text()
        for package in ("journal", "offsets", "projections", "spark_projections")
        for path in (ROOT / package).rglob("*.py")
    ]
    sql = [
        re.sub(r"--.*|CREATE OR REPLACE (FUNCTION|PROCEDURE) projections\.\w+", "", path.read_text())
        for part in ("functions", "tables", "views")
        for path in (ROOT / "sql" / part).rglob("*.sql")
    ]
    texts = "\n".join([*python, *sql])
    used = set(re.findall(r"\b\w+_v\d+\b", texts))
    called = "|".join(re.findall(r"_hooks_v1\('(\w+)'", texts))
    hooks = re.compile(rf"_hook_({called})_\w+_v1")

    left = (await _functions(database)).keys() - used - written().keys()
    assert [name for name in sorted(left) if not hooks.fullmatch(name)] == []


async def _functions(database: Database) -> dict[str, Function]:
    async with database.session() as session:
        rows = await session.fetch(_FUNCTIONS)
    return {
        row["name"]: Function(
            _arguments(row["names"] or [], row["types"], row["optional"]),
            _returned(row["columns"] or _columns(row["names"] or [], row["modes"]), row["returned"]),
            ", ".join(row["roles"]) or "the owner",
        )
        for row in rows
    }


def _arguments(names: list[str], types: list[str], optional: int) -> str:
    both = [f"{name} {kind}" for name, kind in zip(names, types, strict=False)]
    return ", ".join([*both[: len(both) - optional], *(f"[{one}]" for one in both[len(both) - optional :])])


def _columns(names: list[str], modes: list[str] | None) -> list[str]:
    return [name for name, mode in zip(names, modes or [], strict=False) if mode == "t"]


def _returned(columns: list[str], returned: str) -> str:
    return f"rows of {', '.join(columns)}" if columns else returned


def _codes(name: str, bodies: dict[str, str], seen: set[str]) -> set[str]:
    """What a function raises, and those that it calls."""
    if name in seen:
        return set()
    seen.add(name)
    called = set(re.findall(r"projections\.(\w+_v\d+)", bodies[name])) & bodies.keys()
    return set(re.findall(r"PJ\d{3}", bodies[name])).union(*(_codes(one, bodies, seen) for one in called))
