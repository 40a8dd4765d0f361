"""Agents of LangGraph: a session for each thread, over turns, requests, loops and processes."""

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
from agents import Agent, Step, agent, of, said, told, turn
from conftest import LONG, Kit, busy, cancelled, program
from langchain_core.messages import ToolMessage
from web import web

import stayput
from stayput import sync


def test_each_thread_has_a_session_over_turns_and_loops(kit: Kit) -> None:
    """R037, E21, E35: parallel calls of a step too, in a `ToolNode`; another loop goes on where the first ended."""
    hub = sync.Hub.from_config(kit.config())
    graph = agent(hub.langchain_tools(key="thread_id"))

    async def first() -> list[str]:
        tea, milk = ("note_add", {"text": "tea"}), ("note_add", {"text": "milk"})
        turns = [turn(graph, "ann", [tea], [("note_list", {})]), turn(graph, "ben", [milk, milk], [("note_list", {})])]
        return await asyncio.gather(*turns)

    assert asyncio.run(first()) == ["tea", "milk\nmilk"]
    assert asyncio.run(turn(graph, "ann", [("note_list", {})])) == "tea"
    # Without `await`, on the threads that a `ToolNode` has for that.
    steps: list[Step] = [[("count", {})] * 8, [("note_list", {})]]
    answer = graph.invoke(told(*steps), of("ben"))["messages"]
    counted = [said(it) for it in answer if isinstance(it, ToolMessage) and it.name == "count"]
    assert sorted(counted) == [str(n) for n in range(1, 9)]
    assert said(answer[-1]) == "milk\nmilk"
    assert len(kit.alive()) == 2
    hub.close()


def test_in_a_run_all_threads_share_its_session(kit: Kit) -> None:
    """R092, R094: tools that were asked for in a scope are of the scope."""

    async def main() -> None:
        async with kit.hub() as hub, hub.run():
            graph = agent(await hub.langchain_tools())
            await turn(graph, "a", [("note_add", {"text": "tea"})])
            assert await turn(graph, "b", [("note_list", {})]) == "tea"

    asyncio.run(main())


def test_a_loss_does_not_end_the_graph(kit: Kit) -> None:
    """The model reads what happened, and goes on."""

    async def main() -> None:
        async with kit.hub() as hub:
            graph = agent(await hub.langchain_tools(key="thread_id"))
            await turn(graph, "a", [("note_add", {"text": "tea"})])
            steps: list[Step] = [[("crash", {})], [("note_list", {})], [("fail", {})], [("count", {})]]
            messages = (await graph.ainvoke(told(*steps), of("a")))["messages"]
            heard = [it for it in messages if isinstance(it, ToolMessage)]
            assert [it.status for it in heard] == ["success", "error", "success", "error", "success"]
            assert "lost" in said(heard[1]) and said(heard[2]) == ""
            assert said(messages[-1]) == "1"

    asyncio.run(main())


def test_cancelling_a_graph_cancels_the_call(kit: Kit) -> None:
    """The server is told, and the thread goes on in the same session."""

    async def main() -> None:
        async with kit.hub() as hub:
            graph = agent(await hub.langchain_tools(key="thread_id"))
            assert await turn(graph, "a", [("count", {})]) == "1"
            session = await hub.find("a")
            task = asyncio.create_task(turn(graph, "a", [("slow", {"ms": 3_600_000, "steps": 1})]))
            await busy(session)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await cancelled(session)
            assert (await session.status("counter")).in_flight == 0
            assert (await session.call("counter", "count")).text == "2"

    asyncio.run(main())


def test_two_requests_at_once_never_meet(kit: Kit) -> None:
    """R012, R107: a web server with many conversations, each with several requests."""

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
            assert len(kit.alive()) == 10

    asyncio.run(main())


@pytest.fixture
def notes() -> Iterator[dict[str, Any]]:
    """A server over HTTP with a notebook for each session."""
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


def test_another_process_goes_on_after_the_first_was_killed(notes: dict[str, Any], tmp_path: Path) -> None:
    """E35, R037: `kill -9`, and each thread goes on in its own session on the server."""
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
            return await asyncio.wait_for(asyncio.gather(*both), LONG)

    assert asyncio.run(main()) == ["1. of ann", "1. of ben"]
