"""Tools of what was listed before, tools of an agent, and threads that there is no room or no time for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from conftest import Kit, until
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool

import stayput
from stayput.langchain import ToolFailed, as_tools


def thread(name: str) -> RunnableConfig:
    return {"configurable": {"thread_id": name}}


async def said(tool: BaseTool, config: RunnableConfig | None = None, **args: Any) -> str:
    return "".join(block["text"] for block in await tool.ainvoke(args, config))


def test_tools_of_what_was_stored(kit: Kit) -> None:
    """R136: made of a list that was kept elsewhere, with nobody asked and nothing started before the first call; on a hub
    by thread, and on a session that is there for a block."""

    async def listed() -> str:
        async with kit.hub() as hub:
            return json.dumps([{"server": tool.server, "raw": tool.raw} for tool in await hub.tools("counter")])

    async def main(text: str) -> None:
        stored = [stayput.Tool.from_json(it["server"], json.dumps(it["raw"])) for it in json.loads(text)]
        async with kit.hub() as hub:
            tools = {tool.name: tool for tool in as_tools(hub, stored, key="thread_id")}
            assert not kit.alive()
            assert [await said(tools["count"], thread("a")) for _ in range(2)] == ["1", "2"]
            async with hub.session() as session:
                bound = {tool.name: tool for tool in as_tools(session, stored)}
                assert await said(bound["count"]) == "1"
                assert len(kit.alive()) == 2
            assert len(kit.alive()) == 1, "its own ended with the block"

    asyncio.run(main(asyncio.run(listed())))


def test_tools_of_an_agent_go_with_it(kit: Kit) -> None:
    """R135, R137: an agent's tools, each server behind a link of its own, which all end in a `finally`."""

    async def main() -> None:
        async with kit.hub() as hub:
            ann = hub.agent("ann")
            await ann.add_server("own", kit.entry("--tool", "special"))
            session = ann.session()
            try:
                tools = {tool.name: tool for tool in await session.langchain_tools(prefix=True)}
                assert [await said(tools[f"{server}__count"]) for server in ["counter", "own", "own"]] == ["1", "1", "2"]
                assert "own__special" in tools and len(kit.alive()) == 2
            finally:
                await session.end()
            assert not kit.alive()
            assert not [tool for tool in await hub.langchain_tools(prefix=True) if tool.name.startswith("own__")]

    asyncio.run(main())


def test_the_thread_that_was_used_least_makes_room(kit: Kit) -> None:
    """E35: with room for two, the third thread takes the place of the one that was idle for the longest, which is told."""

    async def main() -> None:
        async with kit.hub(processes=2) as hub:
            listed = await hub.langchain_tools(key="thread_id", handle_errors=False)
            count = next(tool for tool in listed if tool.name == "count")
            assert [await said(count, thread(name)) for name in ["a", "b", "a", "c"]] == ["1", "1", "2", "1"]
            assert len(kit.alive()) == 2
            assert await said(count, thread("a")) == "3", "it was used later than the other one"
            with pytest.raises(ToolFailed) as lost:
                await said(count, thread("b"))
            assert isinstance(lost.value.__cause__, stayput.StateLost)
            assert await said(count, thread("b")) == "1"

    asyncio.run(main())


def test_a_thread_that_is_idle_for_its_time_ends(kit: Kit) -> None:
    """E35: its process goes, and the thread begins anew."""

    async def main() -> None:
        async with kit.hub(idle=0.5) as hub:
            listed = await hub.langchain_tools(key="thread_id")
            count = next(tool for tool in listed if tool.name == "count")
            assert await said(count, thread("a")) == "1"
            await asyncio.to_thread(until, lambda: not kit.alive(), "its process goes")
            with pytest.raises(stayput.UnknownSession):
                await hub.find("a")

    asyncio.run(main())
