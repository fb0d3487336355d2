"""All seeded bugs: those of the code, and those of its models."""

from __future__ import annotations

from tests.models.catalogue import models
from tests.mutants import (  # noqa: F401 - they register their mutants
    appending,
    auditing,
    deduplicating,
    grouping,
    looking_twice,
    matching,
    progressing,
    queueing,
    reading,
    running,
    running_elsewhere,
    running_inline,
    storing,
    webhooks,
)
from tests.mutants.layers import Spin
from tests.mutants.mutant import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant", "all_mutants"]


def all_mutants() -> list[Mutant]:
    """Those of the code, then those of the models."""
    modelled = [
        Mutant(
            f"{model.name}/{one.name}",
            one.wrong,
            f"tests/models/{model.name}.pml",
            (Spin(model.name, one.name),),
        )
        for model in models()
        for one in model.mutants
    ]
    return [*MUTANTS.values(), *modelled]
