"""Access rules of sub-agents hold wherever they are set, and however a call names its session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from conftest import Kit, count
from langchain_core.tools import BaseTool, ToolException

import stayput
from stayput import sync
from stayput.langchain import SessionTool

PLACES = ["run", "session", "outside"]


@asynccontextmanager
async def entered(hub: stayput.Hub, place: str) -> AsyncIterator[None]:
    """Enters the scope in which a sub-agent is started."""
    if place == "run":
        async with hub.run():
            yield
    elif place == "session":
        async with hub.session("around"):
            yield
    else:
        yield


async def ways(hub: stayput.Hub) -> dict[str, Callable[[], Awaitable[int]]]:
    """Ways in which a sub-agent calls. The tools and the session were made outside of it."""
    chat = hub.session("chat")
    by_thread = await hub.langchain_tools(key="thread_id", handle_errors=False)
    of_session = await chat.langchain_tools(handle_errors=False)

    async def invoke(tools: list[BaseTool]) -> int:
        ours = [tool for tool in tools if isinstance(tool, SessionTool) and tool.server == "counter"]
        tool = next(tool for tool in ours if tool.tool == "count")
        try:
            found = await tool.ainvoke({}, {"configurable": {"thread_id": "thread-7"}})
        except ToolException as error:
            raise error.__cause__ or error
        return int(found[0]["text"])

    async def in_new_run() -> int:
        async with hub.run():
            return await count(hub)

    async def of_sub_agent() -> int:
        async def nested() -> int:
            async with hub.isolated("other"):
                return await count(hub)

        return await asyncio.create_task(nested())

    def without_await() -> int:
        blocking = sync.Hub(hub._hub, hub._handlers, hub._headers)  # pyright: ignore[reportPrivateUsage]
        return int(blocking.session("chat").call("counter", "count").text)

    return {
        "hub.call": lambda: count(hub),
        "session.call": lambda: count(chat),
        "session by name": lambda: count(hub.session("thread-7")),
        "LangChain tool by thread": lambda: invoke(by_thread),
        "LangChain tool of a session": lambda: invoke(of_session),
        "sub-agent": of_sub_agent,
        "run": in_new_run,
        "sync": lambda: asyncio.to_thread(without_await),
    }


def test_denied_server_is_never_reached(kit: Kit) -> None:
    """R009: {run, session, outside} × all ways to call × {right name, typo}."""

    async def main() -> None:
        # The second server starts nothing: no call is made to it.
        async with stayput.Hub.from_config(kit.config(other=kit.entry())) as hub:
            await hub.enable_default_session()
            for place in PLACES:
                for way, call in (await ways(hub)).items():
                    async with entered(hub, place):
                        with pytest.raises(stayput.AccessDeniedError, match="`counter` is denied"):
                            async with hub.denied("counter"):
                                await call()
                        with pytest.raises(stayput.UnknownServerError, match="conter"):
                            async with hub.denied("conter"):
                                pytest.fail(f"{place}, {way}: entered")
            with pytest.raises(stayput.InvalidInputError, match="name the servers"):
                async with hub.denied():
                    pytest.fail("entered")
            assert await running(kit) == [], "no call reached a server"

    asyncio.run(main())


async def running(kit: Kit) -> list[int]:
    """Processes that are left after those that were asked for lists are gone."""
    await asyncio.to_thread(kit.wait_until_gone)
    return kit.processes()


def test_isolated_sub_agent_never_uses_the_server_of_a_session(kit: Kit) -> None:
    """R009: it has its own server in every session."""

    async def main() -> None:
        async with stayput.Hub.from_config(kit.config(other=kit.entry())) as hub:
            await hub.enable_default_session()
            chats: list[stayput.Hub | stayput.Session] = [hub, *(hub.session(name) for name in ("chat", "around", "thread-7"))]
            # Each counter that a sub-agent could reach is ahead of a new one.
            for calls in chats:
                assert [await count(calls), await count(calls)] == [1, 2]
            for place in PLACES:
                for way, call in (await ways(hub)).items():
                    async with entered(hub, place), hub.isolated("counter"):
                        assert await call() == 1, f"{place}, {way}"
                    with pytest.raises(stayput.UnknownServerError):
                        async with hub.isolated("conter"):
                            pytest.fail(f"{place}, {way}: entered")
            for calls in chats:
                assert await count(calls) == 3, "its own counter went on"

    asyncio.run(main())


def test_tools_of_a_run_keep_the_rules_of_the_sub_agent_that_calls_them(kit: Kit) -> None:
    """R009, R092: the session is that of the tool, the rules are those of the caller."""

    async def main() -> None:
        async with kit.hub() as hub, hub.run():
            tools = {tool.name: tool for tool in await hub.langchain_tools(handle_errors=False)}
            await tools["count"].ainvoke({})
            async with hub.denied("counter"):
                with pytest.raises(ToolException, match="denied"):
                    await tools["count"].ainvoke({})
                assert await hub.tools() == [], "the others are listed"
            assert (await tools["count"].ainvoke({}))[0]["text"] == "2"

    asyncio.run(main())
