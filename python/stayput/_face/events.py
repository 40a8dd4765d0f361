"""What happens to sessions."""

from __future__ import annotations

from .. import _core
from .._aio import wait
from .._types import Event


class Events:
    """What happens to sessions, one after the other. Who does not read misses the oldest."""

    def __init__(self, core: _core.Events) -> None:
        self._core = core

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
        told = await wait(self._core.next())
        if told is None:
            raise StopAsyncIteration
        return Event(*told)
