"""Bodies that are large and wrong all over: each is refused at the first of it, whatever route takes it."""

from __future__ import annotations

import json
import sys
from itertools import product
from typing import Any

import pytest
from pydantic import ValidationError

from journal import Database
from projections.webhooks.api import problems, requests
from projections.webhooks.api.app import OPERATIONS
from projections.webhooks.api.operations import Operation
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.errors import InvalidEndpoint
from tests.fixtures.webhooks import endpoint
from tests.fixtures.webhooks_api import BODIES, Api

_JSON = {"content-type": "application/json"}
_WITH_BODY = [operation for operation in OPERATIONS if operation.takes_body]
_WITHOUT_DATA = [operation for operation in _WITH_BODY if not operation.raw]
_MANY = 20_000
_VALUES = {
    "numbers": "[" + ",".join("1" * _MANY) + "]",
    "texts": "[" + ",".join(['"a"'] * _MANY) + "]",
    "lists": "[" + ",".join(["[]"] * _MANY) + "]",
    "objects": "[" + ",".join(["{}"] * _MANY) + "]",
    "fields": "{" + ",".join(f'"{number}":1' for number in range(10_000)) + "}",
    "nested": '{"a":{' + ",".join(f'"{number}":[]' for number in range(10_000)) + "}}",
    "text": '"' + "a" * 100_000 + '"',
    "digits": "9" * 100_000,
    "exponent": "1e" + "9" * 100_000,
    "levels": "[" * 900 + "]" * 900,
}


def _name(operation: Operation) -> str:
    return operation.name


def _path(operation: Operation) -> str:
    return operation.path.replace("{", "x").replace("}", "x")


class _Work:
    """What is done for a body beside reading it: calls in Python, and the errors that a model finds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = self.errors = 0
        self._unfit = problems.unfit
        self._read = requests._members
        monkeypatch.setattr(requests, "unfit", self._counted_unfit)
        monkeypatch.setattr(requests, "_members", self._uncounted_read)

    def _counted_unfit(self, error: ValidationError, *rest: Any) -> Any:
        self.errors = error.error_count()
        return self._unfit(error, *rest)

    def _uncounted_read(self, content: bytes) -> Any:
        sys.setprofile(None)
        try:
            return self._read(content)
        finally:
            sys.setprofile(self._call)

    def _call(self, frame: Any, event: str, argument: Any) -> None:
        self.calls += event in {"call", "c_call"}


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Any:
    yield _Work(monkeypatch)
    sys.setprofile(None)


@pytest.mark.slow
@pytest.mark.parametrize("operation", _WITH_BODY, ids=_name)
async def test_a_large_body_is_refused_at_the_first_that_is_wrong(
    operation: Operation, unasked: Api, work: _Work
) -> None:
    given = ({"data": {}} if operation.raw else {}) | BODIES.get(operation.name, {})
    fields = [field for field in operation.body.model_fields if field not in operation.raw]
    for field, value in product(fields, _VALUES):
        work.calls = work.errors = 0
        known = {name: each for name, each in given.items() if name != field}
        content = f'{json.dumps(known)[:-1]}{"," if known else ""}"{field}":{_VALUES[value]}}}'
        response = await unasked(operation.method, _path(operation), content=content, headers=_JSON)
        assert response.status_code == 422, (field, value, response.text)
        assert (work.calls < 100_000, work.errors < 10_000) == (True, True), (field, value)


@pytest.mark.parametrize("operation", _WITHOUT_DATA, ids=_name)
async def test_a_body_without_data_is_small(operation: Operation, unasked: Api) -> None:
    body = '{"a":"' + "a" * 200_000 + '"}'
    response = await unasked(operation.method, _path(operation), content=body, headers=_JSON)
    assert response.status_code == 413


@pytest.mark.parametrize("operation", _WITH_BODY, ids=_name)
async def test_fields_that_there_are_not_are_refused_after_a_few(operation: Operation, unasked: Api) -> None:
    body = "{" + ",".join(f'"{number}":1' for number in range(10_000)) + "}"
    response = await unasked(operation.method, _path(operation), content=body, headers=_JSON)
    assert (response.status_code, response.json()["code"]) == (400, "malformed_json")
    assert "more than 500 fields" in response.json()["detail"]


async def test_of_many_errors_none_is_told_by_itself(unasked: Api) -> None:
    body = {"url": "https://example.com", "topics": list(range(5000))}
    response = await unasked("POST", "/v1/endpoints", body, status=422)
    (error,) = response.json()["errors"]
    assert error["message"] == "5,000 values are invalid, too many to name them"


async def test_what_an_endpoint_may_have_at_most_is_taken(acme: Api) -> None:
    chosen = {"data": {"n": {"$in": list(range(10_000, 12_200))}}}
    topics = [f"{'t' * 100}.{number}" for number in range(100)]
    headers = {f"X-{number}": "v" * 100 for number in range(20)}
    body = {"url": "https://e.com", "filter": chosen, "topics": topics, "headers": headers}
    await acme("POST", "/v1/endpoints", body, status=201)


async def test_many_wrong_settings_are_told_in_a_line(database: Database) -> None:
    await endpoint(database, "ep_1")
    with pytest.raises(InvalidEndpoint, match="and 80 more"):
        await Endpoints(database).change("acme", "ep_1", {f"setting{number}": 1 for number in range(100)})
