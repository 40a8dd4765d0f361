"""Replacement of the client of `langchain-mcp-adapters`."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from agents import agent, turn
from conftest import Kit, test_server
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from odd_server import PIXEL
from test_langchain import by_name, count_with, odd, texts, thread

import stayput
from stayput.langchain import (
    CallbackContext,
    Callbacks,
    MCPToolCallRequest,
    MultiServerMCPClient,
    load_mcp_prompt,
    load_mcp_resources,
    load_mcp_tools,
)
from stayput.langchain._connections import to_config
from stayput.langchain._interceptors import CallHandler


def stdio(kit: Kit) -> dict[str, Any]:
    """Connection in the form of the old adapter."""
    return {"transport": "stdio", **kit.entry()}


def test_client_keeps_state_per_thread(kit: Kit) -> None:
    """R064, R108: one process for all calls of a thread, and another one for calls without a thread."""

    async def main() -> None:
        client = MultiServerMCPClient({"counter": stdio(kit)})
        tools = by_name(await client.get_tools())
        assert [await count_with(tools["count"]) for _ in range(3)] == [1, 2, 3]
        assert [await count_with(tools["count"], thread(name)) for name in ["a", "b", "a"]] == [1, 1, 2]
        async with client.hub.run():
            assert await count_with(tools["count"]) == 1
            assert await count_with(tools["count"], thread("a")) == 3
        assert await count_with(by_name(await client.get_tools(server_name="counter"))["count"]) == 4
        assert len(kit.processes()) == 3
        graph = agent(list(tools.values()))
        await turn(graph, "b", [("note_add", {"text": "tea"})])
        assert await turn(graph, "b", [("note_list", {})]) == "tea"
        assert await turn(graph, "a", [("note_list", {})]) == ""
        await client.aclose()

    asyncio.run(main())


def test_client_session_ends_with_its_block(kit: Kit) -> None:
    """R023, R131, R136."""

    async def main() -> None:
        async with MultiServerMCPClient({"counter": stdio(kit)}) as client:
            for _ in range(2):
                async with client.session("counter") as session:
                    assert len(kit.processes()) == 1
                    count = by_name(await load_mcp_tools(session))["count"]
                    assert [await count_with(count), await count_with(count, thread("a"))] == [1, 2]
                    assert (await session.call_tool("count", {})).text == "3"
                    assert "count" in [tool.name for tool in await session.list_tools()]
                assert kit.processes() == []
            with pytest.raises(ValueError, match="there are: counter"):
                async with client.session("nobody"):
                    pass
            with pytest.raises(ValueError, match="there are: counter"):
                await client.get_tools(server_name="nobody")

    asyncio.run(main())


def test_prompts_and_resources(kit: Kit) -> None:
    async def main() -> None:
        async with MultiServerMCPClient({"odd": {"transport": "stdio", **odd(kit)}}, tool_name_prefix=True) as client:
            asks, shows = await client.get_prompt("odd", "greet")
            assert isinstance(asks, HumanMessage) and asks.content == "How do you do?"
            assert isinstance(shows, AIMessage)
            assert shows.content == [{"type": "image", "base64": PIXEL, "mime_type": "image/png"}]
            both = await client.get_resources("odd")
            assert [(blob.as_bytes(), blob.mimetype, blob.metadata["uri"]) for blob in both] == [
                (b"a text", "text/plain", "odd://text"),
                (b"hi", "application/pdf", "odd://blob"),
            ]
            assert [blob.as_string() for blob in await client.get_resources("odd", uris="odd://text")] == ["a text"]
            assert len(await client.get_resources()) == 2
            async with client.session("odd") as session:
                assert [it.name for it in await session.list_prompts()] == ["greet"]
                assert [it.uri for it in await session.list_resources()] == ["odd://text", "odd://blob"]
                assert (await session.get_prompt("greet")).data["messages"]
                assert (await session.read_resource("odd://text")).data["contents"][0]["text"] == "a text"
            assert "odd_show" in by_name(await client.get_tools())

    asyncio.run(main())


@pytest.fixture(params=["http", "sse"])
def remote(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Server over each transport."""
    command = [test_server(), request.param, "--era", "legacy", "--exit-with-stdin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        kind = {"http": "streamable_http", "sse": "sse"}[request.param]
        yield {"transport": kind, "url": server.stdout.readline().strip(), "headers": {"X-Who": "ann"}, "timeout": 5}
        server.kill()


def test_servers_over_http(remote: dict[str, Any]) -> None:
    """R065: streamable HTTP and HTTP+SSE, with headers."""

    async def main() -> None:
        async with MultiServerMCPClient({"far": remote}) as client:
            tools = by_name(await client.get_tools())
            assert [await count_with(tools["count"], thread(name)) for name in ["a", "b", "a"]] == [1, 1, 2]
            assert texts(await tools["header"].ainvoke({"name": "x-who"})) == ["ann"]

    asyncio.run(main())


def test_connections_are_converted_to_configuration(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "a": {"transport": "stdio", "command": "x", "args": ["y"], "env": None, "cwd": tmp_path, "encoding": "utf-8"},
        "b": {"transport": "streamable-http", "url": "http://b", "timeout": timedelta(seconds=1), "session_kwargs": {}},
        "c": {"url": "http://c", "stayput": {"isolation": "shared"}},
        "d": {"command": "z", "args": []},
    }
    assert to_config(given)["mcpServers"] == {
        "a": {"type": "stdio", "command": "x", "args": ["y"], "cwd": str(tmp_path)},
        "b": {"type": "http", "url": "http://b"},
        "c": {"type": "http", "url": "http://c", "stayput": {"isolation": "shared"}},
        "d": {"type": "stdio", "command": "z", "args": []},
    }
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"transport": "websocket", "url": "ws://x"}, "websocket"),
        ({"transport": "stdio", "command": "x", "auth": object()}, "auth"),
        ({"transport": "streamable_http", "url": "http://x", "httpx_client_factory": print}, "httpx_client_factory"),
        ({"transport": "stdio", "command": "x", "session_kwargs": {"a": 1}}, "session_kwargs"),
    ]
    for wrong, word in wrongs:
        with pytest.raises(stayput.ConfigError, match=word):
            to_config({"it": wrong})
    assert to_config({"it": {"transport": "sse", "url": "http://x", "auth": object()}})["mcpServers"]["it"] == {
        "type": "sse",
        "url": "http://x",
    }


