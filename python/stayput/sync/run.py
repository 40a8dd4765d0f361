# Generated from `_async/run.py` by `derive_sync.py`; edit that file.
"""Runs and sub-agents."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from .. import _core
from .._blocking import decorate, wait
from .._errors import InvalidInputError
from .._scope import Scope, ScopeStack, current, current_core
from .session import Session

if TYPE_CHECKING:
    from .hub import Hub

F = TypeVar("F", bound=Callable[..., Any])
Access = Literal["isolated", "inherited", "denied"]


class Run:
    """Run, see `Hub.run`. Entering it returns its session."""

    def __init__(self, hub: Hub, core: _core.Hub, add_keeper: Callable[[], int] | None = None) -> None:
        self._hub = hub
        self._core = core
        # Returns the number of the keeper of session ids. Each run has its own.
        self._add_keeper = add_keeper
        self._stack: ScopeStack[_core.Run] = ScopeStack()

    def __enter__(self) -> Session:
        keeper = None if self._add_keeper is None else self._add_keeper()
        run = self._core.begin_run(current_core(), keeper)
        handlers = None if (outer := current.get()) is None else outer.handlers
        self._stack.push(Scope(run.scope(), handlers), run)
        return Session(self._hub, None, self._core.current(current_core()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run = self._stack.pop()
        if run is not None:
            wait(run.finish())

    def __call__(self, function: F) -> F:
        return decorate(lambda: Run(self._hub, self._core, self._add_keeper), function)

    def __repr__(self) -> str:
        return f"<stayput.sync.Run of {self._hub!r}>"


class SubAgent:
    """Sub-agent with its own access to servers, see `Hub.isolated`, `Hub.inherited` and `Hub.denied`. Its rules hold in every session that
    it uses, in its own sub-agents, and outside any scope."""

    def __init__(self, hub: Hub, core: _core.Hub, servers: tuple[str, ...], access: Access) -> None:
        self._hub = hub
        self._core = core
        self._servers = servers
        self._access: Access = access
        self._stack: ScopeStack[list[_core.Scope]] = ScopeStack()

    def __enter__(self) -> None:
        if not self._servers:
            raise InvalidInputError("name the servers: a sub-agent without one would have access to all")
        outer = current.get()
        scopes, core = list[_core.Scope](), None if outer is None else outer.core
        for server in self._servers:
            wait(self._core.confirm_server(server))
        for server in self._servers:
            scopes.append(core := self._core.sub_agent(core, server, self._access))
        self._stack.push(Scope(scopes[-1], None if outer is None else outer.handlers), scopes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for scope in self._stack.pop() or []:
            # Ends its own links now, even if another task still has a copy of the context.
            scope.leave()

    def __call__(self, function: F) -> F:
        return decorate(lambda: SubAgent(self._hub, self._core, self._servers, self._access), function)

    def __repr__(self) -> str:
        servers = ", ".join(self._servers)
        return f"<stayput.sync.SubAgent of {self._hub!r}, {self._access}: {servers}>"
