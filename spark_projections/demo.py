"""
What ``projections demo --spark`` needs of Spark: a session that starts while the demo is busy, and rebuilds on it.

Everything runs in one thread of its own: the demo's event loop goes on with the live projections.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any, TypeVar

from pyspark import SparkContext

from journal import ConnectionSettings, connect
from journal.database import connect_sync
from projections.demo import Built, ReadModel, Rebuilder
from spark_projections.engine.jvm import find_java
from spark_projections.engine.session import spark_running
from spark_projections.rebuilds.bookkeeping import FoldedParts
from spark_projections.rebuilds.options import RebuildOptions, RebuildProgress
from spark_projections.rebuilds.rebuilding import rebuild
from spark_projections.rebuilds.shadow import schema_of

_VERIFIED = "SELECT max(rebuild_id) FROM projections.rebuilds WHERE state = 'verified'"
_SHOWN = 5
"""Lines for the events of a fold."""
_PAUSE = 5.0
"""Seconds between two lines that say what it waits for."""

T = TypeVar("T")


def spark_batch() -> AbstractContextManager[Rebuilder]:
    """Spark for the length of a block, which does not wait for its start, but for its end."""
    find_java()  # said before anything is begun
    return _running()


@contextmanager
def _running() -> Iterator[Rebuilder]:
    with ThreadPoolExecutor(1, "spark") as thread, ExitStack() as stack:
        spark = ExitStack()
        starting = thread.submit(_start, spark)
        stack.callback(lambda: thread.submit(spark.close).result())
        yield _SparkBatch(thread, starting)


def _start(stack: ExitStack) -> SparkContext:
    """Start Java and, by a job that does nothing, Python's workers."""
    context = stack.enter_context(spark_running(app_name="projections demo")).sparkContext
    cores = context.defaultParallelism
    context.parallelize(range(cores), cores).foreach(_nothing)
    return context


def _nothing(_: int) -> None: ...


class _SparkBatch:
    """See :class:`Rebuilder`."""

    def __init__(self, thread: ThreadPoolExecutor, starting: Future[SparkContext]) -> None:
        self._thread = thread
        self._starting = starting

    async def ready(self) -> None:
        await asyncio.wrap_future(self._starting)

    async def rebuild(
        self, dsn: str, definition: type, read_model: ReadModel, say: Callable[[str], None]
    ) -> Built:
        await self.ready()
        work = _rebuild(self._starting.result(), dsn, definition, _Keeping(dsn, read_model, say))
        return await _elsewhere(self._thread, work)


async def _rebuild(spark: SparkContext, dsn: str, definition: type, keeping: _Keeping) -> Built:
    began_at = time.monotonic()
    async with connect(dsn, ConnectionSettings(max_connections=2)) as database:
        # What a run that was killed has left was built up to another fence.
        options = RebuildOptions(restart=True)
        result = await rebuild(database, dsn, definition, options, spark=spark, progress=keeping)
    return Built(result.fence, result.events, time.monotonic() - began_at, keeping.rows)


class _Keeping(RebuildProgress):
    """
    Tells how far a rebuild is, and copies what it has built before the swap.

    Reading the copy holds up the event loop, on which there is nothing but the rebuild.
    """

    def __init__(self, dsn: str, read_model: ReadModel, say: Callable[[str], None]) -> None:
        self._dsn = dsn
        self._read_model = read_model
        self._say = say
        self._fold_began_at = 0.0
        self._shown = 0
        self._waiting_at = float("-inf")
        self.rows: list[tuple[Any, ...]] = []

    def stage(self, name: str) -> None:
        self._say(f"rebuilding {self._read_model.table} with Spark: {name}")
        if name == "fold":
            self._fold_began_at = time.monotonic()
        if name == "swap":
            with connect_sync(self._dsn) as connection:
                [(number,)] = connection.execute(_VERIFIED).fetchall()
                query = self._read_model.select(schema_of(number))
                self.rows = connection.execute(query.encode()).fetchall()

    def waiting(self, reason: str) -> None:
        if time.monotonic() - self._waiting_at > _PAUSE:  # it tells how long, so no two are the same
            self._waiting_at = time.monotonic()
            self._say(reason)

    def folded(self, now: FoldedParts, total: int) -> None:
        if (part := now.events * _SHOWN // max(total, 1)) > self._shown:
            self._shown = part
            rate = now.events / (time.monotonic() - self._fold_began_at)
            self._say(f"folded {now.events:,} of about {total:,} events, {rate:,.0f} a second")


async def _elsewhere(thread: ThreadPoolExecutor, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop in a thread; when this is cancelled, so is that, to its end."""
    begun: Future[tuple[AbstractEventLoop, Task[Any]]] = Future()

    async def noted() -> T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this is one
        begun.set_result((asyncio.get_running_loop(), task))
        return await work

    running = asyncio.wrap_future(thread.submit(asyncio.run, noted()))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        loop, task = await asyncio.wrap_future(begun)
        with suppress(RuntimeError):  # it has just ended
            loop.call_soon_threadsafe(task.cancel)
        await asyncio.gather(running, return_exceptions=True)
        raise