def test_interceptors_wrap_each_call(kit: Kit) -> None:
    """The first is the outermost; they change requests and results, repeat calls, and answer themselves."""
    seen = list[str]()

    async def outer(request: MCPToolCallRequest, handler: CallHandler) -> Any:
        seen.append(f"{request.server_name} {request.name}")
        if request.args.get("text") == "never":
            return ToolMessage("refused", tool_call_id="x")
        return await handler(request)

    async def inner(request: MCPToolCallRequest, handler: CallHandler) -> Any:
        if request.name == "count":
            await handler(request)
        return await handler(request.override(args={**request.args, "more": 1}))

    async def main() -> None:
        async with MultiServerMCPClient({"counter": stdio(kit)}, tool_interceptors=[outer, inner]) as client:
            tools = by_name(await client.get_tools())
            assert await count_with(tools["count"]) == 2, "the inner one called twice"
            assert texts(await tools["echo"].ainvoke({"text": "a"})) == ['{"text":"a","more":1}']
            assert await tools["echo"].ainvoke({"text": "never"}) == ToolMessage("refused", tool_call_id="x")
            assert tools["count"].invoke({})[0]["text"] == "4", "also without await"
        assert seen == ["counter count", "counter echo", "counter echo", "counter count"]

    asyncio.run(main())


