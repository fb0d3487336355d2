"""The reader's machine and the model of it can come to the same, at every scope that both are explored at."""

from __future__ import annotations

import pytest

from journal import Position, WriterLockBacktracking
from tests.models.breadth_first import Lost
from tests.models.catalogue import Scope, models
from tests.models.explorer import Exploration, observed_by_the_model
from tests.models.spin import missing, printed
from tests.mutants.catalogue import MUTANTS

READER = next(model for model in models() if model.name == "reader")
needs_spin = pytest.mark.skipif(missing() is not None, reason=str(missing()))
slow = [pytest.mark.slow, pytest.mark.timeout(3600)]


@needs_spin
@pytest.mark.parametrize(
    ("writers", "ticks", "crashes", "prepared"),
    [
        pytest.param(1, 2, 0, 0, marks=slow),
        (1, 2, 1, 0),
        (1, 2, 0, 1),
        pytest.param(2, 1, 0, 0, marks=slow),
        pytest.param(2, 1, 1, 0, marks=slow),
        pytest.param(2, 1, 0, 1, marks=slow),
        pytest.param(2, 2, 0, 0, marks=slow),
    ],
)
def test_the_machine_and_its_model_come_to_the_same(
    writers: int, ticks: int, crashes: int, prepared: int
) -> None:
    sizes = (f"WRITERS={writers}", f"TICKS={ticks}", f"CRASHES={crashes}", f"PREPARED={prepared}")
    code = Exploration(writers, ticks, crashes=crashes, prepared=prepared)

    code.run()

    assert code.observed == observed_by_the_model(printed(READER, Scope("observed", sizes)))
    assert len(code.observed) > 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant", ["reader-bound-is-the-poll", "reader-forgets-writers", "reader-never-looks-back"]
)
def test_a_wrong_machine_loses_an_event(mutant: str) -> None:
    with MUTANTS[mutant].seeded(), pytest.raises(Lost):
        Exploration(1, 3).run()


class ReachesBackFurther(WriterLockBacktracking):
    """Loses nothing, and is not what the model is of."""

    def events_read(self, last: Position | None, *, full: bool) -> None:
        super().events_read(last, full=full)
        if not full:
            self._position = min(self._position, self._position.before(self._polled_at - 3 * self._margin))


@pytest.mark.slow
@needs_spin
def test_a_machine_that_is_right_in_another_way_is_told_from_the_model() -> None:
    code = Exploration(1, 2, machine=ReachesBackFurther)

    code.run()

    assert code.observed != observed_by_the_model(
        printed(READER, Scope("observed", ("WRITERS=1", "TICKS=2")))
    )
