"""Bugs of what decides whether an event is the next one of its source."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from offsets import OffsetState, Verdict
from offsets.deduplication import _ABSENT, BatchVerdicts
from projections.running.acceptance import Acceptance
from tests.mutants.layers import Pytest
from tests.mutants.mutant import mutant
from tests.mutants.seeding import method

_FILE = "offsets/deduplication.py"
_EXPLORER = Pytest(
    "tests/models/test_explorer_offsets.py::test_what_is_accepted_is_what_a_record_of_all_says"
)
_HISTORIES = Pytest("tests/property/test_offset_state.py::test_verdicts_are_those_of_a_dictionary")


@mutant(
    "evicted-sources-begin-again",
    "where a source has no offset any more, what was handled before counts as new",
    f"{_FILE}: BatchVerdicts.validate",
    _EXPLORER,
)
def _evicted_sources_begin_again() -> AbstractContextManager[Any]:
    right = BatchVerdicts.validate

    def validate(self: BatchVerdicts, source_id: str, seq_nr: int, db_timestamp: datetime) -> Verdict:
        if self._known[source_id] == _ABSENT and db_timestamp < self._state.evicted_before:
            return Verdict.ACCEPTED if seq_nr == 1 else Verdict.UNKNOWN_SOURCE
        return right(self, source_id, seq_nr, db_timestamp)

    return method(BatchVerdicts, "validate", validate)


@mutant(
    "unknown-sources-are-accepted",
    "a source without an offset is accepted at any number, whether the event before it was handled or not",
    f"{_FILE}: BatchVerdicts.validate_unknown",
    _EXPLORER,
    _HISTORIES,
)
def _unknown_sources_are_accepted() -> AbstractContextManager[Any]:
    def validate_unknown(self: BatchVerdicts, predecessor: datetime | None) -> Verdict:
        return Verdict.ACCEPTED

    return method(BatchVerdicts, "validate_unknown", validate_unknown)


@mutant(
    "what-is-accepted-counts-before-the-commit",
    "an event that was accepted counts as handled although its batch was rolled back",
    f"{_FILE}: BatchVerdicts.accept",
    _EXPLORER,
    _HISTORIES,
)
def _accepted_counts_at_once() -> AbstractContextManager[Any]:
    def accept(self: BatchVerdicts, source_id: str, seq_nr: int) -> None:
        self._known[source_id] = seq_nr
        self._state.committed({source_id: seq_nr})

    return method(BatchVerdicts, "accept", accept)


@mutant(
    "an-unknown-outcome-is-remembered",
    "what is remembered of a source stays when nobody knows whether its last batch was committed",
    f"{_FILE}: OffsetState.forget",
    _EXPLORER,
)
def _remembers_the_unknown() -> AbstractContextManager[Any]:
    return method(OffsetState, "forget", lambda self, source_ids: None)  # noqa: ARG005


@mutant(
    "parked-sources-go-on",
    "an event is accepted although its source is parked",
    f"{_FILE}: BatchVerdicts.validate",
    _EXPLORER,
)
def _parked_sources_go_on() -> AbstractContextManager[Any]:
    right = BatchVerdicts.validate

    def validate(self: BatchVerdicts, source_id: str, seq_nr: int, db_timestamp: datetime) -> Verdict:
        parked, self._state.parked = self._state.parked, {}
        try:
            return right(self, source_id, seq_nr, db_timestamp)
        finally:
            self._state.parked = parked

    return method(BatchVerdicts, "validate", validate)


@mutant(
    "gaps-are-not-filled",
    "an event after a gap is handled without what is missing",
    "projections/running/acceptance.py: Acceptance._fill",
    _EXPLORER,
)
def _gaps_are_not_filled() -> AbstractContextManager[Any]:
    async def fill(self: Acceptance, *_: Any) -> list[Any]:
        return []

    return method(Acceptance, "_fill", fill)
