"""``projections groups``: how far groups of consumers are, and what their handlers could not handle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

import click
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from journal import NUMBER_OF_SLICES, OwnedSession, ProjectionsError, Session
from projections.monitoring import GroupLag, GroupRangeLag, group_lag, unmatched_entity_types
from projections.subscriptions import cursors, give_up_handler, remove_group, rescale_group
from projections.subscriptions.commands.dead_batches import dead
from projections.terminal.ages import age, exit_above
from projections.terminal.connection import confirm, visit, visit_session
from projections.terminal.durations import Duration
from projections.terminal.group import ListGroup
from projections.terminal.options import dsn_option, echo_done, echo_json, json_option, together
from projections.terminal.output import in_table, print_table, printable
from projections.terminal.watching import watch

__all__ = ["groups"]


class NothingKept(ProjectionsError):
    """Nothing is kept for the handler, or somebody reads for it."""


class _Look(NamedTuple):
    groups: list[GroupLag]
    unmatched: list[str]
    """Entity types whose events nobody has ever matched."""


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
      projections groups give-up billing mails      a handler that no consumer has any more
      projections groups dead list billing          what its handlers have given up
      projections groups dead retry billing --all
      projections groups remove billing

    Without the name of a command it is `list`.
    """  # noqa: D301, D205 - click reads the escape, and a first sentence may be longer than a line


_lag_options = together(
    click.option("--ranges", "by_range", is_flag=True, help="One line for each range of slices."),
    click.option("--watch", "watches", is_flag=True, help="Look again about every second, until Ctrl-C."),
    click.option(
        "--fail-above", type=Duration(), metavar="500ms|30s|5m|2h",
        help="Exit with code 3 when the lag of a group is above this.",
    ),
    dsn_option,
    json_option,
)  # fmt: skip


@groups.command(name="list", short_help="Show how far all groups are behind, and who reads for them.")
@_lag_options
@click.pass_context
def list_(context: click.Context, /, **options: Any) -> None:
    """
    Show how far groups are behind: lag, the age of the oldest event that is not read, backlog, the number of matches
    that are not read, and "to match", the number of events that may be for the group and are still to be matched.

    All come from the database alone, exact whether or not anybody reads or matches. Lag counts what is still to be
    matched, too: matching runs in `projections worker --subscriptions`, as projections called matching/ENTITY_TYPE,
    and `projections lag` shows how far they are. What was published counts from when it matched.

    A range is read; or nobody reads it, and it is unread (matches wait) or idle (none waits). A handler that the reader
    of a range did not have has one of its own, until both are equally far. A group of listeners
    has no cursor and is listening: it is never behind. Retries are batches that failed and are to be handled again;
    dead are those that wait for a decision (see `projections groups dead list NAME`).

    \b
    Exit codes
      0  done, also when --watch was ended by Ctrl-C
      1  refused or failed; the reason is on stderr
      2  the command line itself is wrong
      3  the lag of a group is above --fail-above
    """  # noqa: D301, D205 - click reads the escape, and a first sentence may be longer than a line
    _show(context, None, **options)


@groups.command(short_help="Show how far one group is behind, and who reads for it.")
@click.argument("name")
@_lag_options
@click.pass_context
def show(context: click.Context, /, name: str, **options: Any) -> None:
    """Show how far a group is behind, as `projections groups list` does for all; its exit codes are the same."""
    _show(context, name, **options)


def _show(
    context: click.Context,
    name: str | None,
    *,
    by_range: bool,
    watches: bool,
    fail_above: timedelta | None,
    dsn: str | None,
    as_json: bool,
) -> None:
    if watches and fail_above is not None:
        raise click.UsageError("--watch looks until it is ended: pass it without --fail-above")
    if watches:
        with suppress(KeyboardInterrupt):
            visit_session(dsn, lambda session: _watch(session, name, by_range=by_range, as_json=as_json))
        return
    found = visit(dsn, lambda session: _look(session, name))
    _print(found, by_range=by_range, as_json=as_json)
    if fail_above is not None:
        exit_above(context, fail_above, [(one.name, one.lag) for one in found.groups])


