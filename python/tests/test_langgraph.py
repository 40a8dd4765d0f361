"""LangGraph agents: one session per thread, across turns, requests, loops and processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from agents import Agent, Step, agent, message_text, thread_config, turn, user_message
from conftest import TEST_TIMEOUT, Kit, program, wait_for_call, wait_for_cancel
from langchain_core.messages import ToolMessage
from web import web

import stayput
from stayput import sync


def test_each_thread_has_a_session_across_turns_and_loops(kit: Kit) -> None:
    """R037, E21, E35: also parallel calls of a `ToolNode`; another loop continues the session."""
    hub = sync.Hub.from_config(kit.config())
    graph = agent(hub.langchain_tools(key="thread_id"))

    async def first() -> list[str]:
        tea, milk = ("note_add", {"text": "tea"}), ("note_add", {"text": "milk"})
        turns = [turn(graph, "ann", [tea], [("note_list", {})]), turn(graph, "ben", [milk, milk], [("note_list", {})])]
        return await asyncio.gather(*turns)

    assert asyncio.run(first()) == ["tea", "milk\nmilk"]
    assert asyncio.run(turn(graph, "ann", [("note_list", {})])) == "tea"
    # Without `await`, on the threads of a `ToolNode`.
    steps: list[Step] = [[("count", {})] * 8, [("note_list", {})]]
    answer = graph.invoke(user_message(*steps), thread_config("ben"))["messages"]
    counted = [message_text(it) for it in answer if isinstance(it, ToolMessage) and it.name == "count"]
    assert sorted(counted) == [str(n) for n in range(1, 9)]
    assert message_text(answer[-1]) == "milk\nmilk"
    assert len(kit.processes()) == 2
    hub.close()


def test_threads_in_a_run_share_its_session(kit: Kit) -> None:
    """R092, R094: tools that were listed in a scope stay in it."""

    async def main() -> None:
        async with kit.hub() as hub, hub.run():
            graph = agent(await hub.langchain_tools())
            await turn(graph, "a", [("note_add", {"text": "tea"})])
            assert await turn(graph, "b", [("note_list", {})]) == "tea"

    asyncio.run(main())


def test_graph_continues_after_a_loss(kit: Kit) -> None:
    """The model reads the report."""

    async def main() -> None:
        async with kit.hub() as hub:
            graph = agent(await hub.langchain_tools(key="thread_id"))
            await turn(graph, "a", [("note_add", {"text": "tea"})])
            steps: list[Step] = [[("crash", {})], [("note_list", {})], [("fail", {})], [("count", {})]]
            messages = (await graph.ainvoke(user_message(*steps), thread_config("a")))["messages"]
            tool_output = [it for it in messages if isinstance(it, ToolMessage)]
            assert [it.status for it in tool_output] == ["success", "error", "success", "error", "success"]
            assert "lost" in message_text(tool_output[1]) and message_text(tool_output[2]) == ""
            assert message_text(messages[-1]) == "1"

    asyncio.run(main())


def test_cancelled_graph_cancels_the_call(kit: Kit) -> None:
    """The thread continues in the same session."""

    async def main() -> None:
        async with kit.hub() as hub:
            graph = agent(await hub.langchain_tools(key="thread_id"))
            assert await turn(graph, "a", [("count", {})]) == "1"
            session = await hub.find("a")
            task = asyncio.create_task(turn(graph, "a", [("slow", {"ms": 3_600_000, "steps": 1})]))
            await wait_for_call(session)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await wait_for_cancel(session)
            assert (await session.status("counter")).in_flight == 0
            assert (await session.call("counter", "count")).text == "2"

    asyncio.run(main())


def test_concurrent_requests_are_isolated(kit: Kit) -> None:
    """R012, R107: a web server with many conversations of several requests."""

    async def main() -> None:
        async with kit.hub() as hub:
            app = web(agent(await hub.langchain_tools(key="thread_id")))
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://web") as client:

                async def chat(name: str) -> list[str]:
                    found: list[str] = []
                    for _ in range(4):
                        steps = [[("note_add", {"text": name})], [("note_list", {})]]
                        found.append((await client.post(f"/{name}", json=steps)).text)
                    return found

                names = [f"chat-{n}" for n in range(10)]
                for name, found in zip(names, await asyncio.gather(*(chat(name) for name in names))):
                    assert found == ["\n".join([name] * n) for n in range(1, 5)]
            assert len(kit.processes()) == 10

    asyncio.run(main())


@pytest.fixture
def notes() -> Iterator[dict[str, Any]]:
    """Server over HTTP with one notebook per session."""
    command = [program(), "demo-server", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield {"mcpServers": {"notes": {"url": server.stdout.readline().strip()}}}
        server.kill()


FIRST = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[3])
from agents import agent, turn
import stayput
async def main():
    hub = stayput.Hub.from_config(json.loads(sys.argv[1]), **json.loads(sys.argv[2]))
    graph = agent(await hub.langchain_tools(key="thread_id"))
    for thread in ["ann", "ben"]:
        print(await turn(graph, thread, [("note_add", {"text": f"of {thread}"})], [("note_list", {})]), flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""


def test_another_process_continues_after_kill(notes: dict[str, Any], tmp_path: Path) -> None:
    """E35, R037: after `kill -9`, each thread continues in its own session on the server."""
    settings = {"store": f"sqlite:{tmp_path}/sessions.db", "folders": str(tmp_path / "folders")}
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", FIRST, json.dumps(notes), json.dumps(settings), here]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert [first.stdout.readline().strip() for _ in range(2)] == ["1. of ann", "1. of ben"]
        first.kill()

    async def main() -> list[str]:
        async with stayput.Hub.from_config(notes, store=settings["store"], folders=settings["folders"]) as hub:
            graph: Agent = agent(await hub.langchain_tools(key="thread_id"))
            both = (turn(graph, name, [("note_list", {})]) for name in ["ann", "ben"])
            return await asyncio.wait_for(asyncio.gather(*both), TEST_TIMEOUT)

    assert asyncio.run(main()) == ["1. of ann", "1. of ben"]
