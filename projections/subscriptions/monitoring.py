"""What a monitor shows of groups of consumers and of their conditions, and what its page does with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import nan
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from journal import Database, NotAllowed, Session
from projections.monitoring import (
    DEAD_LISTED,
    LISTED,
    Measure,
    MetricTable,
    Monitored,
    Observed,
    Place,
    Ranges,
    Text,
    Vacancy,
    bounds,
    measures,
    shown,
    single,
)
from projections.subscriptions.dead_letters import DeadLetters, FailedBatch
from projections.subscriptions.group_lag import GroupLag, group_lag, unmatched_entity_types
from projections.subscriptions.groups import rescale_group
from projections.subscriptions.stopped_conditions import (
    QuarantinedCondition,
    events_set_apart,
    quarantined_conditions,
    release_condition,
)

_GAUGES: MetricTable = {
    "group_lag_seconds": (
        "Age of the oldest event that is not read, or is not matched and may be for the group; 0 when there is none.",
        "lag",
    ),
    "group_backlog_matches": ("Matches that are not read.", "backlog"),
    "group_unmatched_events": ("Events that may be for the group, and are still to be matched.", "unmatched"),
    "group_catching_up_subscriptions": (
        "Subscriptions that catch up with the past.", lambda group: len(group.catching_up),
    ),
    "group_catching_up_events": (
        "Events of the past that these have looked at.", lambda group: sum(one.events for one in group.catching_up),
    ),
    "group_catching_up_remaining_seconds": (
        "How long they still take at the speed until now; 0 when there is none, NaN when nothing says so yet.",
        lambda group: nan if group.remaining is None else group.remaining,
    ),
    "group_ranges": ("Ranges into which the group is cut.", lambda group: len(group.ranges)),
    "group_ranges_without_reader": ("Ranges that no reader that is alive holds.", "without_reader"),
    "group_retries": ("Batches that failed and are to be handled again.", "retries"),
    "group_dead_letters": ("Batches that wait for somebody to decide.", "dead"),
    "group_handlers_missing": (
        "Handlers that no consumer has, though matches wait for them.", lambda group: len(group.missing),
    ),
}  # fmt: skip
_NAMED = 3
"""The most entity types that a line names."""
_RetryId: TypeAlias = Annotated[int, Field(ge=1, le=2**63 - 1)]
_ConditionId: TypeAlias = Annotated[int, Field(ge=1, le=2**31 - 1)]


@dataclass(frozen=True, slots=True)
class _Groups(Observed):
    """Groups of consumers, and what holds them up."""

    groups: list[GroupLag]
    quarantined: list[QuarantinedCondition]
    unmatched: list[str]
    """Entity types whose events nobody has ever matched."""
    set_apart: int
    """Events that conditions failed on."""

    def metrics(self) -> Iterator[Measure]:
        yield from measures(_GAUGES, [([one.name], one) for one in self.groups], ["group"])
        yield single(
            "quarantined_conditions",
            "Conditions of subscriptions that failed on most events, or took too long, and are stopped.",
            len(self.quarantined),
        )
        yield single(
            "events_set_apart",
            "Events that conditions of subscriptions failed on, and that wait for somebody to decide.",
            self.set_apart,
        )

    def lags(self) -> dict[Place, timedelta]:
        """Of ranges that several handlers have of their own, the largest."""
        lags: dict[Place, timedelta] = {}
        for one in self.groups:
            for part in one.parts:
                place = Place("group", one.name, part.slices)
                lags[place] = max(lags.get(place, timedelta()), timedelta(seconds=part.lag))
        return lags

    def vacancies(self, idle: Sequence[str]) -> Iterator[Vacancy]:
        command = "projections worker --subscriptions"
        if idle:
            yield Vacancy("matching", "nobody matches events for subscriptions", command)
        if self.unmatched:
            what = ", ".join(map(repr, self.unmatched[:_NAMED]))
            more = " and others" if len(self.unmatched) > _NAMED else ""
            yield Vacancy("matching", f"nobody has ever matched events of {what}{more}", command)
        for one in self.groups:
            if one.without_reader and one.backlog:
                waits = f"whose matches wait: {one.without_reader} of {len(one.parts)} ranges are free"
                yield Vacancy("consumer", f"nobody reads for group {one.name!r}, {waits}", "a consumer of it")

    async def page(self, database: Database) -> dict[str, Any]:
        async with database.session() as session:
            dead = {
                one.name: await DeadLetters(session).list(one.name, limit=DEAD_LISTED)
                for one in self.groups
                if one.dead
            }
        return {
            "groups": [_group(one, dead.get(one.name, ())) for one in self.groups],
            "quarantined": [_quarantined(one) for one in self.quarantined[:LISTED]],
            "quarantined_total": len(self.quarantined),
            "unmatched": self.unmatched[:LISTED],
        }


async def _look(session: Session) -> _Groups:
    return _Groups(
        await group_lag(session),
        await quarantined_conditions(session),
        await unmatched_entity_types(session),
        await events_set_apart(session),
    )


def _group(one: GroupLag, dead: Sequence[FailedBatch]) -> dict[str, Any]:
    names = "name reliable state lag backlog readers without_reader retries caught_up_to remaining"
    return {
        "id": one.group_id,
        **shown(one, names),
        "catching_up": len(one.catching_up),
        "dead": [
            {"id": batch.retry_id, **shown(batch, "handler events attempts error failed_at")}
            for batch in dead
        ],
        "dead_total": one.dead,
        "ranges": [
            {**bounds(part), **shown(part, "unmatched cursor moved_at handler")} for part in one.parts
        ],
    }


def _quarantined(one: QuarantinedCondition) -> dict[str, Any]:
    values = shown(one, "sql error since subscriptions")
    return {"id": one.condition_id, **values, "groups": one.groups[:LISTED]}


async def _rescale(database: Database, group: Text, ranges: Ranges) -> str:
    async with database.session() as session, session.transaction():
        await rescale_group(session, group, ranges)
    return f"{group} is cut into {ranges} {'range' if ranges == 1 else 'ranges'}"


async def _retry(database: Database, group: Text, retry_id: _RetryId) -> str:
    async with database.session() as session, session.transaction():
        await DeadLetters(session).retry(group, retry_id)
    return f"dead letter {retry_id} of {group} is handled again"


async def _drop(database: Database, group: Text, retry_id: _RetryId) -> str:
    async with database.session() as session, session.transaction():
        await DeadLetters(session).drop(group, retry_id)
    return f"dead letter {retry_id} of {group} is dropped"


async def _release(database: Database, condition_id: _ConditionId) -> str:
    async with database.session() as session, session.transaction():
        released = await release_condition(session, condition_id)
    if not released:
        raise NotAllowed(f"condition {condition_id} is not stopped any more", "wrong_state")
    return f"condition {condition_id} is asked again"


MONITORED = Monitored(
    _look,
    {"rescale-group": _rescale, "retry-dead-letter": _retry, "drop-dead-letter": _drop, "release": _release},
    internal=["matching"],
    roles=["matching", "consumer"],
)
