"""A process that was asked to end does, within its grace, whatever it is doing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from projections.running.loop_monitor import ABORTED
from tests.fixtures.commands import gate, query, running

STUCK = '''
import asyncio, ctypes, logging, threading
from pydantic import BaseModel
from projections import EventEnvelope, Session, handles, projection

class Landed(BaseModel):
    pass

def begin():
    logging.getLogger("app").info("handling", extra={"action": "handling"})

@projection("swallowing", entity_type="plane")
class Swallowing:
    @handles(Landed)
    async def landed(self, session: Session, event: Landed, envelope: EventEnvelope) -> None:
        begin()
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                pass

@projection("blocking", entity_type="plane")
class Blocking:
    @handles(Landed)
    async def landed(self, session: Session, event: Landed, envelope: EventEnvelope) -> None:
        begin()
        threading.Event().wait()

@projection("deaf", entity_type="plane")
class Deaf:
    """Waits in the C library for a mutex that it has: no signal interrupts that, and no handler of Python runs."""

    @handles(Landed)
    async def landed(self, session: Session, event: Landed, envelope: EventEnvelope) -> None:
        begin()
        mutex = ctypes.create_string_buffer(64)
        for _ in range(2):
            ctypes.CDLL(None).pthread_mutex_lock(mutex)
'''


@pytest.mark.daily(1)
@pytest.mark.parametrize("stuck", ["Swallowing", "Blocking", "Deaf"])
def test_a_worker_ends_although_its_handler_does_not(tmp_path: Path, filled: str, stuck: str) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    with running(
        f"stuck:{stuck}", "--dsn", filled, "--ranges", "1", "--grace", "0.5s", cwd=tmp_path
    ) as worker:
        worker.until("handling")

        worker.signal(signal.SIGTERM)

        assert worker.end() == ABORTED
        told = worker.log[-1]
        assert told["action"] == "aborted"
        assert "not ended 0.5 s after it was asked to" in told["message"]


@pytest.mark.slow
def test_a_worker_ends_although_a_statement_does_not(app: Path, filled: str) -> None:
    with (
        gate(filled),
        running("app:Gated", "--dsn", filled, "--ranges", "1", "--grace", "0.5s", cwd=app) as worker,
    ):
        worker.until("handling")

        worker.signal(signal.SIGTERM)

        assert worker.end() == ABORTED


@pytest.mark.slow
def test_a_worker_ends_although_a_thread_keeps_its_loop_from_closing(tmp_path: Path, filled: str) -> None:
    thread = "asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)"
    code = STUCK.replace("threading.Event().wait()", thread)
    (tmp_path / "stuck.py").write_text(code)
    with running("stuck:Blocking", "--dsn", filled, "--ranges", "1", "--grace", "2s", cwd=tmp_path) as worker:
        worker.until("handling")

        worker.signal(signal.SIGTERM)

        assert worker.end() == ABORTED
        assert "stopped" in [line["action"] for line in worker.log]


@pytest.mark.slow
def test_all_processes_end_with_their_supervisor(app: Path, filled: str) -> None:
    options = ["--processes", "2", "--ranges", "2", "--grace", "0.5s"]
    with gate(filled), running("app:Gated", "--dsn", filled, *options, cwd=app) as worker:
        worker.until_all("handling", 2)

        worker.signal(signal.SIGTERM)

        assert worker.end() == 0
        assert [line["action"] for line in worker.log].count("aborted") >= 1
    assert query(filled, "SELECT count(*) FROM seen") == [(0,)]
