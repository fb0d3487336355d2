"""Bugs of who sees which version of an event."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python, in_sql

_PAYLOADS = "tests/unit/test_payload.py::test"
_READING = "tests/integration/journal/test_newest_versions.py::test"
_HANDLERS = "tests/unit/test_handlers.py::test"
_CONDITIONS = "tests/integration/subscriptions/test_conditions_versions.py::test"
_FRAMES = "tests/integration/spark/test_spark_versions.py::test"

in_python(
    "readers-see-what-was-stored",
    "the payload of an envelope is that of the version in which the event was stored",
    "journal/envelopes.py: newest_json",
    "model is None",
    "True",
    Pytest(f"{_PAYLOADS}_payload_is_that_of_the_newest_version"),
    Pytest(f"{_READING}_envelopes_have_the_newest_payload"),
)
in_python(
    "messages-are-upcast",
    "a message under a topic that is the name of an event type is converted as an event of its first version",
    "journal/event_types.py: declared_model",
    "entity_type in LIBRARY_TYPES",
    "False",
    Pytest(f"{_PAYLOADS}_topic_of_a_message_has_no_versions"),
)
in_python(
    "the-last-declared-model-counts",
    "of several models of one event type the last one counts, also where it is of an older version",
    "journal/event_types.py: event_type",
    "event_type_of(known).version <= version",
    "True",
    Pytest(f"{_PAYLOADS}_newest_of_several_models_of_a_name_counts"),
)
in_python(
    "states-stand-at-the-last-event-that-was-folded",
    "the number of a state is that of the last event that was folded into it, not of the last one of the source",
    "journal/loading.py: load",
    "        seq_nr = envelope.seq_nr\n",
    "        seq_nr = envelope.seq_nr if not models or envelope.event_type in decoders else seq_nr\n",
    Pytest(f"{_READING}_a_state_is_loaded_with_the_number_it_stands_at"),
)
in_python(
    "states-are-loaded-from-what-is-left",
    "a state is folded from the events that the journal still has, though some are missing",
    "journal/loading.py: _check_next",
    "found != last + 1",
    "False",
    Pytest(f"{_READING}_a_state_is_not_loaded_from_a_part_of_its_events"),
)
in_python(
    "annotations-say-what-they-like",
    "a handler whose event is annotated as another class than it handles is accepted",
    "projections/defining/signatures.py: check_annotation",
    "not issubclass(model, classes)",
    "False",
    Pytest(f"{_HANDLERS}_an_annotation_of_another_event_is_refused"),
)
in_python(
    "webhooks-send-what-was-stored",
    "filters of endpoints see, and receivers get, the payload in the version in which it was stored",
    "projections/webhooks/fan_out.py: _Outbound._data",
    "newest_json(self.envelope)",
    "self.envelope.payload_json",
    Pytest("tests/integration/webhooks/test_fan_out.py::test_filters_and_receivers_see_the_newest_version"),
)
in_python(
    "streams-send-what-was-stored",
    "clients of a stream get the payload in the version in which it was stored",
    "projections/subscriptions/sse/rendering.py: as_json",
    "newest_json(envelope)",
    "envelope.payload_json",
    Pytest("tests/unit/test_subscriptions_handlers.py::test_handlers_and_clients_get_the_newest_version"),
)
in_sql(
    "conditions-see-what-was-stored",
    "a condition is asked about the payload in the version in which it was stored",
    "functions/subscriptions/_matchable_events_v1.sql",
    "current_setting('projections.newest_events', TRUE)",
    "NULL::text",
    Pytest(f"{_CONDITIONS}_conditions_see_the_newest_version"),
)
in_python(
    "conditions-pass-over-what-cannot-be-converted",
    "an event that cannot be converted is matched with no condition, and nobody hears of it",
    "projections/subscriptions/conditions.py: Asked.run",
    "partial(work, unreadable)",
    "partial(work, {})",
    Pytest(f"{_CONDITIONS}_an_event_that_cannot_be_converted_waits_and_the_others_are_matched"),
)
in_python(
    "frames-show-what-was-stored",
    "a DataFrame shows payloads in the version in which they were stored",
    "spark_projections/source/newest.py: NewestVersions.converted",
    "pc.any(older).as_py()",
    "False",
    Pytest(f"{_FRAMES}_payloads_and_versions_are_the_newest"),
)
in_python(
    "decimals-of-as-many-digits-as-fit-into-128-bits",
    "a number with more digits than its decimal column is given to Spark, which ends the query",
    "spark_projections/source/payloads.py: _has_more_digits",
    "bool(",
    "False and bool(",
    Pytest(
        "tests/unit/test_spark_payloads.py::test_a_value_that_does_not_fit_is_blamed_on_its_event_and_field"
    ),
)
