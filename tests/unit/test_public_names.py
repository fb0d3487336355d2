"""What users import: how much it is, where it is, and that it says what it does."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
PUBLIC = {
    "journal": """
        ALL_TYPES AppendConflict Appended ConnectionSettings Database DatabaseError DatabaseUnavailable Event
        EventEnvelope EventIdConflict HistoricEvent InvalidEvent InvalidPayload InvalidValue LostGeneration
        ProjectionsError RawJson SchemaError Session SliceRange append append_sync capture_table connect
        current_events event_type import_events read_source release_table
    """,
    "journal.partitions": """
        DatabaseError InvalidValue Partition SchemaError change_partition_settings maintain partition_settings
    """,
    "projections": """
        ALL_TYPES AppendConflict Appended AtLeastOnce Backoff Changes ConnectionSettings Database DatabaseError
        DatabaseUnavailable Event EventEnvelope EventIdConflict Group HandlerFailed HistoricEvent Inline
        InvalidEvent InvalidHandler InvalidPayload InvalidValue LostGeneration NotParked ParkedSources
        ProjectionFailed ProjectionsError RawJson ReadYourWrites Recovery Retries RunSettings SchemaError Session
        SliceRange StatusObserver Table TableError TransactionEnded UnknownProjection WaitTimeout append append_sync
        capture_table connect current_events database_dsn event_type handles handles_group import_events
        install live_events projection reacts read_source release_table run wait_for
    """,
    "projections.testing": "changes_of run_until_caught_up",
    "projections.subscriptions": """
        Consumer ConsumerSettings DatabaseError DatabaseUnavailable DatabaseWentBack DeadBatches
        EventIdConflict EventStream Interest InvalidEvent InvalidHandler InvalidValue Listener
        ListenerSettings ListenerTooSlow MatchedEvent Matching NotDead Publication PublishFailed Publisher
        PublisherSettings SchemaError StreamRequest StreamSettings SubscriptionLost UnknownGroup create_group
        group_lag publish publish_all publish_all_sync publish_sync subscribe subscribe_sync unsubscribe
        unsubscribe_sync
    """,
    "projections.webhooks": """
        AddressRules Deliveries DeliveryFilter DeliverySettings EndpointSettings Endpoints EventIdConflict
        FanOut HttpSender InvalidEvent InvalidHandler InvalidValue Message NotAllowed NotFound OutdatedVersion
        ProjectionsError Receiver RetryPolicy Schedules SchemaError TracedSender VerificationFailed
        WebhookMetrics generate_secret run_webhooks send send_sync sign verify verify_endpoint
    """,
    "projections.webhooks.api": "ApiSettings Caller InvalidValue TokenAuth webhooks_app",
    "projections.webhooks.log": "InvalidValue PostgresLog",
    "projections.monitoring": """
        ProjectionsError Tracing UnknownProjection WorkerMetrics projection_lag serve_metrics snapshot
    """,
    "spark_projections": """
        ArchiveError DatabaseError InvalidValue JournalDataSource ProjectionsError RebuildError RebuildOptions
        TableError journal_frame read_history read_journal rebuild spark_running spark_session
    """,
}
"""By package. All else may change without notice: docs/versioning.md."""
QUESTION = re.compile(
    r"^\s+\w+: (?:Where|How|Whom|Whose|Who|Which|Which one|What|When|Likewise)\.$", re.MULTILINE
)


def named(package: str) -> dict[str, Any]:
    module = importlib.import_module(package)
    return {name: getattr(module, name) for name in module.__all__}


@pytest.mark.parametrize("package", PUBLIC)
def test_a_package_has_the_names_that_are_public_and_no_others(package: str) -> None:
    assert sorted(named(package)) == sorted(PUBLIC[package].split())


def test_there_is_not_more_to_know_than_there_was() -> None:
    assert len({name for names in PUBLIC.values() for name in names.split()}) <= 140


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_says_what_it_is(package: str) -> None:
    silent = [
        name
        for name, value in named(package).items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and not inspect.getdoc(value)
    ]

    assert silent == []


@pytest.mark.parametrize("package", PUBLIC)
def test_what_a_call_raises_is_imported_from_where_the_call_is(package: str) -> None:
    names = named(package)
    shared = named("projections") if package == "projections.testing" else {}
    elsewhere = {
        f"{call.__qualname__} raises {error}"
        for value in names.values()
        for call in calls_of(value)
        for error in raised_by(call)
        if error not in names and error not in shared and not of_python(error)
    }

    assert elsewhere == set()


@pytest.mark.parametrize("package", ["journal", "offsets", "projections", "spark_projections"])
def test_no_argument_is_described_by_a_question_word(package: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for line in QUESTION.findall(ast.get_docstring(node, clean=False) or "")
    ]

    assert found == []


def calls_of(value: Any) -> Iterator[Any]:
    if inspect.isfunction(value):
        yield value
    elif inspect.isclass(value):
        yield from (one for name, one in vars(value).items() if inspect.isfunction(one) and name[0] != "_")


def of_python(name: str) -> bool:
    return hasattr(builtins, name) or name.partition(".")[0] in sys.stdlib_module_names


def raised_by(call: Any) -> list[str]:
    _, _, raised = (inspect.getdoc(call) or "").partition("Raises:\n")
    lines = re.findall(r"^ {4}(\w[\w., ]*):", raised, re.MULTILINE)
    return [name.strip() for line in lines for name in line.split(",")]
