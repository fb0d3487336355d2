"""The Spark session: the application's own where there is one, else one with the settings that this library wants."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any

from journal import ProjectionsError
from spark_projections.engine.jvm import end_java, find_java, start_gateway

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOCAL = "local[*,4]"
"""Every core of this machine, and four attempts for a task: ``local[*]`` gives up at the first failure."""

logger = logging.getLogger(__name__)

_AT_START = {
    "spark.ui.showConsoleProgress": "false"
}  # Spark itself sets it for a shell, which this looks like
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
_NOT_STOPPED = "Unable to cleanly shutdown Spark JVM process"
_OLDEST = (4, 3)
_BEFORE = (5, 0)


class SparkTooOld(ProjectionsError):
    """There is no PySpark, or one that this library does not work with."""


def spark_session(
    master: str | None = None,
    *,
    app_name: str = "slice-projections",
    conf: Mapping[str, str] = _NO_SETTINGS,
) -> SparkSession:
    """Give a session to work with, as :func:`spark_running` does, and leave it running."""
    _check_version()
    if (context := _running_context()) is not None:
        logger.info(
            "uses the Spark that runs here already (%s): other settings are not applied", context.master
        )
        return _session_of(context)
    return _session_of(_new_context(master, app_name, conf))


@contextmanager
def spark_running(
    master: str | None = None,
    *,
    app_name: str = "slice-projections",
    conf: Mapping[str, str] = _NO_SETTINGS,
) -> Iterator[SparkSession]:
    """
    Give a session for the length of a block: the running one as it is, else a new one, which is stopped at the end.

    The master, name and settings of a running session stay. In a program under ``spark-submit`` the values given
    there win over the ones that this library would set.

    Args:
        master: Where Spark runs, such as ``local[4,4]`` (cores, attempts), ``spark://host:7077``, ``yarn``. Default:
            what ``spark-submit`` says, else ``local[*,4]``.
        app_name: The name shown in Spark's own tools.
        conf: More of Spark's settings; they win over everything else. Keep passwords out: Spark's event log
            holds settings.

    Raises:
        ProjectionsError: PySpark is missing or not of version 4.3 or a later 4, there is no Java that Spark runs on, or
            Java did not come up.
    """
    _check_version()
    if _running_context() is not None:
        yield spark_session(master, app_name=app_name, conf=conf)
        return
    on_interrupt = signal.getsignal(signal.SIGINT)
    session = spark_session(master, app_name=app_name, conf=conf)
    try:
        yield session
    finally:
        _stop(session)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, on_interrupt)


def _stop(session: SparkSession) -> None:
    """
    Stop a session, and its Java where that cannot be asked to stop it.

    Ctrl-C may come in the middle of an answer: then the next call fails, PySpark warns, and Java has a session that
    nobody can reach. It is ended, so that the next session begins with a Java of its own.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - the extra may be missing

    process = getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001 - there is no public name for it
    with warnings.catch_warnings():
        warnings.filterwarnings("error", _NOT_STOPPED, RuntimeWarning)
        try:
            session.stop()
        except (OSError, Py4JError, RuntimeWarning):
            if process is not None:
                end_java(process)
            session.sparkContext.stop()  # what is left of it in Python


def _check_version() -> None:
    if find_spec("pyspark") is None:
        raise SparkTooOld("PySpark is not installed: pip install 'slice-projections[spark]'")
    try:
        found = version("pyspark")
    except PackageNotFoundError:  # from an unpacked Spark on PYTHONPATH
        found = str(import_module("pyspark.version").__version__)
    if not _OLDEST <= tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < _BEFORE:
        raise SparkTooOld(
            f"PySpark {found} is installed, and 4.3 or a later 4 is needed: pip install 'slice-projections[spark]'"
        )


def _running_context() -> SparkContext | None:
    from pyspark import SparkContext  # noqa: PLC0415 - the extra may be missing

    context: SparkContext | None = SparkContext._active_spark_context  # noqa: SLF001 - getOrCreate() would start one
    return context


