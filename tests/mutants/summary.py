"""What all looks came to: by layer, and by the package that the bugs are in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any

from tests.models.spin import missing
from tests.mutants.looking import Look
from tests.mutants.mutant import Mutant

_ORDER = (
    "unit tests", "property tests", "explorer", "models", "differential test", "simulation", "integration tests",
)  # fmt: skip


def package_of(one: Mutant) -> str:
    """The package that a bug is in, such as ``projections.running``; of SQL and models the folder."""
    folder = PurePosixPath(one.code.partition(": ")[0]).parent
    return str(folder) if folder.parts[0] in {"sql", "tests"} else ".".join(folder.parts)


def layers_of(names: Iterable[str]) -> list[str]:
    """Names of layers, once each, the quickest first."""
    known = set(names)
    return [*(name for name in _ORDER if name in known), *sorted(known.difference(_ORDER))]


def summary(done: Sequence[Look], left_out: int) -> dict[str, Any]:
    """The numbers of all bugs, those of each layer and package, and what each look came to."""
    looks = [look for look in done if look.job.mutant is not None]
    names = {look.job.name for look in looks}
    missed = {look.job.name for look in looks if look.found is None}
    return {
        "mutants": len(names),
        "found": len(names - missed),
        "layers": {
            name: _counted([look for look in looks if look.job.layer.name == name])
            for name in layers_of(look.job.layer.name for look in looks)
        },
        "packages": _packages(looks),
        "left_out": left_out,
        "fails_without_a_bug": next((look.found for look in done if look.job.mutant is None and look.found), None),
        "cannot_tell": [look.job.key for look in done if look.broken is not None],
        "looks": [
            {
                "mutant": look.job.name, "layer": look.job.layer.name, "found": look.found,
                "seconds": round(look.seconds, 1),
            }
            for look in looks
        ],
    }  # fmt: skip


def _counted(looks: Sequence[Look]) -> dict[str, float]:
    return {
        "mutants": len(looks),
        "found": sum(look.found is not None for look in looks),
        "seconds": round(sum(look.seconds for look in looks), 1),
    }


def _packages(looks: Sequence[Look]) -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, dict[str, list[Look]]] = {}
    for look in looks:
        assert look.job.mutant is not None
        found.setdefault(package_of(look.job.mutant), {}).setdefault(look.job.layer.name, []).append(look)
    return {
        package: {layer: _counted(own) for layer, own in by_layer.items()}
        for package, by_layer in sorted(found.items())
    }


def told(numbers: dict[str, Any]) -> str:
    """The same for people."""
    lines = [_table(numbers), ""]
    if numbers["left_out"]:
        lines.append(f"{numbers['left_out']} of the models were left out: {missing()}")
    if numbers["fails_without_a_bug"] is not None:
        lines.append(f"FAILS WITHOUT A BUG: {numbers['fails_without_a_bug']}")
    lines += [f"CANNOT TELL: {key}" for key in numbers["cannot_tell"]]
    lines.append(f"{numbers['found']} of {numbers['mutants']} seeded bugs are found by each of their layers")
    return "\n".join(lines)


def _table(numbers: dict[str, Any]) -> str:
    """A row for each package: of each layer, how many bugs it has found of how many; and the seconds."""
    layers = list(numbers["layers"])
    rows = [["package", *layers, "seconds"]]
    for package, by_layer in {**numbers["packages"], "all": numbers["layers"]}.items():
        cells = [_cell(by_layer.get(layer)) for layer in layers]
        rows.append([package, *cells, f"{sum(one['seconds'] for one in by_layer.values()):.0f}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if n else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _cell(one: dict[str, float] | None) -> str:
    return f"{one['found']}/{one['mutants']}" if one else ""
