"""
JSON filters: which events are wanted, by what is in them.

    {"data": {"amount": {"$gte": 100}, "tags": ["urgent"]}, "$not": {"metadata": {"source": "test"}}}

A filter is matched against `{"id", "topic", "time", "metadata", "data"}`. All conditions of an object must hold.

| condition | holds if the value |
| --- | --- |
| a string, number, boolean or null | equals it |
| a list | is a list in which each of these conditions holds for some item |
| an object of fields | is an object whose fields hold |
| `$any` | fulfils this condition, or is a list of which an item does, at any depth |
| `$eq`, `$neq` | equals it as a whole, lists and objects too; or does not |
| `$gt`, `$gte`, `$lt`, `$lte` | is a number, or a string, and so compares |
| `$in`, `$nin` | is (is not) one of a list; of one value: is a string or list that contains it (does not) |
| `$startsWith`, `$endsWith` | is a string that does so; of a list: with any of it |
| `$exist` | is there, if true; is not there, if false |
| `$or`, `$and`, `$not` | fulfils any, all, not the condition; alongside fields and operators too |

Without operators this is containment as PostgreSQL's `jsonb` has it (`@>`), by which subscriptions are matched: the
same JSON has the same meaning for both, and a test compares them. Operators are for endpoints of webhooks alone.

Numbers compare exactly, whatever their size, and a boolean is not a number. A value of another type than its operator's
fulfils nothing, and so does one that is not there, except `$exist: false`; `$not` turns that around. Below `time`,
texts that are compared are times of RFC 3339, and compare as such. There are no regular expressions. What a filter
looks at in an event is counted and bounded (`filter_cost`).

The operators are those of Outpost's filters (https://hookdeck.com/docs/outpost/features/filter), except that misspelt
operators and fields are refused, that operators alongside fields, and `$not` within a field, do what they say, and that
what is in a list is asked for by a list or by `$any`.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from projections.interests.errors import InvalidFilter
from projections.interests.filter_cost import VALUE, Purse, budget, pay, size
from projections.interests.json_values import MISSING, holds, is_list, is_scalar, key, number, same, storable

DEEPEST = 10
MOST_OPERATORS = 100
LARGEST_BYTES = 16_384
_ANY = "$any"
FIELDS = ("id", "topic", "time", "metadata", "data")

_Predicate = Callable[[Any], bool]
_Compile = Callable[[Any, str], _Predicate]
_Walked = TypeVar("_Walked", list[Any], tuple[Any, ...], list[_Predicate], Mapping[str, Any])


@dataclass(frozen=True)
class Filter:
    """A filter, compiled; see `parse_filter`."""

    definition: Mapping[str, Any]
    _predicate: _Predicate = field(repr=False, compare=False)

    def matches(self, document: Mapping[str, Any], purse: Purse | None = None) -> bool:
        """
        Tell whether an event is wanted; FilterTooCostly: that takes more than is allowed, or is left in the purse.

        The document has `id`, `topic`, `time` (RFC 3339), `metadata` and `data`, as JSON is read. Numbers with a
        point stay exact if they were read by `json_values.read_json`. The purse is shared by the filters of all
        endpoints.
        """
        with budget(purse):
            try:
                return self._predicate(document)
            except RecursionError:  # lists nested a thousand deep, which no filter means
                return False


def parse_filter(definition: Mapping[str, Any]) -> Filter:
    """
    Check a filter, JSON as it was read, and compile it; an empty one matches every event.

    Raises:
        InvalidFilter: It is deeper than 10 levels, larger than 16 kB, has more than 100 operators, an unknown
            operator or field, or a value that its operator cannot compare with; the message has the path.
    """
    compiled = compile_filter(definition)
    # `default` for numbers that were read exactly.
    size = len(json.dumps(definition, ensure_ascii=False, default=str).encode())
    if size > LARGEST_BYTES:
        raise InvalidFilter(f"a filter has up to {LARGEST_BYTES} bytes as JSON, not {size}")
    return compiled


def compile_filter(definition: Mapping[str, Any]) -> Filter:
    """Compile a filter that is stored: it was checked, and an upgrade may have written it larger."""
    operators = _operators(definition, "filter", 1)
    if operators > MOST_OPERATORS:
        raise InvalidFilter(f"a filter has up to {MOST_OPERATORS} operators, not {operators}")
    return Filter(definition, _event(definition, "filter"))


def _wrong(path: str, what: str) -> InvalidFilter:
    return InvalidFilter(f"{path:.200}: {what}")


def _operators(value: object, path: str, depth: int) -> int:
    """Count operators; refuse what is too deep before anything else walks through it, and what is not JSON."""
    if not isinstance(value, Mapping | list | tuple):
        if not storable(value):
            raise _wrong(path, f"a {type(value).__name__} that cannot be stored as JSON")
        return 0
    if depth > DEEPEST:
        raise _wrong(path, f"a filter is up to {DEEPEST} levels deep")
    if not isinstance(value, Mapping):
        return sum(_operators(each, f"{path}[{place}]", depth + 1) for place, each in enumerate(value))
    for name in value:
        if not isinstance(name, str) or not storable(name):
            raise _wrong(path, f"{name!r:.100} cannot be the name of a field")
    return sum(
        # It adds nothing to what is looked at, and stands around conditions that an upgrade has written again.
        _operators(_once(each, path), f"{path}.{name}", depth)
        if name == _ANY
        else name.startswith("$") + _operators(each, f"{path}.{name}", depth + 1)
        for name, each in value.items()
    )


def _once(value: object, path: str) -> object:
    if isinstance(value, Mapping) and _ANY in value:
        raise _wrong(path, f"{_ANY} of {_ANY} says no more than one")
    return value


def _event(definition: object, path: str) -> _Predicate:
    """Compile a condition on a whole event."""
    if not isinstance(definition, Mapping):
        raise _wrong(path, f"must be an object, not {definition!r:.100}")
    predicates = [_joined(name, definition, path, _event) for name in definition if name in _JOINS]
    for name in definition:
        if name in FIELDS:
            language = _TIMES if name == "time" else _VALUES
            predicates.append(_fields({name: language.condition(definition[name], f"{path}.{name}")}))
        elif name not in _JOINS:
            raise _wrong(path, f"{name!r:.100} is not one of {', '.join((*FIELDS, *_JOINS))}")
    return _every(predicates)


class _Language:
    """
    Compiles conditions on values.

    Args:
        read: Makes of a value what is compared: of a text below `time`, a time.
        comparable: Tells whether values are compared with this at all.
        expected: What a value has to be, for messages.
    """

    def __init__(self, read: Callable[[Any], Any], comparable: Callable[[Any], bool], expected: str) -> None:
        self._read = read
        self._comparable = comparable
        self._expected = expected

    def condition(self, value: Any, path: str) -> _Predicate:
        """Compile any condition."""
        if isinstance(value, Mapping):
            return self._object(value, path)
        if is_list(value):
            return _each_in_list(
                [self.condition(each, f"{path}[{place}]") for place, each in enumerate(value)]
            )
        return self.equal(value, path)

    def any_of(self, value: Any, path: str) -> _Predicate:
        """Compile `$any`."""
        return _contained(self.condition(value, path))

    def _object(self, value: Mapping[str, Any], path: str) -> _Predicate:
        names = [name for name in value if not name.startswith("$")]
        operators = [name for name in value if name in _OPERATORS]
        for name in value:
            if name.startswith("$") and name not in _OPERATORS and name not in _JOINS:
                raise _wrong(
                    f"{path}.{name}", f"unknown operator; known are {', '.join((*_OPERATORS, *_JOINS))}"
                )
        if names and operators:
            raise _wrong(
                path, f"the operator {operators[0]} cannot be combined with the field {names[0]!r:.100}"
            )
        predicates = [_joined(name, value, path, self.condition) for name in value if name in _JOINS]
        predicates += [_OPERATORS[name](self, value[name], f"{path}.{name}") for name in operators]
        if names or not value:
            predicates.append(
                _fields({name: self.condition(value[name], f"{path}.{name}") for name in names})
            )
        return _every(predicates)

    def _operand(self, value: Any, path: str) -> Any:
        operand = self._read(value)
        if is_scalar(value) and not self._comparable(operand):
            raise _wrong(path, f"must be {self._expected}, not {value!r:.100}")
        return operand

    def equal(self, value: Any, path: str) -> _Predicate:
        """Compile `$eq`."""
        operand, read, weight = self._operand(value, path), self._read, _weight(value)
        if is_scalar(value):
            return lambda found: pay(_compared(found, weight)) and same(read(found), operand)
        return lambda found: pay(weight) and same(found, operand)

    def different(self, value: Any, path: str) -> _Predicate:
        """Compile `$neq`."""
        equal = self.equal(value, path)
        return lambda found: found is not MISSING and not equal(found)

    def ordered(self, value: Any, path: str, *, comparison: Callable[[Any, Any], bool]) -> _Predicate:
        """Compile `$gt` and its like."""
        if not isinstance(value, str) and number(value) is None:
            raise _wrong(path, f"must be a number or a string, not {value!r:.100}")
        operand, read, weight = self._operand(value, path), self._read, _weight(value)
        return lambda found: pay(_compared(found, weight)) and holds(comparison, read(found), operand)

    def member(self, value: Any, path: str, *, wanted: bool) -> _Predicate:
        """Compile `$in` and `$nin`."""
        if not is_list(value):
            if not is_scalar(value):
                raise _wrong(path, "must be a string, number, boolean or null, or a list of them")
            return _has(value, wanted)
        if not all(map(is_scalar, value)):
            raise _wrong(path, "must be a list of strings, numbers, booleans and nulls")
        read, weight = self._read, _weight(value)
        keys = frozenset(key(self._operand(each, f"{path}[{place}]")) for place, each in enumerate(value))
        return lambda found: (
            is_scalar(found) and pay(_compared(found, weight)) and (key(read(found)) in keys) is wanted
        )

    def affix(self, value: Any, path: str, *, test: Callable[[str, tuple[str, ...]], bool]) -> _Predicate:
        """Compile `$startsWith` and `$endsWith`."""
        affixes = tuple(value) if is_list(value) else (value,)
        if not all(isinstance(each, str) for each in affixes):
            raise _wrong(path, f"must be a string or a list of strings, not {value!r:.100}")
        weight = _weight(value)
        return lambda found: isinstance(found, str) and pay(weight) and test(found, affixes)

    def exists(self, value: Any, path: str) -> _Predicate:
        """Compile `$exist`."""
        if not isinstance(value, bool):
            raise _wrong(path, f"must be true or false, not {value!r:.100}")
        return lambda found: (found is not MISSING) is value


def _walked(several: _Walked) -> _Walked:
    """Give what is walked through, once it is paid for; all of it, also where the walk ends early."""
    pay(VALUE * len(several))
    return several


def _weight(value: object) -> int:
    """What it costs to look at all of a value."""
    if isinstance(value, Mapping):
        return VALUE + sum(len(name) + _weight(each) for name, each in value.items())
    return VALUE + (sum(map(_weight, value)) if isinstance(value, (list, tuple)) else size(value))


def _compared(found: object, weight: int) -> int:
    """What it costs to compare a value with operands of a weight; a text is looked at no further than they go."""
    return min(weight, size(found)) if isinstance(found, str) else size(found)


def _has(part: Any, wanted: bool) -> _Predicate:  # noqa: FBT001 - as in `member`
    """Compile whether a string or a list contains something; nothing else contains or lacks anything."""
    # `in` may take a time that grows with the product of both lengths; this does not.
    search = re.compile(re.escape(part)).search if isinstance(part, str) else None
    weight = _weight(part)

    def predicate(found: Any) -> bool:
        if isinstance(found, str):
            if search is None:
                return False
            pay(len(found))
            return (search(found) is not None) is wanted
        if not is_list(found):
            return False
        return any(pay(_compared(each, weight)) and same(each, part) for each in _walked(found)) is wanted

    return predicate


def _contained(condition: _Predicate) -> _Predicate:
    def predicate(found: Any) -> bool:
        return condition(found) or (is_list(found) and any(map(predicate, _walked(found))))

    return predicate


def _each_in_list(items: list[_Predicate]) -> _Predicate:
    return lambda found: is_list(found) and all(any(map(item, _walked(found))) for item in items)


def _fields(conditions: Mapping[str, _Predicate]) -> _Predicate:
    def predicate(found: Any) -> bool:
        if isinstance(found, dict) or isinstance(found, Mapping):  # noqa: SIM101 - the first is ten times as fast
            return all(condition(found.get(name, MISSING)) for name, condition in _walked(conditions).items())
        return False

    return predicate


def _every(predicates: list[_Predicate]) -> _Predicate:
    if len(predicates) == 1:
        return predicates[0]
    return lambda found: all(predicate(found) for predicate in _walked(predicates))


def _joined(name: str, value: Mapping[str, Any], path: str, compiled: _Compile) -> _Predicate:
    """Compile `$or`, `$and` or `$not`, of conditions on the same value."""
    under, path = value[name], f"{path}.{name}"
    if name == "$not":
        condition = compiled(under, path)
        return lambda found: not condition(found)
    if not is_list(under) or not under:
        raise _wrong(path, f"must be a list of conditions, not {under!r:.100}")
    conditions = [compiled(each, f"{path}[{place}]") for place, each in enumerate(under)]
    join = any if name == "$or" else all
    return lambda found: join(condition(found) for condition in _walked(conditions))


def _time(value: Any) -> Any:
    """Make a time of a text that is one; leave all else alone."""
    if not isinstance(value, str):
        return value
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return value
    return value if time.tzinfo is None else time


def _is_time(value: object) -> bool:
    return isinstance(value, datetime)


_VALUES = _Language(lambda value: value, is_scalar, "a value")
_TIMES = _Language(_time, _is_time, "a time of RFC 3339 with its zone, such as 2026-01-31T12:00:00Z")

_JOINS = ("$or", "$and", "$not")
_OPERATORS: dict[str, Callable[[_Language, Any, str], _Predicate]] = {
    "$eq": _Language.equal,
    "$neq": _Language.different,
    "$gt": partial(_Language.ordered, comparison=operator.gt),
    "$gte": partial(_Language.ordered, comparison=operator.ge),
    "$lt": partial(_Language.ordered, comparison=operator.lt),
    "$lte": partial(_Language.ordered, comparison=operator.le),
    "$in": partial(_Language.member, wanted=True),
    "$nin": partial(_Language.member, wanted=False),
    "$startsWith": partial(_Language.affix, test=str.startswith),
    "$endsWith": partial(_Language.affix, test=str.endswith),
    "$exist": _Language.exists,
    _ANY: _Language.any_of,
}