def _session_of(context: SparkContext) -> SparkSession:
    """Give the session of this thread."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the extra may be missing

    return SparkSession.getActiveSession() or SparkSession(context)


def _new_context(master: str | None, app_name: str, conf: Mapping[str, str]) -> SparkContext:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - the extra may be missing

    if master is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = LOCAL
    asked = {"spark.app.name": app_name, **({"spark.master": master} if master else {}), **conf}
    python = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    with _environment(python), warnings.catch_warnings():
        # PySpark imports pandas where it is there, and warns of new versions; nothing here uses it.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        _connect_to_java({**_AT_START, **asked})
        settings = SparkConf()
        for key, value in asked.items():
            settings.set(key, value)
        for key, value in _defaults(settings.get("spark.master") or LOCAL).items():
            settings.setIfMissing(key, value)
        on_interrupt = signal.getsignal(signal.SIGINT)
        context = SparkContext(conf=settings)
    _cancel_jobs_on_interrupt(context, on_interrupt)
    return context


def _cancel_jobs_on_interrupt(context: SparkContext, before: Any) -> None:
    """
    Let Ctrl-C cancel Spark's jobs and then do what it did before.

    PySpark's own handler asks Java over the connection that the interrupted call is using, which breaks both.
    """

    def cancel() -> None:
        with suppress(Exception):  # the context may be stopping, and its jobs with it
            context.cancelAllJobs()

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        logging.getLogger().addFilter(_not_of_py4j)
        canceller = threading.Thread(target=cancel, daemon=True)  # another thread is another connection
        canceller.start()
        canceller.join(timeout=5)
        if callable(before):
            before(number, frame)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, on_interrupt)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """Keep out the traceback that py4j logs for each call that Ctrl-C ends; the exception tells it already."""
    return record.getMessage() != "KeyboardInterrupt while sending command."


def _connect_to_java(conf: Mapping[str, str]) -> None:
    """Start Java, unless ``spark-submit`` or a session that ended has left one that runs."""
    from pyspark import SparkContext  # noqa: PLC0415 - the extra may be missing
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    if "PYSPARK_GATEWAY_PORT" in os.environ or _has_live_java():
        return
    local = _cores(conf["spark.master"]) is not None
    started = start_gateway(find_java(), _spark_home(), conf, loopback=local)
    address = {"PYSPARK_GATEWAY_PORT": str(started.port), "PYSPARK_GATEWAY_SECRET": started.secret}
    with _environment(address):
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    gateway.proc = started.process  # where PySpark keeps the one that it starts itself
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - the way in for a gateway


def _has_live_java() -> bool:
    """Whether a session that ended has left its Java; one that was killed is forgotten here."""
    from pyspark import SparkContext  # noqa: PLC0415 - the extra may be missing

    gateway = SparkContext._gateway  # noqa: SLF001 - there is no public name for it
    process = getattr(gateway, "proc", None)
    if gateway is not None and process is not None and process.poll() is not None:
        SparkContext._gateway = gateway = None  # noqa: SLF001
        SparkContext._jvm = None  # noqa: SLF001
    return gateway is not None


def _spark_home() -> Path:
    """Where Spark's jars are: ``SPARK_HOME`` if set, as for PySpark itself, else in PySpark's package."""
    home = Path(os.environ.get("SPARK_HOME") or str(import_module("pyspark").__path__[0]))
    if not (home / "jars").is_dir():
        raise SparkTooOld(f"{home} holds no jars of Spark: set SPARK_HOME to a Spark that does, or unset it")
    return home


def _defaults(master: str) -> dict[str, str]:
    """What this library would set, where neither the caller nor ``spark-submit`` says anything."""
    settings = {
        "spark.log.level": "ERROR",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        # DSNs in options and in the environment of executors hold passwords: not for logs and plans.
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|dsn",
        "spark.sql.redaction.options.regex": "(?i)url|dsn|secret|password|token",
    }
    if (cores := _cores(master)) is not None:
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.sql.shuffle.partitions"] = str(cores)
    return settings


def _cores(master: str) -> int | None:
    """How many tasks run at once within this process; None on a cluster."""
    found = re.fullmatch(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\])?", master)
    if found is None:
        return None
    if found[1] == "*":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(found[1] or 1)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the length of a block: PySpark takes some of its settings from there alone."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
