"""Bugs of webhooks: deliveries, their leases and their order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from projections.webhooks import retry_policy
from projections.webhooks.retry_policy import AttemptVerdict, RetryPolicy
from tests.mutants.layers import Pytest
from tests.mutants.mutant import mutant
from tests.mutants.seeding import in_sql, method

_CLAIMS = "tests/integration/webhooks/test_claims.py"

in_sql(
    "deliveries-without-a-token",
    "an outcome is taken from whoever had the lease of a delivery once",
    "functions/webhooks/_finish_deliveries_v1.sql",
    "AND d.state = 'leased' AND d.lease_token = p.token LIMIT 1",
    "AND d.state = 'leased' LIMIT 1",
    Pytest(f"{_CLAIMS}::TestOutcomes::test_a_zombie_with_an_old_token_changes_nothing"),
)
in_sql(
    "outcomes-are-stored-twice",
    "an outcome is taken of a delivery that is finished",
    "functions/webhooks/_finish_deliveries_v1.sql",
    "AND d.state = 'leased' AND d.lease_token = p.token LIMIT 1",
    "LIMIT 1",
    Pytest(f"{_CLAIMS}::TestOutcomes::test_an_outcome_is_stored_once"),
)
in_sql(
    "lost-attempts-are-for-ever",
    "a delivery whose senders die one after the other is tried again without end",
    "functions/webhooks/_reap_deliveries_v1.sql",
    "CASE WHEN o.attempts > o.retries THEN 'dead' ELSE 'retry' END",
    "CASE WHEN FALSE THEN 'dead' ELSE 'retry' END",
    Pytest(f"{_CLAIMS}::TestLostWorkers::test_crash_loop_reaches_dead_letter"),
)
in_sql(
    "deliveries-pass-dead-letters",
    "an order goes on behind a dead letter that is to block it",
    "functions/webhooks/_follow_on_v1.sql",
    "AND (n.state <> 'dead' OR k.on_dead = 'block')",
    "AND n.state <> 'dead'",
    Pytest(f"{_CLAIMS}::TestOrder::test_a_dead_letter"),
)
in_sql(
    "orders-are-not-kept",
    "deliveries of one order do not wait for one another",
    "functions/webhooks/_fan_out_v1.sql",
    ")) THEN 'waiting' ELSE 'pending' END,",
    ")) THEN 'pending' ELSE 'pending' END,",
    Pytest(f"{_CLAIMS}::TestOrder::test_a_key_blocks_only_its_key"),
)


@mutant(
    "retries-ignore-retry-after",
    "an endpoint that asks for a pause is tried again before it",
    "projections/webhooks/retry_policy.py: judge",
    Pytest("tests/unit/test_webhook_retrying.py"),
)
def _ignores_retry_after() -> AbstractContextManager[Any]:
    right = retry_policy.judge

    def judge(
        code: str,
        retry_after: str | None,
        attempt: int,
        policy: RetryPolicy,
        *,
        random: Callable[[], float],
        **rest: Any,
    ) -> AttemptVerdict:
        verdict = right(code, retry_after, attempt, policy, random=random, **rest)
        planned = policy.retries.delay(attempt, random())
        return verdict if verdict.delay is None else verdict._replace(delay=planned)

    return method(retry_policy, "judge", judge)
