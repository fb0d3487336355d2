"""A projection that reads several journals is not rebuilt from one of them."""

from __future__ import annotations

import re

import pytest

import offsets
from journal import Database, DatabaseError
from offsets import WrongJournal
from spark_projections.rebuilds.interrupted import refuse_a_second
from spark_projections.rebuilds.rebuilding import rebuild
from spark_projections.rebuilds.repairing import verify
from tests.fixtures.rebuilds import ONE, Counts, make_read_models

_BOTH = [None, "other"]
_SAID = re.escape("projection 'counts' reads several journals (counts@journal, counts@other), and ")
_BEGIN = """
SELECT projections._begin_rebuild_v1(
    $1, 0, 1023, 1, now(), 0, '', 'rename', '{0}', '{1023}', '{}', '{}', '{}', '{}', '{plane}'
)
"""


async def test_its_tables_would_lack_what_the_other_has(database: Database) -> None:
    await make_read_models(database)
    async with database.session() as session:
        number = await offsets.register(session, "counts", "plane")
        await session.execute(_BEGIN, number)
        with pytest.raises(
            DatabaseError, match="a rebuild of projection 'counts' is unfinished: it can read another"
        ):
            await offsets.register(session, "counts", "plane", journal="other", journals=_BOTH)
        await session.execute("UPDATE projections.rebuilds SET state = 'cancelled'")
        await offsets.register(session, "counts", "plane", journal="other", journals=_BOTH)

        with pytest.raises(
            WrongJournal, match=_SAID + "a rebuild is of one. To build its read model again, stop"
        ):
            await refuse_a_second(session, Counts, ONE)
        with pytest.raises(
            DatabaseError, match="the projection reads several journals, and a rebuild is of one"
        ):
            await session.execute(_BEGIN, number)
        with pytest.raises(WrongJournal, match=_SAID):
            await verify(database, Counts)
    with pytest.raises(WrongJournal, match=_SAID):
        await rebuild(database, "", Counts, ONE)
