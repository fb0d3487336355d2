"""Changes of endpoints and schedules by several at a time: each names the version that it was made from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from journal import Database, NotAllowed
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.schedules import Schedules
from tests.fixtures.webhooks import coded
from tests.fixtures.webhooks_api import Api, Rows

ACTIONS = {
    "endpoint": ("pause", "resume", "disable", "enable", "rotate-secret"),
    "schedule": ("pause", "resume"),
}


def path_of(rows: Rows, kind: str) -> str:
    return f"/v1/endpoints/{rows.endpoint_id}" if kind == "endpoint" else f"/v1/schedules/{rows.schedule_id}"


async def add_topic(api: Api, path: str, field: str, topic: str) -> Any:
    """What a client does that adds something to what there is; the answer that it is content with."""
    while True:
        seen = await api("GET", path, status=200)
        changes = {field: [*seen.json()[field], topic]}
        done = await api("PATCH", path, changes, headers={"if-match": seen.headers["etag"]})
        if done.status_code != 412:
            return done
        assert done.json()["code"] == "outdated_version"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "field"), [("endpoint", "topics"), ("schedule", "data")])
async def test_of_many_who_add_a_topic_at_a_time_all_are_kept(
    acme: Api, acmes: Rows, kind: str, field: str
) -> None:
    path = path_of(acmes, kind)
    topics = [f"t{number}.*" for number in range(8)]
    await acme("PATCH", path, {field: ["first"]}, status=200)

    answers = await asyncio.gather(*(add_topic(acme, path, field, topic) for topic in topics))

    assert set((await acme.get(path))[field]) == {"first", *topics}
    assert all(topic in answer.json()[field] for answer, topic in zip(answers, topics, strict=True))
    assert len({answer.headers["etag"] for answer in answers}) == len(topics)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "field"), [("endpoint", "description"), ("schedule", "name")])
async def test_an_answer_is_what_its_own_change_has_written(
    acme: Api, acmes: Rows, kind: str, field: str
) -> None:
    given = [{field: f"the {number}th"} for number in range(20)]

    answers = await asyncio.gather(*(acme("PATCH", path_of(acmes, kind), one, status=200) for one in given))

    assert [{field: one.json()[field]} for one in answers] == given


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "field"), [("endpoint", "gzip"), ("schedule", "paused")])
async def test_a_change_says_which_version_it_was_made_from(
    acme: Api, acmes: Rows, kind: str, field: str
) -> None:
    path = path_of(acmes, kind)
    answer = await acme.client.patch(path, json={field: True})
    assert (answer.status_code, answer.json()["code"]) == (428, "version_missing")
    assert not (await acme.get(path))[field]


@pytest.mark.daily(5)
@pytest.mark.parametrize("tag", ['"1000"', '"x"', "7", '"1", "2"', 'W/"99999999999"'])
@pytest.mark.parametrize(("kind", "field"), [("endpoint", "gzip"), ("schedule", "paused")])
async def test_another_version_is_not_changed(
    acme: Api, acmes: Rows, tag: str, kind: str, field: str
) -> None:
    path = path_of(acmes, kind)
    for body in ({field: True}, {}):
        answer = await acme("PATCH", path, body, status=412, headers={"if-match": tag})
        assert answer.json()["code"] == "outdated_version"
    assert not (await acme.get(path))[field]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["endpoint", "schedule"])
async def test_what_else_changes_one_minds_the_version_where_one_is_named(
    acme: Api, acmes: Rows, kind: str
) -> None:
    path = path_of(acmes, kind)
    before = await acme("GET", path, status=200)
    for action in ACTIONS[kind]:
        await acme("POST", f"{path}/{action}", status=412, headers={"if-match": '"1000"'})
    await acme("DELETE", path, status=412, headers={"if-match": '"1000"'})
    assert (await acme("GET", path, status=200)).text == before.text

    tag = before.headers["etag"]
    for action in ACTIONS[kind]:
        done = await acme("POST", f"{path}/{action}", status=200, headers={"if-match": tag})
        tag, outdated = done.headers["etag"], tag
        assert (await acme("GET", path)).headers["etag"] == tag
        await acme("POST", f"{path}/{action}", status=412, headers={"if-match": outdated})
    await acme("DELETE", path, status=204, headers={"if-match": f"W/{tag}"})


async def test_what_is_made_says_where_it_is(acme: Api) -> None:
    made = await acme("POST", "/v1/endpoints", {"url": "https://example.com/hook"}, status=201)
    assert (await acme("GET", made.headers["location"], status=200)).headers["etag"] == made.headers["etag"]
    due = {"name": "n", "cron": "0 1 * * *", "topic": "a.b", "data": {}}
    scheduled = await acme("POST", "/v1/schedules", due, status=201)
    found = await acme("GET", scheduled.headers["location"], status=200)
    assert (found.json()["name"], found.headers["etag"]) == ("n", scheduled.headers["etag"])


async def test_the_library_minds_versions_too(database: Database, acmes: Rows) -> None:
    endpoints = Endpoints(database)
    seen = await endpoints.get("acme", acmes.endpoint_id)
    await endpoints.change("acme", acmes.endpoint_id, {"gzip": True}, version=seen.version)

    with pytest.raises(
        NotAllowed,
        match=f"has version {seen.version + 1}, not {seen.version}: read it again",
        check=coded("outdated_version"),
    ):
        await endpoints.change("acme", acmes.endpoint_id, {"gzip": False}, version=seen.version)


async def test_the_library_minds_versions_of_schedules_too(database: Database, acmes: Rows) -> None:
    schedules, its = Schedules(database), acmes.schedule_id
    seen = await schedules.get("acme", its)
    changed = await schedules.change("acme", its, {"missed": "all"}, version=seen.version)

    assert (changed.version, changed.missed) == (seen.version + 1, "all")
    said = f"schedule '{its}' has version {seen.version + 1}, not {seen.version}: read it again"
    with pytest.raises(NotAllowed, match=said, check=coded("outdated_version")):
        await schedules.change("acme", its, {"missed": "skip"}, version=seen.version)
    for late in (schedules.pause, schedules.resume, schedules.remove):
        with pytest.raises(NotAllowed, match=said, check=coded("outdated_version")):
            await late("acme", its, version=seen.version)
    assert await schedules.get("acme", its) == changed
