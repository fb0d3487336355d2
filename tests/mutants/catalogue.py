"""All seeded bugs: those of the code, and those of its models."""

from __future__ import annotations

from tests.models.catalogue import models
from tests.mutants import (  # noqa: F401 - they register their mutants
    appending,
    archiving,
    auditing,
    capturing,
    commands,
    connecting,
    deduplicating,
    foreign_payloads,
    grouping,
    installing,
    keeping,
    looking_twice,
    matching,
    monitoring,
    progressing,
    queueing,
    read_models,
    reading,
    rebuilding,
    running,
    running_elsewhere,
    running_inline,
    storing,
    streaming,
    subscribing,
    table_handlers,
    values,
    versions,
    waiting,
    webhooks,
    webhooks_addresses,
    webhooks_api,
    webhooks_log,
    webhooks_page,
    webhooks_shares,
    webhooks_signing,
    whole_pages,
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