@groups.command()
@click.argument("name")
@click.option(
    "--ranges", type=click.IntRange(1, NUMBER_OF_SLICES), required=True, help="How many, 1 to 1024."
)
@dsn_option
@json_option
def rescale(name: str, ranges: int, dsn: str | None, as_json: bool) -> None:
    """
    Cut the slices of a group into another number of ranges, while it is read.

    So many consumers can read for it at a time. Nothing is lost: what is in flight comes again, and a range that is
    made of parts begins at the lowest of their cursors. The consumers share the new ranges within a heartbeat.
    """
    before = visit(dsn, lambda session: _rescale(session, name, ranges))
    if as_json:
        echo_json(name=name, ranges_before=before, ranges=ranges)
    elif before == ranges:
        click.echo(f"group {name!r} has {_ranges(ranges)} already")
    else:
        click.echo(f"group {name!r} had {_ranges(before)}, and has {ranges} now")


@groups.command(name="give-up")
@click.argument("name")
@click.argument("handler")
@click.option("--yes", is_flag=True, help="Do not ask.")
@dsn_option
@json_option
def give_up(name: str, handler: str, yes: bool, dsn: str | None, as_json: bool) -> None:
    """
    Give up a handler that no consumer of a group has any more.

    What matches for a handler is kept for it while no process has it: through a deploy, or until it is given up. Then
    its subscription goes, too; the journal keeps all events. A handler that some process reads for is not touched.
    """
    (found,) = visit(dsn, lambda session: group_lag(session, name))
    waiting = found.missing.get(handler)
    if waiting is None:
        raise NothingKept(f"group {name!r} keeps nothing for handler {handler!r} that nobody reads")
    confirm(f"Give up handler {handler!r} of group {name!r}? {_matches(waiting)} kept for it.", yes=yes)
    visit(dsn, lambda session: give_up_handler(session, name, handler))
    echo_done(
        f"handler {handler!r} of group {name!r} is given up",
        as_json=as_json,
        name=name,
        handler=handler,
        given_up=waiting,
    )


@groups.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@dsn_option
@json_option
def remove(name: str, yes: bool, dsn: str | None, as_json: bool) -> None:
    """
    Remove a group with its subscriptions, its cursors, and the batches that failed.

    For one that nobody is to read any more: until then it keeps what it has not read from being dropped. The journal
    keeps all events; a group that is made under this name later begins anew.
    """
    (found,) = visit(dsn, lambda session: group_lag(session, name))
    waiting = (
        f"{found.backlog:,} matches that are not read, and {found.retries + found.dead:,} batches that failed"
    )
    confirm(f"Remove group {name!r} with its subscriptions, {waiting}?", yes=yes)
    visit(dsn, lambda session: remove_group(session, name))
    echo_done(f"group {name!r} is removed", as_json=as_json, name=name, removed=True)


groups.add_command(dead)


async def _rescale(session: Session, name: str, ranges: int) -> int:
    before = await cursors(session, name)
    await rescale_group(session, name, ranges)
    return len(before)


def _ranges(count: int) -> str:
    return "1 range" if count == 1 else f"{count} ranges"


async def _look(session: Session, name: str | None) -> _Look:
    return _Look(await group_lag(session, name), await unmatched_entity_types(session))


async def _watch(session: OwnedSession, name: str | None, *, by_range: bool, as_json: bool) -> None:
    await watch(
        lambda: _look(session, name),
        lambda found: _print(found, by_range=by_range, as_json=as_json),
        None if as_json else lambda found: _shown(found, by_range=by_range),
    )


def _print(found: _Look, *, by_range: bool, as_json: bool) -> None:
    if as_json:
        echo_json(groups=[_values(one) for one in found.groups], unmatched=found.unmatched)
        return
    if not found.groups:
        click.echo("there is no group yet: `projections subscribe GROUP` makes one")
        return
    print_table(_table(found.groups, by_range=by_range))
    for line in _notes(found):
        click.echo(line)


