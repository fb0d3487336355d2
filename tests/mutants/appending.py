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
_STAMPED = Pytest(
    "tests/integration/journal/test_append.py::test_events_are_stamped_later_than_their_transaction_starts"
)
_MESSAGES = "tests/integration/journal/test_message_ids.py"

in_sql(
    "appends-are-stamped-by-the-transaction",
    "an event is stamped with the start of its transaction, which is before the lock",
    _APPEND,
    "db_timestamp = greatest(clock_timestamp(), s.db_timestamp",
    "db_timestamp = greatest(now(), s.db_timestamp",
    _STAMPED,
)
in_sql(
    "first-events-are-stamped-by-the-transaction",
    "the first event of a source is stamped with the start of its transaction, which is before the lock",
    _APPEND,
    "clock_timestamp() + (i.events - 1)",
    "now() + (i.events - 1)",
    _STAMPED,
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
    Pytest(
        "tests/integration/journal/test_append.py::test_of_two_appenders_with_one_expectation_the_first_wins"
    ),
)
in_sql(
    "event-ids-are-not-compared",
    "an event that comes again with its id is appended again",
    _APPEND,
    "IF _has_ids AND NOT (_has_messages",
    "IF FALSE AND NOT (_has_messages",
    Pytest("tests/property/test_append_model.py"),
)
in_sql(
    "ids-of-messages-end-with-their-source",
    "a message that comes again under another name is refused as other content",
    "functions/journal/_stored_events_v1.sql",
    "OR (i.entity_type = e.entity_type AND e.entity_type = ANY (projections._message_types_v1()))",
    "OR FALSE",
    Pytest("tests/property/test_append_model.py"),
    Pytest(f"{_MESSAGES}::test_the_same_again_under_another_name_is_the_first_result"),
)
in_sql(
    "ids-of-messages-are-not-taken",
    "two who send one message under two names at a time do not see each other, and both are stored",
    _APPEND,
    "PERFORM projections._take_message_ids_v1(p_entity_types, p_event_ids);",
    "",
    Pytest(f"{_MESSAGES}::test_who_comes_second_waits_for_the_first"),
)
in_sql(
    "ids-are-taken-without-a-trace",
    "an id that was taken before is not taken again: once its message has left, two who send it at once both store it",
    "functions/journal/_take_message_ids_v1.sql",
    "ON CONFLICT (event_id) DO UPDATE SET taken_at = excluded.taken_at;",
    "ON CONFLICT (event_id) DO NOTHING;",
    Pytest(f"{_MESSAGES}::test_an_id_whose_event_has_left_is_free_and_one_message_again"),
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
