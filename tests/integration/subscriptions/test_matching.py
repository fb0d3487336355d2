"""Which events match which subscriptions, each once and in order."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from journal import Database
from journal.importing import import_events
from tests.fixtures.journal import historic
from tests.fixtures.matching import (
    execute,
    fetchval,
    happened,
    match,
    matched,
    matches,
    matching,
    publish,
    refused,
    subscribe,
)
from tests.fixtures.projections import until

ALL = {"a.b", "a.", "a.*", "b", "a_b", "a%b", "a\\b", "axb"}
LISTS: list[tuple[list[str], set[str]]] = [
    (["a.b"], {"a.b"}),
    (["a.b", "b"], {"a.b", "b"}),
    (["a.*"], {"a.b", "a.", "a.*"}),
    (["**"], ALL),
    (["*"], ALL - {"a.b", "a.", "a.*"}),
    (["*b"], ALL - {"a.b", "a.", "a.*"}),
    (["*b", "**.*b"], ALL - {"a.", "a.*"}),
    (["a_b"], {"a_b"}),
    (["a_*"], {"a_b"}),
    (["a%*"], {"a%b"}),
    (["a\\*"], {"a\\b"}),
    (["a%b", "*.b"], {"a%b", "a.b"}),
]


@pytest.mark.slow
@pytest.mark.parametrize("condition", [None, "e.seq_nr > 0", "e.topic <> ''"])
async def test_topics_are_exact_or_have_wildcards(database: Database, condition: str | None) -> None:
    for topics, _ in LISTS:
        await subscribe(database, condition, group=repr(topics), topics=topics)
    for topic in ALL:
        await happened(database, topic, source=topic)

    await match(database)

    found = await matches(database)
    for topics, expected in LISTS:
        assert {source for group, source, *_ in found if group == repr(topics)} == expected, topics


@pytest.mark.slow
async def test_wildcards_do_not_depend_on_how_the_session_reads_backslashes(database: Database) -> None:
    async with database.session() as session:
        if await session.fetchval("SELECT current_setting('server_version_num')::int") >= 190_000:
            pytest.skip("backslashes are read in one way only")
        await session.execute("SET standard_conforming_strings = off")
        await session.execute("SET escape_string_warning = off")
        await session.fetchval("SELECT projections.subscribe_v1('g', p_topics => ARRAY['a_*'])")
        await session.execute("RESET standard_conforming_strings")
    await happened(database, "axb")
    await happened(database, "a_b")

    await match(database)

    assert await matched(database) == [("a", 2)]


@pytest.mark.slow
async def test_entity_types_narrow(database: Database) -> None:
    narrow = await subscribe(database, entity_types=["train"])
    wide = await subscribe(database, entity_types=["train", "plane"])
    await happened(database, kind="plane", source="a")
    await happened(database, kind="train", source="b")

    await match(database)

    assert sorted((source, ids) for _, source, _, ids in await matches(database)) == [
        ("a", [wide]),
        ("b", [narrow, wide]),
    ]


@pytest.mark.slow
async def test_containment_of_params(database: Database) -> None:
    condition = "e.payload @> s.params"
    one = await subscribe(database, condition, params='{"n": 1}')
    every = await subscribe(database, condition)
    await happened(database, payload={"n": 1, "m": 2})
    await happened(database, payload={"n": 2})

    await match(database)

    assert [ids for *_, ids in await matches(database)] == [[one, every], [every]]


@pytest.mark.slow
async def test_an_event_is_one_row_for_each_group(database: Database) -> None:
    first = [await subscribe(database, topics=["t"]), await subscribe(database, "e.seq_nr = 1")]
    other = [await subscribe(database, "e.topic = 't'", group="h")]
    await happened(database)

    await match(database)

    assert await matches(database) == [("g", "a", 1, first), ("h", "a", 1, other)]


@pytest.mark.slow
async def test_matching_again_matches_nothing_again(database: Database) -> None:
    await subscribe(database)
    await happened(database)
    for _ in range(3):
        await match(database)

    assert await matched(database) == [("a", 1)]


@pytest.mark.slow
async def test_a_row_compared_as_a_whole_sees_the_payload(database: Database) -> None:
    """Such a condition is asked about events, though it names no column."""
    await subscribe(database, "ROW(e.*)::text LIKE '%needle%'")
    await happened(database, payload={"n": "needle"})
    await happened(database, payload={"n": "hay"})

    await match(database)

    assert await matched(database) == [("a", 1)]


@pytest.mark.slow
async def test_the_clock_is_asked_for_every_event(database: Database) -> None:
    """What depends on the type and the clock is not remembered for the type."""
    await subscribe(
        database,
        "e.topic = 't' AND now() > (s.params->>'after')::timestamptz",
        params='{"after": "2100-01-01Z"}',
    )
    await happened(database)
    async with matching(database) as told:
        await told.first("handled")
        await execute(database, 'UPDATE projections.subscriptions SET params = \'{"after": "2020-01-01Z"}\'')
        await happened(database)

        await until(database, "SELECT count(*) = 1 FROM projections.matches")

    assert await matched(database) == [("a", 2)]


class TestIdentity:
    async def test_the_same_is_the_same_whatever_its_order(self, database: Database) -> None:
        first = await subscribe(
            database, "TRUE", params='{"a": 1, "b": 2}', topics=["x", "y"], entity_types=["k", "l"]
        )
        again = await subscribe(
            database, "TRUE", params='{"b": 2, "a": 1}', topics=["y", "x", "y"], entity_types=["l", "k", "k"]
        )

        assert again == first

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"group": "g"}, {"group": "h"}),
            ({"params": '{"a": 1}'}, {"params": '{"a": "1"}'}),
            ({"topics": ["a%"]}, {"topics": ["a*"]}),
            ({"topics": ["a\\%*"]}, {"topics": ["a%*"]}),
            ({"topics": ["a"]}, {}),
            ({"entity_types": ["a"]}, {"topics": ["a"]}),
            ({"condition": "TRUE"}, {"condition": "TRUE "}),
            ({"condition": "TRUE"}, {}),
        ],
    )
    async def test_what_differs_in_anything_is_another(
        self, database: Database, one: dict[str, object], other: dict[str, object]
    ) -> None:
        assert await subscribe(database, **one) != await subscribe(database, **other)  # type: ignore[arg-type]

    @pytest.mark.slow
    async def test_texts_of_one_hash_are_two_conditions(self, database: Database) -> None:
        """Found by trying: about 77,000 random texts suffice for two of a 32-bit hash."""
        same = """
        SELECT array_agg(t) FROM (
            SELECT 'e.topic = ''' || n || '''' AS t, hashtext('e.topic = ''' || n || '''') AS h
            FROM generate_series(1, 400000) AS n
        ) AS t GROUP BY h HAVING count(*) > 1 LIMIT 1
        """
        one, other = (await fetchval(database, same))[:2]
        await subscribe(database, one, group="one")
        await subscribe(database, other, group="other")
        await happened(database, one.split("'")[1])
        await happened(database, other.split("'")[1])

        await match(database)

        assert [(group, seq_nr) for group, _, seq_nr, _ in await matches(database)] == [
            ("one", 1),
            ("other", 2),
        ]

    async def test_asked_for_at_once_by_two_it_is_one(self, database: Database) -> None:
        found = await asyncio.gather(*(subscribe(database, "e.topic = 'x'") for _ in range(8)))

        assert len(set(found)) == 1


class TestExpiry:
    async def test_the_longer_time_wins(self, database: Database) -> None:
        times = [timedelta(hours=2), timedelta(hours=1), timedelta(hours=3)]
        for time in times:
            await subscribe(database, expires_after=time)

        assert await fetchval(database, "SELECT expires_after FROM projections.subscriptions") == timedelta(
            hours=3
        )

    @pytest.mark.parametrize("times", [(None, timedelta(hours=1)), (timedelta(hours=1), None)])
    async def test_for_ever_wins_over_any_time(
        self, database: Database, times: tuple[timedelta | None, ...]
    ) -> None:
        for time in times:
            await subscribe(database, expires_after=time)

        assert await fetchval(database, "SELECT expires_after IS NULL FROM projections.subscriptions")

    async def test_what_is_not_in_use_is_removed_and_matches_no_more(self, database: Database) -> None:
        kept = await subscribe(database, expires_after=timedelta(hours=1))
        await subscribe(database, topics=["t"], expires_after=timedelta(microseconds=1))
        for_ever = await subscribe(database, topics=["t", "u"])

        assert await fetchval(database, "SELECT projections._expire_subscriptions_v1()") == 1
        await happened(database)
        await match(database)

        assert [ids for *_, ids in await matches(database)] == [[kept, for_ever]]

    async def test_what_is_just_said_to_be_in_use_is_left(self, database: Database) -> None:
        number = await subscribe(database, expires_after=timedelta(microseconds=1))
        async with database.transaction() as session:
            await session.fetchval("SELECT projections.keep_subscriptions_v1($1)", [number])

            assert await fetchval(database, "SELECT projections._expire_subscriptions_v1()") == 0

        assert await fetchval(database, "SELECT projections.keep_subscriptions_v1($1)", [number, 99]) == [
            number
        ]


@pytest.mark.slow
async def test_history_that_is_imported_is_not_matched(database: Database) -> None:
    await subscribe(database)
    await happened(database, source="new")
    await match(database)
    await import_events(database, [historic("old", n) for n in (1, 2)])
    await happened(database, source="old")

    await match(database)

    assert await matched(database) == [("new", 1), ("old", 3)]


@pytest.mark.slow
async def test_history_imported_before_matching_began_is_not_matched(database: Database) -> None:
    await subscribe(database)
    await import_events(database, [historic("old", n) for n in (1, 2)])
    await happened(database, source="old")

    await match(database)

    assert await matched(database) == [("old", 3)]


async def test_an_entity_type_that_comes_to_be_is_found(database: Database) -> None:
    await subscribe(database)
    await happened(database)
    async with matching(database):
        await happened(database, source="b", kind="train")
        await publish(database, "t")

        await until(database, "SELECT count(*) = 3 FROM projections.matches")

    assert sorted(await matched(database)) == [("a", 1), ("b", 1), ("publisher/p", 1)]


WRONG: list[tuple[dict[str, object], str]] = [
    ({"group": ""}, "1 to 255"),
    ({"group": "x" * 256}, "256"),
    ({"params": "[]"}, "array"),
    ({"params": "null"}, "null"),
    ({"params": '"x"'}, "string"),
    ({"params": None}, "NULL"),
    ({"params": '{"x": "%s"}' % ("x" * 1_000_000)}, "64 KiB"),
    ({"topics": []}, "at least one"),
    ({"topics": [""]}, "empty"),
    ({"topics": ["a", None]}, "empty"),
    ({"entity_types": []}, "at least one"),
    ({"entity_types": [None]}, "at least one"),
    ({"expires_after": timedelta(0)}, "longer than 0"),
    ({"expires_after": timedelta(seconds=-1)}, "longer than 0"),
]


async def test_what_can_not_be_subscribed_is_said(database: Database) -> None:
    for values, said in WRONG:
        error = await refused(database, None, **values)

        assert error.sqlstate == "PJ081"
        assert said in str(error)