def test_callbacks_get_progress_logs_and_questions(kit: Kit) -> None:
    """All callbacks of a call have run when it returns."""
    told = list[Any]()

    async def on_progress(progress: float, total: float | None, message: str | None, context: CallbackContext) -> None:
        told.append((progress, total, context))

    async def on_logging_message(params: Any, context: CallbackContext) -> None:
        told.append((params.data, context.tool_name))

    async def on_elicitation(_: None, params: Any, context: CallbackContext) -> dict[str, Any]:
        told.append(params.message)
        return {"action": "decline"}

    async def main() -> None:
        callbacks = Callbacks(on_logging_message, on_progress, on_elicitation)
        async with MultiServerMCPClient({"counter": stdio(kit)}, callbacks=callbacks) as client:
            tools = by_name(await client.get_tools())
            await tools["slow"].ainvoke({"steps": 1, "ms": 1})
            assert told == [(0, 1, CallbackContext("counter", "slow")), (1, 1, CallbackContext("counter", "slow"))]
            await tools["log"].ainvoke({"n": 2})
            assert told[2:] == [("line 1", "log"), ("line 2", "log")]
            await tools["elicit"].ainvoke({})
            assert len(told) == 5 and isinstance(told[4], str)

    asyncio.run(main())


def test_callback_that_fails_does_not_replace_the_result(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    """The call was carried out, so its result is returned; the failure is in the log."""

    async def fail(*_: Any) -> None:
        raise ValueError("the callback is broken")

    async def main() -> None:
        async with MultiServerMCPClient({"counter": stdio(kit)}, callbacks=Callbacks(fail, fail)) as client:
            tools = by_name(await client.get_tools())
            assert texts(await tools["slow"].ainvoke({"steps": 1, "ms": 1}))

    asyncio.run(main())
    failed = [record for record in caplog.records if record.name == "stayput.callbacks"]
    assert [record.getMessage() for record in failed] == ["a callback of the tool `slow` failed"] * 2
    assert "the callback is broken" in caplog.text


def test_auth_of_a_connection_is_asked_for_each_request() -> None:
    """An `httpx.Auth`, whose flow is run for the headers, and told of a refusal."""
    import httpx
    from conftest import demo_server
    from test_headers import Guarded

    class Rotating(httpx.Auth):
        tokens = ["old", "new"]

        async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
            request.headers["authorization"] = f"Bearer {self.tokens[0]}"
            response = yield request
            if response.status_code == 401:
                self.tokens = self.tokens[1:]
                request.headers["authorization"] = f"Bearer {self.tokens[0]}"
                yield request

    async def main(guarded: Guarded, url: str) -> None:
        connection = {"transport": "streamable_http", "url": url, "auth": Rotating()}
        guarded.valid.add("Bearer new")
        async with MultiServerMCPClient({"remote": connection}) as client:
            tools = by_name(await client.get_tools())
            assert [await count_with(tools["count"]) for _ in range(2)] == [1, 2]
        assert "Bearer old" in guarded.seen and guarded.seen[-1] == "Bearer new"

    with demo_server() as upstream:
        guarded = Guarded(upstream)
        asyncio.run(main(guarded, guarded.config()["mcpServers"]["counter"]["url"]))
        guarded.server.shutdown()


def test_functions_of_a_session_and_prefixes_are_those_of_the_adapter(kit: Kit) -> None:
    """`load_mcp_prompt`, `load_mcp_resources`, and `SERVER_TOOL` with one underscore."""

    async def main() -> None:
        async with MultiServerMCPClient({"counter": stdio(kit)}, tool_name_prefix=True) as client:
            assert "counter_count" in by_name(await client.get_tools())
            async with client.session("counter") as session:
                assert "counter_count" in by_name(await load_mcp_tools(session, tool_name_prefix=True))
                (blob,) = await load_mcp_resources(session, uris="test://count")
                assert blob.as_string() == (await load_mcp_resources(session))[0].as_string()
                name = (await session.list_prompts())[0].name
                assert await load_mcp_prompt(session, name) == await client.get_prompt("counter", name)

    asyncio.run(main())


def test_without_connections_there_are_no_tools() -> None:
    async def main() -> None:
        assert await MultiServerMCPClient().get_tools() == []

    asyncio.run(main())


def test_client_created_before_a_fork_works_after_it(kit: Kit) -> None:
    """A client at module level, in a web server that forks its workers."""
    client = MultiServerMCPClient({"counter": stdio(kit)})
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = asyncio.run(once(client)) - 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asyncio.run(once(client)) == 1


async def once(client: MultiServerMCPClient) -> int:
    async with client:
        return await count_with(by_name(await client.get_tools())["count"])
