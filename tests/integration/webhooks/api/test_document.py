"""The OpenAPI document, read as other people's tools read it: a validator, and a generator of clients."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from projections.webhooks.api.app import OPERATIONS
from projections.webhooks.api.delivery_operations import DeliveryWithData
from projections.webhooks.api.json_text import write_json
from projections.webhooks.api.openapi import openapi_document
from projections.webhooks.deliveries import Delivery
from projections.webhooks.log import DataPoint, Metrics
from projections.webhooks.schedules import Schedule
from projections.webhooks.stats import EndpointStats
from tests.fixtures.webhooks_api import TOKENS, Rows

DOCUMENT = openapi_document(OPERATIONS) | {"servers": [{"url": "/"}]}


@pytest.mark.slow
def test_it_is_valid() -> None:
    validator = pytest.importorskip("openapi_spec_validator", reason="install the extra slow")
    assert [error.message for error in validator.OpenAPIV31SpecValidator(DOCUMENT).iter_errors()] == []


def test_everything_is_described() -> None:
    fields = [
        (place, name, schema)
        for place, model in DOCUMENT["components"]["schemas"].items()
        for name, schema in model.get("properties", {}).items()
    ] + [
        (operation["operationId"], parameter["name"], parameter)
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        for parameter in operation["parameters"]
    ]
    assert [(place, name) for place, name, schema in fields if not schema.get("description")] == []
    assert {tag["name"] for tag in DOCUMENT["tags"]} == {operation.tag for operation in OPERATIONS}


@pytest.mark.parametrize("kind", [DataPoint, Delivery, DeliveryWithData, EndpointStats, Metrics, Schedule])
def test_rows_of_the_library_are_described_as_they_are_written(kind: type[Any]) -> None:
    row = kind(*("" for field in fields(kind) if field.init))

    described = DOCUMENT["components"]["schemas"][kind.__name__]
    assert set(json.loads(write_json(row))) == set(described["properties"]) == set(described["required"])


def test_examples_are_what_they_are_examples_of() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="install the extra slow")
    schemas = list(_schemas(DOCUMENT))
    wrong = [
        (schema["description"], example)
        for schema in schemas
        for example in schema["examples"]
        if not jsonschema.Draft202012Validator(schema | {"components": DOCUMENT["components"]}).is_valid(
            example
        )
    ]
    assert wrong == []
    assert len(schemas) > 200


def _schemas(part: Any) -> Iterator[Any]:
    """What has examples."""
    if isinstance(part, dict) and isinstance(part.get("examples"), list):
        yield {"description": ""} | part
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _schemas(each)


def test_changes_have_no_defaults() -> None:
    """What a client leaves out of a change stays as it is."""
    for name in ("EndpointChanges", "ScheduleChanges"):
        fields = DOCUMENT["components"]["schemas"][name]["properties"]
        assert [name for name, field in fields.items() if "default" in field] == []


@pytest.mark.slow
async def test_a_generated_client_works(
    app: Any, acmes: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openapi_python_client", reason="install the extra slow")
    (tmp_path / "api.json").write_text(json.dumps(DOCUMENT))
    (tmp_path / "settings.yml").write_text("post_hooks: []")
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    paths = [
        *("--path", "api.json"),
        *("--output-path", "acme_webhooks"),
        *("--config", "settings.yml"),
    ]
    made = subprocess.run([*command, *paths], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "arning" not in made.stdout + made.stderr
    monkeypatch.syspath_prepend(tmp_path)

    await _use(app, acmes)


async def _use(app: Any, acmes: Rows) -> None:
    """What a program of a tenant does with it."""
    package, models = import_module("acme_webhooks"), import_module("acme_webhooks.models")
    endpoints, messages = "acme_webhooks.api.endpoints", "acme_webhooks.api.messages"
    client = package.AuthenticatedClient(
        base_url="http://webhooks.test", token=TOKENS["acme"], raise_on_unexpected_status=True,
        httpx_args={"transport": httpx.ASGITransport(app)},
    )  # fmt: skip

    async def call(name: str, *arguments: Any, **options: Any) -> Any:
        answer = await import_module(name).asyncio_detailed(*arguments, client=client, **options)
        assert answer.status_code < 300, answer.content
        return answer

    new = models.NewEndpointBody(url="https://example.com/hook", topics=["flight.*"])
    made = (await call(f"{endpoints}.create_endpoint", body=new)).parsed
    assert (made.tenant, made.topics, made.policy.timeout) == ("acme", ["flight.*"], 15.0)
    seen = await call(f"{endpoints}.get_endpoint", made.endpoint_id)
    policy = models.RetryPolicyInput(schedule=[1, 2.5])
    changed = await call(
        f"{endpoints}.change_endpoint", made.endpoint_id, if_match=seen.headers["etag"],
        body=models.EndpointChanges(topics=["flight.*", "gate.*"], policy=policy),
    )  # fmt: skip
    assert changed.parsed.topics == ["flight.*", "gate.*"]
    assert changed.parsed.policy.schedule == [1, 2.5]
    listed = (await call(f"{endpoints}.list_endpoints")).parsed
    assert {each.endpoint_id for each in listed.data} == {acmes.endpoint_id, made.endpoint_id}
    sent = await call(f"{messages}.send_message", body=models.NewMessage(topic="flight.due", data={"a": 1}))
    assert not sent.parsed.duplicate
    dead = (await call("acme_webhooks.api.deliveries.list_dead_letters", topics=["acme.happened"])).parsed
    assert [each.event_id for each in dead.data] == [acmes.event_id]
