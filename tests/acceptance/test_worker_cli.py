"""`projections worker` as a user runs it: a process, its log, its exit code, and signals at told points."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from journal import append_sync
from journal.database.sync import connect_sync
from tests.fixtures.commands import APP, SEEN, gate, landed, owners, projections, running, seen

SIGNALS = {signal.SIGTERM: 0, signal.SIGINT: 130}


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_until_caught_up_handles_everything_once_and_exits_0(app: Path, filled: str, driver: str) -> None:
    result = projections(
        "worker", "app:Delays", "--dsn", filled, "--until-caught-up", "--driver", driver, cwd=app
    )

    assert (result.returncode, result.stdout, seen(filled)) == (0, "", 100)
    assert owners(filled) == [(None,)]


@pytest.mark.slow
def test_a_module_alone_names_all_projections_in_it(app: Path, filled: str) -> None:
    result = projections("worker", "app", "--dsn", filled, "--until-caught-up", cwd=app)

    assert (result.returncode, seen(filled, "delays"), seen(filled, "gated")) == (0, 100, 100)


@pytest.mark.slow
def test_naming_a_projection_twice_runs_it_once(app: Path, filled: str) -> None:
    result = projections("worker", "app", "app:Delays", "--dsn", filled, "--until-caught-up", cwd=app)

    assert (result.returncode, seen(filled)) == (0, 100)


@pytest.mark.slow
def test_the_pool_suffices_for_all_ranges(app: Path, filled: str) -> None:
    result = projections(
        "worker", "app:Delays", "--dsn", filled, "--ranges", "25", "--until-caught-up", cwd=app
    )

    assert (result.returncode, seen(filled)) == (0, 100)
    assert "connections of the pool" not in result.stderr


@pytest.mark.slow
def test_json_logs_are_one_object_a_line_with_an_action(app: Path, filled: str) -> None:
    once = ["--ranges", "1", "--until-caught-up", "--log-format", "json"]
    result = projections("worker", "app:Delays", "--dsn", filled, *once, cwd=app)

    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert [line["action"] for line in lines] == ["started", "stopped", "caught_up"]
    assert lines[0].items() >= {"level": "info", "projection": "delays"}.items()
    assert {"time", "message"} <= set(lines[0])


LOOKS = """
import gc

@projection("looks", entity_type="plane")
class Looks:
    @handles(Landed)
    async def landed(self, session: Session, event: Landed, envelope: EventEnvelope) -> None:
        collected = {id(one) for one in gc.get_objects()}  # without what is frozen
        import logging
        logging.getLogger("app").info("", extra={
            "action": "looked", "loaded": id(Looks) in collected, "handled": id(event) in collected,
        })
"""


def test_the_garbage_collector_does_not_look_through_what_was_loaded_before(app: Path, dsn: str) -> None:
    (app / "looking.py").write_text(APP + LOOKS)
    with connect_sync(dsn) as connection:
        append_sync(connection, [landed("N1")])
    once = ["--ranges", "1", "--until-caught-up", "--log-format", "json"]

    result = projections("worker", "looking:Looks", "--dsn", dsn, *once, cwd=app)

    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert [(line["loaded"], line["handled"]) for line in lines if line["action"] == "looked"] == [
        (False, True)
    ]


COLLECTS = """
import gc, logging

def collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())

@projection("collects", entity_type="plane")
class Collects:
    async def start(self) -> None:
        self.before = collections()

    async def stop(self) -> None:
        logging.getLogger("app").info("", extra={"action": "ends", "collected": collections() - self.before})

    @handles(Landed)
    async def landed(self, session: Session, event: Landed, envelope: EventEnvelope) -> None:
        pass
