"""The same function over many parts, in processes of this machine or as tasks of Spark."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from journal import DatabaseError, ProjectionsError, hide_password

if TYPE_CHECKING:
    from pyspark import SparkContext

Part = TypeVar("Part")
Result = TypeVar("Result")

_RAISED = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Unavailable|Event|Conflict|Failed|Privilege|BadRow)\w*: (.+)$", re.MULTILINE
)


class PartFailed(ProjectionsError):
    """A part of the work failed on its task or process."""


class _Refused(NamedTuple):
    """What the data is to blame for: another attempt would end the same way."""

    message: str


def parallelism(spark: SparkContext | None) -> int:
    """How many parts are worked on at a time."""
    return (os.cpu_count() or 1) if spark is None else spark.defaultParallelism


def spread(
    function: Callable[[Part], Result],
    parts: Sequence[Part],
    *,
    spark: SparkContext | None = None,
    processes: int | None = None,
) -> Generator[Result, None, None]:
    """
    Call a function with each part; results come in any order.

    Args:
        function: Importable by its name, or a partial of one that is. Spark may call it twice for a part.
        parts: What to call it with; they and the results must be picklable.
        spark: Where tasks run; None for processes of this machine.
        processes: The most of them at a time; by default one for each core.

    Raises:
        PartFailed: The function raised one of this library's errors; the message is that error's.
    """
    if not parts:
        return
    guarded = partial(_guarded, function)
    if spark is not None:
        for result in _on_spark(spark, guarded, parts):
            yield _given(result)
        return
    count = min(processes or parallelism(None), len(parts))
    if count == 1:
        for part in parts:
            yield _given(guarded(part))
        return
    # Not forked: the drivers' threads and open connections do not survive that.
    with ProcessPoolExecutor(count, get_context("spawn"), end_with_parent) as pool:
        futures = [pool.submit(guarded, part) for part in parts]
        try:
            for future in as_completed(futures):
                yield _given(future.result())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def end_with_parent() -> None:
    """Have a process of a pool end with its parent: Ctrl-C reaches all of the terminal, SIGKILL the parent alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, name="end with the parent", daemon=True).start()


def _end_with_parent() -> None:
    """What waits for work sees no end of its queue, for it holds the other end itself; what works would go on."""
    parent = parent_process()
    assert parent is not None  # noqa: S101 - this runs in a process of the pool
    wait([parent.sentinel])
    os._exit(1)


def _guarded(function: Callable[[Part], Result], part: Part) -> Result | _Refused:
    try:
        return function(part)
    except DatabaseError as error:
        # Raised, for Spark tries again; as another class, for not every error survives pickling.
        raise PartFailed(hide_password(str(error))) from None
    except ProjectionsError as error:
        return _Refused(hide_password(str(error)))


def _given(result: Result | _Refused) -> Result:
    if isinstance(result, _Refused):
        raise PartFailed(result.message)
    return result


def _on_spark(
    spark: SparkContext, function: Callable[[Part], Result | _Refused], parts: Sequence[Part]
) -> list[Result | _Refused]:
    with spark_failures():
        return spark.parallelize(parts, len(parts)).map(function).collect()


@contextmanager
def spark_failures() -> Iterator[None]:
    """
    Translate what Spark raises when a task has failed for the last time to PartFailed, with what the task raised.

    The traces of Java and Python are left out.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - only where Spark is
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        raise _task_failure(error) from None


def _task_failure(error: Exception) -> PartFailed:
    text = str(getattr(error, "java_exception", error))
    raised = _RAISED.findall(text)
    return PartFailed(hide_password(raised[-1].strip() if raised else text.splitlines()[0]))
