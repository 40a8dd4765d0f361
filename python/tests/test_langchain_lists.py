"""Tools from a stored list, tools of an agent, evicted and expired threads."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from conftest import Kit, wait_until
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool

import stayput
from stayput.langchain import ToolFailedError, as_tools


def thread(name: str) -> RunnableConfig:
    return {"configurable": {"thread_id": name}}


async def call_text(tool: BaseTool, config: RunnableConfig | None = None, **args: Any) -> str:
    return "".join(block["text"] for block in await tool.ainvoke(args, config))


def test_tools_from_a_stored_list(kit: Kit) -> None:
    """R136: no server is started before the first call; on a hub by thread, and on a session of a block."""

    async def listed() -> str:
        async with kit.hub() as hub:
            return json.dumps([{"server": tool.server, "raw": tool.raw} for tool in await hub.tools("counter")])

    async def main(text: str) -> None:
        stored = [stayput.Tool.from_json(it["server"], json.dumps(it["raw"])) for it in json.loads(text)]
        async with kit.hub() as hub:
            tools = {tool.name: tool for tool in as_tools(hub, stored, key="thread_id")}
            assert not kit.processes()
            assert [await call_text(tools["count"], thread("a")) for _ in range(2)] == ["1", "2"]
            async with hub.session() as session:
                bound = {tool.name: tool for tool in as_tools(session, stored)}
                assert await call_text(bound["count"]) == "1"
                assert len(kit.processes()) == 2
            assert len(kit.processes()) == 1, "its own ended with the block"

    asyncio.run(main(asyncio.run(listed())))


def test_tools_of_an_agent_end_with_it(kit: Kit) -> None:
    """R135, R137: each server has its own link, and all end in a `finally`."""

    async def main() -> None:
        async with kit.hub() as hub:
            ann = hub.agent("ann")
            await ann.add_server("own", kit.entry("--tool", "special"))
            session = ann.session()
            try:
                tools = {tool.name: tool for tool in await session.langchain_tools(prefix=True)}
                assert [await call_text(tools[f"{server}__count"]) for server in ["counter", "own", "own"]] == ["1", "1", "2"]
                assert "own__special" in tools and len(kit.processes()) == 2
            finally:
                await session.end()
            assert not kit.processes()
            assert not [tool for tool in await hub.langchain_tools(prefix=True) if tool.name.startswith("own__")]

    asyncio.run(main())


def test_longest_idle_thread_is_evicted(kit: Kit) -> None:
    """E35: at a limit of two, the third thread evicts the longest idle one, which gets a report."""

    async def main() -> None:
        async with kit.hub(processes=2) as hub:
            listed = await hub.langchain_tools(key="thread_id", handle_errors=False)
            count = next(tool for tool in listed if tool.name == "count")
            assert [await call_text(count, thread(name)) for name in ["a", "b", "a", "c"]] == ["1", "1", "2", "1"]
            assert len(kit.processes()) == 2
            assert await call_text(count, thread("a")) == "3", "it was used later than the other one"
            with pytest.raises(ToolFailedError) as lost:
                await call_text(count, thread("b"))
            assert isinstance(lost.value.__cause__, stayput.StateLostError)
            assert await call_text(count, thread("b")) == "1"

    asyncio.run(main())


def test_idle_thread_expires(kit: Kit) -> None:
    """E35: its process ends, and the thread starts with a fresh state."""

    async def main() -> None:
        async with kit.hub(idle=0.5) as hub:
            listed = await hub.langchain_tools(key="thread_id")
            count = next(tool for tool in listed if tool.name == "count")
            assert await call_text(count, thread("a")) == "1"
            await asyncio.to_thread(wait_until, lambda: not kit.processes(), "its process goes")
            with pytest.raises(stayput.UnknownSessionError):
                await hub.find("a")

    asyncio.run(main())
