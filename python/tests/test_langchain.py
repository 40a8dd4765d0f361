"""LangChain tools: their properties, and the session of their calls."""

from __future__ import annotations

import asyncio
import copy
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import Kit, script, wait_for_call, wait_for_cancel, wait_until
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from odd_server import CONTENT, PIXEL, REFERRING

import stayput
from stayput import sync
from stayput.langchain import SessionTool, ToolFailedError, as_tools

ALLOWED = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


def odd(kit: Kit) -> dict[str, Any]:
    """Configuration of the server with unusual tools."""
    server = str(Path(__file__).parent / "odd_server.py")
    return {"command": sys.executable, "args": [server], "env": {"TOKEN": kit.marker}}


def by_name(tools: list[BaseTool]) -> dict[str, BaseTool]:
    return {tool.name: tool for tool in tools}


def thread(name: object) -> RunnableConfig:
    return {"configurable": {"thread_id": name}}


def tool_call(name: str, **args: Any) -> dict[str, Any]:
    """Tool call of a model."""
    return {"type": "tool_call", "id": "call-1", "name": name, "args": args}


def texts(content: Any) -> list[str]:
    return [block["text"] for block in content]


async def count_with(tool: BaseTool, config: RunnableConfig | None = None) -> int:
    return int(texts(await tool.ainvoke({}, config))[0])


def test_missing_langchain_is_reported_with_a_hint() -> None:
    done = script("import sys; sys.modules['langchain_core'] = None; import stayput; import stayput.langchain")
    assert done.returncode == 1 and "pip install 'stayput[langchain]'" in done.stderr


def test_names_are_valid_unique_and_stable(kit: Kit) -> None:
    """R138."""

    async def main() -> None:
        config = kit.config(odd=odd(kit), off={"command": "nowhere", "disabled": True})
        async with stayput.Hub.from_config(config) as hub:
            tools = await hub.langchain_tools(key="thread_id")
            names = [tool.name for tool in tools]
            assert all(ALLOWED.match(name) for name in names) and len(set(names)) == len(names), names
            assert {"counter__count", "odd__count", "note_add", "say_back"} <= set(names)
            exact = [tool for tool in tools if isinstance(tool, SessionTool) and tool.name == "say_back"]
            assert [tool.tool for tool in exact] == ["say_back"], "who is called so keeps the name"
            assert names == [tool.name for tool in await hub.langchain_tools(key="thread_id")]
            prefixed = [tool.name for tool in await hub.langchain_tools("odd", key="thread_id", prefix=True)]
            assert "odd__show" in prefixed and all(ALLOWED.match(name) for name in prefixed)

    asyncio.run(main())


def test_disabled_server_has_no_tools(kit: Kit) -> None:
    """R137."""

    async def main() -> None:
        config = {"mcpServers": {"off": {**kit.entry(), "disabled": True}, "counter": kit.entry()}}
        async with stayput.Hub.from_config(config) as hub:
            tools = await hub.langchain_tools(key="thread_id")
            assert {tool.server for tool in tools if isinstance(tool, SessionTool)} == {"counter"}
        none = {"mcpServers": {"off": {**kit.entry(), "disabled": True}}}
        async with stayput.Hub.from_config(none) as hub:
            assert await hub.langchain_tools() == []

    asyncio.run(main())


def test_schema_is_that_of_the_server(kit: Kit) -> None:
    """R138: unchanged, with the metadata of the tool."""

    async def main() -> None:
        async with stayput.Hub.from_config({"mcpServers": {"odd": odd(kit)}}) as hub:
            tools = by_name(await hub.langchain_tools())
            assert tools["say_back"].args_schema == REFERRING
            function = convert_to_openai_tool(tools["say_back"])["function"]
            assert function["parameters"]["properties"]["point"]["properties"] == {"x": {"type": "integer"}}
            for tool in tools.values():
                assert tool.args is not None and convert_to_openai_tool(tool)["function"]["name"] == tool.name
            assert tools["show"].description == "Shows all kinds of content."
            metadata = tools["show"].metadata or {}
            assert (metadata["tool_type"], metadata["display_name"]) == ("mcp", "Show & tell")
            metadata = tools["number"].metadata or {}
            assert (metadata["annotations"], metadata["_meta"]) == ({"readOnlyHint": True}, {"of": "us"})

    asyncio.run(main())


