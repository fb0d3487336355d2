"""A consumer as its group knows it: by a name, and for as long as its lease."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import offsets
from projections.subscriptions.groups import GroupRange, poll_group

Ask: TypeAlias = Callable[..., Awaitable[Any]]
"""Calls a function with a session and the arguments."""


class Joining:
    """
    Joins a group, and stays.

    Args:
        group: The group.
        name: The consumer's name, which nobody else has. Whenever it joins again it takes another: what was begun under
            the old one can store nothing any more.
        lease: How long its ranges are its own without another word.
    """

    def __init__(self, group: str, name: str, lease: timedelta) -> None:
        self._group = group
        self._name = name
        self._lease = lease
        self._times = 1
        self._joined = False

    @property
    def owner(self) -> str:
        """The name by which it has joined."""
        return self._name if self._times == 1 else f"{self._name}.{self._times}"

    async def stay(self, ask: Ask, handlers: Sequence[int] = ()) -> list[GroupRange]:
        """
        Join, or say that it is still there; returns the ranges that it has.

        Args:
            ask: How to ask the database.
            handlers: Numbers of the handlers that it has.

        Raises:
            UnknownGroup: The group was removed.
            DatabaseWentBack: It had joined, and the database does not know it.
        """
        held: list[GroupRange] = await ask(
            poll_group, self._group, self.owner, self._lease, joined=self._joined, handlers=handlers
        )
        self._joined = True
        return held

    async def leave(self, ask: Ask) -> None:
        """Give all ranges back; the next :meth:`stay` joins again."""
        await ask(offsets.leave, self.owner)
        self._times += 1
        self._joined = False
