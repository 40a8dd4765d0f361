# Made from `_face/events.py` by `derive_sync.py`; change that one.
"""What happens to sessions."""

from __future__ import annotations

from .. import _core
from .._blocking import wait
from .._types import Event


class Events:
    """What happens to sessions, one after the other. Who does not read misses the oldest."""

    def __init__(self, core: _core.Events) -> None:
        self._core = core

    def __iter__(self) -> Events:
        return self

    def __next__(self) -> Event:
        told = wait(self._core.next())
        if told is None:
            raise StopIteration
        return Event(*told)
