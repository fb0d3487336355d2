"""Changes of endpoints by several at a time: each names the version that it was made from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from journal import Database
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.errors import OutdatedVersion
from tests.integration.webhook_api.support import Api, Rows

ACTIONS = ("pause", "resume", "disable", "enable", "rotate-secret")


async def add_topic(api: Api, path: str, topic: str) -> Any:
    """What a client does that adds something to a list; the answer that it is content with."""
    while True:
        seen = await api("GET", path, status=200)
        changes = {"topics": [*seen.json()["topics"], topic]}
        done = await api("PATCH", path, changes, headers={"if-match": seen.headers["etag"]})
        if done.status_code != 412:
            return done
        assert done.json()["code"] == "outdated_version"


async def test_of_twenty_who_add_a_topic_at_a_time_all_are_kept(acme: Api, acmes: Rows) -> None:
    path = f"/v1/endpoints/{acmes.endpoint_id}"
    topics = [f"t{number}.*" for number in range(20)]
    await acme("PATCH", path, {"topics": ["first"]}, status=200)

    answers = await asyncio.gather(*(add_topic(acme, path, topic) for topic in topics))

    assert set((await acme.get(path))["topics"]) == {"first", *topics}
    assert all(topic in answer.json()["topics"] for answer, topic in zip(answers, topics, strict=True))
    assert len({answer.headers["etag"] for answer in answers}) == 20


async def test_an_answer_is_what_its_own_change_has_written(acme: Api, acmes: Rows) -> None:
    path = f"/v1/endpoints/{acmes.endpoint_id}"
    given = [{"description": f"the {number}th"} for number in range(20)]

    answers = await asyncio.gather(*(acme("PATCH", path, one, status=200) for one in given))

    assert [{"description": one.json()["description"]} for one in answers] == given


async def test_a_change_says_which_version_it_was_made_from(acme: Api, acmes: Rows) -> None:
    answer = await acme.client.patch(f"/v1/endpoints/{acmes.endpoint_id}", json={"gzip": True})
    assert (answer.status_code, answer.json()["code"]) == (428, "version_missing")
    assert not (await acme.get(f"/v1/endpoints/{acmes.endpoint_id}"))["gzip"]


@pytest.mark.parametrize("tag", ['"1000"', '"x"', "7", '"1", "2"', 'W/"99999999999"'])
@pytest.mark.parametrize("body", [{"gzip": True}, {}])
async def test_another_version_is_not_changed(acme: Api, acmes: Rows, tag: str, body: Any) -> None:
    path = f"/v1/endpoints/{acmes.endpoint_id}"
    answer = await acme("PATCH", path, body, status=412, headers={"if-match": tag})
    assert answer.json()["code"] == "outdated_version"
    assert not (await acme.get(path))["gzip"]


async def test_what_else_changes_an_endpoint_minds_the_version_where_one_is_named(
    acme: Api, acmes: Rows
) -> None:
    path = f"/v1/endpoints/{acmes.endpoint_id}"
    before = await acme("GET", path, status=200)
    for action in ACTIONS:
        await acme("POST", f"{path}/{action}", status=412, headers={"if-match": '"1000"'})
    await acme("DELETE", path, status=412, headers={"if-match": '"1000"'})
    assert (await acme("GET", path, status=200)).text == before.text

    tag = before.headers["etag"]
    for action in ACTIONS:
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
    assert (await acme.get(scheduled.headers["location"]))["name"] == "n"


async def test_the_library_minds_versions_too(database: Database, acmes: Rows) -> None:
    endpoints = Endpoints(database)
    seen = await endpoints.get("acme", acmes.endpoint_id)
    await endpoints.change("acme", acmes.endpoint_id, {"gzip": True}, version=seen.version)

    with pytest.raises(
        OutdatedVersion, match=f"has version {seen.version + 1}, not {seen.version}: read it again"
    ):
        await endpoints.change("acme", acmes.endpoint_id, {"gzip": False}, version=seen.version)
