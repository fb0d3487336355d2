"""Bugs of comparing a schema with what would be installed."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python

_VERIFY = "tests/integration/schema/test_schema_verify.py"
_CODE = "journal/schema/verifying.py"
_REPORTED = Pytest(f"{_VERIFY}::TestVerify::test_a_change_is_reported")

in_python(
    "verify-overlooks-what-is-missing",
    "a thing that is not there is no difference",
    f"{_CODE}: _differences",
    "sorted({*found, *expected})",
    "sorted(found)",
    _REPORTED,
)
in_python(
    "verify-overlooks-changes",
    "a thing that is another is no difference",
    f"{_CODE}: _differences",
    "if found.get(name) != expected.get(name)",
    "if (name in found) != (name in expected)",
    _REPORTED,
)
in_python(
    "verify-leaves-its-copy",
    "the schema that is compared with stays in the database",
    f"{_CODE}: build",
    "force_rollback=True",
    "force_rollback=False",
    Pytest(f"{_VERIFY}::TestVerify::test_verifying_leaves_nothing_behind"),
)
in_python(
    "verify-compares-any-version",
    "a schema of another version is compared as if it were of this one",
    f"{_CODE}: verify",
    "if version != latest:",
    "if version > latest + 1:",
    Pytest(f"{_VERIFY}::TestVerify::test_another_version_is_reported"),
)
