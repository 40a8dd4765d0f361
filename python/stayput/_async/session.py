"""Sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _core
from .._aio import wait
from .._build import header_callbacks, warn_in_worker
from .._headers import HeaderCallback, SessionIdKeeper
from .._scope import Scope, ScopeStack, current_core
from .._types import Handlers, SessionInfo, SessionStatus
from .calls import UNCHANGED, CallMethods, NotificationHandler, Unchanged
from .events import Notifications

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from .hub import Hub


class Session(CallMethods):
    """Session: all its calls reach the same live servers. Several tasks, loops and threads can use it."""

    def __init__(self, hub: Hub, name: str | None, core: _core.Session | None, *, ends: bool = False) -> None:
        """Use `Hub.session`."""
        self.hub = hub
        """Hub of the session."""
        self.name = name
        """Name, if it has one."""
        self._hub = hub._hub
        self._copy_options(hub)
        self._core = core
        self._ends = ends
        self._own_headers: HeaderCallback | None = None
        self._keeper: SessionIdKeeper | None = None
        self._stack: ScopeStack[None] = ScopeStack()

    async def open(self) -> Session:
        """Finds or creates the session now instead of at its first use."""
        await self._session()
        return self

    async def _session(self) -> _core.Session:
        core = self._core
        if core is None:
            if not self.hub._shares_sessions:
                warn_in_worker()
            core = await wait(self._hub.session(self.name or ""))
            # Of several concurrent first uses, the first stored session wins.
            self._core = core = self._core or core
            if self._handlers is not self.hub._handlers:
                core.set_handlers(list(self._handlers))
            if self._keeper is not None:
                core.set_keeper(self.hub._headers.add_keeper(self._keeper))
            if self._own_headers is not None:
                header_callbacks(self.hub._headers).sessions[core.id] = self._own_headers
        return core

    @property
    def id(self) -> str | None:
        """Id for logs. It is not a secret, and gives no access. `None` before the session is opened."""
        return None if self._core is None else self._core.id

    def with_handlers(self, handlers: Handlers) -> Session:
        """Sets the handlers of this session. The hub's handlers answer what these do not. Call it before the first
        call, because capabilities are declared at the handshake."""
        self._handlers = {**self.hub._handlers, **handlers}
        if self._core is not None:
            self._core.set_handlers(list(handlers))
        return self

    def with_headers(self, headers: HeaderCallback) -> Session:
        """Sets the headers of this session's requests to HTTP servers. They override those of the hub, which must have got
        `headers`, too. Call it again with a new token: the session goes on."""
        callbacks = header_callbacks(self.hub._headers)
        self._own_headers = headers
        if self._core is not None:
            callbacks.sessions[self._core.id] = headers
        return self

    def with_keeper(self, keeper: SessionIdKeeper) -> Session:
        """Keeps the ids of this session's sessions on HTTP servers with `keeper`, too. Call it before the first call. `end`
        clears them."""
        self._keeper = keeper
        if self._core is not None:
            self._core.set_keeper(self.hub._headers.add_keeper(keeper))
        return self

    async def listen(self, server: str, resources: Sequence[str] = ()) -> Notifications:
        """Subscribes to what a server says outside of calls: changed lists, log messages, and updates of these resources. Use
        it in `async for`. While it is open the session is in use; `close` ends it."""
        return Notifications(await wait((await self._session()).listen(server, list(resources))))

    def with_options(
        self,
        *,
        timeout: float | None | Unchanged = UNCHANGED,
        restart_on_loss: bool | Unchanged = UNCHANGED,
        on_notification: NotificationHandler | None | Unchanged = UNCHANGED,
        meta: Mapping[str, Any] | None | Unchanged = UNCHANGED,
    ) -> Session:
        """Returns the same session with options for its calls. See `Hub.with_options`."""
        session = Session(self.hub, self.name, self._core, ends=self._ends)
        session._take_options(self, timeout, restart_on_loss, on_notification, meta)
        session._own_headers = self._own_headers
        session._keeper = self._keeper
        return session

    async def langchain_tools(
        self, server: str | None = None, *, prefix: bool = False, handle_errors: bool = True
    ) -> list[BaseTool]:
        """Lists the tools of one server or of all for LangChain, bound to this session wherever they are called. See
        `Hub.langchain_tools`."""
        from ..langchain import as_tools

        return as_tools(self, await self.tools(server), prefix=prefix, handle_errors=handle_errors)

    async def bind(self, server: str) -> Session:
        """Opens the link to a server ahead of the first call."""
        await wait((await self._session()).bind(server), self._listener())
        return self

    async def info(self) -> SessionInfo:
        """Returns the details of the session."""
        return SessionInfo.from_native(await wait((await self._session()).info()))

    async def servers(self) -> list[str]:
        """Names of the servers to which it has a link, or is opening one."""
        return (await self._session()).servers()

    async def status(self, server: str) -> SessionStatus:
        """Returns the state of the link to a server."""
        return SessionStatus(*(await self._session()).status(server))

    async def restart(self, server: str | None = None) -> None:
        """Closes the link to one server or to all. A server starts again with a fresh state, on the next generation."""
        await wait((await self._session()).restart(server))

    async def clear_cache(self) -> None:
        """Clears the cached lists, so that the next list is fetched from the server."""
        (await self._session()).clear_cache()

    async def extend(self, idle: float) -> None:
        """Sets the time without use, in seconds, after which the session expires."""
        await wait((await self._session()).extend(idle))

    async def ticket(self, *, release: bool = True) -> str:
        """Releases the session, so that another process can continue it by `Hub.resume`. The ticket is a secret that
        gives access to the session. In this process the session is ended. With `release=False` it goes on here, too:
        both processes then use the same sessions on HTTP servers."""
        ticket: str = await wait((await self._session()).ticket(release))
        return ticket

    async def end(self) -> None:
        """Ends the session and its links, and waits until all are closed. Further use is an error."""
        core = await self._session()
        await wait(core.end())
        self.hub._headers.sessions.pop(core.id, None)

    async def __aenter__(self) -> Session:
        core = await self._session()
        self._stack.push(Scope(core.scope(current_core()), self._handlers or None), None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.pop()
        if self._ends and not self._stack and self._core is not None:
            await self.end()

    def __repr__(self) -> str:
        return f"<stayput.Session {self.name or self.id}>"
