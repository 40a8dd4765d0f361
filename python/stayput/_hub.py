"""Hubs and sessions, for coroutines. `sync.py` is made from this file by `derive_sync.py`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import _core
from ._aio import Listener, decorated, wait, wait_all
from ._hubs import arguments, built
from ._scope import Entered, Scope, around, current
from ._types import Event, Handlers, Info, Prompt, Report, Resource, Status, Tool, ToolResult

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from .langchain import Key

__all__ = ["Events", "Hub", "Run", "Session", "Sub"]

F = TypeVar("F", bound=Callable[..., Any])
Hears = Callable[[dict[str, Any]], object]


class _Calls:
    """What can be asked of servers: on a session, or on a hub in the session of the task."""

    _hub: _core.Hub
    _handlers: Handlers
    _limit: float | None = None
    _again: bool = False
    _hears: Hears | None = None

    async def _session(self) -> _core.Session | None:
        raise NotImplementedError

    def _answering(self) -> Handlers:
        return self._handlers

    def _listener(self) -> Listener | None:
        handlers = self._answering()
        if handlers or self._hears is not None:
            return Listener(handlers, self._hears)
        return None

    async def call(self, server: str, tool: str, given: Mapping[str, Any] | None = None, /, **named: Any) -> ToolResult:
        """Calls a tool, with arguments by name or in a mapping. The call is made once, never twice; cancelled, it is
        cancelled on the server, too.

        >>> async def main():
        ...     async with notebook() as hub, hub.run():
        ...         await hub.call("notes", "note_add", text="buy milk")
        ...         return (await hub.call("notes", "note_list", {})).text
        >>> asyncio.run(main())
        '1. buy milk'
        """
        session = await self._session()
        options = (self._limit, self._again, self._hears is not None)
        op = self._hub.call(around(), session, (server, tool, arguments(given, named)), options)
        raw, after_loss = await wait(op, self._listener())
        return ToolResult(raw, after_loss)

    async def tools(self, server: str | None = None) -> list[Tool]:
        """The tools of a server, or of all of them. No server is started to list what is known already.

        >>> async def main():
        ...     async with notebook() as hub:
        ...         return [tool.name for tool in await hub.tools("notes")]
        >>> "note_add" in asyncio.run(main())
        True
        """
        session = await self._session()
        servers = self._hub.server_names() if server is None else [server]
        lists = await wait_all([self._hub.list(around(), session, name, "tools") for name in servers])
        return [Tool.of(name, raw) for name, raws in zip(servers, lists) for raw in raws]

    async def prompts(self, server: str) -> list[Prompt]:
        """The prompts of a server."""
        raws = await wait(self._hub.list(around(), await self._session(), server, "prompts"))
        return [Prompt.of(server, raw) for raw in raws]

    async def resources(self, server: str) -> list[Resource]:
        """The resources of a server."""
        raws = await wait(self._hub.list(around(), await self._session(), server, "resources"))
        return [Resource.of(server, raw) for raw in raws]

    async def resource_templates(self, server: str) -> list[Resource]:
        """The resource templates of a server."""
        raws = await wait(self._hub.list(around(), await self._session(), server, "templates"))
        return [Resource.of(server, raw) for raw in raws]

    async def prompt(
        self, server: str, name: str, given: Mapping[str, Any] | None = None, /, **named: Any
    ) -> ToolResult:
        """Gets a prompt; `data` of the result has the messages."""
        session = await self._session()
        op = self._hub.prompt(around(), session, (server, name), arguments(given, named))
        return ToolResult(await wait(op, self._listener()))

    async def read(self, server: str, uri: str) -> ToolResult:
        """Reads a resource; `data` of the result has the contents."""
        op = self._hub.read(around(), await self._session(), server, uri)
        return ToolResult(await wait(op, self._listener()))


class Hub(_Calls):
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
        from .langchain import as_tools

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


class Session(_Calls):
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

    async def open(self) -> Session:
        """Finds or makes it now, and not at its first use."""
        await self._session()
        return self

    async def _session(self) -> _core.Session:
        core = self._core
        if core is None:
            core = await wait(self._hub.session(self.name or ""))
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

    async def langchain_tools(
        self, server: str | None = None, *, prefix: bool = False, handle_errors: bool = True
    ) -> list[BaseTool]:
        """The tools of a server, or of all of them, for LangChain, bound to this session wherever they are called.
        See `Hub.langchain_tools`."""
        from .langchain import as_tools

        return as_tools(self, await self.tools(server), prefix=prefix, handle_errors=handle_errors)

    async def bind(self, server: str) -> Session:
        """Opens the link to a server ahead of the first call."""
        await wait((await self._session()).bind(server), self._listener())
        return self

    async def info(self) -> Info:
        """What is known of it."""
        return Info.of(await wait((await self._session()).info()))

    async def servers(self) -> list[str]:
        """The servers it has links to, or is opening."""
        return (await self._session()).servers()

    async def status(self, server: str) -> Status:
        """How a server stands in this session."""
        return Status(*(await self._session()).status(server))

    async def restart(self, server: str | None = None) -> None:
        """Ends the link to a server, or to all, and lets the next call begin anew, on the next generation."""
        await wait((await self._session()).restart(server))

    async def clear_cache(self) -> None:
        """Asks servers for their lists again."""
        (await self._session()).clear_cache()

    async def extend(self, idle: float) -> None:
        """Lets it live for `idle` seconds after its last use from now on."""
        await wait((await self._session()).extend(idle))

    async def ticket(self) -> str:
        """Lets go of the session, so that another process can go on with it by `Hub.resume`. A secret: whoever has it
        has the session. Here it is over."""
        ticket: str = await wait((await self._session()).ticket())
        return ticket

    async def end(self) -> None:
        """Ends it and everything behind it, and waits until nothing is left. Further use is an error."""
        await wait((await self._session()).end())

    async def __aenter__(self) -> Session:
        core = await self._session()
        self._entered.push(Scope(core.scope(around()), self._handlers or None), None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.pop()
        if self._ends and not self._entered and self._core is not None:
            await wait(self._core.end())

    def __repr__(self) -> str:
        return f"<stayput.Session {self.name or self.id}>"


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


class Events:
    """What happens to sessions, one after the other. Who does not read misses the oldest."""

    def __init__(self, core: _core.Events) -> None:
        self._core = core

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
        told = await wait(self._core.next())
        if told is None:
            raise StopAsyncIteration
        return Event(*told)
