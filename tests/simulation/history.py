"""Whether what was handled is what was committed: per source the same sequence, once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

Event = tuple[str, int]
"""Source and number."""


def problems(committed: Iterable[Event], handled: Sequence[Event]) -> list[str]:
    """
    What is wrong with a history; empty when nothing is.

    Args:
        committed: Events that are in the log, in any order.
        handled: Events whose effects are in the read model, in the order in which they came there.
    """
    in_log, in_model = _by_source(sorted(committed)), _by_source(handled)
    found = [
        f"{source}: the log has {numbers}, which is not 1, 2, 3 ..."
        for source, numbers in in_log.items()
        if numbers != list(range(1, len(numbers) + 1))
    ]
    for source in sorted(in_log.keys() | in_model.keys()):
        log, model = in_log.get(source, []), in_model.get(source, [])
        if model == log:
            continue
        if doubled := sorted({number for number in model if model.count(number) > 1}):
            found.append(f"{source}: handled twice: {doubled} (handled {model}, committed {log})")
        if missing := sorted(set(log) - set(model)):
            found.append(f"{source}: not handled: {missing} (handled {model}, committed {log})")
        if unknown := sorted(set(model) - set(log)):
            found.append(f"{source}: handled, and not in the log: {unknown}")
        if model != sorted(model):
            found.append(f"{source}: handled out of order: {model}")
    return found


def _by_source(events: Iterable[Event]) -> Mapping[str, list[int]]:
    by_source: dict[str, list[int]] = defaultdict(list)
    for source, number in events:
        by_source[source].append(number)
    return by_source
