"""The OpenAPI 3.1 document, made of the operations and their models."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from projections.webhooks.api.field_descriptions import TAGS, WORDS
from projections.webhooks.api.operations import Operation
from projections.webhooks.api.problems import ProblemBody

_ALWAYS = (401, 403, 414, 429, 431, 500, 503)
_LATER = (409, 429, 503)
_WITH_BODY = (400, 408, 413, 415, 422)


def _header(name: str, said: str, **schema: Any) -> dict[str, Any]:
    return {name: {"description": said, "schema": {"type": "string", **schema}}}


_REQUEST_ID = _header(
    "x-request-id", "What the server's log calls this request; a request may bring its own."
)
_ETAG = _header("etag", "The version of what is shown: for the header if-match of a change.")
_LOCATION = _header("location", "Where what was made is.", format="uri-reference")
_FOLLOWED_ONCE = (
    "What the caller tells this request by: asked again within 24 hours, nothing is done, and the answer is the same. "
    "With another request: 409."
)
_IF_MATCH = "The etag of what is changed, as it was read; * for whatever it is by now."
_RETRY_AFTER = _header("retry-after", "Where trying again helps: seconds after which to.", type="integer")

_DURATION = re.compile(r"P(?:[0-9]+D)?(?:T[0-9.HMS]+)?")
_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


class _Schemas:
    """Schemas of queries, bodies and answers, under names that no two share."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        kinds: dict[tuple[Any, JsonSchemaMode], None] = {(ProblemBody, "serialization"): None}
        for operation in operations:
            kinds[operation.query, "validation"] = None
            if operation.takes_body:
                kinds[operation.body, "validation"] = None
            if operation.answer is not None:
                kinds[operation.answer, "serialization"] = None
        found, definitions = TypeAdapter.json_schemas(
            [(kind, mode, TypeAdapter(kind)) for kind, mode in kinds],
            ref_template="#/components/schemas/{model}",
        )
        self._references = {key: _named(schema["$ref"]) for key, schema in found.items()}
        self.all = {_named(name): _tidied(schema) for name, schema in definitions["$defs"].items()}

    def reference(self, kind: type[Any], mode: JsonSchemaMode) -> Mapping[str, Any]:
        return {"$ref": self._references[kind, mode]}

    def name(self, kind: type[Any], mode: JsonSchemaMode) -> str:
        return self._references[kind, mode].rpartition("/")[2]


def _named(reference: str) -> str:
    """As pydantic names it, without what generators leave out of names: they would give two the same."""
    return reference.replace("-", "")


