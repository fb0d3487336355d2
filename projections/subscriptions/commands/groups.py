"""``projections groups``: how far groups of consumers are, and what their handlers could not handle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Annotated

import click

from journal import Database, OwnedSession, ProjectionsError, Session
from projections.subscriptions import cursors, give_up_handler, remove_group, rescale_group, rewind_group
from projections.subscriptions.commands.catching_up import history_notes, history_values
from projections.subscriptions.commands.dead_letters import dead
from projections.subscriptions.commands.left_to import left_to_consumers, left_to_matching
from projections.subscriptions.group_lag import GroupLag, GroupRangeLag, group_lag, unmatched_entity_types
from projections.terminal.ages import age, failing_above
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import Opt, derived
from projections.terminal.confirmation import confirm
from projections.terminal.options import FailAbove, From, NewRanges, Yes
from projections.terminal.output import (
    Answer,
    Columns,
    PartOf,
    at,
    counted,
    done,
    listing,
    owner_of,
    picked,
    printable,
    rescaled,
    table_of,
)

_ByRange = Annotated[bool, Opt("One line for each range of slices.", "--ranges")]
_Start = From("Read events again from this time on.", "--from")
_NUMBERS = ("lag", "cursor", "epoch")
_PAST = ("up to", "left")
"""How far groups are that catch up."""
_COLUMNS: Columns = {
    "group": "name", "state": "state",
    "up to": lambda one: at(one.caught_up_to, "the beginning") if one.catching_up else "-",
    "left": lambda one: "-" if not one.catching_up or one.remaining is None else age(one.remaining),
    "ranges": lambda one: len(one.ranges), "readers": lambda one: len(one.readers),
    "lag": lambda one: age(one.lag), "backlog": "backlog", "to match": "unmatched", "retries": "retries",
    "dead": "dead",
}  # fmt: skip
_RANGE_COLUMNS: Columns = {
    "group": "whole.name", "slices": lambda one: f"{one.part.slices} {one.part.handler or ''}".strip(),
    "reader": lambda one: owner_of(one.part), "state": "part.state", "lag": lambda one: age(one.part.lag),
    "backlog": "part.backlog", "to match": "part.unmatched",
    "cursor": lambda one: str(one.part.cursor), "epoch": lambda one: str(one.part.epoch),
    "last moved": lambda one: at(one.part.moved_at, "never"),
}  # fmt: skip


class NothingKept(ProjectionsError):
    """Nothing is kept for the handler, or somebody reads for it."""


@click.group(cls=ListGroup)
def groups() -> None:
    """
    Show groups of consumers: who reads for them, and how far they are; change how they are cut; and decide about
    batches that their handlers could not handle.

    \b
      projections groups                            all groups, one line each
      projections groups show billing --ranges      one group, range by range
      projections groups --fail-above 30s           in scripts: exit code 3 when one is behind by more
      projections groups rescale billing --ranges 8
      projections groups rewind billing --from 2026-01-31T12:00:00Z
      projections groups give-up billing mails      a handler that no consumer has any more
      projections groups dead list billing          what its handlers have given up
      projections groups dead retry billing --all
      projections groups remove billing

    Without a command, `list` is run.
    """  # noqa: D301, D205 - click reads the escape, and a first sentence may be longer than a line


@groups.command(name="list", short_help="Show how far all groups are behind, and who reads for them.")
@derived(watched=True)
async def list_(
    session: OwnedSession, /, *, by_range: _ByRange = False, fail_above: FailAbove = None
) -> Answer:
    """
    Show how far groups are behind: lag, the age of the oldest event that is not read, backlog, the number of matches
    that are not read, and "to match", the number of events that may be for the group and are still to be matched.

    All come from the database alone, exact whether or not anybody reads or matches. Lag counts what is still to be
    matched, too: matching runs in `projections worker --subscriptions`, as the projection called matching, and
    `projections lag` shows how far it is. What was published counts from when it matched.

    A group is catching up while subscriptions of it get what was before they were made, or before it was rewound: the
    table says up to which time they have it, and about how long the rest takes. Lag counts what they have not had.

    A range is read; or nobody reads it, and it is unread (matches wait) or idle (none waits). A handler that the reader
    of a range did not have has one of its own, until both are equally far. A group of listeners
    has no cursor and is listening: it is never behind. Retries are batches that failed and are to be handled again;
    dead are those that wait for a decision (see `projections groups dead list NAME`).

    \b
    Exit codes
      0    done; or --watch was stopped by SIGTERM
      1    refused or failed; the reason is on stderr
      2    the command line itself is wrong
      3    the lag of a group is above --fail-above
      130  --watch was stopped by SIGINT (Ctrl-C)
    """  # noqa: D301, D205 - click reads the escape, and a first sentence may be longer than a line
    return failing_above(await _lag(session, None, by_range=by_range), fail_above, "groups")


@groups.command(short_help="Show how far one group is behind, and who reads for it.")
@derived(watched=True)
async def show(
    session: OwnedSession, /, name: str, *, by_range: _ByRange = False, fail_above: FailAbove = None
) -> Answer:
    """Show how far a group is behind, as `projections groups list` does for all; its exit codes are the same."""
    return failing_above(await _lag(session, name, by_range=by_range), fail_above, "groups")


@groups.command()
@derived
async def rescale(session: Session, /, name: str, *, ranges: NewRanges) -> Answer:
    """
    Cut the slices of a group into another number of ranges, while it is read.

    Each range has one reader at a time. Nothing is lost: what is in flight comes again, and a range that is
    made of parts begins at the lowest of their cursors. The consumers share the new ranges within a heartbeat.
    """
    before = await cursors(session, name)
    await rescale_group(session, name, ranges)
    return await left_to_consumers(session, rescaled("group", name, len(before), ranges), name, is_done=True)


@groups.command()
@derived
async def rewind(
    database: Database, /, name: str, *, start: Annotated[datetime | str, _Start], yes: Yes = False
) -> Answer:
    """
    Have a group read again what its subscriptions ask for, from a time on.

    Its handlers get the events again, at least once, behind what is still to be read; consumers stay, and batches that
    failed stay as they are. What comes waits until that is done, so that the events of a source come in their order:
    `projections groups show NAME` says how far it is. A subscription that has not had everything before that time
    goes on from where it is.
    """
    confirm(f"Have group {name!r} handle all its events again, from {_time(start)} on?", yes=yes)
    async with database.session() as session, session.transaction():
        number = await rewind_group(session, name, start)
        what = counted(number, "subscription catches", "subscriptions catch")
        answer = done(
            f"group {name!r}: {what} up, from {_time(start)} on", name=name, subscriptions=number,
            starts_at=None if isinstance(start, str) else start,
        )  # fmt: skip
        return await left_to_matching(session, answer)


def _time(start: datetime | str) -> str:
    return "the beginning" if isinstance(start, str) else at(start)


@groups.command(name="give-up")
@derived
async def give_up(database: Database, /, name: str, handler: str, *, yes: Yes = False) -> Answer:
    """
    Give up a handler that no consumer of a group has any more.

    What matches for a handler is kept for it while no process has it: through a deploy, or until it is given up. Then
    its subscription goes, too; the journal keeps all events. A handler that some process reads for is not touched.
    """
    async with database.session() as session:
        (found,) = await group_lag(session, name)
    waiting = found.missing.get(handler)
    if waiting is None:
        raise NothingKept(f"group {name!r} keeps nothing for handler {handler!r} that nobody reads")
    confirm(f"Give up handler {handler!r} of group {name!r}? {_matches(waiting)} kept for it.", yes=yes)
    async with database.session() as session, session.transaction():
        await give_up_handler(session, name, handler)
    return done(
        f"handler {handler!r} of group {name!r} is given up", name=name, handler=handler, given_up=waiting
    )


@groups.command()
@derived
async def remove(database: Database, /, name: str, *, yes: Yes = False) -> Answer:
    """
    Remove a group with its subscriptions, its cursors, and the batches that failed.

    For one that nobody is to read any more: until then it keeps what it has not read from being dropped. The journal
    keeps all events; a group that is made under this name later begins again.
    """
    async with database.session() as session:
        (found,) = await group_lag(session, name)
    waiting = (
        f"{found.backlog:,} matches that are not read, and {found.retries + found.dead:,} batches that failed"
    )
    confirm(f"Remove group {name!r} with its subscriptions, {waiting}?", yes=yes)
    async with database.session() as session, session.transaction():
        await remove_group(session, name)
    return done(f"group {name!r} is removed", name=name, removed=True)


groups.add_command(dead)


async def _lag(session: Session, name: str | None, *, by_range: bool) -> Answer:
    found, unmatched = await group_lag(session, name), await unmatched_entity_types(session)
    progress = [past for one in found for past in one.catching_up]
    notes = [*_notes(found, unmatched), *history_notes(progress)] if found else []
    nothing = "there is no group yet: `projections subscribe GROUP` makes one"
    answer = listing(
        "groups", found, _COLUMNS, *notes, nothing=nothing, values=_values, numbers=_NUMBERS,
        without=() if progress else _PAST, unmatched=unmatched, catching_up=history_values(progress),
    )  # fmt: skip
    if not (by_range and found):
        return answer
    parts = [PartOf(one, part) for one in found for part in one.parts]
    return replace(answer, shown=[table_of(_RANGE_COLUMNS, parts, _NUMBERS), *answer.shown[1:]])


def _notes(found: list[GroupLag], unmatched: list[str]) -> Iterator[str]:
    for one in found:
        if one.dead:
            what = counted(one.dead, "batch waits", "batches wait")
            name = printable(one.name)
            yield f"group {name!r}: {what} for a decision: projections groups dead list {name}"
        for handler, waiting in one.missing.items():
            group, lacking = printable(one.name), printable(handler)
            yield (
                f"group {group!r}: no consumer has handler {lacking!r}, and {_matches(waiting)} kept for it: start one "
                f"that has, or projections groups give-up {group} {lacking}"
            )
    for entity_type in unmatched:
        what = f"events of type {printable(entity_type)!r}"
        yield f"nobody has matched {what} yet: start `projections worker --subscriptions`"


def _matches(count: int) -> str:
    return counted(count, "match is", "matches are")


def _values(one: GroupLag) -> dict[str, object]:
    names = (
        "name", "reliable", "state", "backlog", "unmatched", "readers", "retries", "dead", "head", "missing",
    )  # fmt: skip
    return picked(one, *names, lag_seconds="lag") | {"ranges": [_range_values(part) for part in one.parts]}


def _range_values(part: GroupRangeLag) -> dict[str, object]:
    names = ("state", "backlog", "unmatched", "cursor", "owner", "alive", "epoch", "handler", "moved_at")
    return part.slices._asdict() | picked(part, *names, lag_seconds="lag")
