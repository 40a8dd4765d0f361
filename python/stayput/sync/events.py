# Generated from `_async/events.py` by `derive_sync.py`; edit that file.
"""Events of sessions."""

from __future__ import annotations

from .. import _core
from .._blocking import wait
from .._types import Event


class Events:
    """Subscription to events of sessions. A slow reader misses the oldest ones."""

    def __init__(self, core: _core.Events) -> None:
        self._core = core

    def __iter__(self) -> Events:
        return self

    def __next__(self) -> Event:
        values = wait(self._core.next())
        if values is None:
            raise StopIteration
        *first, ending = values
        return Event(*first, *ending)