def test_arguments_can_have_any_name(kit: Kit) -> None:
    async def main() -> None:
        async with stayput.Hub.from_config({"mcpServers": {"odd": odd(kit)}}) as hub, hub.run():
            tools = by_name(await hub.langchain_tools())
            given = {
                "self": "me",
                "config": {"a": 1},
                "run_manager": 2,
                "name": 3,
                "point": None,
                "given": 4,
                "tool": 5,
            }
            assert texts(await tools["say_back"].ainvoke(given)) == [echo_text(given)]
            assert texts(await asyncio.to_thread(tools["say_back"].invoke, given)) == [echo_text(given)]

    def echo_text(given: dict[str, Any]) -> str:
        import json

        return json.dumps({"say_back": given}, sort_keys=True)

    asyncio.run(main())


def test_all_kinds_of_content_are_converted(kit: Kit) -> None:
    """Images stay images; the artifact has the structured content and the raw result."""

    async def main() -> None:
        async with stayput.Hub.from_config({"mcpServers": {"odd": odd(kit)}}) as hub, hub.run():
            tools = by_name(await hub.langchain_tools())
            message = await tools["show"].ainvoke(tool_call("show"))
            assert isinstance(message, ToolMessage) and message.status == "success"
            assert message.content == [
                {"type": "text", "text": "words"},
                {"type": "image", "base64": PIXEL, "mime_type": "image/png"},
                {"type": "file", "base64": "UklGRg==", "mime_type": "audio/wav"},
                {"type": "text", "text": "a text"},
                {"type": "file", "base64": "aGk=", "mime_type": "application/pdf"},
                {"type": "text", "text": "far\nodd://far"},
                {"type": "image", "url": "https://127.0.0.1/a.png", "mime_type": "image/png"},
                {"type": "text", "text": '{"type": "hologram", "of": "tomorrow"}'},
            ]
            assert message.artifact["structured_content"] == {"kinds": len(CONTENT)}
            assert message.artifact["raw"]["content"] == CONTENT
            assert (message.artifact["server"], message.artifact["tool"]) == ("odd", "show")
            assert texts(await tools["number"].ainvoke({})) == ['{"number": 7}']
            assert texts(await tools["silence"].ainvoke({})) == ["(no output)"]

    asyncio.run(main())


def test_failure_becomes_a_message_or_an_exception(kit: Kit) -> None:
    """`isError`, JSON-RPC errors, a server that cannot be started."""

    async def main() -> None:
        config = kit.config(odd=odd(kit), broken={"command": "/nowhere/at/all"})
        async with stayput.Hub.from_config(config) as hub, hub.run():
            tools = by_name(await hub.langchain_tools("counter") + await hub.langchain_tools("odd"))
            message = await tools["fail"].ainvoke(tool_call("fail"))
            assert message.status == "error" and texts(message.content) == ["it failed, as it was asked to"]
            message = await tools["picture_of_a_failure"].ainvoke(tool_call("x"))
            assert message.status == "error" and message.content[0]["type"] == "image"

            strict = by_name(await hub.langchain_tools("counter", handle_errors=False))
            with pytest.raises(ToolException, match="as it was asked to") as failed:
                await strict["fail"].ainvoke({})
            assert isinstance(failed.value, ToolFailedError) and failed.value.result is not None

            gone = stayput.Tool.from_json("counter", '{"name": "gone"}')
            message = await as_tools(hub, [gone])[0].ainvoke(tool_call("gone"))
            assert message.status == "error" and "there is no tool `gone`" in texts(message.content)[0]

            lost = stayput.Tool.from_json("broken", '{"name": "any"}')
            message = await as_tools(hub, [lost])[0].ainvoke(tool_call("any"))
            assert message.status == "error" and "`broken` could not be started" in texts(message.content)[0]

    asyncio.run(main())


