"""Which session a call of a tool belongs to."""

# Hubs and sessions are friends of whoever makes them anew.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from langchain_core.runnables import RunnableConfig

from .. import _face, sync
from .._errors import NoSession
from .._scope import Scope, current

Key = str | Callable[[RunnableConfig], str | None]
"""What of the config names the session: a key of `configurable`, such as `thread_id`, or a function of the config."""

AnyHub = _face.Hub | sync.Hub
AnySession = _face.Session | sync.Session
AnyCalls = AnyHub | AnySession
_C = TypeVar("_C", _face.Hub, sync.Hub, _face.Session, sync.Session)


class Place:
    """Where the calls of some tools go: to one session; or to that which the config of each call names; or to that of
    the task; or, where there is none, to a spare one. It can be used with and without `await`."""

    def __init__(self, calls: AnyCalls, key: Key | None = None, spare: _face.Session | None = None) -> None:
        self._key = key
        self._scope: Scope | None = None
        self._hubs = _both(calls if isinstance(calls, (_face.Hub, sync.Hub)) else calls.hub)
        session: AnySession | None = None
        if isinstance(calls, (_face.Session, sync.Session)):
            session = calls
        elif key is None and spare is None:
            # Whoever asks for tools inside a scope wants those of the scope, also where contexts do not follow.
            self._scope = _own(calls, current.get())
            session = calls.current if self._scope is None else None
        self._sessions = None if session is None else self._twins(session)
        self._spares = None if spare is None else self._twins(spare)

    def __deepcopy__(self, memo: object) -> Place:
        # Who copies a tool wants another description, not another session.
        return self

    def _twins(self, session: AnySession) -> tuple[_face.Session, sync.Session]:
        waiting, blocking = self._hubs
        return (
            _like(session, _face.Session(waiting, session.name, session._core)),
            _like(session, sync.Session(blocking, session.name, session._core)),
        )

    def waiting(self, config: RunnableConfig | None) -> _face.Hub | _face.Session:
        """Who is called with `await`."""
        if self._sessions is not None:
            return self._sessions[0]
        hub, name = self._hubs[0], self._name(config)
        if name is not None:
            return _like(hub, hub.session(name))
        return self._spares[0] if self._spares is not None and hub.current is None else hub

    def blocking(self, config: RunnableConfig | None) -> sync.Hub | sync.Session:
        """Who is called without."""
        if self._sessions is not None:
            return self._sessions[1]
        hub, name = self._hubs[1], self._name(config)
        if name is not None:
            return _like(hub, hub.session(name))
        return self._spares[1] if self._spares is not None and hub.current is None else hub

    @contextmanager
    def around(self) -> Generator[None, None, None]:
        """What a call is made in."""
        token = None if self._scope is None else current.set(self._scope)
        try:
            yield
        except NoSession as error:
            raise self._explained(error) from None
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
        # Whoever has an empty name has none: they would all meet in one session.
        return None if name is None or str(name) == "" else str(name)

    def _explained(self, error: NoSession) -> NoSession:
        if self._key is None:
            said = f'{error}; or get the tools by `langchain_tools(key="thread_id")`'
        elif callable(self._key):
            said = "this call belongs to no session: its config names none, and there is none around"
        else:
            said = (
                f"this call belongs to no session: give it one by "
                f'`config={{"configurable": {{"{self._key}": …}}}}`, or make it inside `hub.run()`'
            )
        return NoSession(said, kind=error.kind)


def _own(hub: AnyHub, scope: Scope | None) -> Scope | None:
    return scope if scope is not None and scope.core.hub_id == hub._hub.id else None


def _both(hub: AnyHub) -> tuple[_face.Hub, sync.Hub]:
    """The same hub with and without `await`."""
    core, handlers, name = hub._hub, hub._handlers, hub._name
    return _like(hub, _face.Hub(core, handlers, name)), _like(hub, sync.Hub(core, handlers, name))


def _like(that: AnyCalls, it: _C) -> _C:
    """The same with the options of that one."""
    it._handlers = that._handlers
    it._limit, it._again, it._hears = that._limit, that._again, that._hears
    return it
