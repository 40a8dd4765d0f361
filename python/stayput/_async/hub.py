"""Hub: the configured servers and the sessions on them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _core
from .._aio import wait
from .._build import build_hub, config_text, header_callbacks
from .._headers import HeaderCallback, HubCallbacks, SessionIdKeeper, StderrCallback
from .._scope import current, current_core
from .._types import Handlers, SessionInfo, CloseReport
from .calls import UNCHANGED, CallMethods, NotificationHandler, Unchanged
from .events import Events
from .run import Run, SubAgent
from .session import Session

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from ..langchain import Key


class Hub(CallMethods):
    """The configured servers and the sessions on them.

    A hub runs on its own thread, so any task, loop and thread can use and close it. Calls on the hub belong to the
    session of the current task.
    """

    def __init__(
        self,
        core: _core.Hub,
        handlers: Handlers,
        headers: HubCallbacks,
        name: str = "",
        shares_sessions: bool = False,
    ) -> None:
        """Use `from_config`."""
        self._hub = core
        self._handlers = handlers
        self._name = name
        self._headers = headers
        self._shares_sessions = shares_sessions

    @classmethod
    def from_config(
        cls,
        config: str | os.PathLike[str] | Mapping[str, Any],
        *,
        store: str | None = None,
        folders: str | os.PathLike[str] | None = None,
        lease: float | None = None,
        takeover_timeout: float | None = None,
        release_after: float | None = None,
        seal: str | Sequence[str] | None = None,
        idle: float | None = None,
        lifetime: float | None = None,
        processes: int | None = None,
        links: int | None = None,
        capacity_timeout: float | None = None,
        warm: Mapping[str, int] | None = None,
        handlers: Handlers | None = None,
        headers: HeaderCallback | None = None,
        on_stderr: StderrCallback | None = None,
    ) -> Hub:
        """Builds a hub with the servers of a file, or of a mapping of the same form: `mcpServers`, or VS Code's
        `servers`.

        `store`, such as `sqlite:sessions.db`, stores sessions so that another process can continue them; it also
        needs `folders`, where the key that encrypts secrets is kept, or this key as `seal`: 64 hexadecimal digits, or a list
        of keys of which the first one encrypts. Another process takes over the sessions of a killed one after `lease`
        seconds. A named session on HTTP servers is given up after `release_after` seconds without use, 1 by default, so
        that any process can go on with it; `math.inf` gives up none. `takeover_timeout` is the time to wait for a session
        that another process has; without it a session with a child process of another process is an error at once.
        Sessions expire after `idle` seconds without use, and after `lifetime` seconds in total.
        `processes` and `links` limit their number; at the limit a call waits up to `capacity_timeout` seconds.
        `warm`, such as `{"browser": 2}`, is the number of processes of a server that are started before a session
        needs them; it overrides `warm` in the configuration.
        `handlers` answer requests of servers. `headers` returns the headers of each request to an HTTP server, with or
        without `await`; each session has its own links then. `on_stderr` gets each line that a server's process writes to
        stderr, on a thread of the hub.

        >>> hub = Hub.from_config({"mcpServers": {"notes": {"command": "stayput", "args": ["demo-server"]}}})
        >>> hub.server_names
        ['notes']
        """
        settings = {
            "store": store,
            "folders": folders,
            "lease": lease,
            "takeover_timeout": takeover_timeout,
            "release_after": release_after,
            "seal": [seal] if isinstance(seal, str) else seal if seal is None else list(seal),
            "idle": idle,
            "lifetime": lifetime,
            "processes": processes,
            "links": links,
            "capacity_timeout": capacity_timeout,
            "warm": dict(warm or {}),
            "gateway": None,
        }
        handlers = handlers or {}
        core, callbacks = build_hub(config, settings, handlers, headers, on_stderr)
        return cls(core, handlers, callbacks, shares_sessions=store is not None)

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        token: str | None = None,
        handlers: Handlers | None = None,
        headers: HeaderCallback | None = None,
    ) -> Hub:
        """Returns a hub over a running gateway, `http://HOST:PORT`: the same methods, with the servers and sessions of the
        gateway. Processes that are connected to one gateway share sessions by name; a named session goes on when this
        process ends. `token` is a bearer token of the gateway.

        >>> Hub.connect("http://127.0.0.1:7337", token="of the gateway").server_names
        []
        """
        names = ["store", "folders", "lease", "takeover_timeout", "release_after", "seal", "idle", "lifetime", "processes"]
        names += ["links", "capacity_timeout", "warm"]
        settings: dict[str, Any] = {**dict.fromkeys(names), "gateway": (url, token)}
        core, callbacks = build_hub(None, settings, handlers or {}, headers)
        return cls(core, handlers or {}, callbacks, shares_sessions=True)

    def agent(self, name: str) -> Hub:
        """Returns the same hub for the agent of this name, which has its own namespace of session names."""
        hub = Hub(self._hub.agent(name), self._handlers, self._headers, name, self._shares_sessions)
        hub._copy_options(self)
        return hub

    def set_headers(self, headers: HeaderCallback) -> None:
        """Sets the headers of this agent's sessions, see `Hub.agent`. They override those of `from_config`, which must
        have got `headers`, too."""
        header_callbacks(self._headers).agents[self._name] = headers

    @property
    def warnings(self) -> list[str]:
        """Warnings about ignored entries of the configuration, as sentences."""
        return self._hub.warnings()

    @property
    def server_names(self) -> list[str]:
        """Names of all servers."""
        return self._hub.server_names()

    async def add_server(self, name: str, server: Mapping[str, Any]) -> list[str]:
        """Adds a server, as in the configuration file, or replaces the one of this name. The links of a replaced server
        are closed, and the sessions that used it get a `StateLostError`. Returns warnings about ignored settings.

        On the hub of an agent, see `Hub.agent`, only this agent has the server.

        >>> async def main():
        ...     async with notebook() as hub:
        ...         await hub.add_server("more", {"command": "stayput", "args": ["demo-server"]})
        ...         return hub.server_names, await hub.remove_server("more"), hub.server_names
        >>> asyncio.run(main())
        (['more', 'notes'], True, ['notes'])
        """
        warnings: list[str] = await wait(self._hub.add_server(name, *config_text(server)))
        return warnings

    async def remove_server(self, name: str) -> bool:
        """Removes a server and closes its links. Returns whether there was one."""
        removed: bool = await wait(self._hub.remove_server(name))
        return removed

    async def wait_ready(self, server: str, timeout: float = 60.0) -> None:
        """Waits until a server can be used, for at most `timeout` seconds."""
        await wait(self._hub.wait_ready(server, timeout))

    def session(self, name: str | None = None) -> Session:
        """Returns the session of this name, found or created at its first use; without a name, a new session.

        Inside `async with`, it is the session of the task: calls on the hub belong to it. Leaving the block releases a
        named session, so that the next request finds it again, and ends an unnamed one.

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
        """Finds the session of this name. Raises `UnknownSessionError` if there is none."""
        return Session(self, name, await wait(self._hub.find(name)))

    async def sessions(self) -> list[SessionInfo]:
        """Lists the live sessions: of this agent, or of all agents if this is the hub itself. In a store these are also the
        sessions of other processes; of a gateway, only those that this hub uses."""
        return [SessionInfo.from_native(values) for values in await wait(self._hub.sessions())]

    async def global_session(self, name: str) -> Session:
        """Creates a session under a name that every agent can find by `find_global`. Raises `NameTakenError` if it exists."""
        return Session(self, name, await wait(self._hub.global_session(name)))

    async def find_global(self, name: str) -> Session:
        """Finds a session that an agent created by `global_session`. Raises `UnknownSessionError` if there is none."""
        return Session(self, name, await wait(self._hub.find_global(name)))

    async def resume(self, ticket: str) -> Session:
        """Continues a session of another process, see `Session.ticket`."""
        core = await wait(self._hub.resume(ticket))
        name = SessionInfo.from_native(await wait(core.info())).name
        return Session(self, name, core)

    async def enable_default_session(
        self, *, idle: float = 7200.0, cleanup: bool = True, prefix: str = "auto_"
    ) -> Session:
        """Opens a default session: from now on it takes the calls that belong to no other session. Returns the existing
        one if there is one."""
        core = await wait(self._hub.enable_default_session(idle, cleanup, prefix))
        return Session(self, SessionInfo.from_native(await wait(core.info())).name, core)

    async def disable_default_session(self) -> None:
        """Ends the default session. From now on calls that belong to no session are errors."""
        await wait(self._hub.disable_default_session())

    @property
    def current(self) -> Session | None:
        """Session of the current task, if any."""
        core = self._hub.current(current_core())
        return None if core is None else Session(self, None, core)

    def run(self, *, keeper: SessionIdKeeper | None = None) -> Run:
        """Returns a run: all its calls, however deep, belong to one session, which is opened by the first call and ends
        with the run, also on an exception or cancellation. Inside a scope of this hub it joins that scope.

        Use it in `async with`, or as a decorator of a function, of which each call is then a run.

        With a `keeper` its sessions on HTTP servers go on after the run, and the next run with what the keeper has
        continues them.

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
        return Run(self, self._hub, None if keeper is None else lambda: self._headers.add_keeper(keeper))

    def isolated(self, *servers: str) -> SubAgent:
        """Returns a sub-agent with its own links to these servers, in whichever session, which end with it. Use it in
        `async with`, or as a decorator. Entering it raises `UnknownServerError` if there is no such server."""
        return SubAgent(self, self._hub, servers, "isolated")

    def denied(self, *servers: str) -> SubAgent:
        """Returns a sub-agent without access to these servers, in whichever session. Use it in `async with`, or as a
        decorator. Entering it raises `UnknownServerError` if there is no such server."""
        return SubAgent(self, self._hub, servers, "denied")

    def inherited(self, *servers: str) -> SubAgent:
        """Returns a sub-agent that uses its caller's links to these servers. This is the default; it only makes the choice
        explicit, and checks that the servers exist."""
        return SubAgent(self, self._hub, servers, "inherited")

    def events(self) -> Events:
        """Subscribes to the events of sessions, until the hub is closed."""
        return Events(self._hub.events())

    async def profile(self, server: str) -> str:
        """Returns the profile of a server as text: its handshake and lists. Another process that gets it by
        `set_profile` lists the tools without starting the server."""
        profile: str = await wait(self._hub.profile(server))
        return profile

    async def set_profile(self, server: str, profile: str) -> None:
        """Sets the profile of a server to a text from `profile`, of this process or another one."""
        await wait(self._hub.set_profile(server, profile))

    def with_options(
        self,
        *,
        timeout: float | None | Unchanged = UNCHANGED,
        restart_on_loss: bool | Unchanged = UNCHANGED,
        on_notification: NotificationHandler | None | Unchanged = UNCHANGED,
        meta: Mapping[str, Any] | None | Unchanged = UNCHANGED,
    ) -> Hub:
        """Returns the same hub with options for its calls and those of its sessions and agents: they fail after `timeout`
        seconds without an answer or progress, are repeated if state was lost before they ran, pass progress and log messages
        to `on_notification`, and have the members of `meta` in the `_meta` of their requests. Options that are not named stay
        as they are."""
        hub = Hub(self._hub, self._handlers, self._headers, self._name, self._shares_sessions)
        hub._take_options(self, timeout, restart_on_loss, on_notification, meta)
        return hub

    async def langchain_tools(
        self, server: str | None = None, *, key: Key | None = None, prefix: bool = False, handle_errors: bool = True
    ) -> list[BaseTool]:
        """Lists the tools of one server or of all for LangChain and LangGraph. Needs `stayput[langchain]`.

        With `key="thread_id"` each call belongs to the session that has the `thread_id` of its config as its name.
        Otherwise it belongs to the session of the task that listed the tools, or else of the task that calls them.
        `prefix` puts the name of the server before each name. A failure becomes a message for the model, or a
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

    async def close(self, timeout: float = 10.0) -> CloseReport:
        """Closes the hub within `timeout` seconds, and returns counts. Further use is an error. Sessions in memory end;
        named ones in a store are released."""
        return CloseReport(*await wait(self._hub.close(timeout)))

    async def __aenter__(self) -> Hub:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _session(self) -> _core.Session | None:
        return None

    def _active_handlers(self) -> Handlers:
        scope = current.get()
        if scope is not None and scope.handlers is not None and scope.core.hub_id == self._hub.id:
            return scope.handlers
        return self._handlers

    def __repr__(self) -> str:
        return f"<stayput.Hub {self._name or self._hub.id}>"
