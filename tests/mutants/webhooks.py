"""Bugs of webhooks: deliveries, their leases and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from projections.webhooks import retry_policy
from projections.webhooks.retry_policy import AttemptVerdict, RetryPolicy
from tests.mutants.layers import Pytest, Simulation
from tests.mutants.mutant import Layer, mutant
from tests.mutants.seeding import in_sql, method, sql
from tests.simulation.postgres import delivering, making_deliveries
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.storage import Row

_CLAIMS = "tests/integration/webhooks/test_claims.py"

SENDING = Simulation(200, arrangement="webhooks")
SOON = Simulation(20, arrangement="webhooks")


def in_both(  # noqa: PLR0917 - as of in_sql
    name: str, wrong: str, file: str, right: str, instead: str, seam: tuple[Any, str, Any], *found_by: Layer
) -> None:
    """
    Register a bug in a file of SQL, and in its model.

    Args:
        name: As of :class:`Mutant`, like ``wrong`` and ``found_by``.
        wrong: What it does wrong.
        file: As of :func:`sql`, like ``right``.
        right: What stands there.
        instead: What is installed in its place.
        seam: The module of the model, the name of a function in it, and what it does instead.
        found_by: Who must find it.
    """

    @mutant(name, wrong, f"sql/{file}", *found_by)
    @contextmanager
    def seeded() -> Iterator[None]:
        with sql(file, right, instead), method(*seam):
            yield


def _held_by_state(db: Backend, outcomes: Sequence[Any]) -> Sequence[Any]:
    leased = {d["delivery_id"] for d in db.select("webhook_deliveries", lambda d: d["state"] == "leased")}
    return [one for one in outcomes if one.delivery_id in leased]


def _passes_dead(db: Backend, endpoint_id: str, order_key: str, _on_dead: str) -> Row | None:
    return _first_of(db, endpoint_id, order_key, "skip")


_first_of = delivering.first_of


async def _with_an_order(db: Backend, wanted: Sequence[str]) -> set[str]:
    found = db.select("webhook_endpoints", lambda e: e["endpoint_id"] in wanted and e["ordering"] != "none")
    return {e["endpoint_id"] for e in found}


in_both(
    "deliveries-without-a-token",
    "an outcome is taken from whoever had the lease of a delivery once",
    "functions/webhooks/_finish_deliveries_v1.sql",
    "AND d.state = 'leased' AND d.lease_token = p.token LIMIT 1",
    "AND d.state = 'leased' LIMIT 1",
    (delivering, "held_by", _held_by_state),
    SENDING,
    Pytest(f"{_CLAIMS}::TestOutcomes::test_a_zombie_with_an_old_token_changes_nothing"),
)
in_both(
    "outcomes-are-stored-twice",
    "an outcome is taken of a delivery that is finished",
    "functions/webhooks/_finish_deliveries_v1.sql",
    "AND d.state = 'leased' AND d.lease_token = p.token LIMIT 1",
    "LIMIT 1",
    (delivering, "held_by", lambda _, outcomes: list(outcomes)),
    SOON,
    Pytest(f"{_CLAIMS}::TestOutcomes::test_an_outcome_is_stored_once"),
)
in_both(
    "lost-attempts-are-for-ever",
    "a delivery whose senders die one after the other is tried again without end",
    "functions/webhooks/_reap_deliveries_v1.sql",
    "CASE WHEN o.attempts > o.retries THEN 'dead' ELSE 'retry' END",
    "CASE WHEN FALSE THEN 'dead' ELSE 'retry' END",
    (delivering, "verdict_of_lost", lambda _attempts, _retries: "retry"),
    SENDING,
    Pytest(f"{_CLAIMS}::TestLostWorkers::test_crash_loop_reaches_dead_letter"),
)
in_both(
    "released-attempts-count",
    "an attempt that was given back, for nothing was sent, is used up all the same",
    "functions/webhooks/_finish_deliveries_v1.sql",
    "WHEN 'release' THEN 1 ELSE 0 END",
    "WHEN 'release' THEN 0 ELSE 0 END",
    (delivering, "given_back", lambda _: 0),
    SOON,
)
in_both(
    "deliveries-pass-dead-letters",
    "an order goes on behind a dead letter that is to block it",
    "functions/webhooks/_follow_on_v1.sql",
    "AND (n.state <> 'dead' OR k.on_dead = 'block')",
    "AND n.state <> 'dead'",
    (delivering, "first_of", _passes_dead),
    SENDING,
    Pytest(f"{_CLAIMS}::TestOrder::test_a_dead_letter"),
)
in_both(
    "orders-are-not-kept",
    "deliveries of one order do not wait for one another",
    "functions/webhooks/_fan_out_v1.sql",
    ")) THEN 'waiting' ELSE 'pending' END,",
    ")) THEN 'pending' ELSE 'pending' END,",
    (making_deliveries, "new_state", lambda **_: "pending"),
    SOON,
    Pytest(f"{_CLAIMS}::TestOrder::test_a_key_blocks_only_its_key"),
)
in_both(
    "orders-are-not-held",
    "two who add to one order at a time do not see each other's deliveries, and each lets its first one go",
    "functions/webhooks/_fan_out_v1.sql",
    "ORDER BY c.endpoint_id FOR NO KEY UPDATE OF c",
    "ORDER BY c.endpoint_id",
    (making_deliveries, "lock_orders", _with_an_order),
    SENDING,
)
in_sql(
    "deliveries-share-the-payload-of-an-id",
    "of several events with one id, the log has the payload of one, and the deliveries of the others have none",
    "functions/webhooks/_fan_out_v1.sql",
    "CASE WHEN k.place = ANY (_apart) AND NOT k.erased THEN p_data[k.place] END",
    "NULL",
    Pytest("tests/integration/webhooks/test_same_ids.py::test_each_endpoint_gets_the_one_that_is_for_it"),
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
