"""Which database to use: the one that is named, else one that starts by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from journal.dsn import check_dsn
from journal.embedded.server import EmbeddedServer

DSN_VARIABLE = "PROJECTIONS_DSN"
"""Environment variable: the database to use when none is named."""


@contextmanager
def database_dsn(explicit: str | None = None) -> Iterator[str]:
    """
    The DSN of the database to use, for the length of the block.

    In this order: ``explicit``, the environment variable ``PROJECTIONS_DSN``, and an embedded server, which
    starts when it is not running yet, and stops when its last user, of all processes, leaves the block.

    Raises:
        ProjectionsError: The DSN that was named cannot be read, or the embedded server is needed and cannot be had.
    """
    if explicit is not None:
        yield check_dsn(explicit, "the DSN")
    elif named := os.environ.get(DSN_VARIABLE):
        yield check_dsn(named, DSN_VARIABLE)
    else:
        with EmbeddedServer.for_user() as dsn:
            yield dsn
