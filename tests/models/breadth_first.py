"""Visits every state that the steps of a machine and of its world can come to, those that need fewer steps first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

State = TypeVar("State")


class Lost(AssertionError):
    """An event that is committed has not been handled, or a horizon is later than one that is not."""


def explore(first: State, after: Callable[[State], Iterable[State]], key: Callable[[State], object]) -> int:
    """
    Visit every state once.

    Args:
        first: Where it begins.
        after: What may follow a state; raises what is wrong in it.
        key: What tells a state from others; it can be hashed.

    Returns:
        How many there are.
    """
    todo, seen = deque([first]), {key(first)}
    while todo:
        for state in after(todo.popleft()):
            if (known := key(state)) not in seen:
                seen.add(known)
                todo.append(state)
    return len(seen)
