"""What becomes of two conversations: `threads.py SERVER`, where SERVER is the program of the test server.

Two conversations at once write notes, and read what they wrote: by tools of Stayput, of LangChain's own MCP support, and
by the client of FastMCP, the latter two as one gets them and with a connection that is held; over stdio and over HTTP.
For each: processes that were started, handshakes, whether each conversation found its own notes, and how long its first
call and the others took. One of Stayput's processes and handshakes is to learn of the tools.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from fastmcp import Client
from langchain_core.runnables import RunnableConfig

import stayput

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from langchain.mcp import MCPAdapter

SERVER = sys.argv[1]
NAMES = ["ann", "ben"]
NOTES = 50

Call = Callable[[str, str, dict[str, Any]], Awaitable[str]]
"""Calls a tool in a conversation; what it says."""


@contextmanager
def servers(kind: str, folder: Path) -> Iterator[dict[str, Any]]:
    """The server, to be started or listening, which writes down what happens."""
    args = [kind, "--era", "legacy", "--starts", f"{folder}/starts", "--log", f"{folder}/log"]
    if kind == "stdio":
        yield {"mcpServers": {"notes": {"command": SERVER, "args": args}}}
        return
    pipe = subprocess.PIPE
    with subprocess.Popen([SERVER, *args, "--exit-with-stdin"], stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdout is not None
        yield {"mcpServers": {"notes": {"url": server.stdout.readline().strip()}}}
        server.kill()


Config = dict[str, Any]


def said(content: Any) -> str:
    return "\n".join(block["text"] for block in content)


@asynccontextmanager
async def by_stayput(config: Config) -> AsyncIterator[Call]:
    async with stayput.Hub.from_config(config) as hub:
        tools = {tool.name: tool for tool in await hub.langchain_tools(key="thread_id")}

        async def call(thread: str, name: str, args: dict[str, Any]) -> str:
            there: RunnableConfig = {"configurable": {"thread_id": thread}}
            return said(await tools[name].ainvoke(args, there))

        yield call


@asynccontextmanager
async def by_langchain(config: Config) -> AsyncIterator[Call]:
    adapter = MCPAdapter(config)
    tools = {tool.name: tool for tool in await adapter.list_tools()}

    async def call(thread: str, name: str, args: dict[str, Any]) -> str:
        there: RunnableConfig = {"configurable": {"thread_id": thread}}
        return said(await tools[name].ainvoke(args, there))

    try:
        yield call
    finally:
        await adapter.client.close()


@asynccontextmanager
async def by_langchain_held(config: Config) -> AsyncIterator[Call]:
    async with MCPAdapter(config) as adapter:
        tools = {tool.name: tool for tool in await adapter.list_tools()}

        async def call(thread: str, name: str, args: dict[str, Any]) -> str:
            return said(await tools[name].ainvoke(args, {"configurable": {"thread_id": thread}}))

        yield call


@asynccontextmanager
async def by_fastmcp(config: Config) -> AsyncIterator[Call]:
    async def call(thread: str, name: str, args: dict[str, Any]) -> str:
        async with Client(config) as client:
            answer = await client.call_tool(name, args)
        await client.close()
        return "\n".join(getattr(block, "text", "") for block in answer.content)

    yield call


@asynccontextmanager
async def by_fastmcp_held(config: Config) -> AsyncIterator[Call]:
    async with Client(config) as client:

        async def call(thread: str, name: str, args: dict[str, Any]) -> str:
            answer = await client.call_tool(name, args)
            return "\n".join(getattr(block, "text", "") for block in answer.content)

        yield call
    await client.close()


async def conversation(call: Call, name: str) -> tuple[str, list[float]]:
    """What a conversation reads after all it wrote, and how long each call took."""
    took = list[float]()
    for _ in range(NOTES):
        start = time.perf_counter()
        await call(name, "note_add", {"text": name})
        took.append(time.perf_counter() - start)
    return await call(name, "note_list", {}), took


def verdict(read: dict[str, str]) -> str:
    if any(other in notes for name, notes in read.items() for other in NAMES if other != name):
        return "MIXED"
    return "kept" if all(notes.split() == [name] * NOTES for name, notes in read.items()) else "LOST"


WAYS = {
    "stayput.langchain, by thread_id": by_stayput,
    "langchain.mcp, as one gets it": by_langchain,
    "langchain.mcp, held": by_langchain_held,
    "FastMCP's client, one for each call": by_fastmcp,
    "FastMCP's client, held": by_fastmcp_held,
}


async def shown(kind: str) -> None:
    print(f"{len(NAMES)} conversations at once, {NOTES} notes each, over {kind}")
    print(f"  {'':<36} processes handshakes  state  first call  another  beside Stayput")
    ours = 0.0
    for what, way in WAYS.items():
        with tempfile.TemporaryDirectory() as folder, servers(kind, Path(folder)) as config:
            async with way(config) as call:
                found = await asyncio.gather(*(conversation(call, name) for name in NAMES))
            started = len(Path(folder, "starts").read_text().splitlines())
            shaken = Path(folder, "log").read_text().count('"initialize"')
        state = verdict({name: read for name, (read, _) in zip(NAMES, found)})
        first = statistics.mean(took[0] for _, took in found)
        another = statistics.median(one for _, took in found for one in took[1:])
        ours = ours or another
        times = f"{first * 1e3:8.2f} ms {another * 1e3:5.2f} ms {another / ours:9.1f}"
        print(f"  {what:<36} {started:>9} {shaken:>10}  {state:<5} {times}")


async def main() -> None:
    for kind in ["stdio", "http"]:
        await shown(kind)


asyncio.run(main())
