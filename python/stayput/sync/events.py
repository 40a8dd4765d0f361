# Generated from `_async/events.py` by `derive_sync.py`; edit that file.
"""Events of sessions, and notifications of servers."""

from __future__ import annotations

import json
from typing import Any

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
        *first, (*ending, call) = values
        return Event(*first, *ending, *call)


class Notifications:
    """Subscription to what a server says outside of calls, see `Session.listen`. It ends with the link to the server."""

    def __init__(self, core: _core.Notifications) -> None:
        self._core = core

    def __iter__(self) -> Notifications:
        return self

    def __next__(self) -> dict[str, Any]:
        values = wait(self._core.next())
        if values is None:
            raise StopIteration
        method, params = values
        return {"method": method, "params": json.loads(params)}

    def close(self) -> None:
        """Ends the subscription."""
        wait(self._core.close())