def _tidied(schema: Any) -> Any:
    """A schema whose fields all say what they are, and which has no titles: generators take these for names."""
    if isinstance(schema, list):
        return [_tidied(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    tidied = {key: _tidied(value) for key, value in schema.items() if key not in {"title", "properties"}}
    if schema.get("format") == "duration":  # of what is read; what is written is a number of seconds already
        del tidied["format"]
        tidied["type"] = "number"
    if "default" in tidied:
        tidied["default"] = _in_seconds(tidied["default"])
    if "$ref" in schema:
        tidied["$ref"] = _named(schema["$ref"])
    if "properties" in schema:
        tidied["properties"] = {
            name: _said(name, _tidied(each)) for name, each in schema["properties"].items()
        }
    return tidied


def _in_seconds(default: Any) -> Any:
    """A default that pydantic writes as an ISO 8601 duration."""
    if isinstance(default, list):
        return [_in_seconds(each) for each in default]
    if isinstance(default, dict):
        return {key: _in_seconds(each) for key, each in default.items()}
    if not isinstance(default, str) or _DURATION.fullmatch(default) is None:
        return default
    return TypeAdapter(timedelta).validate_python(default).total_seconds()


def _said(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """What a field or a parameter means, with an example that it can have."""
    said = ({"description": WORDS[name].meaning} if name in WORDS else {}) | dict(schema)
    found = _example(name, said)
    return said if found is None else said | {"examples": [found]}


def _example(name: str, schema: Mapping[str, Any]) -> Any:
    """None where there is none, or the model that is meant has its own."""
    schema = next((kind for kind in schema.get("anyOf", ()) if kind.get("type") != "null"), schema)
    if "$ref" in schema or "$ref" in schema.get("items", ()):
        return None
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", (None,))[0])
    examples = WORDS[name][1:] if name in WORDS else (1, True)
    fitting = [each for each in examples if isinstance(each, _TYPES.get(schema.get("type", ""), object))]
    if schema.get("type") == "array" and (not fitting or "enum" in schema["items"]):
        return [_example(name, schema["items"])]
    return fitting[0] if fitting else None


def openapi_document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Describe operations."""
    schemas = _Schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, schemas)
    queries = {schemas.name(each.query, "validation") for each in operations}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Webhooks",
            "version": version("slice-projections"),
            "description": "Endpoints, messages, schedules, deliveries and the delivery log. A tenant sees what is its "
            "own; an administrator sees all, and may name tenants.",
        },
        "security": [{"token": []}],
        "tags": [
            {"name": tag, "description": TAGS[tag]} for tag in dict.fromkeys(each.tag for each in operations)
        ],
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in schemas.all.items() if name not in queries},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An administrator's, or a tenant's; an application that mounts the API may know "
                    "its callers by other means.",
                }
            },
        },
    }


def _described(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    summary, description = operation.said
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": summary,
        "parameters": [*_of_path(operation), *_of_query(operation, schemas), *_of_headers(operation)],
        "responses": _answers(operation, schemas),
    }
    if description:
        described["description"] = description
    if operation.takes_body:
        described["requestBody"] = {
            "required": operation.needs_body,
            "content": {"application/json": {"schema": schemas.reference(operation.body, "validation")}},
        }
    return described


def _parameter(name: str, where: str, said: str, *examples: Any, required: bool = False) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": 255}
    schema |= {"examples": list(examples)} if examples else {}
    return {"name": name, "in": where, "required": required, "description": said, "schema": schema}


def _of_path(operation: Operation) -> Iterator[dict[str, Any]]:
    for name in operation.parameters:
        yield _parameter(name, "path", WORDS[name].meaning, WORDS[name].example, required=True)


def _of_headers(operation: Operation) -> Iterator[dict[str, Any]]:
    if operation.method == "POST":
        yield _parameter("idempotency-key", "header", operation.own_key or _FOLLOWED_ONCE)
    for name, said in operation.headers_taken.items():
        yield _parameter(name, "header", said, WORDS[name].example)
    if operation.matches:
        yield _parameter("if-match", "header", _IF_MATCH, '"1"', required=operation.matches == "must")


def _of_query(operation: Operation, schemas: _Schemas) -> list[dict[str, Any]]:
    model = schemas.all[schemas.name(operation.query, "validation")]
    required = model.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": schema.get("description", ""),
            "schema": _given(schema),
        }
        for name, schema in model["properties"].items()
    ]


def _given(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A parameter is there with a value, or it is not there: null is not one of its values."""
    kept = {key: value for key, value in schema.items() if key not in {"title", "description", "default"}}
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    return {**kinds[0], **{k: v for k, v in kept.items() if k != "anyOf"}} if len(kinds) == 1 else kept


def _answers(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "description": HTTPStatus(operation.status).phrase,
        "headers": _REQUEST_ID
        | (_ETAG if operation.tells_version else {})
        | (_LOCATION if operation.location else {}),
    }
    if operation.answer is not None:
        schema = schemas.reference(operation.answer, "serialization")
        answer["content"] = {"application/json": {"schema": schema}}
    statuses = {
        *_ALWAYS,
        400,
        422,
        *operation.problems,
        *(_WITH_BODY if operation.takes_body else ()),
    }
    if operation.parameters:
        statuses.add(404)
    if operation.method == "POST":
        statuses.update({409, 415})
    if operation.matches:
        statuses.update({412, 428} if operation.matches == "must" else {412})
    problem = {"application/problem+json": {"schema": schemas.reference(ProblemBody, "serialization")}}
    return {
        str(operation.status): answer,
        **{
            str(status): {
                "description": HTTPStatus(status).phrase,
                "headers": _REQUEST_ID | (_RETRY_AFTER if status in _LATER else {}),
                "content": problem,
            }
            for status in sorted(statuses)
        },
    }
