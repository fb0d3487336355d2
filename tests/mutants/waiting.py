"""Bugs of waiting for what was appended: tokens, states of a database, and requests."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python

_TOKENS = "tests/unit/test_tokens.py"
_GENERATION = "journal/database/generation.py: Generation"
_REQUESTS = "tests/integration/waiting/test_read_your_writes.py"
_MIDDLEWARE = "projections/waiting/middleware.py: ReadYourWrites"

in_python(
    "tokens-are-not-checked",
    "a token that was changed is waited for",
    "journal/tokens.py: read_token",
    " or checksum != _checksum(text)",
    "",
    Pytest(f"{_TOKENS}::test_a_token_that_was_changed_or_cut_is_refused"),
)
in_python(
    "tokens-name-the-first-event",
    "of several events of a source the first one is waited for",
    "journal/tokens.py: last_of_each",
    "last[event.source_id].seq_nr < event.seq_nr",
    "last[event.source_id].seq_nr > event.seq_nr",
    Pytest(f"{_TOKENS}::test_of_each_source_the_last_event_is_named"),
)
in_python(
    "tokens-have-any-length",
    "a token is read however long it is",
    "journal/tokens.py: read_token",
    "len(token) > MAX_TOKEN_LENGTH or ",
    "",
    Pytest(f"{_TOKENS}::test_a_text_longer_than_a_token_is_not_looked_at"),
)
in_python(
    "any-cluster-follows",
    "what was read in one cluster holds in another one",
    f"{_GENERATION}.follows",
    "        same = (self.system, self.timeline",
    "        same = (earlier.system, self.timeline",
    Pytest("tests/unit/test_generation.py::test_anything_else_does_not_follow"),
)
in_python(
    "an-earlier-place-follows",
    "what was read holds in a database that went back to before it",
    f"{_GENERATION}.follows",
    "same and self.position >= earlier.position",
    "same",
    Pytest("tests/unit/test_generation.py::test_anything_else_does_not_follow"),
)
in_python(
    "requests-that-write-wait",
    "a request that writes waits as if it read",
    f"{_MIDDLEWARE}._token",
    ' or scope["method"] not in self._methods',
    "",
    Pytest(f"{_REQUESTS}::test_a_request_without_a_token_and_one_that_writes_do_not_wait"),
)
in_python(
    "lost-writes-are-late",
    "who waits for what a restore has undone is asked to try again, without end",
    f"{_MIDDLEWARE}._wait",
    "return 409,",
    "return 503,",
    Pytest(f"{_REQUESTS}::test_a_lost_write_is_answered_with_409"),
)
