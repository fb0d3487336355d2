"""Bugs of the HTTP API of webhooks: whose things are seen, keys, limits of requests, pages."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python, in_sql

_API = "projections/webhooks/api"
_TESTS = "tests/integration/webhooks/api"


in_python(
    "api-tenants-name-others",
    "a tenant that asks for what another tenant has is not refused",
    f"{_API}/operations.py: check_tenants",
    "any(name != caller.tenant for name in named)",
    "not any(name == caller.tenant for name in (*named, caller.tenant))",
    Pytest(f"{_TESTS}/test_isolation.py::test_a_tenant_that_names_another_one_is_refused"),
)
in_python(
    "api-owners-are-as-named",
    "a tenant sends messages, and makes endpoints, in the name of another one",
    f"{_API}/operations.py: Call.owner",
    "check_tenants(self.caller, () if named is None else (named,))",
    "pass",
    Pytest(f"{_TESTS}/test_isolation.py::test_a_tenant_can_not_make_something_for_another_one"),
)
in_python(
    "api-shows-messages-of-others",
    "a message that was just sent is shown to any tenant that knows its id",
    f"{_API}/log_operations.py: _sent",
    "or call.tenant not in {None, message.tenant}",
    "",
    Pytest(f"{_TESTS}/test_publishing.py::test_a_message_that_nobody_wanted_is_shown_without_endpoints"),
)
in_sql(
    "api-keys-are-of-all-tenants",
    "a request with the idempotency key of another tenant's gets that one's answer, a secret included",
    "functions/webhooks/_recall_answer_v1.sql",
    "a.tenant = p_tenant AND a.key",
    "a.key",
    Pytest(f"{_TESTS}/test_once.py::test_a_key_is_of_the_tenant_that_asks"),
)
in_python(
    "api-keys-answer-any-request",
    "a request with a used idempotency key is answered as the request before, whatever it asks for",
    f"{_API}/idempotency.py: Once._recalled",
    'stored["digest"] != digest',
    "False",
    Pytest(f"{_TESTS}/test_once.py::test_a_key_is_for_one_request"),
)
in_python(
    "api-keys-answer-any-place",
    "a request with a used idempotency key is answered as that of another endpoint, and does nothing",
    f"{_API}/idempotency.py: _digest",
    "dict(call.place),",
    "",
    Pytest(f"{_TESTS}/test_once.py::test_a_key_is_for_one_endpoint_and_the_data_as_written"),
)
in_python(
    "api-keys-answer-any-data",
    "a test message with a used idempotency key and other data is answered as the one before, and not sent",
    f"{_API}/idempotency.py: _digest",
    "str(text) for name, text in call.raw.items()",
    "None for name in call.raw",
    Pytest(f"{_TESTS}/test_once.py::test_a_key_is_for_one_endpoint_and_the_data_as_written"),
)
in_sql(
    "api-keys-are-followed-at-a-time",
    "two requests with one idempotency key at a time are both followed",
    "functions/webhooks/_recall_answer_v1.sql",
    "pg_try_advisory_xact_lock(hashtext('slice-projections'), hashtext('answer ' || p_tenant || ' ' || p_key))",
    "TRUE",
    Pytest(f"{_TESTS}/test_once.py::test_of_two_at_a_time_one_is_followed_and_the_other_is_to_ask_again"),
)
in_python(
    "api-answers-are-kept-plain",
    "answers with new secrets are stored as they are, where secrets are encrypted",
    f"{_API}/calls.py: ApiCalls.__init__",
    "Once(limited, services, kept)",
    "Once(limited, services, PlainCipher())",
    Pytest(f"{_TESTS}/test_once.py::test_answers_are_kept_as_secrets_are"),
)
in_python(
    "api-bodies-without-length-have-no-limit",
    "a body that does not say its length is read far beyond the limit",
    f"{_API}/requests.py: read_content",
    "if len(content) > limit:",
    "if len(content) > 16 * limit:",
    Pytest(f"{_TESTS}/test_bad_requests.py::test_a_body_without_a_length_is_not_read_beyond_the_limit"),
)
in_python(
    "api-bodies-do-not-count",
    "a tenant sends large bodies as often as small ones",
    f"{_API}/tenant_limits.py: TenantLimits.brought",
    "size // _BYTES",
    "0",
    Pytest(f"{_TESTS}/test_ceilings.py::test_a_body_counts_by_its_size_also_where_it_is_wrong"),
)
in_python(
    "api-pages-end-at-a-full-one",
    "a list of endpoints ends with its first page",
    f"{_API}/endpoint_operations.py: list_endpoints",
    "if len(found) == limit else None",
    "if len(found) > limit else None",
    Pytest(f"{_TESTS}/test_endpoints.py::test_pages_of_endpoints_join_without_gap"),
)
in_python(
    "api-stats-skip-one-at-a-page",
    "the state of an endpoint between two pages is on none of them",
    f"{_API}/endpoint_operations.py: list_endpoint_stats",
    "data[limit - 1].endpoint_id",
    "data[limit].endpoint_id",
    Pytest(f"{_TESTS}/test_endpoints.py::test_pages_of_endpoints_join_without_gap"),
)
in_python(
    "api-schedules-end-at-a-full-page",
    "a list of schedules ends with its first page",
    f"{_API}/schedule_operations.py: list_schedules",
    "if len(found) == limit else None",
    "if len(found) > limit else None",
    Pytest(f"{_TESTS}/test_endpoints.py::test_pages_of_schedules_join_without_gap"),
)
in_python(
    "api-attempts-are-at-any-endpoint",
    "an attempt is shown below an endpoint that it was not at",
    f"{_API}/log_operations.py: _one",
    'call.place.get("endpoint_id", found.attempt.endpoint_id)',
    "found.attempt.endpoint_id",
    Pytest(f"{_TESTS}/test_isolation.py::test_an_attempt_at_another_endpoint_than_the_paths_is_not_found"),
)
in_python(
    "api-versions-of-nothing-are-not-compared",
    "a change of nothing is followed whatever version it was made from",
    f"{_API}/operations.py: Call.check_version",
    "if self.version not in {None, current}:",
    "if False:",
    Pytest(f"{_TESTS}/test_versions.py::test_another_version_is_not_changed"),
)
in_python(
    "api-challenges-are-not-counted",
    "a tenant has this application send requests to somebody's URL any number of times",
    f"{_API}/tenant_limits.py: TenantLimits.challenge",
    "if tenant is not None:",
    "if False:",
    Pytest(f"{_TESTS}/test_verifying.py::test_a_url_that_does_not_is_not_and_a_tenant_has_it_asked_seldom"),
)
in_python(
    "api-tells-what-failed-inside",
    "an error of the database is shown to who asks, with its text",
    f"{_API}/problems.py: problem_of",
    '"the request failed; the server\'s log says why, under this request id"',
    "str(error)",
    Pytest(
        f"{_TESTS}/test_faults.py::test_an_error_of_the_applications_own_function_is_logged_and_not_shown"
    ),
)
in_python(
    "api-places-are-lost-by-failures",
    "a tenant whose requests fail has fewer places with each, and none in the end",
    f"{_API}/tenant_limits.py: TenantLimits.place",
    "        try:\n            yield\n        finally:\n            self",
    "        if True:\n            yield\n            self",
    Pytest(f"{_TESTS}/test_ceilings.py::test_a_tenant_has_its_share_of_what_is_followed_at_a_time"),
)
in_python(
    "api-requests-stand-still-with-locks",
    "a process that stands still keeps the locks of its request, without limit",
    f"{_API}/idempotency.py: LimitedDatabase.session",
    "session.transaction(idle=self._idle)",
    "session.transaction()",
    Pytest(
        f"{_TESTS}/test_faults.py::test_a_request_that_stands_still_holds_its_locks_no_longer_than_a_statement_may_take"
    ),
)
in_python(
    "api-erases-all-unless-told",
    "a request to erase messages that says nothing of which erases all of a tenant",
    f"{_API}/message_operations.py: erase_messages",
    "if all(one is None for one in (body.order_key, body.topics, body.since, body.until)):",
    "if False:",
    Pytest(f"{_TESTS}/test_expiry_and_erasing.py::test_many_are_erased_by_what_they_have_in_common"),
)
in_python(
    "api-errors-give-a-challenge-back",
    "an error page that repeats what it was sent verifies a URL",
    "projections/webhooks/endpoint_verification.py: verify_endpoint",
    "not is_success(reply.code) or",
    "",
    Pytest(
        "tests/integration/webhooks/test_verification.py::test_the_challenge_comes_back_as_text_or_not_at_all"
    ),
)
in_python(
    "api-echoes-give-a-challenge-back",
    "a server that repeats what it is sent, and wants no webhooks, is verified",
    "projections/webhooks/endpoint_verification.py: _gives_back",
    "body.strip() == challenge",
    "challenge in body",
    Pytest(
        "tests/integration/webhooks/test_verification.py::test_the_challenge_comes_back_as_text_or_not_at_all"
    ),
)
in_python(
    "api-keys-decide-about-all-at-once",
    "a request with an idempotency key decides about many deliveries in one transaction, which holds all of them",
    f"{_API}/delivery_operations.py: in_time",
    "(call.key is not None or loop.time() > ends)",
    "loop.time() > ends",
    Pytest(f"{_TESTS}/test_faults.py::test_what_is_done_once_is_one_short_step"),
)
in_python(
    "api-no-topics-are-all-topics",
    "dead letters of an empty list of topics are dropped as all there are",
    f"{_API}/delivery_operations.py: Which.among",
    'self.topics if "topics" in self.model_fields_set else None',
    "self.topics or None",
    Pytest(f"{_TESTS}/test_endpoints.py::test_an_empty_list_of_topics_fits_no_dead_letter"),
)
