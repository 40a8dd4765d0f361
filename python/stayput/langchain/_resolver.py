"""Resolution of the session that a tool call belongs to."""

# This module copies hubs and sessions with their private fields.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from langchain_core.runnables import RunnableConfig

from .. import _async, sync
from .._errors import NoSessionError
from .._scope import Scope, current

Key = str | Callable[[RunnableConfig], str | None]
"""Source of the session name: a key of `configurable`, such as `thread_id`, or a function of the config."""

AnyHub = _async.Hub | sync.Hub
AnySession = _async.Session | sync.Session
AnyCalls = AnyHub | AnySession
_C = TypeVar("_C", _async.Hub, sync.Hub, _async.Session, sync.Session)


class SessionResolver:
    """Resolves the session of each tool call: a fixed session, else the one that the config of the call names, else that
    of the task, else a fallback. It works with and without `await`."""

    def __init__(self, calls: AnyCalls, key: Key | None = None, fallback: _async.Session | None = None) -> None:
        self._key = key
        self._scope: Scope | None = None
        self._hubs = _both_hubs(calls if isinstance(calls, (_async.Hub, sync.Hub)) else calls.hub)
        session: AnySession | None = None
        if isinstance(calls, (_async.Session, sync.Session)):
            session = calls
        elif key is None and fallback is None:
            # Tools that are created inside a scope stay in it, also where context variables are not propagated.
            self._scope = _own_scope(calls, current.get())
            session = calls.current if self._scope is None else None
        self._sessions = None if session is None else self._both_sessions(session)
        self._fallback = None if fallback is None else self._both_sessions(fallback)

    def __deepcopy__(self, memo: object) -> SessionResolver:
        # A copy of a tool uses the same session.
        return self

    def _both_sessions(self, session: AnySession) -> tuple[_async.Session, sync.Session]:
        async_hub, sync_hub = self._hubs
        return (
            _copy_options(session, _async.Session(async_hub, session.name, session._core)),
            _copy_options(session, sync.Session(sync_hub, session.name, session._core)),
        )

    def async_target(self, config: RunnableConfig | None) -> _async.Hub | _async.Session:
        """Returns the hub or session for a call with `await`."""
        if self._sessions is not None:
            return self._sessions[0]
        hub, name = self._hubs[0], self._name(config)
        if name is not None:
            return hub.session(name)
        return self._fallback[0] if self._fallback is not None and hub.current is None else hub

    def sync_target(self, config: RunnableConfig | None) -> sync.Hub | sync.Session:
        """Returns the hub or session for a call without `await`."""
        if self._sessions is not None:
            return self._sessions[1]
        hub, name = self._hubs[1], self._name(config)
        if name is not None:
            return hub.session(name)
        return self._fallback[1] if self._fallback is not None and hub.current is None else hub

    @contextmanager
    def scope(self) -> Generator[None, None, None]:
        """Enters the scope of a call."""
        token = None if self._scope is None else current.set(_called_here(self._scope))
        try:
            yield
        except NoSessionError as error:
            raise self._explain(error) from None
        finally:
            if token is not None:
                current.reset(token)

    def _name(self, config: RunnableConfig | None) -> str | None:
        if self._key is None or config is None:
            return None
        if callable(self._key):
            name = self._key(config)
        else:
            name = config.get("configurable", {}).get(self._key)
        # An empty name counts as none, so that callers without a name do not share a session.
        return None if name is None or str(name) == "" else str(name)

    def _explain(self, error: NoSessionError) -> NoSessionError:
        if self._key is None:
            message = f'{error}; or get the tools by `langchain_tools(key="thread_id")`'
        elif callable(self._key):
            message = "this call belongs to no session: its config names none, and it is in no scope"
        else:
            message = (
                f"this call belongs to no session: give it one by "
                f'`config={{"configurable": {{"{self._key}": …}}}}`, or make it inside `hub.run()`'
            )
        return NoSessionError(message, kind=error.kind)


def _own_scope(hub: AnyHub, scope: Scope | None) -> Scope | None:
    own = scope is not None and scope.core.has_session and scope.core.hub_id == hub._hub.id
    return scope if own else None


def _called_here(bound: Scope) -> Scope:
    """Returns the scope of a tool with the access rules of the task that calls it, which may be a sub-agent."""
    caller = current.get()
    return bound if caller is None else Scope(bound.core.called_in(caller.core), bound.handlers)


def _both_hubs(hub: AnyHub) -> tuple[_async.Hub, sync.Hub]:
    """Returns the same hub with and without `await`."""
    arguments = hub._hub, hub._handlers, hub._headers, hub._name, hub._shares_sessions
    return _copy_options(hub, _async.Hub(*arguments)), _copy_options(hub, sync.Hub(*arguments))


def _copy_options(source: AnyCalls, target: _C) -> _C:
    """Copies handlers and options from `source` to `target`."""
    target._copy_options(source)
    return target
