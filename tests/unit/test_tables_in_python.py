"""SQL in Python names only tables of its own package; what reads those of others is listed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
OWN = {
    "journal": "captured_tables events imports partition_settings partitions schema_versions sources",
    "offsets": "parked_sources projection_ranges projections source_offsets workers",
    "projections/subscriptions": "conditions directed_events group_ranges matches subscription_groups subscriptions "
    "unanswered unasked subscription_history",
    "projections/webhooks": "webhook_\\w*",
    "spark_projections": "rebuild_parts rebuild_tables rebuilds",
}
"""By package, the tables that its SQL may name."""
READ_ALL = ("projections/monitoring/", "projections/demo/", "spark_projections/")
"""What sums up the tables of others, or reads the journal as a whole."""
OTHERS = {
    "offsets/leases.py": "schema_versions",
    "offsets/live.py": "imports",
    "offsets/verification.py": "sources",
    "projections/cli/status.py": "projections rebuilds",
    "projections/subscriptions/commands/unanswered.py": "events",
    "projections/webhooks/api/message_operations.py": "events",
}
"""By module, the tables of other packages that it reads. A function of SQL, or one of the other package, is better."""
TABLE = re.compile(
    r"\b(?:FROM|JOIN|UPDATE|INTO|TRUNCATE)\s+(?:ONLY\s+)?projections\.(\w+)(?!\w*\()", re.IGNORECASE
)


def test_sql_in_python_names_tables_of_its_own_package() -> None:
    found = {
        f"{module}: {table}"
        for package in ("journal", "offsets", "projections", "spark_projections")
        for file in (ROOT / package).rglob("*.py")
        if not (module := file.relative_to(ROOT).as_posix()).startswith(READ_ALL)
        for table in tables_of(file)
        if not re.fullmatch("|".join(allowed(module).split()), table)
    }

    assert found == set()


def test_nothing_is_listed_that_no_module_reads() -> None:
    listed = {f"{module}: {table}" for module, tables in OTHERS.items() for table in tables.split()}

    assert (
        listed == {f"{module}: {table}" for module in OTHERS for table in tables_of(ROOT / module)} & listed
    )


def tables_of(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return {table for text in texts for table in TABLE.findall(text)}


def allowed(module: str) -> str:
    own = " ".join(tables for package, tables in OWN.items() if module.startswith(f"{package}/"))
    return f"{own} {OTHERS.get(module, '')}"
