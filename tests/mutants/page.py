"""The tables of docs/seeded-bugs.md, made of the bugs themselves."""

from __future__ import annotations

from collections.abc import Iterable

from tests.models.catalogue import models
from tests.mutants.catalogue import MUTANTS
from tests.mutants.layers import ROOT, Simulation
from tests.mutants.mutant import Layer, Mutant
from tests.mutants.summary import layers_of, package_of

PAGE = ROOT / "docs" / "seeded-bugs.md"
_BEGINS, _ENDS = "<!-- {}: made by python -m tests.mutants --page -->\n", "<!-- end -->"


def renewed(page: str) -> str:
    """The text of the page with its tables made again."""
    tables = (("packages", packages_table()), ("code", code_table()), ("models", models_table()))
    for name, table in tables:
        begins = _BEGINS.format(name)
        before, _, rest = page.partition(begins)
        page = f"{before}{begins}\n{table}\n\n{_ENDS}{rest.partition(_ENDS)[2]}"
    return page


def packages_table() -> str:
    """A line for each package: how many bugs there are in it, and how many of them each layer must find."""
    bugs = list(MUTANTS.values())
    layers = layers_of(layer.name for one in bugs for layer in one.found_by)
    found = {
        package: [one for one in bugs if package_of(one) == package] for package in map(package_of, bugs)
    }
    rows = (
        (
            f"`{package}`",
            str(len(own)),
            *(
                str(sum(any(by.name == layer for by in one.found_by) for one in own) or "")
                for layer in layers
            ),
        )
        for package, own in sorted(found.items())
    )
    return _table(("in", "bugs", *layers), rows)


def code_table() -> str:
    """A line for each bug of the code."""
    rows = (
        (f"`{one.name}`", _cell(one.wrong), _code(one), "; ".join(map(_layer, one.found_by)))
        for one in MUTANTS.values()
    )
    return _table(("bug", "what is wrong", "in", "found by"), rows)


def models_table() -> str:
    """A line for each wrong variant of a model."""
    rows = ((f"`{model.name}/{one.name}`", _cell(one.wrong)) for model in models() for one in model.mutants)
    return _table(("bug", "what is wrong"), rows)


def _code(one: Mutant) -> str:
    file, _, name = one.code.partition(": ")
    return f"`{name}` of `{file}`" if name else f"`{file}`"


def _layer(layer: Layer) -> str:
    if isinstance(layer, Simulation):
        where = f" of `{layer.arrangement}`" if layer.arrangement else ""
        return f"{layer.name} (within {layer.seeds} seeds{where})"
    return layer.name


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
