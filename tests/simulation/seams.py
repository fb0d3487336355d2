"""What a process takes from its surroundings beside the loop, replaced for a run: the only places that are patched."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from random import Random
from unittest import mock

from journal import polling, tasks
from projections.running import LoopMonitor
from projections.subscriptions import conditions
from projections.subscriptions import matching as matching_of_events
from tests.simulation.postgres import (  # noqa: F401 - they register models
    claiming_deliveries,
    delivering,
    foreign,
    groups,
    holding,
    importing,
    inline,
    journal,
    lost_events,
    making_deliveries,
    management,
    matching,
    offsets,
    reading_groups,
    retrying,
    subscribing,
    webhook_endpoints,
)


def _drawn_uuid(tokens: Random) -> uuid.UUID:
    return uuid.UUID(int=tokens.getrandbits(128))


class _Clock:
    """What of the module ``time`` is asked by who measures how long something takes."""

    @staticmethod
    def monotonic() -> float:
        return asyncio.get_running_loop().time()


@contextmanager
def surroundings(choices: Random) -> Iterator[None]:
    """
    Random tokens and spreads are drawn from ``choices``; no thread watches a loop; nothing is logged.

    Real time is asked of the event loop alone, which has its own.
    """
    tokens, log = Random(choices.random()), logging.getLogger("projections")
    state = random.getstate()
    with ExitStack() as stack:
        replace = stack.enter_context
        replace(
            mock.patch.object(
                secrets, "token_hex", lambda size: f"{tokens.getrandbits(8 * size):0{2 * size}x}"
            )
        )
        replace(mock.patch.object(socket, "gethostname", return_value="simulation"))
        replace(mock.patch.object(os, "getpid", return_value=1))
        replace(mock.patch.object(uuid, "uuid4", partial(_drawn_uuid, tokens)))
        for module in (conditions, matching_of_events, tasks):
            replace(mock.patch.object(module, "time", _Clock))
        replace(mock.patch.object(LoopMonitor, "watching", return_value=nullcontext()))
        replace(mock.patch.object(polling, "_shared", {}))
        replace(mock.patch.object(log, "disabled", True))
        random.seed(choices.random())
        try:
            yield
        finally:
            random.setstate(state)
