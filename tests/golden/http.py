"""What is served over HTTP: the OpenAPI document of the webhook API, and the metrics for Prometheus."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from journal import connect
from projections.monitoring.metrics import write_metrics
from projections.webhooks.api.app import OPERATIONS
from projections.webhooks.api.openapi import openapi_document
from tests.fixtures.monitor import all_metrics
from tests.fixtures.projections import EFFECTS, execute, happen
from tests.golden.recordings import Files, Fresh, lines

_WIDTH = 110


def openapi(_: Fresh) -> Files:
    """The whole document, but for the version of the library."""
    document = openapi_document(OPERATIONS)
    document["info"]["version"] = "of the library"
    return {"openapi.json": f"{_json(document, '')}\n"}


def metrics(fresh: Fresh) -> Files:
    """The name, type, labels and help of each metric as Prometheus reads it, by who tells it."""

    async def told(dsn: str) -> dict[str, list[Metric]]:
        async with connect(dsn) as database:
            await execute(database, EFFECTS)
            await happen(database, "a")
            return await all_metrics(database)

    with fresh() as dsn:
        found = asyncio.run(told(dsn))
    return {"metrics.txt": lines(line for teller in found for line in _told(teller, found[teller]))}


def _told(teller: str, found: list[Metric]) -> Iterator[str]:
    yield teller
    text = write_metrics(found, database="d")[0].decode()
    for metric in sorted(text_string_to_metric_families(text), key=lambda one: one.name):
        if metric.name.startswith("projections_"):
            names = sorted({sample.name for sample in metric.samples if not sample.name.endswith("_created")})
            labels = sorted({label for sample in metric.samples for label in sample.labels})
            yield f"    {', '.join(names)}: {metric.type} by {', '.join(labels)}"
            yield f"        {metric.documentation}"


def _json(value: Any, margin: str) -> str:
    """JSON with a line for each entry, but for what fits on one; keys by their names."""
    line = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if not isinstance(value, dict | list) or len(margin) + len(line) <= _WIDTH:
        return line
    inner = f"{margin}  "
    if isinstance(value, dict):
        entries = [f"{json.dumps(name)}: {_json(one, inner)}" for name, one in sorted(value.items())]
        return "{\n" + ",\n".join(f"{inner}{one}" for one in entries) + f"\n{margin}}}"
    return "[\n" + ",\n".join(f"{inner}{_json(one, inner)}" for one in value) + f"\n{margin}]"
