"""States of events as the Python package ``eventsourcing`` stores them, made into JSON by its own mapper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pydantic_core import to_json

from journal.foreign.payloads import Decoder, Stored, text_of

_IN_MEMORY = "eventsourcing.popo"
_MARK = b'"_type_"'


class StateMapper(Protocol):
    """What is used of a mapper of that package."""

    transcoder: Any
    compressor: Any
    cipher: Any


class StateApplication(Protocol):
    """An application class of that package."""

    name: str

    def __call__(self, env: Mapping[str, str]) -> Any:
        """Make an application with these settings besides those of the process."""
        ...


def states(application: StateApplication | StateMapper, env: Mapping[str, str] | None = None) -> Decoder:
    """
    The decoder of an application's states: deciphered, unpacked and decoded as the application does it.

    Values that JSON does not know come as pydantic writes them: uuids, decimals and times as text. Rebuilds take it to
    other processes, where the application class makes its mapper again; a mapper cannot be taken there.

    Args:
        application: The application class, or a mapper (``application.mapper``). A class is asked for its mapper by an
            application in memory, which touches no database.
        env: Settings of the application that are not in the process's environment, such as ``CIPHER_KEY``.
    """
    return _States(application, env or {})


class _States:
    def __init__(self, application: StateApplication | StateMapper, env: Mapping[str, str]) -> None:
        self._made_of = application, env
        mapper: StateMapper = _mapper_of(application, env) if isinstance(application, type) else application  # type: ignore[assignment]
        self._transcoder, self._compressor, self._cipher = mapper.transcoder, mapper.compressor, mapper.cipher
        # JSON that marks no value is what decoding and encoding it again would make.
        self._is_json = type(mapper.transcoder).__name__ == "JSONTranscoder"

    def __call__(self, stored: Stored) -> str:
        state = stored.data.encode() if isinstance(stored.data, str) else stored.data
        if self._cipher is not None:
            state = self._cipher.decrypt(state)
        if self._compressor is not None:
            state = self._compressor.decompress(state)
        if self._is_json and _MARK not in state:
            return text_of(state)
        return to_json(self._transcoder.decode(state)).decode()

    def __reduce__(self) -> tuple[Any, ...]:
        if not isinstance(self._made_of[0], type):
            raise TypeError("it was made of a mapper; pass the application's class to states()")
        return _States, self._made_of


def _mapper_of(application: Any, env: Mapping[str, str]) -> StateMapper:
    # A setting with the application's name in front comes before one without.
    prefix = str(application.name).upper()
    in_memory = {"PERSISTENCE_MODULE": _IN_MEMORY, f"{prefix}_PERSISTENCE_MODULE": _IN_MEMORY}
    mapper: StateMapper = application(env={**env, **in_memory}).mapper
    return mapper