def _shown(found: _Look, *, by_range: bool) -> RenderableType:
    return Group(_table(found.groups, by_range=by_range), *(Text(line) for line in _notes(found)))


def _table(found: list[GroupLag], *, by_range: bool) -> Table:
    return _by_range(found) if by_range else _by_group(found)


def _notes(found: _Look) -> Iterator[str]:
    for one in found.groups:
        if one.dead:
            what = "1 batch waits" if one.dead == 1 else f"{one.dead:,} batches wait"
            name = printable(one.name)
            yield f"group {name!r}: {what} for a decision: projections groups dead list {name}"
        for handler, waiting in one.missing.items():
            group, lacking = printable(one.name), printable(handler)
            yield (
                f"group {group!r}: no consumer has handler {lacking!r}, and {_matches(waiting)} kept for it: start one "
                f"that has, or projections groups give-up {group} {lacking}"
            )
    for entity_type in found.unmatched:
        what = f"events of type {printable(entity_type)!r}"
        yield f"nobody has matched {what} yet: start `projections worker --subscriptions`"


def _matches(count: int) -> str:
    return "1 match is" if count == 1 else f"{count:,} matches are"


def _by_group(found: list[GroupLag]) -> Table:
    table = Table(
        "group", "state", _number("ranges"), _number("readers"), _number("lag"), _number("backlog"),
        _number("to match"), _number("retries"), _number("dead"),
    )  # fmt: skip
    for one in found:
        table.add_row(
            _name(one), one.state, str(len(one.ranges)), str(len(one.readers)), age(one.lag), f"{one.backlog:,}",
            f"{one.unmatched:,}", f"{one.retries:,}", f"{one.dead:,}",
        )  # fmt: skip
    return table


def _by_range(found: list[GroupLag]) -> Table:
    table = Table(
        "group", "slices", "reader", "state", _number("lag"), _number("backlog"), _number("to match"),
        _number("cursor"), _number("epoch"), "last moved",
    )  # fmt: skip
    for one in found:
        for part in one.parts:
            moved = "never" if part.moved_at is None else f"{part.moved_at:%Y-%m-%d %H:%M:%S}"
            table.add_row(
                _name(one), _slices(part), _reader(part), part.state, age(part.lag), f"{part.backlog:,}",
                f"{part.unmatched:,}", str(part.cursor), str(part.epoch), moved,
            )  # fmt: skip
    return table


def _number(name: str) -> Column:
    return Column(name, justify="right", no_wrap=True)


def _name(one: GroupLag) -> Text:
    return in_table(one.name)


def _slices(part: GroupRangeLag) -> Text:
    return in_table(f"{part.slices}" if part.handler is None else f"{part.slices} {part.handler}")


def _reader(part: GroupRangeLag) -> Text:
    if part.owner is None:
        return Text("nobody")
    return in_table(part.owner) + ("" if part.alive else " (lease ended)")


def _values(one: GroupLag) -> dict[str, object]:
    return {
        "name": one.name,
        "reliable": one.reliable,
        "state": one.state,
        "lag_seconds": one.lag,
        "backlog": one.backlog,
        "unmatched": one.unmatched,
        "readers": one.readers,
        "retries": one.retries,
        "dead": one.dead,
        "head": one.head,
        "ranges": [_range_values(part) for part in one.parts],
        "missing": one.missing,
    }


def _range_values(part: GroupRangeLag) -> dict[str, object]:
    return {
        **part.slices._asdict(),
        "state": part.state,
        "lag_seconds": part.lag,
        "backlog": part.backlog,
        "unmatched": part.unmatched,
        "cursor": part.cursor,
        "owner": part.owner,
        "alive": part.alive,
        "epoch": part.epoch,
        "handler": part.handler,
        "moved_at": None if part.moved_at is None else part.moved_at.isoformat(),
    }
