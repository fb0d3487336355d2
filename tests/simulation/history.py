"""Whether what was handled is what was committed: per source the same sequence, once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Event(NamedTuple):
    """An event of a log, or what a handler has written of it."""

    source_id: str
    seq_nr: int
    event_id: Any
    """A number that was lost may be given again, to another event."""


def problems(
    committed: Iterable[Event], handled: Sequence[Event], lost: Collection[Event] = frozenset()
) -> list[str]:
    """
    What is wrong with a history; empty when nothing is.

    Args:
        committed: Events that are in the log, in any order.
        handled: Events whose effects are in the read model, in the order in which they came there.
        lost: Events that were in the log, which has gone back in time without the read model. Their effects may stay,
            and one that is committed again is handled again, when somebody has said so.
    """
    committed = set(committed)
    again = set(lost) & committed  # the commit of a prepared transaction was lost, and it was committed again
    lost = set(lost) - committed
    in_log, in_model = _by_source(sorted(committed)), _by_source(handled)
    found = [
        f"{source}: the log has {_numbers(events)}, which is not 1, 2, 3 ..."
        for source, events in in_log.items()
        if _numbers(events) != list(range(1, len(events) + 1))
    ]
    for source in sorted(in_log.keys() | in_model.keys()):
        log, all_handled = in_log.get(source, []), in_model.get(source, [])
        model = [
            event
            for place, event in enumerate(all_handled)
            if event not in lost and not (event in again and event in all_handled[place + 1 :])
        ]
        if doubled := sorted(
            {one.seq_nr for one in all_handled if all_handled.count(one) > 1 + (one in again)}
        ):
            found.append(
                f"{source}: handled twice: {doubled} (handled {_numbers(all_handled)}, committed {_numbers(log)})"
            )
        if model == log:
            continue
        if missing := sorted(set(log) - set(model)):
            there = f"handled {_numbers(all_handled)}, committed {_numbers(log)}"
            found.append(f"{source}: not handled: {_numbers(missing)} ({there})")
        if unknown := sorted(set(model) - set(log)):
            found.append(f"{source}: handled, and not in the log: {_numbers(unknown)}")
        if model != sorted(model):
            found.append(f"{source}: handled out of order: {_numbers(model)}")
    return found


def unread(committed: Iterable[Event], seen: Sequence[Event]) -> list[str]:
    """
    What is wrong with a history in which each event is to be seen at least once; empty when nothing is.

    Args:
        committed: Events that are in the log, in any order.
        seen: Events in the order in which a handler has seen them: the first time that it sees each is what counts.
    """
    in_log, first = _by_source(sorted(committed)), _by_source(dict.fromkeys(seen))
    found = []
    for source, log in in_log.items():
        there = [event for event in first.get(source, []) if event in log]
        if missing := sorted(set(log) - set(there)):
            found.append(f"{source}: not handled: {_numbers(missing)} (seen {_numbers(there)})")
        if there != sorted(there):
            found.append(f"{source}: handled out of order: {_numbers(there)}")
    return found


def _by_source(events: Iterable[Event]) -> Mapping[str, list[Event]]:
    by_source: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_source[event.source_id].append(event)
    return by_source


def _numbers(events: Iterable[Event]) -> list[int]:
    return [event.seq_nr for event in events]
