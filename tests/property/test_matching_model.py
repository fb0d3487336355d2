"""Any events, matched with any subscriptions, are what a plain evaluation of each pair says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from projections.interests.topics import parse_topics
from tests.fixtures.examples import examples

TOPICS = ["a", "a.b", "a.c", "b", "a_b", "a%", "a\\", "*"]
KINDS = ["plane", "train"]
Json = dict[str, Any]


@dataclass(frozen=True)
class Happening:
    """An event: what it is about, its kind, and what it says."""

    topic: str
    kind: str
    payload: Json


@dataclass(frozen=True)
class Wish:
    """A subscription."""

    group: str
    condition: int
    params: Json
    topics: tuple[str, ...] | None
    kinds: tuple[str, ...] | None


Predicate = Callable[[Happening, Json, int], bool]
CONDITIONS: list[tuple[str | None, Predicate]] = [
    (None, lambda _e, _p, _n: True),
    ("e.topic = s.params->>'topic'", lambda e, p, _n: e.topic == p.get("topic")),
    ("s.params @> jsonb_build_object('topic', e.topic)", lambda e, p, _n: e.topic == p.get("topic")),
    ("e.payload @> s.params", lambda e, p, _n: p.items() <= e.payload.items()),
    ("e.seq_nr > 2", lambda _e, _p, n: n > 2),
    ("(e.payload->>'n')::int % 2 = 0", lambda e, _p, _n: "n" in e.payload and e.payload["n"] % 2 == 0),
    (
        "e.entity_type <> 'plane' OR e.topic LIKE 'a%'",
        lambda e, _p, _n: e.kind != "plane" or e.topic.startswith("a"),
    ),
    ("s.params = '{}'", lambda _e, p, _n: p == {}),
    ("NULL::boolean", lambda _e, _p, _n: False),
]

payloads = st.dictionaries(st.sampled_from(["n", "m"]), st.integers(0, 3))
happenings = st.builds(Happening, st.sampled_from(TOPICS), st.sampled_from(KINDS), payloads)
params = st.one_of(
    st.just({}), payloads, st.fixed_dictionaries({"topic": st.sampled_from(TOPICS)})
)  # fmt: skip
lists = st.lists(
    st.sampled_from([*TOPICS, "a*", "*b", "a.*", "a_*", "a\\*", "**", "*.**"]), min_size=1, max_size=3
).map(tuple)
wishes = st.builds(
    Wish, st.sampled_from("gh"), st.integers(0, len(CONDITIONS) - 1), params, st.none() | lists,
    st.none() | st.lists(st.sampled_from(KINDS), min_size=1, unique=True).map(tuple),
)  # fmt: skip

RESET = """
TRUNCATE projections.matches, projections.events, projections.sources, projections.subscriptions,
    projections.subscription_groups, projections.subscription_topics CASCADE
"""
SUBSCRIBE = "SELECT projections.subscribe_v1(%s, %s, %s, NULL, %s, %s)"
MATCH = """
SELECT projections._match_log_v1(array_agg(entity_type), array_agg(source_id), array_agg(seq_nr),
    array_agg(db_timestamp), array_agg(slice), array_agg(event_type))
FROM (SELECT * FROM projections.events AS e ORDER BY e.db_timestamp LIMIT %s OFFSET %s) AS e HAVING count(*) > 0
"""
FOUND = """
SELECT g.name, m.source_id, m.seq_nr, m.subscription_ids
FROM projections.matches AS m INNER JOIN projections.subscription_groups AS g USING (group_id) ORDER BY m.match_id
"""


@pytest.mark.examples
def test_what_matches_is_what_a_plain_evaluation_says(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:

        @settings(max_examples=examples(50), suppress_health_check=list(HealthCheck))
        @given(st.lists(wishes, max_size=8), st.lists(happenings, max_size=12), st.integers(1, 12))
        def run(subscriptions: list[Wish], events: list[Happening], page: int) -> None:
            connection.execute(RESET)
            ids = [(wish, _subscribe(connection, wish)) for wish in subscriptions]
            keys = [_append(connection, event) for event in events]
            for offset in range(0, len(events), page):
                connection.execute(MATCH, [page, offset])

            assert connection.execute(FOUND).fetchall() == _expected(ids, events, keys)

        run()


def _subscribe(connection: psycopg.Connection[Any], wish: Wish) -> int:
    row = connection.execute(
        SUBSCRIBE,
        [
            wish.group, CONDITIONS[wish.condition][0], Jsonb(wish.params),
            None if wish.topics is None else list(wish.topics), None if wish.kinds is None else list(wish.kinds),
        ],
    ).fetchone()  # fmt: skip
    assert row is not None
    return int(row[0])


def _append(connection: psycopg.Connection[Any], event: Happening) -> tuple[str, int]:
    """Sources of its kind: one for each."""
    row = connection.execute(
        "SELECT seq_nr FROM projections.append_event_v1(%s, %s, %s, %s)",
        [f"the-{event.kind}", event.kind, event.topic, json.dumps(event.payload)],
    ).fetchone()
    assert row is not None
    return f"the-{event.kind}", int(row[0])


def _expected(
    ids: list[tuple[Wish, int]], events: list[Happening], keys: list[tuple[str, int]]
) -> list[tuple[Any, ...]]:
    groups = list(dict.fromkeys(wish.group for wish, _ in ids))  # in the order of their numbers
    return [
        (group, source_id, seq_nr, found)
        for event, (source_id, seq_nr) in zip(events, keys, strict=True)
        for group in groups
        if (found := sorted({i for wish, i in ids if wish.group == group and _wants(wish, event, seq_nr)}))
    ]  # fmt: skip


def _wants(wish: Wish, event: Happening, seq_nr: int) -> bool:
    return (
        (wish.topics is None or parse_topics(wish.topics).matches(event.topic))
        and (wish.kinds is None or event.kind in wish.kinds)
        and CONDITIONS[wish.condition][1](event, wish.params, seq_nr)
    )