"""


@pytest.mark.slow
def test_the_garbage_collector_does_not_look_through_each_page_of_events(app: Path, dsn: str) -> None:
    (app / "collecting.py").write_text(APP + COLLECTS)
    with connect_sync(dsn) as connection:
        append_sync(connection, [landed(f"N{n}") for n in range(5_000)])
    once = ["--ranges", "1", "--until-caught-up", "--log-format", "json"]

    result = projections("worker", "collecting:Collects", "--dsn", dsn, *once, cwd=app)

    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert [line["collected"] for line in lines if line["action"] == "ends"] == [0]


@pytest.mark.slow
def test_text_logs_name_time_level_and_action(app: Path, filled: str) -> None:
    result = projections(
        "worker", "app:Delays", "--dsn", filled, "--ranges", "1", "--until-caught-up", cwd=app
    )

    assert result.stderr.splitlines()[0].endswith(" INFO    started: delays: slices 0-1023 started")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), SIGNALS.items())
def test_a_signal_finishes_the_batch_and_gives_the_ranges_back(
    app: Path, filled: str, number: signal.Signals, code: int
) -> None:
    with running("app:Gated", "--ranges", "1", "--dsn", filled, cwd=app) as run:
        with gate(filled):
            run.until("handling")
            run.signal(number)
            run.until("stopping")

        assert run.end() == code
    assert seen(filled, "gated") == 10
    assert owners(filled) == [(None,)]


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_a_second_signal_ends_at_once_and_nothing_is_lost_or_done_twice(
    app: Path, filled: str, number: signal.Signals
) -> None:
    with running("app:Gated", "--dsn", filled, cwd=app) as run, gate(filled):
        run.until("handling")
        run.signal(number)
        run.until("stopping")
        run.signal(number)

        assert run.end() == -number

    again = projections("worker", "app:Gated", "--dsn", filled, "--until-caught-up", "--take-over", cwd=app)
    assert (again.returncode, seen(filled, "gated")) == (0, 100)


@pytest.mark.slow
@pytest.mark.parametrize("events", [1, 11, 35])
def test_ctrl_c_in_the_middle_loses_nothing(app: Path, filled: str, events: int) -> None:
    with running("app:Gated", "--dsn", filled, cwd=app) as run:
        for _ in range(events):
            run.until("handling")
        run.signal(signal.SIGINT)

        assert run.end() == 130
    assert owners(filled) == [(None,)]
    again = projections("worker", "app:Gated", "--dsn", filled, "--until-caught-up", cwd=app)
    assert (again.returncode, seen(filled, "gated")) == (0, 100)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), SIGNALS.items())
def test_an_idle_worker_stops_by_a_signal(app: Path, filled: str, number: signal.Signals, code: int) -> None:
    with running("app:Delays", "--dsn", filled, cwd=app) as run:
        run.until("started")
        run.signal(number)

        assert run.end() == code
    assert owners(filled) == [(None,)]


@pytest.mark.slow
def test_a_worker_without_a_range_stops_by_ctrl_c(app: Path, filled: str) -> None:
    with running("app:Delays", "--ranges", "1", "--dsn", filled, cwd=app) as first:
        first.until("started")
        with running("app:Delays", "--dsn", filled, cwd=app) as second:
            second.until("idle")
            second.signal(signal.SIGINT)

            assert second.end() == 130


@pytest.mark.slow
def test_sigterm_before_caught_up_exits_143(app: Path, filled: str) -> None:
    with running("app:Gated", "--dsn", filled, "--until-caught-up", cwd=app) as run:
        with gate(filled):
            run.until("handling")
            run.signal(signal.SIGTERM)
            run.until("stopping")

        assert run.end() == 143


@pytest.mark.slow
def test_ranges_are_taken_over_when_asked(app: Path, filled: str) -> None:
    with running("app:Delays", "--dsn", filled, cwd=app) as first:
        first.until("started")

        second = projections(
            "worker", "app:Delays", "--dsn", filled, "--until-caught-up", "--take-over", cwd=app
        )

        assert second.returncode == 0
    assert seen(filled) == 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere", "there is no module 'nowhere' in "),
        ("nowhere.at.all:X", "there is no module 'nowhere' in "),
        ("app.inner:X", "there is no module 'app.inner' in "),
        ("app:Nope", "module 'app' has no 'Nope'; projections in 'app': Delays, Gated"),
        ("app:Landed", "'app:Landed' is not a projection: decorate the class with @projection"),
        ("app:", "'app:' is not of the form module:object or module"),
        (":Delays", "':Delays' is not of the form module:object or module"),
        (".app", "'.app' is a relative name: write the whole one"),
        ("json", "module 'json' holds no projection"),
    ],
)
def test_a_wrong_target_is_told(app: Path, target: str, message: str) -> None:
    result = projections("worker", target, "--dsn", "postgresql:///none", cwd=app)

    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.daily(1)
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import missing_thing",
            "error: module 'broken' cannot be imported: ModuleNotFoundError: No module named",
        ),
        ("1 / 0", "error: module 'broken' cannot be imported: ZeroDivisionError: division by zero ("),
        ("def", "error: module 'broken' cannot be imported: SyntaxError: "),
    ],
)
def test_a_module_that_can_not_be_imported_is_told(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "broken.py").write_text(code)

    result = projections("worker", "broken", "--dsn", "postgresql:///none", cwd=tmp_path)

    assert result.returncode == 1
    assert result.stderr.startswith(message)
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_a_wrong_handler_is_told_with_its_fault(tmp_path: Path) -> None:
    wrong = APP.replace("async def landed", "def landed").replace("await ", "")
    (tmp_path / "app.py").write_text(wrong)

    result = projections("worker", "app", "--dsn", "postgresql:///none", cwd=tmp_path)

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "error: Delays.landed has 4 parameters: write it as async def landed(self, session, event, envelope): "
        "it takes a session and is not async\n"
    )


@pytest.mark.slow
def test_json_logs_give_the_reason_of_a_failed_start_too(app: Path, empty_dsn: str) -> None:
    result = projections("worker", "app", "--dsn", empty_dsn, "--log-format", "json", cwd=app)

    assert result.returncode == 1
    line = json.loads(result.stderr)
    assert line.items() >= {"level": "critical", "action": "ended", "error": "SchemaError"}.items()


@pytest.mark.slow
def test_an_entity_type_without_events_is_told_and_allowed(app: Path, dsn: str) -> None:
    with connect_sync(dsn) as connection:
        connection.execute(SEEN)

    result = projections("worker", "app:Delays", "--dsn", dsn, "--until-caught-up", cwd=app)

    assert result.returncode == 0
    assert (
        "no_events: projection 'delays': the journal has no events of entity type 'plane' yet"
        in result.stderr
    )
