"""Effects of events that a projection sees once, however often it handles them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

import offsets
from journal import Database
from projections import (
    AtLeastOnce,
    Changes,
    Event,
    EventEnvelope,
    InvalidHandler,
    Recovery,
    Session,
    append,
    handles,
    handles_group,
    projection,
    reacts,
)
from projections.testing import changes_of, run_until_caught_up
from spark_projections.errors import SwapRefused
from spark_projections.rebuilds.rebuilding import rebuild
from spark_projections.rebuilds.repairing import repair, verify
from tests.fixtures.projections import (
    NO_RETRY,
    Failure,
    Happened,
    caught_up,
    execute,
    fetchval,
    happen,
    running,
    until,
)
from tests.fixtures.rebuilds import COUNTS, ONE, Gate, fence_passes

TOLD = "SELECT array_agg(payload ->> 'of') FROM projections.events WHERE entity_type = 'told'"


class Told(BaseModel):
    of: str


class Reacting:
    """Counts the events of each source, and appends another for each."""

    fails: frozenset[tuple[str, int]] = frozenset()

    @handles(Happened)
    def happened(self, event: Happened, envelope: EventEnvelope) -> Changes:
        return COUNTS.upsert(source_id=envelope.source_id, n=1, last=envelope.seq_nr)

    @reacts(Happened)
    async def tell(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if (envelope.source_id, envelope.seq_nr) in self.fails:
            raise Failure("cannot tell")
        await append(session, [told(envelope)])


def told(envelope: EventEnvelope) -> Event:
    return Event(f"of {envelope.source_id}", Told(of=f"{envelope.source_id}{envelope.seq_nr}"), "told")


def reacting(*fails: tuple[str, int], **options: Any) -> type[Any]:
    return projection("p", entity_type="plane", **options)(
        type("Reacting", (Reacting,), {"fails": frozenset(fails)})
    )


TELLS = reacting()
AT_ONCE = replace(ONE, swap_within=timedelta(0))


async def reactions(database: Database) -> list[str]:
    return sorted(await fetchval(database, TOLD) or [])


@pytest.mark.slow
async def test_an_event_is_reacted_to_in_the_transaction_that_handles_it(journal: Database) -> None:
    await happen(journal, "a", "a", "b")

    await run_until_caught_up(journal, TELLS)
    await happen(journal, "b")
    await run_until_caught_up(journal, TELLS)

    assert await reactions(journal) == ["a1", "a2", "b1", "b2"]
    assert await fetchval(journal, "SELECT sum(n) FROM counts") == 4


@pytest.mark.daily(1)
@pytest.mark.parametrize("batch_size", [1, 2, 1000])
async def test_the_reaction_that_fails_parks_its_source_and_takes_no_other_with_it(
    journal: Database, batch_size: int
) -> None:
    await happen(journal, "a", "b", "b", "a", "b", "c")

    await caught_up(journal, reacting(("b", 2), recovery=NO_RETRY, batch_size=batch_size))
    parked = await reactions(journal), await fetchval(journal, "SELECT n FROM counts WHERE source_id = 'b'")
    async with journal.session() as session:
        await offsets.ParkedSources(session).retry("p")
    await caught_up(journal, TELLS)

    assert parked == (["a1", "a2", "b1", "c1"], 1)
    assert await reactions(journal) == ["a1", "a2", "b1", "b2", "b3", "c1"]
    assert await fetchval(journal, "SELECT n FROM counts WHERE source_id = 'b'") == 3


async def test_a_batch_that_is_rolled_back_has_not_reacted(journal: Database) -> None:
    await happen(journal, "a", "b")
    lost = reacting(("b", 1), recovery=Recovery.fail())

    with pytest.raises(Exception, match="cannot tell"):
        await run_until_caught_up(journal, lost)
    before = await fetchval(journal, "SELECT count(*) FROM projections.reactions WHERE source_id = 'b'")
    await run_until_caught_up(journal, TELLS)

    assert before == 0
    assert await reactions(journal) == ["a1", "b1"]


async def test_what_is_handled_again_is_not_reacted_to_again(journal: Database) -> None:
    await happen(journal, "a", "b", "a")
    await run_until_caught_up(journal, TELLS)
    await execute(journal, "TRUNCATE counts")
    async with journal.session() as session:
        await offsets.clear_offset(session, "p")
    await happen(journal, "b", "c")

    await run_until_caught_up(journal, TELLS)

    assert await fetchval(journal, "SELECT sum(n) FROM counts") == 5
    assert await reactions(journal) == ["a1", "a2", "b1", "b2", "c1"]


async def test_comparing_and_repairing_react_to_nothing(
    journal: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await happen(journal, "a", "a", "b")
    await run_until_caught_up(journal, TELLS)
    await execute(journal, "UPDATE counts SET n = 99")
    await execute(journal, "TRUNCATE projections.reactions")  # which keeps a live worker from a second one
    called: list[EventEnvelope] = []

    async def tell(_: Any, session: Session, event: Happened, envelope: EventEnvelope) -> None:
        called.append(envelope)

    monkeypatch.setattr(TELLS, "tell", tell)

    for sources in (10, None):
        assert (await verify(journal, TELLS, sources=sources)).differing == 2
    assert (await repair(journal, TELLS, ["a"])).differing == 1

    assert await reactions(journal) == ["a1", "a2", "b1"]
    assert called == []


@pytest.mark.slow
async def test_handlers_by_statements_and_by_lists_have_reactions_too(journal: Database) -> None:
    class ByStatements:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            await session.execute(
                "INSERT INTO effects (source_id, seq_nr) VALUES ($1, $2)", envelope.source_id, 1
            )

        @reacts(Happened)
        async def tell(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            assert await session.fetchval("SELECT count(*) FROM effects") == 3  # after the batch
            await append(session, [told(envelope)])

    class ByLists(Reacting):
        @handles_group(Happened)
        async def happened(self, session: Session, events: Any) -> None:  # type: ignore[override]
            assert len(events) == 3

    await happen(journal, "a", "a", "b")
    await run_until_caught_up(journal, projection("p", entity_type="plane")(ByStatements))
    await run_until_caught_up(journal, projection("q", entity_type="plane")(ByLists))

    assert await reactions(journal) == ["a1", "a1", "a2", "a2", "b1", "b1"]


async def test_an_event_that_is_only_reacted_to_is_not_unknown(journal: Database) -> None:
    class Other(BaseModel):
        pass

    @projection("p", entity_type="plane", unhandled="fail")
    class Strict(Reacting):
        @reacts(Other)
        async def other(self, session: Session, event: Other, envelope: EventEnvelope) -> None:
            await append(session, [told(envelope)])

    events = [Event("a", Happened(), "plane"), Event("a", Other(), "plane")]
    async with journal.transaction() as session:
        await append(session, events)

    await run_until_caught_up(journal, Strict)

    assert await reactions(journal) == ["a1", "a2"]
    assert changes_of(Strict, events) == {"counts": {("a",): {"n": 1, "last": 1}}}


def test_reactions_are_part_of_a_transaction() -> None:
    with pytest.raises(InvalidHandler, match="drop AtLeastOnce"):

        @projection("p", entity_type="plane", delivery=AtLeastOnce())
        class Outside:
            @handles(Happened)
            async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None: ...

            @reacts(Happened)
            async def tell(self, session: Session, event: Happened, envelope: EventEnvelope) -> None: ...


def test_a_reaction_that_could_not_be_called_is_refused() -> None:
    with pytest.raises(
        InvalidHandler, match=r"tell: write it as async def tell\(self, session, event, envelope\)"
    ):

        class NotAsync:
            @reacts(Happened)  # type: ignore[arg-type]
            def tell(self, event: Happened, envelope: EventEnvelope) -> None: ...

    with pytest.raises(InvalidHandler, match="both again and tell react to event type 'Happened'"):

        @projection("p", entity_type="plane")
        class Twice(Reacting):
            @reacts(Happened)
            async def again(self, session: Session, event: Happened, envelope: EventEnvelope) -> None: ...

    with pytest.raises(InvalidHandler, match="not a payload model"):
        reacts(dict)(Reacting.tell)  # type: ignore[type-var]


class TestRebuild:
    @pytest.mark.slow
    async def test_reacts_to_nothing_and_neither_does_what_is_handled_again_after_it(
        self, journal: Database, dsn: str
    ) -> None:
        await happen(journal, "a", "b", "a")
        async with running(journal, TELLS, ranges=2):
            await until(journal, "SELECT sum(n) = 3 FROM counts")
            await fence_passes(journal)

            async def after_the_fence() -> None:
                await happen(journal, "b", "c")
                await until(journal, "SELECT sum(n) = 5 FROM counts")

            result = await Gate(journal, dsn, TELLS).at("fold", after_the_fence)
            await until(journal, "SELECT sum(n) = 5 FROM counts")
            await happen(journal, "c")
            await until(journal, "SELECT sum(n) = 6 FROM counts")

        assert result.events == 3
        assert await reactions(journal) == ["a1", "a2", "b1", "b2", "c1", "c2"]

    @pytest.mark.slow
    async def test_of_what_no_worker_has_handled_is_where_reactions_begin(
        self, journal: Database, dsn: str
    ) -> None:
        await happen(journal, "a", "b")
        await fence_passes(journal)

        await rebuild(journal, dsn, TELLS, ONE)
        await happen(journal, "a")
        await run_until_caught_up(journal, TELLS)

        assert await reactions(journal) == ["a2"]
        assert await fetchval(journal, "SELECT sum(n) FROM counts") == 3

    @pytest.mark.slow
    async def test_waits_for_the_workers_before_it_takes_their_place(
        self, journal: Database, dsn: str
    ) -> None:
        await happen(journal, "a", "b")
        await run_until_caught_up(journal, TELLS)
        await happen(journal, "a", "c")
        await fence_passes(journal)

        with pytest.raises(SwapRefused, match=r"have not reacted to .* such as those of 'a' \(2 sources\)"):
            await rebuild(journal, dsn, TELLS, AT_ONCE)
        await run_until_caught_up(journal, TELLS)
        result = await rebuild(journal, dsn, TELLS, AT_ONCE)

        assert result.resumed
        assert await reactions(journal) == ["a1", "a2", "b1", "c1"]
        assert await fetchval(journal, "SELECT sum(n) FROM counts") == 4

    @pytest.mark.slow
    async def test_does_not_skip_the_reactions_of_a_source_that_is_parked(
        self, journal: Database, dsn: str
    ) -> None:
        await happen(journal, "a", "b", "b")
        await caught_up(journal, reacting(("b", 2), recovery=NO_RETRY))
        await fence_passes(journal)

        with pytest.raises(SwapRefused, match=r"such as those of 'b' .* retry or drop what is parked"):
            await rebuild(journal, dsn, TELLS, AT_ONCE)
        async with journal.session() as session:
            await offsets.ParkedSources(session).retry("p")
        await run_until_caught_up(journal, TELLS)
        await rebuild(journal, dsn, TELLS, AT_ONCE)

        assert await reactions(journal) == ["a1", "b1", "b2"]
        assert await fetchval(journal, "SELECT sum(n) FROM counts") == 3
