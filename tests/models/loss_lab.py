"""
How other readers of a log lose an event, or wait, in the shortest schedules: ``python -m tests.models.loss_lab``.

Ours is explored completely in the same world, and must do neither.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.models.catalogue import Model, Scope, models
from tests.models.spin import Unfinished, explore, missing, shortest


def lab() -> Model:
    """The model with the readers that are compared."""
    return next(model for model in models() if model.readers)


def schedule(model: Model, reader: Scope) -> str:
    """The shortest schedule in which a reader loses an event, or waits, a numbered line for each step."""
    *steps, _ = shortest(model, reader)
    return "\n".join(f"{number:3}  {step}" for number, step in enumerate(steps, 1))


def report() -> Iterator[str]:
    """What there is to tell, a part for each reader; ours is the last."""
    model = lab()
    for reader in model.readers:
        yield f"{reader.name} {reader.wrong}\n{schedule(model, reader)}\n"
    for scope in model.scopes:
        found = explore(model, scope)
        told = (
            f"BROKEN: {found.why}"
            if found.errors
            else "no event is lost, and none waits for another's transaction"
        )
        yield f"{scope.name.upper()}: all {found.states:,} states of the same world ({' '.join(scope.sizes)}): {told}"


def main() -> int:
    """Run the command; returns its exit code."""
    if (why := missing()) is not None:
        print(f"the loss lab was not run: {why}", file=sys.stderr)
        return 2
    try:
        for part in report():
            print(part, flush=True)
    except (LookupError, Unfinished) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
