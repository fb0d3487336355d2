"""Bugs of whole pages: a page that is read, written and stored inside the database by one statement."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python, in_sql

_PAGES = "tests/integration/running/test_whole_pages.py"

in_sql(
    "pages-leap-over-gaps",
    "a page is stored although events of a source are missing between two of its own",
    "functions/offsets/_save_page_v1.sql",
    "IF _has_gaps OR (",
    "IF (",
    Pytest(f"{_PAGES}::test_an_event_before_which_others_are_missing_is_not_handled_before_them"),
)
in_sql(
    "pages-of-parked-sources-are-stored",
    "a source that waits for a decision goes on with a whole page",
    "functions/offsets/_save_page_v1.sql",
    'WHERE k.projection_id = p_projection_id AND k.source_id = s.source_id COLLATE "C" LIMIT 1',
    "WHERE FALSE LIMIT 1",
    Pytest(f"{_PAGES}::test_a_source_that_is_parked_waits"),
)
in_sql(
    "pages-forget-evictions",
    "events that were handled, and whose offsets were evicted, are handled again by a whole page",
    "functions/offsets/_save_page_v1.sql",
    "IF _oldest < _evicted_before THEN",
    "IF FALSE THEN",
    Pytest(f"{_PAGES}::test_what_was_handled_is_not_handled_again_after_its_offset_was_evicted"),
)
in_sql(
    "old-pages-follow-any-offset",
    "a page of old events is stored whatever the offsets of its sources say",
    "functions/offsets/_forget_page_v1.sql",
    "IF NOT _fit THEN",
    "IF FALSE THEN",
    Pytest(f"{_PAGES}::test_a_page_of_old_events_that_is_handled_in_part_is_judged"),
)
in_sql(
    "old-pages-keep-the-offsets-before",
    "the offsets that an old page leaves behind stay at the events before it",
    "functions/offsets/_forget_page_v1.sql",
    "WHERE u.at < p_before\n",
    "WHERE FALSE\n",
    Pytest(f"{_PAGES}::test_pages_of_old_events_go_on_from_offsets_that_are_there"),
)
in_python(
    "full-pages-are-the-last",
    "a range counts as caught up after a full page, and handles the rest event by event",
    "projections/running/whole_pages.py: WholePages.handle",
    "written.events == self._reader.page_size",
    "written.events > self._reader.page_size",
    Pytest(f"{_PAGES}::test_pages_are_handled_inside_the_database"),
)
in_python(
    "pages-take-old-versions",
    "a page with events of older versions is written as it is stored",
    "projections/running/read_model_writer.py: _PAGE",
    "o.version < m.version",
    "o.version < m.version - 1",
    Pytest(f"{_PAGES}::test_a_page_with_an_older_version_is_not_written_as_it_is_stored"),
)
in_python(
    "pages-are-never-older",
    "a whole page is stored that was given up for its older versions",
    "projections/running/whole_pages.py: WholePages.handle",
    "if written.is_older:",
    "if False:",
    Pytest(f"{_PAGES}::test_a_page_with_an_older_version_is_not_written_as_it_is_stored"),
)
