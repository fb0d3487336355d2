"""Seeded bugs can be seeded, the page lists them, and the layers that must find them do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from journal import SliceRange
from journal.schema import installing
from journal.sql_files import sql_root
from projections.running import table_catalogue
from projections.terminal.output import Answer, counted
from tests.models.spin import missing
from tests.models.test_models import _names
from tests.mutants import __main__ as command
from tests.mutants.catalogue import MUTANTS, all_mutants
from tests.mutants.layers import ROOT, Pytest, Simulation, Spin
from tests.mutants.looking import Job, Look, Records
from tests.mutants.mutant import Mutant
from tests.mutants.page import PAGE, renewed
from tests.mutants.seeding import python, sql

EVERY = {one.name: one for one in all_mutants()}
BEFORE = "test_an_idle_reader_reads_nothing_again"
READING = "tests/property/test_backtracking_model.py"


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_bug_is_in_code_that_is_there_and_can_be_seeded(mutant: Mutant) -> None:
    file, _, name = mutant.code.partition(": ")

    assert mutant.found_by
    assert (ROOT / file).is_file()
    assert not name or name in _names(ROOT / file)
    read = installing._read
    with mutant.seeded():
        assert installing._read is read or mutant.in_schema  # nobody else uses that schema


def test_the_page_lists_all_of_them() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page == renewed(page), "run python -m tests.mutants --page"


def test_the_schema_is_installed_with_what_is_seeded_and_as_it_is_afterwards() -> None:
    file, right, wrong = "functions/offsets/save_offsets_v1.sql", "AND r.epoch = p_epoch", "AND TRUE"
    path: Path = sql_root() / file

    with sql(file, right, wrong):
        seeded = installing._read(path)

    assert seeded == path.read_text(encoding="utf-8").replace(right, wrong)
    assert installing._read(path) == path.read_text(encoding="utf-8")


def test_a_method_and_a_text_of_a_module_have_what_is_seeded() -> None:
    range_of = SliceRange(3, 7)

    with (
        python("journal/slices.py: SliceRange.__str__", "{self.min_slice}", "{self.max_slice}"),
        python("projections/running/table_catalogue.py: _UNIQUE_KEYS", "i.indisunique", "TRUE"),
    ):
        assert str(range_of) == "7-7"
        assert "i.indisunique" not in table_catalogue._UNIQUE_KEYS

    assert str(range_of) == "3-7"
    assert "i.indisunique" in table_catalogue._UNIQUE_KEYS


@pytest.mark.parametrize(
    ("gone", "where"),
    [
        (sql("functions/offsets/save_offsets_v1.sql", "nothing of it", ""), r"save_offsets_v1\.sql"),
        (python("journal/slices.py: slice_of", "nothing of it", ""), r"slices\.py: slice_of"),
    ],
)
def test_a_bug_in_text_that_is_not_there_any_more_cannot_be_seeded(
    gone: AbstractContextManager[None], where: str
) -> None:
    with pytest.raises(LookupError, match=f"{where} has 'nothing of it' 0 times, not once"), gone:
        pass


def test_a_function_has_what_is_seeded_wherever_it_was_imported_to_and_is_as_it_was_afterwards() -> None:
    code = "projections/terminal/output.py: counted"
    with python(code, 'f"1 {one}"', 'f"a {one}"'):
        assert counted(1, "range") == "a range"
    assert counted(1, "range") == "1 range"

    method = Answer(values={}, shown=["x"])
    with python("projections/terminal/output.py: Answer.__rich__", "self.shown", "()"):
        assert method.__rich__().renderables == []
    assert len(method.__rich__().renderables) == 1


@contextmanager
def registered(*mutants: Mutant) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "all_mutants", lambda: list(mutants))
        yield


@pytest.mark.timeout(600)
def test_the_command_tells_what_is_found_and_what_is_not(
    dsn: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forgets = MUTANTS["reader-forgets-writers"]
    blind = Pytest(f"{READING}::{BEFORE}")
    monkeypatch.setattr(command, "_server", lambda: _given(dsn))
    seen = Mutant(forgets.name, "is found", forgets.code, (Simulation(20),), forgets.seeded)
    unseen = Mutant("reader-never-looks-back", "is not found by this", forgets.code, (blind,), forgets.seeded)

    with registered(seen, unseen):
        code = command.main(["--json"])

    told = json.loads(capsys.readouterr().out)
    assert code == 1
    assert (told["mutants"], told["found"], told["fails_without_a_bug"]) == (2, 1, None)
    counted = {name: (one["found"], one["mutants"]) for name, one in told["layers"].items()}
    assert counted == {"simulation": (1, 1), "property tests": (0, 1)}
    assert told["packages"] == {"journal": told["layers"]}


@contextmanager
def _given(dsn: str) -> Iterator[str]:
    yield dsn


def test_a_run_goes_on_after_what_was_done_on_the_same_code(tmp_path: Path) -> None:
    done, other = (Job(one, one.found_by[0]) for one in list(MUTANTS.values())[:2])
    records = Records(tmp_path / "looks")
    records.add(Look(done, "seed 1", 2.5))
    records.add(Look(other, None, 1, "it was not able to look"))
    with (tmp_path / "looks").open("a", encoding="utf-8") as file:
        file.write('{"key": "killed as it w')

    assert Records(tmp_path / "looks").done([done, other]) == [Look(done, "seed 1", 2.5)]

    (tmp_path / "looks").write_text(
        (tmp_path / "looks").read_text(encoding="utf-8").replace('"commit": "', '"commit": "another')
    )
    assert Records(tmp_path / "looks").done([done, other]) == []


def test_no_two_looks_have_one_key() -> None:
    keys = [Job(one, layer).key for one in EVERY.values() for layer in one.found_by]

    assert len(keys) == len(set(keys))


def test_what_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "nothing"]) == 2
    assert "no bug nothing; there are appends-are-stamped-by-the-transaction, " in capsys.readouterr().err
    assert command.main(["--layer", "luck"]) == 2
    assert "no layer luck; there are integration tests, " in capsys.readouterr().err


@pytest.mark.slow
def test_tests_that_must_find_a_bug_are_daily() -> None:
    nodes = {
        node
        for one in MUTANTS.values()
        for layer in one.found_by
        if isinstance(layer, Pytest)
        for node in layer.nodes
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        *sorted(nodes),
    ]
    daily = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()

    assert {node for node in nodes if not any(test.startswith(node) for test in daily)} == set()


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_every_seeded_bug_is_found_by_each_of_its_layers(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        assert command.main([]) == 0


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_wrong_variants_of_models_are_among_them() -> None:
    one = next(one for name, one in EVERY.items() if name.startswith("inline/"))

    (layer,) = one.found_by
    assert isinstance(layer, Spin)
    assert layer.find(one, "") is not None
