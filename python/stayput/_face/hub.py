"""The hub: servers, and the sessions on them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _core
from .._aio import wait
from .._hubs import built, entry
from .._scope import around, current
from .._types import Handlers, Info, Report
from .calls import Calls, Hears
from .events import Events
from .run import Run, Sub
from .session import Session

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from ..langchain import Key


class Hub(Calls):
    """The servers that are configured, and the sessions on them.

    Everything of it lives on a thread of its own, so it can be used from any task, loop and thread, and closed from
    any other one. What is called on it, and not on a session, belongs to the session of the task.
    """

    def __init__(self, core: _core.Hub, handlers: Handlers, name: str = "") -> None:
        """Use `from_config`."""
        self._hub = core
        self._handlers = handlers
        self._name = name

    @classmethod
    def from_config(
        cls,
        config: str | os.PathLike[str] | Mapping[str, Any],
        *,
        store: str | None = None,
        folders: str | os.PathLike[str] | None = None,
        idle: float | None = None,
        lifetime: float | None = None,
        processes: int | None = None,
        links: int | None = None,
        patience: float | None = None,
        handlers: Handlers | None = None,
    ) -> Hub:
        """A hub with the servers of a file, or of a mapping in its form: `mcpServers`, or VS Code's `servers`.

        `store`, such as `sqlite:sessions.db`, keeps sessions so that another process can go on with them; it needs
        `folders`, too. `idle` and `lifetime` are seconds after which sessions end. `processes` and `links` are how
        many there may be at once, and `patience` for how many seconds a call waits for a place. `handlers` answer what
        servers ask.

        >>> hub = Hub.from_config({"mcpServers": {"notes": {"command": "stayput", "args": ["demo-server"]}}})
        >>> hub.server_names
        ['notes']
        """
        settings = {
            "store": store,
            "folders": folders,
            "idle": idle,
            "lifetime": lifetime,
            "processes": processes,
            "links": links,
            "patience": patience,
        }
        handlers = handlers or {}
        return cls(built(config, settings, handlers), handlers)

    def agent(self, name: str) -> Hub:
        """The same hub for an agent of this name, which has session names of its own."""
        return Hub(self._hub.agent(name), self._handlers, name)

    @property
    def warnings(self) -> list[str]:
        """What was passed over in the configuration, as sentences."""
        return self._hub.warnings()

    @property
    def server_names(self) -> list[str]:
        """The names of all servers."""
        return self._hub.server_names()

    async def add_server(self, name: str, server: Mapping[str, Any]) -> list[str]:
        """Adds a server, written as in the file, or replaces the one of this name. What was open on that one is
        closed, and whoever used it is told of the loss. Says what was passed over, as sentences.

        Added to an agent, see `Hub.agent`, it is this agent's alone.

        >>> async def main():
        ...     async with notebook() as hub:
        ...         await hub.add_server("more", {"command": "stayput", "args": ["demo-server"]})
        ...         return hub.server_names, await hub.remove_server("more"), hub.server_names
        >>> asyncio.run(main())
        (['more', 'notes'], True, ['notes'])
        """
        warnings: list[str] = await wait(self._hub.add_server(name, *entry(server)))
        return warnings

    async def remove_server(self, name: str) -> bool:
        """Removes a server and closes what was open on it; for whoever uses it still, there is none. Says whether
        there was one."""
        removed: bool = await wait(self._hub.remove_server(name))
        return removed

    async def wait_ready(self, server: str, limit: float = 60.0) -> None:
        """Waits until a server can be used, for at most `limit` seconds."""
        await wait(self._hub.wait_ready(server, limit))

    def session(self, name: str | None = None) -> Session:
        """The session of this name, found or made at its first use; without a name, one of its own.

        Entered, it is that of the task: what is called on the hub belongs to it. Leaving releases a named session,
        so that the next request finds it again, and ends an unnamed one.

        >>> async def main():
        ...     async with notebook() as hub:
        ...         async with hub.session("chat-42") as chat:
        ...             await chat.call("notes", "note_add", text="buy milk")
        ...         async with hub.session("chat-42") as chat:
        ...             return (await chat.call("notes", "note_list")).text
        >>> asyncio.run(main())
        '1. buy milk'
        """
        if name is None:
            return Session(self, None, self._hub.ephemeral(), ends=True)
        return Session(self, name, None)

    async def find(self, name: str) -> Session:
        """The session of this name. `UnknownSession` if there is none."""
        return Session(self, name, await wait(self._hub.find(name)))

    async def global_session(self, name: str) -> Session:
        """Makes a session under a name that every agent can find by `find_global`. `NameTaken` if there is one."""
        return Session(self, name, await wait(self._hub.global_session(name)))

    async def find_global(self, name: str) -> Session:
        """The session that some agent made under this name for all. `UnknownSession` if there is none."""
        return Session(self, name, await wait(self._hub.find_global(name)))

    async def resume(self, ticket: str) -> Session:
        """Goes on with a session of another process, see `Session.ticket`."""
        core = await wait(self._hub.resume(ticket))
        name = Info.of(await wait(core.info())).name
        return Session(self, name, core)

    async def automatic(self, *, idle: float = 7200.0, cleanup: bool = True, prefix: str = "auto_") -> Session:
        """From now on calls that belong to no session belong to an automatic one. Asked for again, it is the same."""
        core = await wait(self._hub.automatic(idle, cleanup, prefix))
        return Session(self, Info.of(await wait(core.info())).name, core)

    async def manual(self) -> None:
        """Calls that belong to no session are errors again. The automatic session is ended."""
        await wait(self._hub.manual())

    @property
    def current(self) -> Session | None:
        """The session that this task belongs to, if any."""
        core = self._hub.current(around())
        return None if core is None else Session(self, None, core)

    def run(self) -> Run:
        """A run: what is called in it, however deep, belongs to one session, which is opened by the first call and
        ends with the run, however that ends. Inside a scope of this hub it joins that one.

        It is entered, or decorates a function, whose every call is a run then.

        >>> async def main():
        ...     hub = notebook()
        ...     @hub.run()
        ...     async def agent(note):
        ...         await hub.call("notes", "note_add", text=note)
        ...         return (await hub.call("notes", "note_list")).text
        ...     return [await agent("a"), await agent("b")]
        >>> asyncio.run(main())
        ['1. a', '1. b']
        """
        return Run(self, self._hub)

    def isolated(self, *servers: str) -> Sub:
        """A sub-agent with links of its own to these servers, which end with it. It is entered, or decorates a function."""
        return Sub(self, servers, denied=False)

    def denied(self, *servers: str) -> Sub:
        """A sub-agent without these servers. It is entered, or decorates a function."""
        return Sub(self, servers, denied=True)

    def events(self) -> Events:
        """What happens to sessions from now on, until the hub is closed."""
        return Events(self._hub.events())

    async def profile(self, server: str) -> str:
        """What is known of a server, as text: with it another process lists its tools without asking it."""
        profile: str = await wait(self._hub.profile(server))
        return profile

    async def remember(self, server: str, profile: str) -> None:
        """Believes what `profile` said, here or in another process."""
        await wait(self._hub.remember(server, profile))

    def with_options(
        self, *, timeout: float | None = None, restart_on_loss: bool = False, on_notification: Hears | None = None
    ) -> Hub:
        """The same hub, whose calls fail after `timeout` seconds without a word, are made once more if state is lost
        before they ran, and whose progress and log messages `on_notification` hears."""
        hub = Hub(self._hub, self._handlers, self._name)
        hub._limit, hub._again, hub._hears = timeout, restart_on_loss, on_notification
        return hub

    async def langchain_tools(
        self, server: str | None = None, *, key: Key | None = None, prefix: bool = False, handle_errors: bool = True
    ) -> list[BaseTool]:
        """The tools of a server, or of all of them, for LangChain and LangGraph. Needs `stayput[langchain]`.

        With `key="thread_id"` each call belongs to the session whose name is the `thread_id` in its config. Without,
        to the session of the task: that in which the tools were asked for, or else that in which they are called.
        `prefix` puts the name of the server before each name. What fails is told to the model, or raised as a
        `ToolException` without `handle_errors`.

        >>> async def main():
        ...     async with notebook() as hub:
        ...         tools = {tool.name: tool for tool in await hub.langchain_tools(key="thread_id")}
        ...         chat = {"configurable": {"thread_id": "chat-42"}}
        ...         await tools["note_add"].ainvoke({"text": "buy milk"}, chat)
        ...         return await tools["note_list"].ainvoke({}, chat)
        >>> asyncio.run(main())
        [{'type': 'text', 'text': '1. buy milk'}]
        """
        from ..langchain import as_tools

        return as_tools(self, await self.tools(server), key=key, prefix=prefix, handle_errors=handle_errors)

    async def close(self, limit: float = 10.0) -> Report:
        """Closes the hub: lets go of everything within `limit` seconds, and says what there was. Further use is an
        error. Sessions in memory end; named ones in a store are released."""
        return Report(*await wait(self._hub.close(limit)))

    async def __aenter__(self) -> Hub:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _session(self) -> _core.Session | None:
        return None

    def _answering(self) -> Handlers:
        scope = current.get()
        if scope is not None and scope.handlers is not None and scope.core.hub_id == self._hub.id:
            return scope.handlers
        return self._handlers

    def __repr__(self) -> str:
        return f"<stayput.Hub {self._name or self._hub.id}>"