def test_loss_is_reported_to_the_model_once(kit: Kit) -> None:
    """The next call fails with the report, the one after it runs."""

    async def main() -> None:
        async with kit.hub() as hub:
            tools = by_name(await hub.langchain_tools(key="thread_id"))
            assert await count_with(tools["count"], thread("ann")) == 1
            assert await count_with(tools["count"], thread("ben")) == 1
            message = await tools["crash"].ainvoke(tool_call("crash"), thread("ann"))
            assert message.status == "error"
            with pytest.raises(stayput.StateLostError) as lost:
                chat = hub.session("eve")
                await chat.call("counter", "count")
                await chat.call("counter", "crash")
            assert texts(message.content) == [str(lost.value)], "in the words of the library"
            assert await count_with(tools["count"], thread("ann")) == 1, "a fresh state"
            assert await count_with(tools["count"], thread("ben")) == 2, "nobody else lost anything"

    asyncio.run(main())


def test_result_after_a_loss_says_so(kit: Kit) -> None:
    async def main() -> None:
        async with kit.hub() as hub:
            again = hub.with_options(restart_on_loss=True)
            tools = by_name(await again.langchain_tools(key="thread_id"))
            assert await count_with(tools["count"], thread("ann")) == 1
            await (await hub.find("ann")).restart("counter")
            message = await tools["count"].ainvoke(tool_call("count"), thread("ann"))
            assert texts(message.content)[1:] == ["1"] and "was lost" in texts(message.content)[0]
            assert message.artifact["after_loss"] is True

    asyncio.run(main())


def test_tools_of_a_session_ignore_the_scope(kit: Kit) -> None:
    """R090, R093."""

    async def main() -> None:
        async with kit.hub() as hub:
            ann = by_name(await hub.session("ann").langchain_tools())["count"]
            async with hub.session("ben") as ben:
                assert await count_with(ann) == 1
                assert await count_with(ann, thread("eve")) == 2
                assert await count_with(by_name(await ben.langchain_tools())["count"]) == 1
            assert await count_with(ann) == 3

    asyncio.run(main())


def test_tools_of_a_scope_stay_in_it(kit: Kit) -> None:
    """R092, R094: also without context variables; also in sub-agents."""

    async def main() -> None:
        async with kit.hub() as hub:
            async with hub.run():
                tool = by_name(await hub.langchain_tools())["count"]
                assert await count_with(tool) == 1
                found: list[int] = []
                # A new thread has an empty context.
                other = threading.Thread(target=lambda: found.append(int(texts(tool.invoke({}))[0])))
                other.start()
                await asyncio.to_thread(other.join)
                assert found == [2]
                async with hub.isolated("counter"):
                    own = by_name(await hub.langchain_tools())["count"]
                    assert await count_with(own) == 1
                    assert await count_with(tool) == 2, "in the session of the run, with the rules of the sub-agent"
                async with hub.session("ann"):
                    assert await count_with(tool) == 3, "bound to the run"
            with pytest.raises(stayput.SessionEndedError):
                await count_with(tool)

            loose = by_name(await hub.langchain_tools())["count"]
            async with hub.session("ann"):
                assert await count_with(loose) == 1
            with pytest.raises(stayput.NoSessionError, match="thread_id"):
                await count_with(loose)

    asyncio.run(main())


def test_tools_of_the_default_session_stay_in_it(kit: Kit) -> None:
    """R091, R092."""

    async def main() -> None:
        async with kit.hub() as hub:
            await hub.enable_default_session()
            tool = by_name(await hub.langchain_tools())["count"]
            assert await count_with(tool) == 1
            async with hub.session("ann"):
                assert await count_with(tool) == 2

    asyncio.run(main())


