"""The models stand for code that is there, Spin explores them, and wrong variants of them are found."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from tests.models import __main__ as command
from tests.models.catalogue import FOLDER, Model, Scope, models
from tests.models.spin import Unfinished, explore, missing, shortest

ROOT = FOLDER.parent.parent
MODELS = {model.name: model for model in models()}
CODE = [(model.name, file, names) for model in MODELS.values() for file, names in model.code]
SMALLEST = Scope("smallest", ("WRITERS=1", "TICKS=1"))
needs_spin = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def _names(path: Path) -> set[str]:
    """Functions, classes and constants of a file of Python, methods as ``Class.method``."""
    found: set[str] = set()

    def visit(node: ast.AST, within: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(within + child.name)
                if isinstance(child, ast.ClassDef):
                    visit(child, f"{within}{child.name}.")
            elif isinstance(child, ast.Assign) and not within:
                found.update(one.id for one in child.targets if isinstance(one, ast.Name))

    visit(ast.parse(path.read_text(encoding="utf-8")), "")
    return found


@pytest.mark.parametrize(("model", "file", "names"), CODE, ids=[f"{model}-{file}" for model, file, _ in CODE])
def test_the_code_that_a_model_stands_for_is_there(model: str, file: str, names: tuple[str, ...]) -> None:
    path = ROOT / file

    assert path.is_file()
    if file.endswith(".py"):
        assert names
        assert set(names) <= _names(path)
    else:
        assert not names  # a file of SQL is one function


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_model_states_its_promise_its_scope_and_mutants_that_its_text_has(model: Model) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in [model.path, *FOLDER.glob("*.inc")])
    wrong = model.mutants + model.readers

    assert model.promise.endswith(".")
    assert model.code
    assert model.scopes
    assert all(one.wrong for one in wrong)
    assert {one.name for one in wrong} <= set(re.findall(r"MUTANT_(\w+)", text))


def test_no_mutant_is_left_out() -> None:
    texts = [path.read_text(encoding="utf-8") for path in [*FOLDER.glob("*.pml"), *FOLDER.glob("*.inc")]]
    listed = {one.name for model in MODELS.values() for one in model.mutants + model.readers}

    assert set(re.findall(r"MUTANT_(\w+)", "\n".join(texts))) == listed


@pytest.mark.slow
@needs_spin
def test_a_model_is_explored_completely() -> None:
    found = explore(MODELS["reader"], SMALLEST)

    assert found.states > 1000
    assert (found.errors, found.why) == (0, "")


@pytest.mark.slow
@needs_spin
def test_a_mutant_is_found_in_its_shortest_schedule() -> None:
    steps = shortest(MODELS["reader"], MODELS["reader"].wrong("UNLOCKS_BEFORE_IT_IS_VISIBLE"))

    assert steps[0] in {"writer 0: takes the append lock", "writer 1: takes the append lock"}
    assert steps[-1].startswith("broken: assertion violated")
    assert len(steps) < 30


@pytest.mark.slow
@needs_spin
def test_an_exploration_that_does_not_end_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.models.spin._DEPTH", 20)

    with pytest.raises(Unfinished, match="search depth too small"):
        explore(MODELS["reader"], SMALLEST)


@needs_spin
@pytest.mark.slow  # each of its steps is above
def test_the_command_tells_what_it_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = MODELS["reader"]
    mutant = reader.wrong("NO_BOUNDS")
    harmless = Scope("CALLED_WRONG_AND_IS_NOT", SMALLEST.sizes, "is right")
    small = Model("reader", reader.promise, reader.code, (SMALLEST,), (), (mutant, harmless), ())
    monkeypatch.setattr(command, "models", lambda: [small])

    code = command.main(["--json"])

    told = json.loads(capsys.readouterr().out)
    assert code == 1  # one of the two mutants is none
    assert (told["models"], told["errors"], told["mutants"], told["mutants_found"]) == (1, 0, 2, 1)
    assert told["states"] > 1000


def test_the_command_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")

    assert command.main([]) == 2
    assert "spin is not installed: apt-get install spin" in capsys.readouterr().err


@needs_spin
def test_a_model_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "nothing"]) == 1
    assert "no model nothing; there are" in capsys.readouterr().err


@needs_spin
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_all_models_at_all_scopes(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        assert command.main(["--large"]) == 0
