"""The OpenAPI 3.1 document, made of the operations and their models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from projections.webhooks.api.operations import Operation
from projections.webhooks.api.problems import ProblemBody

__all__ = ["openapi_document"]

_ALWAYS = (401, 403, 414, 431, 500, 503)
_WITH_BODY = (400, 408, 413, 415, 422)
_REQUEST_ID = {
    "x-request-id": {
        "description": "What the server's log calls this request; a request may bring its own.",
        "schema": {"type": "string"},
    }
}


class _Schemas:
    """Schemas of models, under names that no two share."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        models: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {(ProblemBody, "serialization"): None}
        for operation in operations:
            models[operation.query, "validation"] = None
            if operation.takes_body:
                models[operation.body, "validation"] = None
            if operation.answer is not None:
                models[operation.answer, "serialization"] = None
        self._references, definitions = models_json_schema(
            list(models), ref_template="#/components/schemas/{model}"
        )
        self.all: dict[str, Any] = definitions["$defs"]

    def reference(self, model: type[BaseModel], mode: JsonSchemaMode) -> Mapping[str, Any]:
        return self._references[model, mode]

    def of(self, model: type[BaseModel], mode: JsonSchemaMode) -> Mapping[str, Any]:
        schema: Mapping[str, Any] = self.all[self.reference(model, mode)["$ref"].rpartition("/")[2]]
        return schema


def openapi_document(operations: Sequence[Operation]) -> dict[str, Any]:
    """
    Describe operations.

    Args:
        operations: All of them.
    """
    schemas = _Schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, schemas)
    queries = {schemas.reference(each.query, "validation")["$ref"].rpartition("/")[2] for each in operations}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Webhooks",
            "version": version("slice-projections"),
            "description": "Endpoints, messages, schedules, deliveries and the delivery log. A tenant sees what is its "
            "own; an administrator sees all, and may name tenants.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in schemas.all.items() if name not in queries},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": [*map(_of_path, operation.parameters), *_of_query(operation, schemas)],
        "responses": _answers(operation, schemas),
    }
    if operation.description:
        described["description"] = operation.description
    if operation.name == "send_message":
        described["parameters"].append(_IDEMPOTENCY_KEY)
    if operation.takes_body:
        described["requestBody"] = {
            "required": operation.needs_body,
            "content": {"application/json": {"schema": schemas.reference(operation.body, "validation")}},
        }
    return described


_IDEMPOTENCY_KEY = {
    "name": "idempotency-key",
    "in": "header",
    "required": False,
    "description": "The message's id; instead of the field id, or equal to it.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}


def _of_path(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": 255}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _of_query(operation: Operation, schemas: _Schemas) -> list[dict[str, Any]]:
    model = schemas.of(operation.query, "validation")
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
    """A parameter is there with a value, or it is not there: null is none of its values."""
    kept = {key: value for key, value in schema.items() if key not in {"title", "description", "default"}}
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    return {**kinds[0], **{k: v for k, v in kept.items() if k != "anyOf"}} if len(kinds) == 1 else kept


def _answers(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "description": HTTPStatus(operation.status).phrase,
        "headers": _REQUEST_ID,
    }
    if operation.answer is not None:
        schema = schemas.reference(operation.answer, "serialization")
        answer["content"] = {"application/json": {"schema": schema}}
    statuses = {
        *_ALWAYS,
        operation.unfit,
        400,
        *operation.problems,
        *(_WITH_BODY if operation.takes_body else ()),
    }
    if operation.parameters:
        statuses.add(404)
    problem = {"application/problem+json": {"schema": schemas.reference(ProblemBody, "serialization")}}
    return {
        str(operation.status): answer,
        **{
            str(status): {
                "description": HTTPStatus(status).phrase,
                "headers": _REQUEST_ID,
                "content": problem,
            }
            for status in sorted(statuses)
        },
    }
