"""Each alert rule, by promtool: with two databases in one Prometheus, it tells of the one that is in trouble."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

RULES = Path(__file__).parents[3] / "docs/operations/alert-rules.yml"
_ENOUGH = "20m"
_PART = 'projection="p", range="0-1023"'
_DEAD = 'projections_webhook_deliveries{state="dead"}'


class Case(NamedTuple):
    """Series by what they are in the database in trouble, and in the other."""

    series: dict[str, tuple[str, str]]
    at: str = _ENOUGH


CASES = {
    "ProjectionLagHigh": Case({f"projections_lag_seconds{{{_PART}}}": ("100", "1")}),
    "ProjectionWithoutWorker": Case({'projections_workers{projection="p"}': ("0", "2")}),
    "ProjectionsRoleVacant": Case({'projections_vacant_roles{role="matching"}': ("1", "0")}),
    "ProjectionCaptureIncomplete": Case({"projections_capture_problems{}": ("1", "0")}),
    "ProjectionRangeUnclaimed": Case(
        {
            f'projections_range_state{{{_PART}, state="unclaimed"}}': ("1", "0"),
            'projections_workers{projection="p"}': ("1", "0"),
        }
    ),
    "ProjectionRangeRestarting": Case(
        {f'projections_range_state{{{_PART}, state="restarting"}}': ("1", "0")}
    ),
    "ProjectionSourcesParked": Case({f"projections_parked_sources{{{_PART}}}": ("3", "0")}),
    "ProjectionEventsSkipped": Case(
        {f"projections_worker_events_skipped_total{{{_PART}}}": ("0+1x100", "5")}
    ),
    "ProjectionHorizonHeldBack": Case({"projections_oldest_open_writer_age_seconds{}": ("400", "0")}),
    "ProjectionGroupLagHigh": Case({'projections_group_lag_seconds{group="g"}': ("100", "0")}),
    "ProjectionGroupUnread": Case(
        {
            'projections_group_ranges_without_reader{group="g"}': ("1", "1"),
            'projections_group_backlog_matches{group="g"}': ("5", "0"),
        }
    ),
    "ProjectionGroupHandlerMissing": Case({'projections_group_handlers_missing{group="g"}': ("1", "0")}),
    "ProjectionGroupDeadLetters": Case({'projections_group_dead_letters{group="g"}': ("1", "0")}),
    "ProjectionConditionQuarantined": Case({"projections_quarantined_conditions{}": ("1", "0")}),
    "ProjectionEventsSetApart": Case({"projections_events_set_apart{}": ("1", "0")}),
    "WebhooksNotDelivered": Case(
        {
            "projections_webhook_overdue_seconds{}": ("100", "100"),
            'projections_webhook_deliveries{state="in_flight"}': ("0", "7"),
        }
    ),
    "WebhooksOverdue": Case({"projections_webhook_overdue_seconds{}": ("700", "500")}),
    "WebhookEndpointFailing": Case({"projections_webhook_failing_seconds{}": ("4000", "0")}),
    "WebhookDeadLetters": Case({_DEAD: ("0+1x100", "40")}),
    "WebhookDeadLettersWait": Case({_DEAD: ("1", "0")}, "25h"),
    "WebhookCertificateExpiresSoon": Case(
        {"projections_webhook_certificate_expires_in_seconds{}": ("1000000", "2000000")}
    ),
    "WebhookCertificateExpired": Case({"projections_webhook_expired_certificates{}": ("1", "0")}),
    "WebhookTicksLate": Case({"projections_webhook_ticks_lag_seconds{}": ("90", "2")}),
    "WebhookTicksSkipped": Case({"projections_webhook_ticks_skipped_total{}": ("0+1x100", "9")}),
    "WebhookOutcomesLost": Case({"projections_webhook_outcomes_lost_total{}": ("0+1x100", "3")}),
    "ProjectionsDatabaseDown": Case({"projections_database_up{}": ("0", "1")}),
    "ProjectionsNotMonitored": Case({f"projections_lag_seconds{{{_PART}}}": ("1 stale", "1")}),
    "ProjectionWorkerHeartbeatLate": Case(
        {
            "projections_worker_heartbeat_age_seconds{}": ("20", "1"),
            "projections_worker_lease_seconds{}": ("10", "10"),
        }
    ),
    "ProjectionWorkerEventLoopBlocked": Case(
        {"projections_worker_event_loop_blocks_total{}": ("0+1x100", "4")}
    ),
}


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_each_alert_has_a_case() -> None:
    assert {rule["alert"] for rule in _rules()} == set(CASES)


def test_each_alert_names_the_database() -> None:
    assert [
        rule["alert"] for rule in _rules() if "$labels.database" not in rule["annotations"]["summary"]
    ] == []


@pytest.fixture
def promtool() -> str:
    """The program that comes with Prometheus."""
    found = shutil.which(os.environ.get("PROMTOOL", "promtool"))
    if found is None:
        pytest.skip("promtool is not installed: it is in Debian's package prometheus")
    return found


def test_promtool_finds_nothing_wrong(promtool: str) -> None:
    done = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_each_alert_tells_of_the_database_in_trouble_and_of_no_other(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES.read_text())
    tests = tmp_path / "tests.yml"
    tests.write_text(
        json.dumps({"rule_files": ["rules.yml"], "tests": [_test(*case) for case in CASES.items()]})
    )

    done = subprocess.run([promtool, "test", "rules", tests], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def _test(alert: str, case: Case) -> dict[str, Any]:
    troubled, well = zip(*case.series.values(), strict=True)
    expression = f'count by (database) (ALERTS{{alertname="{alert}", alertstate="firing"}})'
    return {
        "interval": "1m",
        "input_series": [
            *_series(case.series, troubled, "troubled"), *_series(case.series, well, "well"),
        ],
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": case.at,
                "exp_samples": [{"labels": '{database="troubled"}', "value": 1}],
            }
        ],
    }  # fmt: skip


def _series(
    names: Sequence[str] | dict[str, Any], values: Sequence[str], database: str
) -> list[dict[str, str]]:
    return [
        {
            "series": name.replace("{", f'{{database="{database}", instance="i", ').replace(", }", "}"),
            "values": value if " " in value or "+" in value else f"{value}x1600",
        }
        for name, value in zip(names, values, strict=True)
    ]
