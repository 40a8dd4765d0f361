"""Events of sessions, and notifications of servers."""

from __future__ import annotations

import json
from typing import Any

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
        *first, (*ending, call) = values
        return Event(*first, *ending, *call)


class Notifications:
    """Subscription to what a server says outside of calls, see `Session.listen`. It ends with the link to the server."""

    def __init__(self, core: _core.Notifications) -> None:
        self._core = core

    def __aiter__(self) -> Notifications:
        return self

    async def __anext__(self) -> dict[str, Any]:
        values = await wait(self._core.next())
        if values is None:
            raise StopAsyncIteration
        method, params = values
        return {"method": method, "params": json.loads(params)}

    async def close(self) -> None:
        """Ends the subscription."""
        await wait(self._core.close())
