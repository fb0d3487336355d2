"""The public functions of SQL: arguments with their types and defaults, results, and who may call them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from tests.golden.recordings import Files, Fresh, lines

_FUNCTIONS = """
SELECT
    p.proname, p.proargnames, p.proargmodes::text[], p.pronargs, p.pronargdefaults,
    p.prorettype::regtype::text, p.proretset,
    ARRAY(
        SELECT format_type(t.oid, NULL)
        FROM unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) WITH ORDINALITY AS t (oid, n) ORDER BY t.n
    ),
    ARRAY(SELECT pg_get_function_arg_default(p.oid, n) FROM generate_series(1, p.pronargs) AS n),
    ARRAY(
        SELECT format('%s %s', a.attname, format_type(a.atttypid, a.atttypmod))
        FROM pg_type AS t INNER JOIN pg_attribute AS a ON t.typrelid = a.attrelid
        WHERE t.oid = p.prorettype AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
    ),
    ARRAY(
        SELECT r FROM unnest(ARRAY['reader', 'worker', 'writer']) AS r
        WHERE has_function_privilege('projections_' || r, p.oid, 'EXECUTE') ORDER BY r
    )
FROM pg_proc AS p WHERE p.pronamespace = 'projections'::regnamespace AND p.proname !~ '^_'
ORDER BY p.proname
"""


def functions(fresh: Fresh) -> Files:
    """The functions whose names begin with no underscore; all others may change with any version."""
    with fresh() as dsn, psycopg.connect(dsn) as connection:
        found = connection.execute(_FUNCTIONS).fetchall()
    return {"sql.txt": lines(line for row in found for line in _function(row))}


def _function(row: tuple[Any, ...]) -> Iterator[str]:
    name, names, modes, taken, optional, returned, many, types, defaults, columns, roles = row
    yield f"{name} for {', '.join(roles) or 'the owner'}"
    for number in range(taken):
        default = f" DEFAULT {defaults[number]}" if number >= taken - optional else ""
        yield f"    {names[number]} {types[number]}{default}"
    columns = columns or [
        f"{one} {kind}"
        for one, kind, mode in zip(names or (), types, modes or (), strict=False)
        if mode in {"t", "o"}
    ]
    rows = "rows of " if many else ""
    yield f"  RETURNS {rows}{'' if columns else returned}".rstrip()
    yield from (f"    {column}" for column in columns)
