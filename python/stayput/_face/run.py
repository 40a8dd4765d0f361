"""Runs, and sub-agents in them."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _core
from .._aio import decorated, wait
from .._scope import Entered, Scope, around, current
from .session import Session

if TYPE_CHECKING:
    from .hub import Hub

F = TypeVar("F", bound=Callable[..., Any])


class Run:
    """A run, see `Hub.run`. Entered, it gives its session."""

    def __init__(self, hub: Hub, core: _core.Hub) -> None:
        self._hub = hub
        self._core = core
        self._entered: Entered[_core.Run] = Entered()

    async def __aenter__(self) -> Session:
        run = self._core.begin(around())
        handlers = None if (outer := current.get()) is None else outer.handlers
        self._entered.push(Scope(run.scope(), handlers), run)
        return Session(self._hub, None, self._core.current(around()))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run = self._entered.pop()
        if run is not None:
            await wait(run.finish())

    def __call__(self, function: F) -> F:
        return decorated(lambda: Run(self._hub, self._core), function)

    def __repr__(self) -> str:
        return f"<stayput.Run of {self._hub!r}>"


class Sub:
    """A sub-agent with rules of its own, see `Hub.isolated` and `Hub.denied`. Outside any scope there is nothing to
    share, and it changes nothing."""

    def __init__(self, hub: Hub, servers: tuple[str, ...], *, denied: bool) -> None:
        self._hub = hub
        self._servers = servers
        self._denied = denied
        self._entered: Entered[list[_core.Scope]] = Entered()

    async def __aenter__(self) -> None:
        outer = current.get()
        if outer is None:
            return
        scopes, core = list[_core.Scope](), outer.core
        for server in self._servers:
            made = core.denied(server) if self._denied else core.isolated(server)
            if made is not None:
                scopes.append(core := made)
        self._entered.push(Scope(core, outer.handlers), scopes)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for scope in self._entered.pop() or []:
            # Its own links end with it, not with whoever keeps its context.
            scope.leave()

    def __call__(self, function: F) -> F:
        return decorated(lambda: Sub(self._hub, self._servers, denied=self._denied), function)

    def __repr__(self) -> str:
        servers = ", ".join(self._servers)
        return f"<stayput.Sub of {self._hub!r}, {'denied' if self._denied else 'isolated'}: {servers}>"
