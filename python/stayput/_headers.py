"""Callbacks of a hub: headers of HTTP servers, and stderr. A thread of the hub runs them, because links need them at any time."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from . import _core
from ._aio import wait

__all__ = ["HeaderCallback", "HeaderRequest", "KeptLink", "SessionIdKeeper", "StderrCallback", "StderrLine"]


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


@dataclass(frozen=True)
class StderrLine:
    """Line that a process of a server wrote to stderr."""

    server: str
    """Name of the server."""
    text: str
    """The line, without its line break and without the configured secrets."""


StderrCallback = Callable[[StderrLine], object]
"""Gets each line of stderr. It should return soon, because all callbacks of a hub share a thread."""


@dataclass(frozen=True)
class KeptLink:
    """Link whose session id is kept."""

    server: str
    """Name of the server."""
    session: str
    """Id of the session."""
    session_name: str | None
    """Name of the session, if it has one."""
    agent: str
    """Agent in whose namespace the name is; empty for the hub itself."""


class SessionIdKeeper(Protocol):
    """Keeps the session ids of HTTP servers in a place of your own, so that a later run goes on with them. The text is a
    secret. Each method may also be an `async def`."""

    def load(self, link: KeptLink, /) -> str | None | Awaitable[str | None]:
        """Returns the text that was saved for this link, if there is one."""
        ...

    def save(self, link: KeptLink, text: str, /) -> object:
        """Saves the text of a link that was opened. No call is sent before this returns."""
        ...

    def clear(self, link: KeptLink, /) -> object:
        """Removes the text: the server does not know the session any more, or it was ended."""
        ...


_logger = logging.getLogger("stayput.callbacks")


class HubCallbacks:
    """Callbacks of a hub: for headers, also of its agents and sessions, and for stderr. Of headers, a later callback overrides
    those of the same name."""

    def __init__(self, core: _core.Hub, headers: HeaderCallback | None, stderr: StderrCallback | None) -> None:
        self._core = core
        self._hub = headers
        self._stderr = stderr
        # Keepers by number, each until the native half has dropped it.
        self._keepers: dict[int, SessionIdKeeper] = {}
        self._numbers = itertools.count()
        self.agents: dict[str, HeaderCallback] = {}
        self.sessions: dict[str, HeaderCallback] = {}
        if headers is not None or stderr is not None:
            self._start()

    @property
    def has_headers(self) -> bool:
        """Whether the hub was built with `headers`."""
        return self._hub is not None

    def add_keeper(self, keeper: SessionIdKeeper) -> int:
        """Returns a number by which the native half asks for a keeper. The caller passes it on once."""
        self._start()
        number = next(self._numbers)
        self._keepers[number] = keeper
        return number

    def _start(self) -> None:
        """Starts the thread that runs the callbacks, on an event loop of its own, unless it runs."""
        requests = self._core.callback_requests()
        if requests is None:
            return
        threading.Thread(target=lambda: asyncio.run(self._serve(requests)), name="stayput-callbacks", daemon=True).start()

    async def _serve(self, requests: _core.CallbackRequests) -> None:
        tasks = set[asyncio.Task[None]]()
        request: _core.ServerRequest | None
        while (request := await wait(requests.next())) is not None:
            if request.kind == "stderr":
                self._pass_line(StderrLine(**json.loads(request.params)))
                continue
            if request.kind == "keeper_dropped":
                self._keepers.pop(json.loads(request.params)["keeper"], None)
                continue
            answering = self._keep(request) if request.kind == "keeper" else self._answer(request)
            task = asyncio.create_task(answering)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    def _pass_line(self, line: StderrLine) -> None:
        try:
            if self._stderr is not None:
                self._stderr(line)
        except Exception:
            _logger.exception("the callback for `on_stderr` failed")

    async def _keep(self, request: _core.ServerRequest) -> None:
        asked: dict[str, Any] = json.loads(request.params)
        try:
            keeper: object = self._keepers[int(asked["keeper"])]
            method: Any = getattr(keeper, asked["method"])
            texts: tuple[str, ...] = () if asked["text"] is None else (asked["text"],)
            given: Any = method(KeptLink(**asked["link"]), *texts)
            found: str | None = await given if inspect.isawaitable(given) else given
            request.answer(json.dumps(found if asked["method"] == "load" else None))
        except Exception as error:
            # Only the type, because a message may contain the text.
            request.refuse(f"`{asked['method']}` of the keeper raised {type(error).__name__}")

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
