"""Bugs of the journal: appending, importing, slices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import journal
from journal import slices
from tests.mutants.layers import Pytest
from tests.mutants.mutant import mutant
from tests.mutants.seeding import in_sql, method

_APPEND = "functions/journal/append_events_v1.sql"

in_sql(
    "appends-are-stamped-by-the-transaction",
    "an event is stamped with the start of its transaction, which is before the lock",
    _APPEND,
    "db_timestamp = greatest(clock_timestamp(), s.db_timestamp",
    "db_timestamp = greatest(now(), s.db_timestamp",
    Pytest("tests/integration/journal/test_reading_stress.py"),
)
in_sql(
    "times-of-a-source-may-fall",
    "the time of a source goes back with the clock",
    _APPEND,
    "db_timestamp = greatest(clock_timestamp(), s.db_timestamp + interval '1 microsecond')",
    "db_timestamp = clock_timestamp()",
    Pytest(
        "tests/integration/journal/test_append.py::test_timestamps_strictly_increase_when_the_clock_steps_back"
    ),
)
in_sql(
    "expectations-are-half-compared",
    "an append expects the number of its source to be at least one",
    _APPEND,
    "WHERE r.seq_nr - r.events <> x.expected",
    "WHERE r.seq_nr - r.events < x.expected",
    Pytest("tests/property/test_append_model.py"),
)
in_sql(
    "event-ids-are-not-compared",
    "an event that comes again with its id is appended again",
    _APPEND,
    "IF cardinality(array_remove(p_event_ids, NULL)) > 0 THEN",
    "IF FALSE THEN",
    Pytest("tests/property/test_append_model.py"),
)
in_sql(
    "imports-are-not-announced",
    "readers are not told of an import of history",
    "functions/journal/_move_imported_v1.sql",
    "    FROM pg_temp.projections_import AS i GROUP BY i.entity_type;\n\n    TRUNCATE",
    "    FROM pg_temp.projections_import AS i WHERE FALSE GROUP BY i.entity_type;\n\n    TRUNCATE",
    Pytest(
        "tests/integration/offsets/test_progress_kept.py::test_history_that_is_imported_while_running_is_handled_once"
    ),
)


@mutant(
    "slices-of-python",
    "the slice is Python's remainder, whose sign is another than Java's",
    "journal/slices.py: slice_of",
    Pytest("tests/property/test_slices.py"),
)
@contextmanager
def _slices_of_python() -> Iterator[None]:
    def slice_of(source_id: str) -> int:
        hashed = 0
        for character in source_id:
            hashed = (31 * hashed + ord(character)) & 0xFFFFFFFF
        return hashed % slices.NUMBER_OF_SLICES

    with method(slices, "slice_of", slice_of), method(journal, "slice_of", slice_of):
        yield
