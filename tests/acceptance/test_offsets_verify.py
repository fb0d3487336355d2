"""``projections offsets verify`` finds progress that the journal does not account for."""

from __future__ import annotations

import json

from journal import Database
from projections.testing import run_until_caught_up
from tests.fixtures.commands import called
from tests.fixtures.projections import EFFECTS, execute, happen, recording


async def test_what_does_not_fit_the_journal_is_found(database: Database, dsn: str) -> None:
    await execute(database, EFFECTS)
    await happen(database, "a", "b", "a")
    await run_until_caught_up(database, recording())
    fits = called("offsets", "verify", "--dsn", dsn)
    await execute(database, "UPDATE projections.sources SET seq_nr = 1 WHERE source_id = 'a'")
    await execute(database, "UPDATE projections.projection_ranges SET horizon = now() + interval '1 hour'")

    shown = called("offsets", "verify", "--dsn", dsn)
    found = called("offsets", "verify", "--dsn", dsn, "--json")

    assert (fits.returncode, shown.returncode, found.returncode) == (0, 1, 1)
    assert "fits the journal" in fits.stdout
    assert "p: 1 sources are handled further than the journal goes" in shown.stdout
    assert [(m["what"], m["number"], m["examples"]) for m in json.loads(found.stdout)["misfits"]] == [
        ("horizon", 1, ["0-1023"]),
        ("offset", 1, ["a"]),
    ]
