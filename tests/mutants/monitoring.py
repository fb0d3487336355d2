"""Bugs of monitoring: who may ask, and what a lag is."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python

_LAGS = "tests/unit/test_lag_check.py"
_CHECK = "projections/monitoring/health.py: LagCheck"
_WHO = "tests/unit/test_authentication.py"
_AUTHENTICATION = "projections/http/authentication.py"
_REFUSED = Pytest("tests/unit/test_cross_site.py::test_what_another_site_makes_a_browser_send_is_refused")

in_python(
    "lags-begin-when-they-are-seen",
    "a range that is stuck for an hour counts as late from the first sample on",
    f"{_CHECK}._judge",
    "certain = at - (lag - self._above)",
    "certain = at",
    Pytest(f"{_LAGS}::test_a_lag_that_is_as_old_as_limit_and_time_together_is_told_by_the_first_sample"),
)
in_python(
    "lags-go-on-between-far-samples",
    "two samples an hour apart count as if the lag had lasted between them",
    f"{_CHECK}._judge",
    "goes_on = certain <= before.seen_at or at - before.seen_at <= self._longest_gap",
    "goes_on = True",
    Pytest(f"{_LAGS}::test_samples_too_far_apart_tell_nothing_of_the_time_between"),
)
in_python(
    "lags-at-the-limit-go-on",
    "a lag that has come down to its limit counts as if it had not",
    f"{_CHECK}.observe",
    "if lag > self._above",
    "if lag >= self._above",
    Pytest(f"{_LAGS}::test_a_lag_that_was_seen_at_the_limit_begins_anew"),
)
in_python(
    "loopback-answers-to-any-host",
    "a page of another site asks a monitor on loopback through somebody's browser",
    f"{_AUTHENTICATION}: Authentication._is_host_ours",
    "is_own_host(hosts[0]",
    "bool(hosts[0]",
    Pytest(f"{_WHO}::test_loopback_is_not_answered_under_a_name_that_others_can_point_at_it"),
)
in_python(
    "every-path-is-open",
    "what stands behind an open path needs no token either",
    f"{_AUTHENTICATION}: Authentication._is_allowed",
    'scope["path"] in self._open_paths',
    "self._open_paths",
    Pytest(f"{_WHO}::test_an_open_path_needs_no_token"),
)
in_python(
    "tokens-may-be-empty",
    "a file of a token that is empty lets everybody in who gives none",
    f"{_AUTHENTICATION}: read_token",
    "if not token.strip():",
    "if not token and False:",
    Pytest(f"{_WHO}::test_an_empty_token_and_a_file_that_is_not_there_are_refused"),
)
in_python(
    "other-sites-may-post",
    "another site makes somebody's browser change something",
    "projections/http/cross_site.py: foreign",
    'not in {"same-origin", "none"}',
    'not in {"same-origin", "none", "cross-site", "same-site"}',
    _REFUSED,
)
in_python(
    "origins-are-not-compared",
    "a page of any origin may change something",
    "projections/http/cross_site.py: _is_ours",
    "_netloc(origin) == host",
    "_netloc(origin) is not None",
    _REFUSED,
)
