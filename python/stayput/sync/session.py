# Made from `_face/session.py` by `derive_sync.py`; change that one.
"""A session."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from .. import _core
from .._blocking import wait
from .._scope import Entered, Scope, around
from .._types import Handlers, Info, Status
from .calls import Calls, Hears

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from .hub import Hub


class Session(Calls):
    """A session: all its calls land on the same live servers. It can be used by several tasks, loops and threads."""

    def __init__(self, hub: Hub, name: str | None, core: _core.Session | None, *, ends: bool = False) -> None:
        """Use `Hub.session`."""
        self.hub = hub
        """The hub it is of."""
        self.name = name
        """Its name, if it has one."""
        self._hub = hub._hub
        self._handlers = hub._handlers
        self._core = core
        self._ends = ends
        self._entered: Entered[None] = Entered()

    def open(self) -> Session:
        """Finds or makes it now, and not at its first use."""
        self._session()
        return self

    def _session(self) -> _core.Session:
        core = self._core
        if core is None:
            core = wait(self._hub.session(self.name or ""))
            # Of several that are first, one is.
            self._core = core = self._core or core
            if self._handlers is not self.hub._handlers:
                core.set_handlers(list(self._handlers))
        return core

    @property
    def id(self) -> str | None:
        """Its id, for logs: no secret, and no way in. `None` before it was opened."""
        return None if self._core is None else self._core.id

    def with_handlers(self, handlers: Handlers) -> Session:
        """Lets these answer what servers ask in this session, and those of the hub what there is none for here. To
        be said before the first call."""
        self._handlers = {**self.hub._handlers, **handlers}
        if self._core is not None:
            self._core.set_handlers(list(handlers))
        return self

    def with_options(
        self, *, timeout: float | None = None, restart_on_loss: bool = False, on_notification: Hears | None = None
    ) -> Session:
        """The same session, whose calls have these options. See `Hub.with_options`."""
        session = Session(self.hub, self.name, self._core)
        session._handlers = self._handlers
        session._limit, session._again, session._hears = timeout, restart_on_loss, on_notification
        return session

    def langchain_tools(
        self, server: str | None = None, *, prefix: bool = False, handle_errors: bool = True
    ) -> list[BaseTool]:
        """The tools of a server, or of all of them, for LangChain, bound to this session wherever they are called.
        See `Hub.langchain_tools`."""
        from ..langchain import as_tools

        return as_tools(self, self.tools(server), prefix=prefix, handle_errors=handle_errors)

    def bind(self, server: str) -> Session:
        """Opens the link to a server ahead of the first call."""
        wait((self._session()).bind(server), self._listener())
        return self

    def info(self) -> Info:
        """What is known of it."""
        return Info.of(wait((self._session()).info()))

    def servers(self) -> list[str]:
        """The servers it has links to, or is opening."""
        return (self._session()).servers()

    def status(self, server: str) -> Status:
        """How a server stands in this session."""
        return Status(*(self._session()).status(server))

    def restart(self, server: str | None = None) -> None:
        """Ends the link to a server, or to all, and lets the next call begin anew, on the next generation."""
        wait((self._session()).restart(server))

    def clear_cache(self) -> None:
        """Asks servers for their lists again."""
        (self._session()).clear_cache()

    def extend(self, idle: float) -> None:
        """Lets it live for `idle` seconds after its last use from now on."""
        wait((self._session()).extend(idle))

    def ticket(self) -> str:
        """Lets go of the session, so that another process can go on with it by `Hub.resume`. A secret: whoever has it
        has the session. Here it is over."""
        ticket: str = wait((self._session()).ticket())
        return ticket

    def end(self) -> None:
        """Ends it and everything behind it, and waits until nothing is left. Further use is an error."""
        wait((self._session()).end())

    def __enter__(self) -> Session:
        core = self._session()
        self._entered.push(Scope(core.scope(around()), self._handlers or None), None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.pop()
        if self._ends and not self._entered and self._core is not None:
            wait(self._core.end())

    def __repr__(self) -> str:
        return f"<stayput.sync.Session {self.name or self.id}>"
