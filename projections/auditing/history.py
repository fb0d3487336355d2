"""
Compares what was committed with what was handled.

It knows sources, numbers and, where they are known, ids of events; nothing of journals, projections or databases. The
time is linear in the events. What is compared at one moment is a part of all sources, the rest waits in a temporary
file, so memory does not grow with the history, unless a single source has millions of events.
"""

from __future__ import annotations

import marshal
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeAlias, get_args
from zlib import crc32

from journal import ProjectionsError

Kind: TypeAlias = Literal["lost", "doubled", "out_of_order", "invented"]
_Passed: TypeAlias = Literal["waiting", "dropped"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_PARTS = 64
_BUFFERED = 1024
"""Records of a part that are in memory while the history is checked."""
_COMPARED = 500_000
"""More records than this are split again before they are compared."""
_SPLITS = 4
_IN_MEMORY = 8 << 20
"""Bytes, before a file on disk is made."""


class InvalidHistory(ProjectionsError):
    """What is said to be committed cannot be: a source has two events of one number."""


class Finding(NamedTuple):
    """
    One event that was not handled as it was committed.

    Args:
        kind: ``lost``: committed, never handled. ``doubled``: handled again. ``out_of_order``: handled for the first
            time after a later event of its source. ``invented``: handled, never committed; or another event was
            committed with this number.
        source_id: The source of the event.
        seq_nr: The number of the event there.
    """

    kind: Kind
    source_id: str
    seq_nr: int


@dataclass(slots=True)
class Audit:
    """
    What the comparison has found for one projection.

    Args:
        committed: Events that were committed.
        handled: How often an event was handled, repetitions included.
        waiting: Events that may still be on their way, of sources of which no later event was handled.
        dropped: Events that were handled, and that the journal no longer has.
        counts: Findings by kind; a kind that is not there was not found.
        examples: The first findings of each kind, at most as many as were asked for.
    """

    committed: int = 0
    handled: int = 0
    waiting: int = 0
    dropped: int = 0
    counts: Counter[Kind] = field(default_factory=Counter)
    examples: list[Finding] = field(default_factory=list)

    def clean(self, *, at_least_once: bool = False) -> bool:
        """Whether nothing was found; ``at_least_once``: but events that were handled again."""
        return not any(self.counts[kind] for kind in KINDS if not (at_least_once and kind == "doubled"))

    @property
    def values(self) -> dict[str, Any]:
        """All of it as JSON has it, with a count for each kind."""
        return {
            "committed": self.committed,
            "handled": self.handled,
            "waiting": self.waiting,
            "dropped": self.dropped,
            **{kind: self.counts[kind] for kind in KINDS},
            "examples": [found._asdict() for found in self.examples],
        }


class History:
    """
    Takes what was committed and what was handled, in any order between the two; then :meth:`audit` compares.

    Use it as a context manager, which removes its temporary files.

    Args:
        examples: How many findings of each kind and projection are kept.
    """

    def __init__(self, *, examples: int = 10) -> None:
        self._examples = examples
        self._committed = _Parts()
        self._handled = _Parts()
        self._projections: dict[str, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._committed.close()
        self._handled.close()

    def committed(
        self, source_id: str, seq_nr: int, event_id: str | None = None, *, recent: bool = False
    ) -> None:
        """
        Tell of an event that was committed, in any order.

        Args:
            source_id: Its source.
            seq_nr: Its number; numbers of a source may have gaps.
            event_id: Tells it from another event that had the same number, before the database went back in time.
            recent: It may still be on its way.
        """
        self._committed.add((source_id, seq_nr, event_id, recent))

    def existed(self, source_id: str, seq_nr: int) -> None:
        """Have a source's events up to a number count as committed, which come before the first that is reported."""
        self._committed.add((source_id, seq_nr, None, None))

    def expect(self, projection: str) -> None:
        """Have all that is committed count as lost for a projection of which nothing is known."""
        self._projections[projection] = None

    def handled(
        self, source_id: str, seq_nr: int, event_id: str | None = None, *, projection: str = ""
    ) -> None:
        """Tell of an event that a projection has handled, in the order in which it has handled those of a source."""
        self.expect(projection)
        self._handled.add((source_id, seq_nr, event_id, projection))

    def audit(self) -> Mapping[str, Audit]:
        """
        Compare.

        Returns:
            For each projection that was named, in that order, what was found.

        Raises:
            InvalidHistory: A source has two committed events of one number.
        """
        audits = {projection: Audit() for projection in self._projections}
        self._compare(self._committed, self._handled, audits, split=0)
        return audits

    def _compare(self, committed: _Parts, handled: _Parts, audits: Mapping[str, Audit], split: int) -> None:
        for part in range(_PARTS):
            size = committed.size(part) + handled.size(part)
            if size <= _COMPARED or split == _SPLITS:
                self._compare_part(committed.records(part), handled.records(part), audits)
                continue
            with ExitStack() as stack:
                finer = [
                    stack.enter_context(_Parts(split + 1, whole.records(part)))
                    for whole in (committed, handled)
                ]
                self._compare(finer[0], finer[1], audits, split + 1)

    def _compare_part(
        self, committed: Iterable[_Record], handled: Iterable[_Record], audits: Mapping[str, Audit]
    ) -> None:
        events: dict[str, _Source] = defaultdict(_Source)
        for source_id, seq_nr, event_id, recent in committed:
            if recent is None:
                events[source_id].existed = seq_nr
            else:
                events[source_id].commit(source_id, seq_nr, event_id, recent=recent)
        effects: dict[str, dict[str, list[_Effect]]] = {
            projection: defaultdict(list) for projection in audits
        }
        for source_id, seq_nr, event_id, projection in handled:
            effects[projection][source_id].append((seq_nr, event_id))
        for projection, audit in audits.items():
            found = effects[projection]
            for source_id in dict.fromkeys([*events, *found]):
                source = events.get(source_id) or _Source()
                audit.committed += len(source.ids)
                audit.handled += len(done := found.get(source_id, ()))
                for kind, seq_nr in source.compare(done):
                    if kind == "waiting":
                        audit.waiting += 1
                    elif kind == "dropped":
                        audit.dropped += 1
                    else:
                        audit.counts[kind] += 1
                        if audit.counts[kind] <= self._examples:
                            audit.examples.append(Finding(kind, source_id, seq_nr))


_Record: TypeAlias = tuple[str, int, str | None, Any]
_Effect: TypeAlias = tuple[int, str | None]


class _Source:
    """The committed events of a source."""

    __slots__ = ("existed", "ids", "recent")

    def __init__(self) -> None:
        self.existed: int | None = None
        self.ids: dict[int, str | None] = {}
        self.recent: set[int] = set()

    def commit(self, source_id: str, seq_nr: int, event_id: str | None, *, recent: bool) -> None:
        if seq_nr in self.ids:
            raise InvalidHistory(f"source {source_id!r} has two committed events of number {seq_nr}")
        self.ids[seq_nr] = event_id
        if recent:
            self.recent.add(seq_nr)

    def compare(self, effects: Sequence[_Effect]) -> Iterator[tuple[Kind | _Passed, int]]:
        """What differs, in the order of the effects; then what has none."""
        first = min(self.ids, default=None)
        seen: set[int] = set()
        last: int | None = None
        for seq_nr, event_id in effects:
            stored = seq_nr in self.ids
            if _differ(self.ids[seq_nr], event_id) if stored else not self._is_dropped(seq_nr, first):
                yield "invented", seq_nr
            elif seq_nr in seen:
                yield "doubled", seq_nr
            else:
                seen.add(seq_nr)
                if last is not None and seq_nr < last:
                    yield "out_of_order", seq_nr
                else:
                    last = seq_nr
                if not stored:
                    yield "dropped", seq_nr
        for seq_nr in sorted(self.ids.keys() - seen):
            waits = seq_nr in self.recent and (last is None or seq_nr > last)
            yield "waiting" if waits else "lost", seq_nr

    def _is_dropped(self, seq_nr: int, first: int | None) -> bool:
        return self.existed is not None and seq_nr <= self.existed and (first is None or seq_nr < first)


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


class _Parts:
    """Records by the hash of their source, in one temporary file."""

    def __init__(self, salt: int = 0, records: Iterable[_Record] = ()) -> None:
        self._salt = salt
        self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed with this
        self._buffers: list[list[_Record]] = [[] for _ in range(_PARTS)]
        self._places: list[list[tuple[int, int]]] = [[] for _ in range(_PARTS)]
        for record in records:
            self.add(record)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def add(self, record: _Record) -> None:
        part = crc32(record[0].encode(errors="surrogatepass"), self._salt) % _PARTS
        buffer = self._buffers[part]
        buffer.append(record)
        if len(buffer) == _BUFFERED:
            stored = marshal.dumps(buffer)
            self._places[part].append((self._file.tell(), len(stored)))
            self._file.write(stored)
            buffer.clear()

    def size(self, part: int) -> int:
        return _BUFFERED * len(self._places[part]) + len(self._buffers[part])

    def records(self, part: int) -> Iterator[_Record]:
        """Those of a part, in the order in which they were added; none is added meanwhile."""
        for place, length in self._places[part]:
            self._file.seek(place)
            yield from marshal.loads(self._file.read(length))  # noqa: S302 - written above
        yield from self._buffers[part]
