"""A PostgreSQL server at one address that a test may crash, fail over, restore, cut off and fill."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg

from journal import ConnectionSettings, Database, connect
from tests.fixtures.failover import TEMPLATE, Pair, Server
from tests.fixtures.proxy import Proxy, proxy_to

_NAME = "chaos"
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
_DISK = 256 << 20
"""Bytes of the file system that may be full."""


class Cluster:
    """
    One database, whatever happens to the server that has it.

    Args:
        first: The server that is the first one; it runs.
        place: The directory of all its servers.
        proxy: Leads to the server of the moment, for all but those who do the harm.
        environment: Of its servers.
    """

    database: Database
    """A pool that goes through the proxy."""

    def __init__(self, first: Server, place: Path, proxy: Proxy, environment: Mapping[str, str]) -> None:
        self.server = first
        self.proxy = proxy
        self._environment = environment
        self.dsn = proxy.dsn
        self._place = place
        self._number = 0
        self._one_at_a_time = asyncio.Lock()
        self._asking: asyncpg.Connection[Any] | None = None

    async def ask(self, sql: str, *args: Any) -> list[Any]:
        """Ask the server of the moment on a connection that no harm is done to; OSError: it is away."""
        async with self._one_at_a_time:
            try:
                if self._asking is None or self._asking.is_closed():
                    self._asking = await asyncpg.connect(
                        self.server.dsn(_NAME), server_settings={"application_name": "harm"}
                    )
                return list(await self._asking.fetch(sql, *args))
            except LOST as error:
                self._stop_asking()
                raise ConnectionError(str(error)) from error

    async def close(self) -> None:
        """Close the connection that asks, and end the server, whatever it does."""
        self._stop_asking()
        if (self.server.data / "postmaster.pid").exists():
            await asyncio.to_thread(self.server.kill)

    def log(self) -> LogTail:
        """What the server logs from now on."""
        return LogTail(self.server.log)

    async def crash(self, pause: float) -> None:
        """SIGKILL to all processes, and start again after a pause."""
        await asyncio.to_thread(self.server.kill)
        await asyncio.sleep(pause)
        await asyncio.to_thread(self.server.start)

    async def fail_over(self, pause: float) -> None:
        """Lose what was committed in so many seconds, and more, by promoting a standby that has not received it."""
        pair = self._pair()
        await asyncio.to_thread(pair.follow)
        await asyncio.to_thread(pair.cut)
        await asyncio.sleep(pause)
        await self.ask("SELECT pg_logical_emit_message(TRUE, 'chaos', 'lost')")
        await pair.fail_over()
        await self._moved(pair)

    async def restore(self, pause: float) -> None:
        """Put a restore to the point in time that many seconds ago in the place of the server."""
        pair = self._pair()
        await asyncio.to_thread(pair.back_up)
        mark = await asyncio.to_thread(pair.mark)
        await asyncio.sleep(pause)
        await pair.swap_in(mark)
        await self._moved(pair)

    def _pair(self) -> Pair:
        self._number += 1
        standby = self.server.beside(str(self._number), self._environment)
        return Pair(self.server, standby, self.proxy, _NAME)

    async def _moved(self, pair: Pair) -> None:
        shutil.rmtree(pair.primary.data)
        self.server = pair.standby
        async with (
            self._one_at_a_time
        ):  # a driver whose connection is gone between two steps fails in its own ways
            self._stop_asking()

    def _stop_asking(self) -> None:
        if self._asking is not None:
            self._asking.terminate()
            self._asking = None

    def set_clock(self, seconds: float) -> None:
        """Have the server's clock go wrong by so much."""
        (self._place / "clock").write_text(f"{seconds:+f}")

    @asynccontextmanager
    async def full_disk(self) -> AsyncIterator[None]:
        """No byte is left in the tablespace for the length of the block."""
        filler = self._place / "disk" / "filler"
        try:
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(1 << 20)):  # the last one in part
                    pass
            yield
        finally:
            filler.unlink(missing_ok=True)


class LogTail:
    """What a server logs after this was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._from = path.stat().st_size

    async def has(self, text: str, within: float = 1.0) -> bool:
        """Whether it logs this within so many seconds."""
        until = time.monotonic() + within
        while True:
            with self._path.open("rb") as file:
                file.seek(self._from)
                if text.encode() in file.read():
                    return True
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(0.01)


def _clock(place: Path) -> dict[str, str]:
    """What a server's environment needs for a clock that can be set."""
    (place / "clock").write_text("+0")
    return {
        "LD_PRELOAD": str(FAKETIME[0]), "FAKETIME_TIMESTAMP_FILE": str(place / "clock"),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DISABLE_SHM": "1",  # its lock would stay taken when a process is killed
    }  # fmt: skip


@asynccontextmanager
async def cluster(
    base: Server, *, connections: int, disk: bool = False, clock: bool = False
) -> AsyncIterator[Cluster]:
    """
    A server with the schema in its database, for the length of the block.

    Args:
        base: Whose data it begins with; see :func:`tests.fixtures.failover.base_server`.
        connections: Of the pool.
        disk: Whether it has a tablespace ``small`` that can be filled; see :func:`can_mount`.
        clock: Whether its clock can be set; needs libfaketime.
    """
    place = Path(tempfile.mkdtemp(prefix="c", dir=base.data.parent.parent))
    place.chmod(0o755)
    environment = _clock(place) if clock else {}
    first = base.beside(f"{place.name}/0", environment)
    base.copy_to(first)
    async with AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        if disk:
            stack.enter_context(_disk(place, first))
        await asyncio.to_thread(_prepare, first, place, disk)
        proxy = await stack.enter_async_context(proxy_to(first.dsn(_NAME)))
        made = Cluster(first, place, proxy, environment)
        stack.push_async_callback(made.close)
        pool = ConnectionSettings(max_connections=connections)
        made.database = await stack.enter_async_context(connect(proxy.dsn, pool))
        yield made


def _prepare(server: Server, place: Path, disk: bool) -> None:
    with (server.data / "postgresql.auto.conf").open("a") as file:
        # The order of commits is what proves that no slice had two owners.
        file.write("track_commit_timestamp = on\nmax_prepared_transactions = 50\n")
    server.start()
    server.value(f"CREATE DATABASE {_NAME} TEMPLATE {TEMPLATE}")
    if disk:
        server.value(f"CREATE TABLESPACE small LOCATION '{place / 'disk' / 'space'}'")


@contextmanager
def _disk(place: Path, server: Server) -> Iterator[None]:
    """A small file system in memory; only root may mount it."""
    path = place / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", path], check=True)
    try:
        (path / "space").mkdir(mode=0o700)
        owner = server.data.stat()
        for each in (path, path / "space"):
            os.chown(each, owner.st_uid, owner.st_gid)
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=False)


def can_mount() -> bool:
    """Whether this process may make a file system to be filled."""
    with tempfile.TemporaryDirectory() as path:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path], check=False, capture_output=True
        )
        if mounted.returncode == 0:
            subprocess.run(["umount", path], check=True)
        return mounted.returncode == 0
