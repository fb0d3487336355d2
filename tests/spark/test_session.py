"""The session on a real JVM: which Java, which settings, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from spark_projections.engine import session
from spark_projections.engine.jvm import Java, JavaNotFound, UnsupportedJava, find_java, java_command
from spark_projections.engine.session import SparkTooOld, spark_running, spark_session
from tests.fixtures.spark import ROOT, StandaloneCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PROGRAM = """
import sys
from spark_projections.engine.session import spark_running
from tests.fixtures.spark import SMALL

with spark_running({master!r}, conf={{**SMALL, **{conf!r}}}) as spark:
    {body}
"""
COUNT = (
    "from tests.spark.counting import Counting; spark.dataSource.register(Counting); "
    'print(spark.read.format("counting").load().toArrow().num_rows)'
)
JAVA_VERSION = 'print(spark._jvm.java.lang.System.getProperty("java.version"), spark.range(1000).count())'
LONG_JOB = (
    "print(spark._jvm.java.lang.ProcessHandle.current().pid(), flush=True); "
    'spark.sql("SELECT count(*) FROM range(1000000000000) WHERE hash(id) = id").collect()'
)


@contextmanager
def running(
    body: str,
    *,
    master: str = "local[1,4]",
    conf: Mapping[str, str] = MappingProxyType({}),
    **environment: str,
) -> Iterator[subprocess.Popen[str]]:
    """A Python process of its own that has a Spark of its own."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM.format(body=body, master=master, conf=dict(conf))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def outcome(body: str, **environment: str) -> tuple[str, str]:
    """What a program prints, and what it writes to standard error, once it has succeeded."""
    with running(body, **environment) as process:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    return out, err


@pytest.mark.slow
def test_job_runs_on_the_java_of_the_wheel_and_nothing_is_written_beside() -> None:
    assert outcome(JAVA_VERSION, PROJECTIONS_JAVA="wheel") == ("25.0.2 1000\n", "")


@pytest.mark.slow
def test_job_runs_on_the_java_of_the_system() -> None:
    try:
        java = find_java({**os.environ, "PROJECTIONS_JAVA": "system"})
    except (JavaNotFound, UnsupportedJava) as error:
        pytest.skip(str(error))

    out, err = outcome(JAVA_VERSION, PROJECTIONS_JAVA="system")

    assert re.match(rf"{java.version}\b.* 1000\n", out)
    assert err == ""


@pytest.mark.slow
def test_pandas_is_not_needed(tmp_path: Path) -> None:
    """On the driver and in Python's workers, which see the same PYTHONPATH."""
    (tmp_path / "pandas.py").write_text("raise ImportError('pandas was imported')\n")

    out, err = outcome(COUNT, PYTHONPATH=f"{tmp_path}:{ROOT}")

    assert (out, err) == ("6\n", "")


@pytest.mark.slow
def test_java_is_gone_after_python_was_killed() -> None:
    with running(LONG_JOB) as process:
        assert process.stdout
        java = psutil.Process(int(process.stdout.readline()))
        process.send_signal(signal.SIGKILL)

        psutil.wait_procs([java], timeout=300)

        assert not java.is_running()


@pytest.mark.slow
def test_java_that_was_killed_is_replaced_by_the_next_session() -> None:
    body = """
    import os, signal
    os.kill(spark._jvm.java.lang.ProcessHandle.current().pid(), signal.SIGKILL)
    spark.sparkContext._gateway.proc.wait()
with spark_running("local[1]", conf=SMALL) as spark:
    print(spark.range(7).count())
"""

    out, _ = outcome(body)

    assert out == "7\n"


@pytest.mark.slow
def test_java_that_can_not_be_asked_to_stop_is_ended_and_replaced_by_the_next_session() -> None:
    """What Ctrl-C in the middle of an answer leaves."""
    body = """
    class Unreachable:
        def stop(self):
            from py4j.protocol import Py4JNetworkError
            raise Py4JNetworkError("in the middle of an answer")
    java = spark.sparkContext._gateway.proc
    spark.sparkContext._jsc = Unreachable()
print(java.poll() is not None)
with spark_running("local[1]", conf=SMALL) as spark:
    print(spark.range(7).count())
"""

    assert outcome(body) == ("True\n7\n", "")


@pytest.mark.slow
def test_ctrl_c_during_a_job_is_a_keyboard_interrupt_and_no_more(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    with (
        running(COUNT.replace(".toArrow().num_rows", ".count()"), COUNTING_GATE=str(gate)) as process,
        gate.open("w"),  # opens when a task has opened it to read: the job runs
    ):
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)

    assert process.returncode == -signal.SIGINT, err
    assert err.count("Traceback") == 1, err
    assert err.endswith("KeyboardInterrupt\n")


def test_settings(spark: SparkSession) -> None:
    conf = {
        name: spark.conf.get(name) for name in ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions")
    }

    assert conf == {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.pythonExec == sys.executable
    assert spark.sparkContext.getConf().get("spark.driver.host") == "127.0.0.1"


def test_session_that_runs_is_given_and_not_stopped(spark: SparkSession) -> None:
    with spark_running("local[7]", app_name="another") as given:
        assert given.sparkContext is spark.sparkContext

    assert given.range(3).count() == 3


def test_session_is_given_to_a_thread(spark: SparkSession) -> None:
    counted: list[int] = []
    thread = threading.Thread(target=lambda: counted.append(spark_session().range(5).count()))
    thread.start()
    thread.join()

    assert counted == [5]


def test_dsn_in_the_environment_of_executors_is_redacted(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    variable = jvm.scala.Tuple2("spark.executorEnv.PROJECTIONS_DSN", "postgresql://me:pw@db")

    settings = jvm.PythonUtils.toSeq([variable])
    shown = jvm.org.apache.spark.util.Utils.redact(spark.sparkContext.getConf()._jconf, settings).toString()

    assert "PROJECTIONS_DSN" in shown
    assert "pw@db" not in shown


def test_options_for_java_are_those_of_spark_but_one(spark: SparkSession) -> None:
    """A new version of Spark may ask for more; the module that is left out is missing in the wheel's Java."""
    jvm: Any = spark._jvm
    asked: str = jvm.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptions()

    given = java_command(Java(Path("java"), 17, "PATH"), Path())

    assert set(asked.split()) - set(given) == {"--add-modules=jdk.incubator.vector"}


@pytest.mark.parametrize("found", ["4.2.0", "3.5.9", "5.0.0"])
def test_version_of_pyspark_is_checked(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "version", lambda _: found)

    with pytest.raises(SparkTooOld, match=f"PySpark {found}.*pip install"):
        spark_session()


def test_missing_pyspark_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda _: None)

    with pytest.raises(SparkTooOld, match=r"pip install 'slice-projections\[spark\]'"), spark_running():
        pass


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[ 2 , 4 ]", 2), ("spark://h:7077", None), ("yarn", None)],
)
def test_cores_of_a_master(master: str, cores: int | None) -> None:
    assert session._cores(master) == cores


@pytest.mark.slow
def test_cluster_finishes_a_job_after_a_worker_and_the_other_executor_were_killed(
    standalone_cluster: StandaloneCluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    conf = standalone_cluster.conf(COUNTING_GATE=str(gate))

    with running(COUNT, master=standalone_cluster.master_url, conf=conf) as process:
        with gate.open("w"):  # opens when a task has opened it to read: it is at work now
            standalone_cluster.kill_worker(1)
            standalone_cluster.kill_executor()
            gate.unlink()
        out, err = process.communicate(timeout=200)

    assert out == "6\n", err
