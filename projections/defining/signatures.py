"""Signatures of handlers: how many parameters one has, and as which class its event is annotated."""

from __future__ import annotations

import inspect
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from projections.errors import InvalidHandler

_OF_GROUP = 3
"""Parameters of a handler of groups."""


def required_parameters(method: Any) -> int:
    """How many parameters a method has, with ``self``, that have no default."""
    return sum(p.default is p.empty for p in inspect.signature(method).parameters.values())


def check_annotation(method: Any, model: type[Any], what: str) -> None:
    """
    Refuse a method whose event is annotated as another class than the model that it is marked with.

    What is not annotated, or by a name that cannot be found here, is taken as it is.

    Args:
        method: The method.
        model: The payload model.
        what: What the mark says, for the message.

    Raises:
        InvalidHandler: The annotation is a class, or a union of classes, and does not have the model.
    """
    annotation = _resolved(method, model)
    if inspect.iscoroutinefunction(method) and required_parameters(method) == _OF_GROUP:
        (pair,) = get_args(annotation) or (None,)
        annotation = next(iter(get_args(pair)), None)
    several = get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)
    classes = tuple(one for one in several if one is not NoneType)
    if all(type(one) is type(model) for one in classes) and not issubclass(model, classes):
        annotated = " | ".join(one.__qualname__ for one in classes)
        raise InvalidHandler(
            f"{method.__qualname__} is marked to {what} {model.__qualname__}, and its event is annotated as "
            f"{annotated}: name the same class in both"
        )


def _resolved(method: Any, model: type[Any]) -> Any:
    """The annotation of the event, or of events; None if it cannot be found."""
    parameter = list(inspect.signature(method).parameters.values())[_place(method)]
    if parameter.annotation is parameter.empty:
        return None
    function = inspect.unwrap(method)
    # Names of a function's body are not to be seen from outside; the model's own one is most likely that.
    local = {model.__name__: model} if "<locals>" in function.__qualname__ else {}
    try:
        hints = get_type_hints(
            SimpleNamespace(__annotations__={"event": parameter.annotation}), function.__globals__, local
        )
    except Exception:  # noqa: BLE001 - whatever an annotation does when it is evaluated
        return None
    return hints["event"]


def _place(method: Any) -> int:
    """Of the event, or of events, among the parameters: after ``self``, and a session if there is one."""
    return 2 if inspect.iscoroutinefunction(method) else 1
