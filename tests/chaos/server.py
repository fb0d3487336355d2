"""A PostgreSQL server that a test may crash."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from journal.embedded import EmbeddedServer

# The order of commits is what proves that no slice had two owners.
_SETTINGS = {"track_commit_timestamp": "on"}


@asynccontextmanager
async def server_of_its_own() -> AsyncIterator[tuple[EmbeddedServer, str]]:
    """A server with the settings of a user's: what it said was committed must be there after a crash."""
    with tempfile.TemporaryDirectory(prefix="sp-chaos-") as directory:
        Path(directory).chmod(0o755)  # the server may run as another user
        server = EmbeddedServer(Path(directory) / "server", _SETTINGS)
        dsn = await asyncio.to_thread(server.start)
        try:
            yield server, dsn
        finally:
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.remove)


def stop_at_once(server: EmbeddedServer) -> None:
    """Immediate mode: no checkpoint, every connection is cut, the next start replays the log."""
    postmaster = int((server.root / "data" / "postmaster.pid").read_text().splitlines()[0])
    ended = os.pidfd_open(postmaster)
    os.kill(postmaster, signal.SIGQUIT)
    select.select([ended], [], [], 60)
    os.close(ended)
