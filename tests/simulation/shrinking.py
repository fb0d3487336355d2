"""The smallest plan that still fails."""

from __future__ import annotations

from tests.simulation.plan import smaller
from tests.simulation.world import Outcome, simulate

_TRIES = 300


def shrunk(failed: Outcome) -> Outcome:
    """
    Leave out of a plan what it does not need to fail, piece by piece.

    Args:
        failed: An outcome with a failure.

    Returns:
        That of the smallest plan that was found, with its trace.
    """
    best, tries = failed.plan, 0
    while tries < _TRIES:
        for plan in smaller(best):
            tries += 1
            if simulate(plan).failure is not None:
                best = plan
                break
            if tries >= _TRIES:
                break
        else:
            break
    return simulate(best, trace=True)
