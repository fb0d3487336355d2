"""A database whose server is replaced while somebody asks it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.chaos.cluster import Cluster
from tests.fixtures.failover import Pair
from tests.fixtures.proxy import Proxy


class Asked:
    """A connection that answers when it is told to."""

    def __init__(self) -> None:
        self.came, self.answers = asyncio.Event(), asyncio.Event()
        self.ended = False

    def is_closed(self) -> bool:
        return self.ended

    async def fetch(self, sql: str) -> list[Any]:
        self.came.set()
        await self.answers.wait()
        return ["ended" if self.ended else "open"]

    def terminate(self) -> None:
        self.ended = True


async def test_the_connection_to_a_server_that_is_replaced_ends_once_it_has_answered(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    proxy = cast("Proxy", SimpleNamespace(dsn=""))
    pair = cast("Pair", SimpleNamespace(primary=SimpleNamespace(data=tmp_path / "data"), standby=None))
    cluster, connection = Cluster(cast("Any", None), tmp_path, proxy, {}), Asked()
    cluster._asking = cast("Any", connection)
    asking = asyncio.create_task(cluster.ask("SELECT 1"))
    await connection.came.wait()

    moving = asyncio.create_task(cluster._moved(pair))
    await asyncio.sleep(0)
    connection.answers.set()

    assert await asking == ["open"]
    await moving
    assert connection.ended
    assert cluster._asking is None
