"""SQL in Python names only tables of its own package; what reads those of others is listed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
STORED = [file.stem for kind in ("tables", "views") for file in (ROOT / "sql" / kind).glob("*.sql")]
TABLE = re.compile(rf"\bprojections\.({'|'.join(STORED)})\b(?![.(]\w)")
"""Wherever it stands in a text; before a dot it is a module of the package."""
OWN = {
    "journal": "captured_tables events imports journals partition_settings partitions schema_versions sources turns",
    "offsets": "parked_sources projection_ranges projections range_changes read_models source_offsets workers",
    "projections/subscriptions": "conditions directed_events group_ranges group_retries interests matches "
    "subscription_groups subscription_history subscriptions unanswered unasked",
    "projections/webhooks": "erased_messages webhook_\\w*",
    "spark_projections": "rebuild_parts rebuild_tables rebuilds",
}
"""By package, the tables and views that its SQL may name."""
ABOVE = ("offsets", "projections/subscriptions", "projections/webhooks", "spark_projections")
OTHERS = {
    "offsets/leases.py": "schema_versions",
    "offsets/verification.py": "sources",
    "projections/auditing/reading.py": "events parked_sources projections sources",
    "projections/demo/appender.py": "sources",
    "projections/demo/checking.py": "events",
    "projections/demo/database.py": "events projections rebuilds sources webhook_endpoints",
    "projections/demo/demo.py": "projection_ranges projections",
    "projections/demo/rebuilding.py": "events",
    "projections/demo/webhooks.py": "webhook_deliveries",
    "projections/monitoring/snapshot.py": "captured_tables",
    "projections/monitoring/tracing.py": "events",  # an attribute of spans
    "projections/subscriptions/commands/left_to.py": "workers",
    "projections/subscriptions/commands/unanswered.py": "events",
    "projections/webhooks/api/message_operations.py": "events",
    "spark_projections/archive/erasing.py": "erased_messages",
    "spark_projections/archive/export.py": "partitions projection_ranges projections",
    "spark_projections/archive/journal_queries.py": "events imports sources",
    "spark_projections/archive/planning.py": "events imports",
    "spark_projections/archive/restore.py": "events imports partitions sources",
    "spark_projections/backfill/numbering.py": "events sources",
    "spark_projections/cli/rebuild.py": "projections",
    "spark_projections/reading/batches.py": "events",
    "spark_projections/reading/horizon.py": "imports sources",
    "spark_projections/reading/splits.py": "sources",
    "spark_projections/rebuilds/bookkeeping.py": "projections",
    "spark_projections/rebuilds/interrupted.py": "projections",
    "spark_projections/rebuilds/rebuilding.py": "projections",
    "spark_projections/rebuilds/refolding.py": "parked_sources projections source_offsets",
    "spark_projections/rebuilds/repairing.py": "events",
    "spark_projections/rebuilds/swapping.py": "projection_ranges projections source_offsets",
    "spark_projections/rebuilds/verifying.py": "events source_offsets sources",
}
"""By module, those of other packages that it reads. A function of SQL, or one of the other package, is better."""


@pytest.mark.slow
def test_sql_in_python_names_tables_of_its_own_package() -> None:
    found = {
        f"{module}: {table}"
        for package in ("journal", "offsets", "projections", "spark_projections")
        for file in (ROOT / package).rglob("*.py")
        for table in tables_of(file)
        if not re.fullmatch("|".join(allowed(module := file.relative_to(ROOT).as_posix()).split()), table)
    }

    assert found == set()


def test_nothing_is_listed_that_no_module_reads() -> None:
    listed = {f"{module}: {table}" for module, tables in OTHERS.items() for table in tables.split()}

    assert (
        listed == {f"{module}: {table}" for module in OTHERS for table in tables_of(ROOT / module)} & listed
    )


def test_the_journal_names_no_table_of_packages_above_it() -> None:
    """Also not outside of SQL; words that are tables, too, as a projection or a subscription, are not meant here."""
    above = re.compile(r"matches|(directed|webhook|group|subscription)_\w+")
    found = {
        f"{file.relative_to(ROOT)}: {node.value}"
        for file in (ROOT / "journal").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and node.value in STORED and above.fullmatch(node.value)
    }

    assert found == set()


def test_the_sql_of_the_journal_names_nothing_of_packages_above_it() -> None:
    """Neither a table nor a function: what these have to do is in functions with the names of hooks."""
    sql = ROOT / "sql"
    theirs = re.compile("|".join(OWN[part] for part in ABOVE).replace(" ", "|"))
    above = {table for table in STORED if theirs.fullmatch(table)} | {"match_ids", "matching"}
    parts = ("archive", "holding", "monitoring", "offsets", "rebuilds", "subscriptions", "webhooks")
    above |= {file.stem for part in parts for file in (sql / "functions" / part).glob("*.sql")}
    files = [file for part in ("journal", "maintenance") for file in (sql / "functions" / part).glob("*.sql")]
    found = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in [*files, sql / "views/partitions.sql", sql / "tables/partition_settings.sql"]
        for name in re.findall(
            r"(?<=projections\.)\w+|\b(?!projections\b)\w+", re.sub(r"--.*", "", file.read_text())
        )
        if name in above
    }

    assert found == set()


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