def test_config_names_the_session(kit: Kit) -> None:
    """E35, R095: by `thread_id` or by a function; a call without a name is refused."""

    async def main() -> None:
        async with kit.hub() as hub:
            tool = by_name(await hub.langchain_tools(key="thread_id"))["count"]
            assert [await count_with(tool, thread(name)) for name in ["a", "b", "a", 7]] == [1, 1, 2, 1]
            assert (await (await hub.find("a")).call("counter", "count")).text == "3"
            async with hub.session("around"):
                assert await count_with(tool, thread("a")) == 4, "what is named goes before what is around"
                assert await count_with(tool) == 1
            for nobody in [thread(""), thread(None), None]:
                with pytest.raises(stayput.NoSessionError, match="thread_id"):
                    await count_with(tool, nobody)

            def user(config: RunnableConfig) -> str | None:
                it = config.get("configurable", {})
                return f"{it['user']}/{it['thread_id']}" if "user" in it else None

            mine = by_name(await hub.langchain_tools(key=user))["count"]
            ann: RunnableConfig = {"configurable": {"user": "ann", "thread_id": "a"}}
            assert [await count_with(mine, ann), await count_with(mine, ann)] == [1, 2]
            with pytest.raises(stayput.NoSessionError):
                await count_with(mine, thread("a"))

    asyncio.run(main())


def test_sync_and_async_calls_share_a_session(kit: Kit) -> None:
    """R076, R109."""
    with sync.Hub.from_config(kit.config()) as hub:
        tool = by_name(hub.langchain_tools(key="thread_id"))["count"]
        assert texts(tool.invoke({}, thread("a"))) == ["1"]
        assert asyncio.run(count_with(tool, thread("a"))) == 2
        bound = by_name(hub.session("a").langchain_tools())["count"]
        assert texts(bound.invoke({})) == ["3"]
        assert asyncio.run(count_with(bound)) == 4
        with hub.run():
            scoped = by_name(hub.langchain_tools())["count"]
            assert texts(scoped.invoke({})) == ["1"]


def test_copied_tool_uses_the_same_session(kit: Kit) -> None:
    async def main() -> None:
        async with kit.hub() as hub:
            tool = by_name(await hub.session("a").langchain_tools())["count"]
            other = copy.deepcopy(tool).model_copy(update={"description": "Counts."}, deep=True)
            assert [await count_with(tool), await count_with(other)] == [1, 2]

    asyncio.run(main())


def test_handlers_answer_sync_and_async_calls(kit: Kit) -> None:
    """Also a coroutine function without `await`."""

    async def answer(question: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"action": "accept", "content": {"name": question["message"]}}

    async def main() -> None:
        async with kit.hub(handlers={"elicitation": answer}) as hub, hub.run():
            tool = by_name(await hub.langchain_tools())["elicit"]
            waited = texts(await tool.ainvoke({"message": "who?"}))
            assert "who?" in waited[0]
            assert texts(await asyncio.to_thread(tool.invoke, {"message": "who?"})) == waited

    asyncio.run(main())


def test_cancellation_cancels_the_call(kit: Kit) -> None:
    async def main() -> None:
        async with kit.hub() as hub, hub.session("a") as session:
            slow = by_name(await session.langchain_tools())["slow"]
            task = asyncio.create_task(slow.ainvoke({"ms": 3_600_000, "steps": 1}))
            await wait_for_call(session)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await wait_for_cancel(session)

    asyncio.run(main())


def test_500_concurrent_calls_are_isolated(kit: Kit) -> None:
    """R005, R036, E21: twenty threads of a graph from two loops, each with its own process; none is left."""
    hub = sync.Hub.from_config(kit.config())
    tool = by_name(hub.langchain_tools(key="thread_id"))["count"]

    async def half() -> dict[str, list[int]]:
        names = [f"chat-{n % 20}" for n in range(250)]
        found = await asyncio.gather(*(count_with(tool, thread(name)) for name in names))
        return {name: [n for n, of in zip(found, names) if of == name] for name in set(names)}

    halves: list[dict[str, list[int]]] = []
    loops = [threading.Thread(target=lambda: halves.append(asyncio.run(half()))) for _ in range(2)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
    assert len(halves) == 2
    for n in range(20):
        both = halves[0][f"chat-{n}"] + halves[1][f"chat-{n}"]
        assert sorted(both) == list(range(1, len(both) + 1)), n
    assert len(kit.processes()) == 20
    report = hub.close()
    assert report.sessions == 20
    wait_until(lambda: not kit.processes(), "all processes go")
