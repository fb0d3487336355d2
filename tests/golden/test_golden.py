"""What users and scripts rely on is as it is recorded, or the recording was renewed on purpose."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fixtures.postgres import Databases
from tests.golden.commands import commands_with_json
from tests.golden.kinds import KINDS
from tests.golden.outputs import BATCHES, COMMANDS, ELSEWHERE, LAST, command_of, described, shape
from tests.golden.recordings import FOLDER, difference, lines, record, recorded

_SHOWN = 300  # lines of a difference
_OF_SECONDS = {"json_batches"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind in _OF_SECONDS else kind for kind in KINDS]
)
def test_what_users_rely_on_is_as_it_is_recorded(kind: str, databases: Databases, template: str) -> None:
    found = difference(recorded(kind), KINDS[kind](lambda: databases.fresh(template)))

    if found:
        shown = "\n".join(found.splitlines()[:_SHOWN])
        pytest.fail(
            f"what users rely on has changed ({kind}):\n\n{shown}\n\n"
            f"If it shall change, say in CHANGELOG.md what that is for users, and run: python -m tests.golden {kind}",
            pytrace=False,
        )


def test_every_recording_is_of_a_kind() -> None:
    files = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}

    assert files == {name for kind in KINDS for name in recorded(kind)}


def test_the_output_of_every_command_with_json_is_recorded() -> None:
    run = {command_of(line) for line in (*COMMANDS, *BATCHES, LAST) if not line.startswith("sql ")}
    named = re.findall(r"^projections (.+) --json$", "".join(recorded("json").values()), re.MULTILINE)
    named += re.findall(
        r"^projections (.+) --json$", "".join(recorded("json_batches").values()), re.MULTILINE
    )

    assert run | ELSEWHERE.keys() == commands_with_json(), (
        "add a line for it to COMMANDS in tests/golden/outputs.py"
    )
    assert run & ELSEWHERE.keys() == set()
    assert sorted(named) == sorted(run)


def test_shapes_have_types_of_all_elements_and_no_values() -> None:
    found = shape({"rows": [{"a": 1}, {"a": None, "b": "x"}], "ok": True, "none": []})

    assert found == {
        "": {"object"}, "rows": {"array"}, "rows[]": {"object"}, "rows[].a": {"number", "null"}, "rows[].b": {"string"},
        "ok": {"boolean"}, "none": {"array"},
    }  # fmt: skip


def test_a_key_with_another_name_or_type_is_a_difference() -> None:
    def files(answer: dict[str, object]) -> dict[str, str]:
        return {"json.txt": lines(described("status", [{"rows": [answer]}]))}

    renamed = difference(files({"name": "a"}), files({"label": "a"}))
    retyped = difference(files({"name": "a"}), files({"name": 1}))

    assert changes(renamed) == ["-    rows[].name: string", "+    rows[].label: string"]
    assert changes(retyped) == ["-    rows[].name: string", "+    rows[].name: number"]
    assert difference(files({"name": "a"}), files({"name": "b"})) == ""


def test_each_difference_is_told_as_lines_that_went_and_came(tmp_path: Path) -> None:
    before = {"some/a.txt": "name: string\nrows: number\n", "some/old.txt": "x\n"}
    after = {"some/a.txt": "name: string\nrows: null\n", "some/new.txt": "y\n"}
    record("some", before, tmp_path)

    same, told = difference(recorded("some", tmp_path), before), difference(recorded("some", tmp_path), after)

    assert same == ""
    assert changes(told) == ["-rows: number", "+rows: null", "+y", "-x"]


def changes(told: str) -> list[str]:
    return [line for line in told.splitlines() if line[0] in "+-" and line[:3] not in {"+++", "---"}]


def test_a_recording_replaces_the_one_before(tmp_path: Path) -> None:
    record("some", {"some/a.txt": "a\n", "some/b.txt": "b\n"}, tmp_path)
    record("other", {"other.txt": "o\n"}, tmp_path)

    told = record("some", {"some/b.txt": "c\n"}, tmp_path)

    assert recorded("some", tmp_path) == {"some/b.txt": "c\n"}
    assert recorded("other", tmp_path) == {"other.txt": "o\n"}
    assert "-a\n" in told
    assert "+c\n" in told
