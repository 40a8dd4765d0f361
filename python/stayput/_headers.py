"""Headers of HTTP servers by callback. A thread of the hub runs the callbacks, because links send requests at any time."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from . import _core
from ._aio import wait

__all__ = ["HeaderCallback", "HeaderRequest"]


@dataclass(frozen=True)
class HeaderRequest:
    """Request to an HTTP server for which headers are needed."""

    server: str
    """Name of the server."""
    session: str | None
    """Id of the session. `None` when a server is asked for its lists before there is a session."""
    session_name: str | None
    """Name of the session, if it has one."""
    agent: str
    """Agent in whose namespace the name is; empty for the hub itself."""
    rejected: bool
    """Whether the server has just refused the previous headers with 401."""


HeaderCallback = Callable[[HeaderRequest], "Mapping[str, str] | Awaitable[Mapping[str, str]]"]
"""Returns the headers of a request, with or without `await`."""


class HeaderCallbacks:
    """Callbacks of a hub, of its agents and of its sessions. A later one overrides headers of the same name."""

    def __init__(self, hub: HeaderCallback) -> None:
        self._hub = hub
        self.agents: dict[str, HeaderCallback] = {}
        self.sessions: dict[str, HeaderCallback] = {}

    def start(self, requests: _core.HeaderRequests) -> None:
        """Starts the thread that runs the callbacks, on an event loop of its own."""
        threading.Thread(target=lambda: asyncio.run(self._serve(requests)), name="stayput-headers", daemon=True).start()

    async def _serve(self, requests: _core.HeaderRequests) -> None:
        tasks = set[asyncio.Task[None]]()
        request: _core.ServerRequest | None
        while (request := await wait(requests.next())) is not None:
            task = asyncio.create_task(self._answer(request))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _answer(self, request: _core.ServerRequest) -> None:
        try:
            asked = HeaderRequest(**json.loads(request.params))
            found = dict[str, str]()
            for callback in (self._hub, self.agents.get(asked.agent), self.sessions.get(asked.session or "")):
                if callback is not None:
                    headers = callback(asked)
                    found.update(await headers if inspect.isawaitable(headers) else headers)
            request.answer(json.dumps(found))
        except Exception as error:
            # Only the type, because a message may contain the token.
            request.refuse(f"the callback for `headers` raised {type(error).__name__}")
