"""Calls about events that are handled in the transaction that appends them."""

from __future__ import annotations

from collections.abc import Callable

from offsets import management
from projections.running import inline
from tests.simulation.calls import NAMES, TYPE, Call, Facts


def handle_inline(facts: Facts, a: int, b: int) -> Call:
    """Numbers are drawn: those that a source is really at are too seldom the next ones to be handled."""
    times = {source: at for source, _, at in (facts.event(a), facts.event(b))}
    sources, at = list(times), list(times.values())
    first = [1 + (a + b + n) % 3 for n in range(len(sources))]
    last = [number + a % 2 for number in first]
    types = [f'{{"{TYPE}"}}'] * 2
    args = (list(NAMES), [1, 1], types, sources, [TYPE] * len(sources), first, last, at, at)
    return Call("handle inline", inline._BEGIN, args)


def set_mode(facts: Facts, a: int, b: int) -> Call:
    mode = "inline" if b % 3 else "live"
    return Call("set mode", management._SET_MODE, (facts.number(a), mode), alone=True)


CALLS: list[Callable[[Facts, int, int], Call]] = [handle_inline, handle_inline, set_mode]
