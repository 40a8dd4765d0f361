"""Events of sessions."""

from __future__ import annotations

from .. import _core
from .._aio import wait
from .._types import Event


class Events:
    """Subscription to events of sessions. A slow reader misses the oldest ones."""

    def __init__(self, core: _core.Events) -> None:
        self._core = core

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
        values = await wait(self._core.next())
        if values is None:
            raise StopAsyncIteration
        *first, ending = values
        return Event(*first, *ending)
