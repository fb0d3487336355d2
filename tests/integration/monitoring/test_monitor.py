"""The monitor over HTTP: who may do what, what its actions change, and what its stream tells."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import offsets
from journal import ConnectionSettings, Database, connect
from projections.monitoring import SliceLag
from projections.monitoring.lag import State
from projections.monitoring.web.app import monitor_app
from projections.monitoring.web.details import Details
from projections.monitoring.web.feed import Feed
from projections.monitoring.web.history import LagHistory
from projections.monitoring.web.snapshot_json import _runs
from tests.fixtures.commands import COMMAND, environment, projections
from tests.fixtures.http import asking
from tests.fixtures.locks import WAITING
from tests.fixtures.monitor import (
    SOON,
    WATCHED_ONLY,
    act,
    detail,
    documents,
    first,
    headers_of_the_page,
    monitoring,
)
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    caught_up,
    execute,
    failing,
    fetchval,
    happen,
    recording,
    until,
)

NASTY = "<img src=x onerror=alert(1)>"
STATIC = Path(__file__).parents[3] / "projections/monitoring/web/static"


@pytest.fixture
async def parked(database: Database) -> Database:
    """Projection p with four events, and two sources that wait at their first."""
    await execute(database, EFFECTS)
    await happen(database, "a", NASTY, "b", "c")
    await caught_up(database, recording(failing(("a", 1), (NASTY, 1)), recovery=NO_RETRY))
    return database


@pytest.fixture
async def known(database: Database) -> Database:
    """Projection p, which has never run."""
    async with database.session() as session:
        await offsets.register(session, "p", "plane")
    return database


async def is_paused(database: Database) -> bool:
    return bool(await fetchval(database, "SELECT paused FROM projections.projections WHERE name = 'p'"))


async def decisions(database: Database) -> dict[str, str]:
    async with database.session() as session:
        return {one.source_id: one.decision for one in await offsets.ParkedSources(session).list("p")}


def column(found: Mapping[str, Any], name: str) -> list[Any]:
    """A value for each slice."""
    runs = found["slices"][name]
    return [value for value, count in zip(runs[::2], runs[1::2], strict=True) for _ in range(count)]


# ---- the page ----


@pytest.mark.slow
async def test_page_brings_all_that_it_needs_and_allows_nothing_else(database: Database) -> None:
    async with monitoring(database) as client:
        page = await client.get("/")
        linked = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
        found = [await client.get(link) for link in linked]

    assert page.headers["content-security-policy"].startswith("default-src 'self';")
    styles = [f"static/{name}.css" for name in ("base", "monitor", "overview", "projection", "webhooks")]
    assert linked == ["static/icon.svg", *styles, "static/monitor.js"]
    assert [one.status_code for one in found] == [200] * 7


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_nothing_of_the_page_is_inline_foreign_or_makes_markup_of_text(path: Path) -> None:
    text = path.read_text()

    assert not re.search(
        r"style=|<style|<script>|\son\w+=|innerHTML|outerHTML|insertAdjacentHTML|eval\(", text
    )
    assert {*re.findall(r"https?://[^\"')\s]+", text)} <= {"http://www.w3.org/2000/svg"}


async def test_other_sites_can_not_frame_the_page_or_guess_types(database: Database) -> None:
    async with monitoring(database) as client:
        headers = (await client.get("/")).headers

    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/metrics", "/livez", "/readyz", "/lagz"])
async def test_machines_are_answered_beside_the_page(known: Database, path: str) -> None:
    async with monitoring(known) as client:
        response = await client.get(path)

    assert response.status_code == 200


# ---- who may ask ----


async def test_a_name_that_others_can_point_here_is_refused(database: Database) -> None:
    async with monitoring(database) as client:
        rebound = await client.get("/events", headers={"host": "attacker.example:8750"})
        tunnelled = await client.get("/", headers={"host": "localhost:9999"})

    assert (rebound.status_code, tunnelled.status_code) == (421, 200)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["/", "/events", "/projection?name=p", "/session", "/metrics", "/static/monitor.js"]
)
async def test_with_a_token_nothing_is_told_without_it(database: Database, path: str) -> None:
    async with monitoring(database, token="secret") as client:
        response = await client.get(path)

    assert response.status_code == 401


async def test_a_browser_gives_the_token_as_a_password(known: Database) -> None:
    async with monitoring(known, token="secret") as client:
        client.auth = httpx.BasicAuth("anybody", "secret")
        page, done = await client.get("/"), await act(client, "pause", projection="p")

    assert (page.status_code, done.status_code) == (200, 200)
    assert await is_paused(known)


FORGED: dict[str, dict[str, str | None]] = {
    "no token": {"x-csrf-token": None},
    "another token": {"x-csrf-token": "0" * 64},
    "no cookie": {"cookie": ""},
    "another session's cookie": {"cookie": "projections_monitor=other"},
    "another origin": {"origin": "https://attacker.example"},
    "no origin": {"origin": None},
    "an opaque origin": {"origin": "null"},
    "a broken origin": {"origin": "http://["},
    "another site": {"sec-fetch-site": "cross-site"},
    "another port of this host": {"sec-fetch-site": "same-site"},
}


@pytest.mark.slow
@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
async def test_an_action_of_another_site_is_refused(
    known: Database, forged: Mapping[str, str | None]
) -> None:
    async with monitoring(known) as client:
        merged = {**await headers_of_the_page(client), **forged}
        headers = {name: value for name, value in merged.items() if value is not None}
        response = await client.post("/actions/pause", json={"projection": "p"}, headers=headers)

    assert response.status_code == 403, response.text
    assert not await is_paused(known)


@pytest.mark.slow
@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_what_a_form_can_send_is_refused(known: Database, content_type: str) -> None:
    async with monitoring(known) as client:
        headers = {**await headers_of_the_page(client), "content-type": content_type}
        response = await client.post("/actions/pause", content=b'{"projection": "p"}', headers=headers)

    assert response.status_code == 415
    assert not await is_paused(known)


@pytest.mark.slow
async def test_the_page_works_from_where_a_proxy_shows_it(known: Database) -> None:
    async with monitoring(known, origins=("https://monitor.example.com",)) as client:
        headers = {**await headers_of_the_page(client), "origin": "https://monitor.example.com"}
        response = await client.post("/actions/pause", json={"projection": "p"}, headers=headers)

    assert response.status_code == 200
    assert await is_paused(known)


# ---- what is done ----


@pytest.mark.slow
async def test_pause_and_resume_change_the_projection(known: Database) -> None:
    async with monitoring(known) as client:
        paused = await act(client, "pause", projection="p"), await is_paused(known)
        resumed = await act(client, "resume", projection="p"), await is_paused(known)

    assert (paused[0].json(), paused[1]) == ({"done": "p is paused after the current batches"}, True)
    assert (resumed[0].json(), resumed[1]) == ({"done": "p goes on"}, False)


async def test_rescale_cuts_the_slices_anew(known: Database) -> None:
    async with monitoring(known) as client:
        response = await act(client, "rescale", projection="p", ranges=7)

    assert response.json() == {"done": "p is cut into 7 ranges"}
    assert await fetchval(known, "SELECT count(*) FROM projections.projection_ranges") == 7


@pytest.mark.slow
@pytest.mark.parametrize("action", ["retry", "drop"])
async def test_a_decision_is_about_one_source(parked: Database, action: str) -> None:
    async with monitoring(parked) as client:
        response = await act(client, action, projection="p", source_id=NASTY, seq_nr=1)

    assert response.status_code == 200
    assert await decisions(parked) == {NASTY: action, "a": "waiting"}


@pytest.mark.slow
@pytest.mark.parametrize("action", ["retry", "drop"])
async def test_nothing_is_decided_about_an_event_that_was_not_shown(parked: Database, action: str) -> None:
    async with monitoring(parked) as client:
        response = await act(client, action, projection="p", source_id="a", seq_nr=2)

    assert response.status_code == 409
    assert response.json() == {
        "error": "source 'a' of projection 'p' is not waiting for a decision at event 2"
    }
    assert await decisions(parked) == {NASTY: "waiting", "a": "waiting"}


@pytest.mark.slow
async def test_nothing_is_decided_when_the_event_changes_meanwhile(parked: Database) -> None:
    async with monitoring(parked) as client, parked.session() as worker:
        await worker.begin()
        await worker.execute("UPDATE projections.parked_sources SET seq_nr = 9 WHERE source_id = 'a'")
        acting = asyncio.create_task(act(client, "drop", projection="p", source_id="a", seq_nr=1))
        await until(parked, f"SELECT count(*) > 0 FROM {WAITING}")
        await worker.commit()
        response = await acting

    assert (response.status_code, response.json()) == (
        409, {"error": "source 'a' of projection 'p' is not waiting for a decision at event 1"},
    )  # fmt: skip
    assert await decisions(parked) == {NASTY: "waiting", "a": "waiting"}


BAD: dict[str, tuple[str, dict[str, Any], int]] = {
    "no body": ("pause", {}, 400),
    "something else": ("pause", {"projection": "p", "force": True}, 400),
    "no range": ("rescale", {"projection": "p", "ranges": 0}, 400),
    "too many ranges": ("rescale", {"projection": "p", "ranges": 1025}, 400),
    "a number as text": ("rescale", {"projection": "p", "ranges": "8"}, 400),
    "an unknown projection": ("pause", {"projection": "q"}, 404),
    "an unknown action": ("delete", {"projection": "p"}, 404),
    "too much": ("pause", {"projection": "p" * 70_000}, 413),
    "a character that no text holds": ("pause", {"projection": "\0"}, 400),
}


@pytest.mark.slow
@pytest.mark.parametrize(("action", "body", "status"), BAD.values(), ids=BAD)
async def test_a_wrong_request_is_told_why(
    known: Database, action: str, body: dict[str, Any], status: int
) -> None:
    async with monitoring(known) as client:
        response = await act(client, action, **body)

    assert response.status_code == status, response.text
    assert response.json()["error"]


@pytest.mark.slow
async def test_a_role_that_may_read_sees_everything_and_changes_nothing(
    parked: Database, login: Callable[[str | None], str]
) -> None:
    async with (
        connect(login("projections_reader"), ConnectionSettings(max_connections=2)) as pool,
        monitoring(pool) as client,
    ):
        found, shown = await first(client), await detail(client)
        bodies: dict[str, dict[str, Any]] = {
            "pause": {}, "rescale": {"ranges": 3}, "drop": {"source_id": "a", "seq_nr": 1},
        }  # fmt: skip
        refused = [await act(client, action, projection="p", **body) for action, body in bodies.items()]

    assert [(one["name"], one["parked"]) for one in found["projections"]] == [("p", 2)]
    assert (shown["parked_total"], len(shown["parked"])) == (2, 2)
    assert [response.status_code for response in refused] == [403, 403, 403]
    assert "grant the role" in refused[0].json()["error"]


@pytest.mark.slow
async def test_a_role_of_workers_may_do_everything(
    parked: Database, login: Callable[[str | None], str]
) -> None:
    async with (
        connect(login("projections_worker"), ConnectionSettings(max_connections=2)) as pool,
        monitoring(pool) as client,
    ):
        found = await first(client)
        done = [
            await act(client, "pause", projection="p"),
            await act(client, "rescale", projection="p", ranges=3),
            await act(client, "drop", projection="p", source_id="a", seq_nr=1),
        ]

    assert "projections" in found
    assert [response.status_code for response in done] == [200, 200, 200]


# ---- what is told ----


@pytest.mark.slow
async def test_stream_tells_again_and_again(known: Database) -> None:
    async with asyncio.timeout(300), monitoring(known) as client:
        told = []
        async for kind, found in documents(client):
            told.append((kind, found))
            if len(told) == 3:
                break

    assert [kind for kind, _ in told] == ["message"] * 3
    times = [found["at"] for _, found in told]
    assert times == sorted(set(times))


async def test_a_projection_is_told_with_every_slice_range_and_parked_source(parked: Database) -> None:
    await happen(parked, "b", "b", "c")
    async with monitoring(parked) as client:
        found = await detail(client)

    backlog, parked_slices, state = (column(found, name) for name in ("backlog", "parked", "state"))
    assert (len(backlog), sum(backlog), sum(parked_slices), {*state}) == (1024, 3, 2, {"unclaimed"})
    assert max(column(found, "lag")) == found["lag"] > 0
    assert [(part["first"], part["last"], part["owner"]) for part in found["ranges"]] == [(0, 1023, None)]
    assert [(one["source_id"], one["seq_nr"], one["decision"]) for one in found["parked"]] == [
        (NASTY, 1, "waiting"),
        ("a", 1, "waiting"),
    ]
    assert all("Traceback" in one["traceback"] or "in fail" in one["traceback"] for one in found["parked"])
    assert [one["cause"] for one in found["holds"]] == ["no worker", "parked"]


async def test_the_lines_of_a_projection_go_on_where_the_page_has_them(known: Database) -> None:
    async with asyncio.timeout(300), monitoring(known) as client:
        numbers = (n for n in range(1, 100))
        async for _ in documents(client):
            if next(numbers) == 4:
                break
        all_points = (await detail(client))["points"]
        rest = (await detail(client, since=all_points[1][0]))["points"]

    assert len(all_points) >= 4
    assert rest[: len(all_points) - 2] == all_points[2:]


ASKED: dict[str, tuple[dict[str, str], int, str]] = {
    "none of this name": ({"name": "q"}, 404, "there is no projection 'q'"),
    "no name": ({}, 404, "there is no projection ''"),
    "a character that no text holds": ({"name": "p\0"}, 404, "there is no projection"),
    "no time": ({"name": "p", "since": "yesterday"}, 400, "since: 'yesterday' is not a number"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "status", "said"), ASKED.values(), ids=ASKED)
async def test_a_projection_that_cannot_be_told_of_is_refused(
    known: Database, asked: dict[str, str], status: int, said: str
) -> None:
    async with monitoring(known) as client:
        response = await client.get("/projection", params=asked)

    assert response.status_code == status, response.text
    assert said in response.json()["error"]


async def test_no_more_looks_are_kept_than_so_many(known: Database) -> None:
    details = Details(known, LagHistory())
    for number in range(40):
        await details._look_at(f"q{number}").get()

    assert len(details._looks) == 32


async def test_workers_and_open_writers_are_told(known: Database) -> None:
    await execute(
        known,
        "INSERT INTO projections.workers (owner, host, pid, projection_ids, lease_until) "
        "VALUES ('h:1:x', 'h', 1, '{}', clock_timestamp() + interval '1 hour')",
    )
    async with known.transaction() as writer, monitoring(known) as client:
        await writer.execute("LOCK TABLE projections.sources IN ROW EXCLUSIVE MODE")
        found = await first(client, lambda document: document["writers"])

    assert [(one["owner"], one["alive"]) for one in found["workers"]] == [("h:1:x", True)]
    assert [one["application_name"] for one in found["writers"]] == ["slice-projections"]


async def test_all_clients_share_a_look(known: Database) -> None:
    async with monitoring(known, every=timedelta(minutes=10)) as client:
        found = await asyncio.gather(*(first(client) for _ in range(20)))

    assert len({one["at"] for one in found}) <= 2


async def test_while_nobody_watches_the_database_is_left_alone(known: Database) -> None:
    feed = Feed(known, **WATCHED_ONLY)
    async with asyncio.timeout(300), feed.running():
        number, _ = await feed.after(0)
        waiting = asyncio.create_task(feed.after(number))
        done, _ = await asyncio.wait([waiting], timeout=10 * SOON.total_seconds())
        looked_alone = bool(done)
        with feed.watching():
            await waiting

    assert not looked_alone


@pytest.mark.slow
async def test_a_database_that_is_lost_is_told_and_comes_back(
    known: Database, dsn: str, admin_dsn: str
) -> None:
    name = conninfo_to_dict(dsn)["dbname"]
    async with connect(dsn, ConnectionSettings(max_connections=2)) as pool, monitoring(pool) as client:
        await first(client)
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            lost = await first(client, lambda document: "error" in document)
            refused = await act(client, "pause", projection="p")
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        back = await first(client, lambda document: "error" not in document)

    assert lost.keys() == {"error"}
    assert "database" in lost["error"]
    assert (refused.status_code, refused.json().keys()) == (503, {"error"})
    assert [found["name"] for found in back["projections"]] == ["p"]


async def test_the_end_of_the_monitor_ends_its_streams(known: Database) -> None:
    feed = Feed(known, **WATCHED_ONLY)
    async with asyncio.timeout(300), asking(monitor_app(known, feed)) as client:
        kinds = []
        async for kind, _ in documents(client):
            kinds.append(kind)
            feed.close()

    assert kinds == ["message"]


def test_slices_travel_as_runs() -> None:
    slices = [
        SliceLag(n, 0.0, 0, None, None, 0, State.RUNNING if n < 1000 else State.PARKED, 0)
        for n in range(1024)
    ]

    assert _runs(one.state for one in slices) == ["running", 1000, "parked", 24]
    assert [*groupby([])] == _runs([])


# ---- the command ----


@contextmanager
def monitor(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``projections monitor`` for the length of the block, and where it is."""
    command = [*COMMAND, "monitor", "--http", "127.0.0.1:0", "--log-format", "json", *arguments]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment()
    ) as process:
        try:
            assert process.stderr is not None
            said = json.loads(process.stderr.readline())
            yield process, f"http://{said['address']}"
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_command_serves_until_it_is_stopped_even_while_somebody_watches(
    dsn: str, number: signal.Signals, code: int
) -> None:
    with (
        monitor("--dsn", dsn) as (process, url),
        httpx.stream("GET", f"{url}/events", trust_env=False) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == "retry: 1000"
        assert "event: message" in lines
        process.send_signal(number)
        for _ in lines:
            pass

        assert process.wait(timeout=300) == code


WRONG = {
    "an address without a host": (("--http", ":8750"), 2, "write HOST:PORT"),
    "an address that others reach": (("--http", "0.0.0.0:0"), 1, "PROJECTIONS_TOKEN"),
    "no time": (("--every", "fast"), 2, "is not a duration"),
    "too often": (("--every", "1ms"), 2, "100ms"),
    "an origin with a path": (("--origin", "https://example.com/monitor"), 2, "without a path"),
    "a token that cannot be read": (("--token-file", "/nowhere"), 1, "/nowhere"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "code", "said"), WRONG.values(), ids=WRONG)
def test_command_says_what_is_wrong_in_a_line(arguments: tuple[str, ...], code: int, said: str) -> None:
    result = projections("monitor", *arguments)

    assert result.returncode == code
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_command_never_shows_a_password() -> None:
    result = projections("monitor", "--dsn", "postgresql://u:hunter2@127.0.0.1:1/d")

    assert result.returncode == 1
    assert "hunter2" not in result.stderr + result.stdout
