"""Projections that come to be while a process runs: a service that keeps some says which there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from journal import OwnedSession
from projections.defining.handlers import Projection


class Discovery(Protocol):
    """What a service does beside the projections of a process."""

    async def tend(self, session: OwnedSession) -> Sequence[Projection]:
        """
        Do what is due; called every second.

        Returns:
            The projections that are to run here; new ones are begun.
        """
        ...
