"""`projections webhooks` as a user runs it: endpoints, messages and schedules."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from journal import Database
from projections.webhooks.endpoints import Endpoints, EndpointSettings
from projections.webhooks.receiver import Receiver
from projections.webhooks.signing import generate_secret, parse_secret
from tests.fixtures.commands import NOBODY, called
from tests.fixtures.raw_server import RawServer, respond

LOCAL = ("--allow-http", "--allow-address", "127.0.0.0/8")
URL = "https://example.com/hooks"
SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]+")


def values(*arguments: str) -> Any:
    result = called("webhooks", *arguments, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def done(*arguments: str) -> str:
    result = called("webhooks", *arguments)
    assert result.returncode == 0, result.stderr
    assert NOBODY.fullmatch(result.stderr)
    return result.stdout


def refused(*arguments: str, code: int = 1) -> str:
    result = called("webhooks", *arguments)
    assert (result.returncode, result.stdout) == (code, "")
    return result.stderr


def rows(table: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines() if line[:1] == "│"
    ]


@pytest.fixture
def add(dsn: str) -> Callable[..., Any]:
    def add(*options: str, url: str = URL, tenant: str = "acme") -> Any:
        return values("endpoints", "add", tenant, url, *options, "--dsn", dsn)

    return add


# ---- endpoints ----


def test_without_endpoints_it_says_how_to_make_one(dsn: str) -> None:
    for command in ("endpoints", "stats"):
        assert "`projections webhooks endpoints add TENANT URL` makes one" in done(command, "--dsn", dsn)


def test_the_secret_is_shown_when_an_endpoint_is_made_and_never_again(dsn: str) -> None:
    made = done("endpoints", "add", "acme", URL, "--dsn", dsn)
    (secret,) = SECRET.findall(made)
    (one,) = values("endpoints", "--dsn", dsn)["endpoints"]
    later = done("endpoints", "--dsn", dsn) + done("endpoints", "show", one["endpoint_id"], "--dsn", dsn)

    assert one["endpoint_id"] in made
    assert secret not in later + json.dumps(one)
    assert parse_secret(secret).fingerprint in later


def test_options_become_the_settings_of_the_endpoint(add: Callable[..., Any]) -> None:
    one = add(
        *("--topic", "flight.*", "--topic", "order.paid", "--filter", '{"data": {"minutes": {"$gte": 30}}}'),
        *(
            "--header",
            "X-Env: dev",
            "--header",
            "X-Key: a:b",
            "--description",
            "delays",
            "--retry",
            "500ms,5m",
        ),
        *("--timeout", "20s", "--disable-after-failures", "7", "--disable-after", "none"),
        *("--policy", '{"jitter": 0}', "--max-in-flight", "3", "--rate-limit", "2.5", "--ordering", "key"),
        *("--on-dead", "block", "--when-disabled", "discard", "--gzip"),
    )
    policy = one.pop("policy")

    assert one.items() >= {
        "tenant": "acme", "url": URL, "topics": ["flight.*", "order.paid"], "description": "delays",
        "filter": {"data": {"minutes": {"$gte": 30}}}, "header_names": ["X-Env", "X-Key"],
        "max_in_flight": 3, "rate_limit": 2.5, "ordering": "key", "on_dead": "block", "when_disabled": "discard",
        "gzip": True, "state": "active",
    }.items()  # fmt: skip
    assert (policy["schedule"], policy["timeout"], policy["jitter"]) == ([0.5, 300], 20, 0)
    assert (policy["disable_after_failures"], policy["disable_after"]) == (7, None)


async def test_what_headers_hold_is_sent_and_not_shown(
    dsn: str, database: Database, add: Callable[..., Any]
) -> None:
    one = add("--header", "Authorization: Bearer a:b")
    shown = done("endpoints", "--dsn", dsn) + done("endpoints", "show", one["endpoint_id"], "--dsn", dsn)
    stored = await Endpoints(database).get(None, one["endpoint_id"])

    assert stored.headers == {"Authorization": "Bearer a:b"}
    assert "Authorization" in shown
    assert "a:b" not in shown + json.dumps(one) + json.dumps(values("endpoints", "--dsn", dsn))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--filter", "{"], 2, "'{' is not JSON"),
        (["--filter", "[1]"], 2, "'[1]' is not a JSON object"),
        (["--filter", '{"data": {"$regex": "x"}}'], 2, "$regex"),
        (["--header", "no colon"], 2, "'Name: value'"),
        (["--header", "Host: x"], 2, "Host"),
        (["--retry", "5s,soon"], 2, "'soon' is not a duration"),
        (["--timeout", "61s"], 2, "timeout"),
        (["--policy", '{"jitter": 7}'], 2, "jitter"),
        (["--policy", '{"jiter": 0}'], 2, "jiter"),
        (["--rate-limit", "fast"], 2, "'fast' is not a number"),
        (["--rate-limit", "-1"], 2, "rate_limit"),
        (["--topic", "a..b"], 2, "'a..b'"),
        (["--allow-address", "10.0.0.0/99"], 2, "10.0.0.0/99"),
        (["--filter", "@/does/not/exist"], 2, "'/does/not/exist' cannot be read"),
    ],
)
def test_what_can_not_be_is_named(dsn: str, options: list[str], code: int, said: str) -> None:
    assert said in refused("endpoints", "add", "acme", URL, *options, "--dsn", dsn, code=code)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://example.com/", "--allow-http"),
        ("https://127.0.0.1/", "'127.0.0.1' is not a public address"),
        ("ftp://example.com/", "'ftp'"),
    ],
)
def test_a_url_that_is_not_let_through_is_refused(dsn: str, url: str, said: str) -> None:
    assert said in refused("endpoints", "add", "acme", url, "--dsn", dsn, code=2)


def test_only_what_is_given_changes_and_none_clears(dsn: str, add: Callable[..., Any]) -> None:
    one = add(
        "--topic",
        "a.*",
        "--filter",
        '{"topic": "a.b"}',
        "--retry",
        "1s",
        "--rate-limit",
        "5",
        "--header",
        "X: y",
    )
    options = ("--filter", "none", "--rate-limit", "none", "--header", "none", "--timeout", "9s")
    changed = values("endpoints", "change", one["endpoint_id"], *options, "--dsn", dsn)

    assert (changed["filter"], changed["rate_limit"], changed["header_names"]) == (None, None, [])
    assert (changed["topics"], changed["policy"]["schedule"], changed["policy"]["timeout"]) == (
        ["a.*"],
        [1],
        9,
    )


def test_without_anything_to_change_the_command_line_is_wrong(dsn: str, add: Callable[..., Any]) -> None:
    assert "nothing to change" in refused("endpoints", "change", add()["endpoint_id"], "--dsn", dsn, code=2)


def test_what_was_let_through_once_can_be_changed_without_saying_so_again(
    dsn: str, add: Callable[..., Any]
) -> None:
    one = add(*LOCAL, url="http://127.0.0.1:9000/")

    assert values("endpoints", "change", one["endpoint_id"], "--gzip", "--dsn", dsn)["gzip"] is True
    assert "--allow-http" in refused(
        "endpoints", "change", one["endpoint_id"], "--url", "http://127.0.0.1:9001/", "--dsn", dsn, code=2
    )


def test_an_endpoint_is_paused_and_disabled_with_a_reason_and_goes_on(
    dsn: str, add: Callable[..., Any]
) -> None:
    name = add()["endpoint_id"]

    def after(*command: str) -> tuple[str, str | None]:
        done("endpoints", *command, "--dsn", dsn)
        one = values("endpoints", "show", name, "--dsn", dsn)
        return one["state"], one["reason"]

    assert after("pause", name, "--reason", "moving") == ("paused", "moving")
    assert after("resume", name) == ("active", None)
    assert after("disable", name, "--reason", "gone") == ("disabled", "gone")
    assert "is disabled (gone), not active or paused: enable it first" in refused(
        "endpoints", "resume", name, "--dsn", dsn
    )
    assert after("enable", name) == ("active", None)


async def test_the_beginning_of_an_id_is_enough_unless_several_begin_so(dsn: str, database: Database) -> None:
    service = Endpoints(database)
    ids = sorted(
        [(await service.create("acme", EndpointSettings(url=URL))).endpoint.endpoint_id for _ in "ab"]
    )
    distinct = next(n for n, (a, b) in enumerate(zip(*ids, strict=True), 1) if a != b)

    assert [values("endpoints", "show", one[:distinct], "--dsn", dsn)["endpoint_id"] for one in ids] == ids
    assert "'ep_' begins several ids" in refused("endpoints", "show", "ep_", "--dsn", dsn, code=2)
    assert "there is no endpoint 'ep_x'" in refused("endpoints", "show", "ep_x", "--dsn", dsn)


def test_endpoints_are_listed_by_tenant_and_page_by_page(dsn: str, add: Callable[..., Any]) -> None:
    ids = sorted(add()["endpoint_id"] for _ in range(3))
    add(tenant="other")
    first = values("endpoints", "--tenant", "acme", "--limit", "2", "--dsn", dsn)
    second = values("endpoints", "--tenant", "acme", "--limit", "2", "--next", first["next"], "--dsn", dsn)
    table = done("endpoints", "list", "--limit", "2", "--dsn", dsn)

    assert [one["endpoint_id"] for one in first["endpoints"] + second["endpoints"]] == ids
    assert second["next"] is None
    assert len(rows(table)) == 2
    assert "there may be more: --next ep_" in table


def test_removing_asks_and_does_nothing_when_nobody_is_there(dsn: str, add: Callable[..., Any]) -> None:
    name = add()["endpoint_id"]

    assert "pass --yes" in refused("endpoints", "remove", name, "--dsn", dsn)
    assert len(values("endpoints", "--dsn", dsn)["endpoints"]) == 1
    assert "is removed" in done("endpoints", "remove", name, "--yes", "--dsn", dsn)
    assert values("endpoints", "--dsn", dsn)["endpoints"] == []


def test_rotating_prints_a_new_secret_and_the_old_one_signs_for_the_grace(
    dsn: str, add: Callable[..., Any]
) -> None:
    one = add()
    rotated = values("endpoints", "rotate-secret", one["endpoint_id"], "--grace", "1h", "--dsn", dsn)
    both = values("endpoints", "show", one["endpoint_id"], "--dsn", dsn)["secrets"]
    text = done("endpoints", "rotate-secret", one["endpoint_id"], "--grace", "0s", "--dsn", dsn)
    alone = values("endpoints", "show", one["endpoint_id"], "--dsn", dsn)["secrets"]

    assert both == [parse_secret(secret).fingerprint for secret in (rotated["secret"], one["secret"])]
    assert alone == [parse_secret(secret).fingerprint for secret in SECRET.findall(text)]


def test_a_secret_of_ones_own_comes_from_a_file(dsn: str, add: Callable[..., Any], tmp_path: Path) -> None:
    secret = generate_secret().reveal()
    (tmp_path / "secret").write_text(f"{secret}\n")

    assert add("--secret-file", str(tmp_path / "secret"))["secret"] == secret


def test_a_key_pair_shows_the_half_that_the_receiver_needs(dsn: str, add: Callable[..., Any]) -> None:
    made = add("--ed25519")

    assert parse_secret(made["public_key"]).fingerprint == parse_secret(made["secret"]).fingerprint
    assert made["public_key"].startswith("whpk_")
    assert "whsk_" not in done("endpoints", "add", "acme", URL, "--ed25519", "--dsn", dsn)


def test_secrets_are_encrypted_with_the_key_of_the_environment(
    dsn: str, add: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROJECTIONS_WEBHOOK_KEYS", Fernet.generate_key().decode())
    name = add()["endpoint_id"]
    with_key = values("endpoints", "show", name, "--dsn", dsn)["secrets"]
    monkeypatch.delenv("PROJECTIONS_WEBHOOK_KEYS")

    assert len(with_key) == 1
    assert values("endpoints", "show", name, "--dsn", dsn)["secrets"] is None
    assert "cannot be read here" in done("endpoints", "show", name, "--dsn", dsn)


async def test_testing_an_endpoint_sends_one_signed_request_and_tells_the_answer(
    dsn: str, add: Callable[..., Any], tmp_path: Path
) -> None:
    secret = generate_secret()
    (tmp_path / "secret").write_text(secret.reveal())
    async with Receiver(secret, script=[204, 500]) as receiver:
        name = add(*LOCAL, "--secret-file", str(tmp_path / "secret"), url=receiver.url)["endpoint_id"]
        command = ("webhooks", "endpoints", "test", name, "--data", '{"n":  1}', "--dsn", dsn)
        results = []
        for options in (LOCAL[1:], LOCAL[1:], ()):
            results.append(await _beside(*command, *options))

    assert [result.returncode for result in results] == [0, 1, 1]
    assert [result.stdout.split()[0] for result in results] == ["204", "500", "blocked_address"]
    assert "the receiver fails on request" in results[1].stdout
    assert "--allow-address" in results[2].stdout
    assert [one.verification for one in receiver.received] == ["verified", "verified"]
    assert receiver.received[0].body.endswith(b'"data":{"n":  1}}')


async def test_a_url_is_verified_by_giving_the_challenge_back(
    dsn: str, add: Callable[..., Any], tmp_path: Path
) -> None:
    secret = generate_secret()
    (tmp_path / "secret").write_text(secret.reveal())
    async with Receiver(secret) as willing, RawServer(respond(204)) as other:
        options = (*LOCAL, "--secret-file", str(tmp_path / "secret"))
        names = [add(*options, url=server.url)["endpoint_id"] for server in (willing, other)]
        command = ("webhooks", "endpoints", "verify")
        results = [await _beside(*command, name, *LOCAL[1:], "--dsn", dsn) for name in names]
        verified = [values("endpoints", "show", name, "--dsn", dsn)["verified"] for name in names]

    assert [result.returncode for result in results] == [0, 1]
    assert results[0].stdout == "verified (200)\n"
    assert results[1].stdout == "not verified: the challenge did not come back (204)\n"
    assert verified == [True, False]
    assert "(verified)" in done("endpoints", "show", names[0], "--dsn", dsn)


def test_limits_are_shown_changed_and_refuse_what_is_beyond(dsn: str) -> None:
    def shown(*options: str) -> list[dict[str, Any]]:
        command = ("change", *options) if options else ()
        found: list[dict[str, Any]] = values("limits", *command, "--dsn", dsn)["limits"]
        return found

    assert len(shown()) == 6
    assert shown("timeout", "--least", "2s", "--most", "10s") == [{"name": "timeout", "least": 2, "most": 10}]
    assert shown("timeout", "--least", "none") == [{"name": "timeout", "least": None, "most": 10}]
    assert ["timeout", "", "10"] in rows(done("limits", "--dsn", dsn))
    too_long = refused("endpoints", "add", "acme", URL, "--timeout", "11s", "--dsn", dsn, code=2)
    assert "can be at most 10 here, not 11" in too_long
    assert "is 1 to 1000" in refused(
        "limits", "change", "max_in_flight", "--most", "0.4", "--dsn", dsn, code=2
    )
    assert "Invalid value for '--most': '10' is not a duration" in refused(
        "limits", "change", "timeout", "--most", "10", "--dsn", dsn, code=2
    )
    assert "'5s' is not a valid float" in refused(
        "limits", "change", "attempts", "--most", "5s", "--dsn", dsn, code=2
    )
    assert "Missing argument" in refused("limits", "change", "--most", "5", "--dsn", dsn, code=2)
    assert "pass --least or --most" in refused("limits", "change", "timeout", "--dsn", dsn, code=2)


async def _beside(*arguments: str) -> Any:
    """Run a command while the loop of the test goes on."""
    return await asyncio.to_thread(called, *arguments)


# ---- messages ----


def test_a_message_with_an_id_is_sent_once(dsn: str, add: Callable[..., Any]) -> None:
    add()
    command = ("send", "acme", "flight.delayed", '{"minutes": 12}', "--id", "a", "--dsn", dsn)
    first, second, third = values(*command), values(*command), values(*command, "--order-key", "k")

    assert first == second == third
    assert first["event_id"] in done(*command)


def test_an_id_with_other_content_is_refused(dsn: str) -> None:
    values("send", "acme", "a.b", "1", "--id", "a", "--dsn", dsn)

    assert "error: " in refused("send", "acme", "a.b", "2", "--id", "a", "--dsn", dsn)


def test_a_message_to_a_tenant_without_endpoints_says_so(dsn: str) -> None:
    result = called("webhooks", "send", "acme", "a.b", "--dsn", dsn)

    assert result.returncode == 0
    assert "tenant 'acme' has no endpoint" in result.stderr


def test_data_comes_from_a_file(dsn: str, add: Callable[..., Any], tmp_path: Path) -> None:
    add()
    (tmp_path / "data.json").write_text('{"n": 1.0}\n')

    assert "is stored" in done("send", "acme", "a.b", f"@{tmp_path / 'data.json'}", "--dsn", dsn)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("acme", "a.b", "{"), 2, "'{' is not JSON"),
        (("acme", "a b"), 2, "'a b'"),
        (("", "a.b"), 2, "1 to 200 characters"),
        (("acme", "a.b", "--not-before", "2026-01-31T12:00:00"), 2, "has no zone"),
        (("acme", "a.b", "--label", "x"), 2, "'x' is not a label"),
    ],
)
def test_a_message_that_can_not_be_is_refused(
    dsn: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    assert said in refused("send", *arguments, "--dsn", dsn, code=code)


# ---- schedules ----


def test_a_schedule_is_made_shown_paused_resumed_run_and_removed(dsn: str) -> None:
    options = ("--timezone", "Europe/Paris", "--missed", "all")
    made = values(
        "schedules", "add", "acme", "nightly", "30 2 * * *", "a.b", '{"n": 1.0}', *options, "--dsn", dsn
    )
    name = made["schedule_id"]

    (row,) = rows(done("schedules", "--tenant", "acme", "--dsn", dsn))
    assert row[1:7] == ["acme", "nightly", "30 2 * * *", "Europe/Paris", "a.b", "all"]
    assert name.startswith(row[0])
    assert '{"n": 1.0}' in done("schedules", "show", row[0], "--dsn", dsn)
    done("schedules", "pause", name, "--dsn", dsn)
    assert rows(done("schedules", "--dsn", dsn))[0][-1] == "paused"
    done("schedules", "resume", name, "--dsn", dsn)
    assert values("schedules", "show", name, "--dsn", dsn)["paused"] is False
    assert "is stored" in done("schedules", "run", name, "--dsn", dsn)
    assert "pass --yes" in refused("schedules", "remove", name, "--dsn", dsn)
    assert "is removed" in done("schedules", "remove", name, "--yes", "--dsn", dsn)
    assert values("schedules", "--dsn", dsn)["schedules"] == []


@pytest.mark.parametrize(
    ("line", "options", "code", "said"),
    [
        ("99 * * * *", (), 2, "'99 * * * *'"),
        ("* * * * *", ("--timezone", "Mars/Base"), 2, "Mars/Base"),
        ("* * * * *", ("--endpoint", "ep_x"), 1, "ep_x"),
    ],
)
def test_a_schedule_that_can_not_be_is_refused(
    dsn: str, line: str, options: tuple[str, ...], code: int, said: str
) -> None:
    assert said in refused("schedules", "add", "acme", "n", line, "a.b", *options, "--dsn", dsn, code=code)


def test_an_unknown_schedule_is_named(dsn: str) -> None:
    assert "'sch_x'" in refused("schedules", "show", "sch_x", "--dsn", dsn)
