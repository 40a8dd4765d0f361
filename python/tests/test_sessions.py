"""Sessions: named, unnamed, default, of agents, in a store."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from conftest import TEST_TIMEOUT, Kit, count
from langchain_core.runnables import RunnableConfig

import stayput
from stayput.langchain import ToolFailedError


def test_named_session_is_released_and_found_again(kit: Kit) -> None:
    """R037, R081."""

    async def main() -> None:
        async with kit.hub() as hub:
            async with hub.session("chat-42") as chat:
                assert [await count(chat), await count(chat)] == [1, 2]
            async with hub.session("chat-42") as chat:
                assert await count(chat) == 3
                assert len(kit.processes()) == 1, "R108: nothing was started twice"
            async with hub.session("chat-43") as other:
                assert await count(other) == 1
            await hub.session("chat-42").end()
            async with hub.session("chat-43") as other:
                assert await count(other) == 2, "the end of one is not that of the other"

    asyncio.run(main())


def test_ids_are_unique_text(kit: Kit) -> None:
    """R002."""

    async def main() -> None:
        async with kit.hub() as hub:
            sessions = [*(hub.session() for _ in range(50)), await hub.session("chat").open()]
            ids = [session.id or "" for session in sessions]
            assert len(set(ids)) == 51 and {uuid.UUID(one).version for one in ids} == {7}

    asyncio.run(main())


def test_unnamed_session_ends_with_its_block(kit: Kit) -> None:
    """R011: also on an exception."""

    async def main() -> None:
        async with kit.hub() as hub:
            session = hub.session()
            with pytest.raises(ZeroDivisionError):
                async with session:
                    assert await count(session) == 1
                    raise ZeroDivisionError
            await asyncio.to_thread(kit.wait_until_gone)
            with pytest.raises(stayput.SessionEndedError):
                await count(session)

    asyncio.run(main())


def test_session_reports_info_and_status(kit: Kit) -> None:
    """R076, R085, R131: find, info, status, servers, restart, extend, clear_cache, end."""

    async def main() -> None:
        async with kit.hub() as hub:
            with pytest.raises(stayput.UnknownSessionError, match="no session of this name"):
                await hub.find("chat")
            chat = await hub.session("chat").open()
            assert await chat.servers() == []
            assert (await chat.status("counter")).state == "unlinked"
            await chat.bind("counter")
            assert await chat.servers() == ["counter"]
            assert await count(chat) == 1
            status = await chat.status("counter")
            assert (status.state, status.in_flight) == ("live", 0)
            found = await hub.find("chat")
            info = await found.info()
            assert (info.id, info.name, info.agent) == (chat.id, "chat", "")
            assert info.expires is not None and info.expires > info.created
            await chat.extend(3600)
            assert [tool.name for tool in await chat.tools("counter")][0] == "count"
            await chat.clear_cache()
            assert [tool.name for tool in await chat.tools("counter")][0] == "count"
            await chat.restart("counter")
            with pytest.raises(stayput.StateLostError) as lost:
                await count(chat)
            assert (lost.value.reason, lost.value.server) == ("restarted", "counter")
            assert lost.value.generation > 0 and not lost.value.may_have_run
            assert await count(chat) == 1, "reported once, then a fresh state"
            await chat.end()
            with pytest.raises(stayput.SessionEndedError):
                await count(chat)

    asyncio.run(main())


def test_default_session_takes_calls_without_a_session(kit: Kit) -> None:
    """R007, R086–R089, R095: explicit before scope before default before an error."""

    async def main() -> None:
        async with kit.hub() as hub:
            with pytest.raises(stayput.NoSessionError, match=r"belongs to no session: .* after `hub\.enable_default_session\(\)`$"):
                await count(hub)
            default = await hub.enable_default_session()
            assert default.name is not None and default.name.startswith("auto_")
            assert (await hub.enable_default_session()).id == default.id
            assert [await count(hub), await count(hub)] == [1, 2]
            async with hub.session("ambient"):
                assert await count(hub) == 1
                assert await count(hub.session("named")) == 1
                assert await count(hub) == 2
            assert await count(hub) == 3
            await hub.disable_default_session()
            with pytest.raises(stayput.NoSessionError):
                await count(hub)

    asyncio.run(main())


def test_agents_have_separate_names(kit: Kit) -> None:
    """R084, R085: except global names."""

    async def main() -> None:
        async with kit.hub() as hub:
            ann, bob = hub.agent("ann"), hub.agent("bob")
            assert [await count(ann.session("x")), await count(bob.session("x"))] == [1, 1]
            assert await count(ann.session("x")) == 2
            assert {(it.agent, it.name) for it in await hub.sessions()} == {("ann", "x"), ("bob", "x")}
            assert [it.agent for it in await ann.sessions()] == ["ann"]
            shared = await ann.global_session("ours")
            assert await count(shared) == 1
            assert await count(await bob.find_global("ours")) == 2
            with pytest.raises(stayput.NameTakenError):
                await bob.global_session("ours")

    asyncio.run(main())


def test_each_event_is_sent_once(kit: Kit) -> None:
    async def main() -> list[stayput.Event]:
        async with kit.hub() as hub:
            events = hub.events()

            async def reading() -> list[stayput.Event]:
                return [event async for event in events]

            task = asyncio.create_task(reading())
            chat = hub.session("chat")
            await count(chat)
            await chat.restart("counter")
            with pytest.raises(stayput.StateLostError):
                await count(chat)
            await chat.end()
        return await task

    events = asyncio.run(main())
    assert [event.kind for event in events if event.kind not in ("linked", "called")] == ["lost", "ended"]
    assert events[0].kind == "linked" and events[0].server == "counter"
    assert {event.session_name for event in events} == {"chat"}


def test_list_of_all_servers_skips_disabled_ones(kit: Kit) -> None:
    """R137."""
    off = {"command": "/no/such/program", "disabled": True}
    config = kit.config(more=kit.entry("--tool", "own"), off=off)

    async def main() -> None:
        async with stayput.Hub.from_config(config) as hub:
            assert hub.server_names == ["counter", "more"]
            tools = await hub.tools()
            assert {tool.server for tool in tools} == {"counter", "more"}
            own = [tool for tool in tools if tool.name == "own"]
            assert [tool.server for tool in own] == ["more"]
            assert own[0].input_schema["type"] == "object" and own[0].annotations["readOnlyHint"] is True

    asyncio.run(main())


def test_configuration_file_is_read(kit: Kit, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{ // with comments\n "mcpServers": { "counter": { "command": "${NO_SUCH}" } } }')
    with pytest.raises(stayput.ConfigError, match=r"mcp\.json"):
        stayput.Hub.from_config(path)
    with pytest.raises(stayput.ConfigError, match="NO_SUCH"):
        stayput.Hub.from_config(str(path))


def test_next_hub_finds_the_session_in_the_store(kit: Kit, tmp_path: Path) -> None:
    """The loss of a child process is reported."""
    settings = {"store": f"sqlite:{tmp_path}/sessions.db", "folders": tmp_path / "folders"}

    async def main() -> None:
        async with kit.hub(**settings) as hub:
            assert await count(hub.session("chat")) == 1
        async with kit.hub(**settings) as hub:
            chat = await hub.find("chat")
            with pytest.raises(stayput.StateLostError):
                await count(chat)
            assert await count(chat) == 1

    asyncio.run(main())


def test_with_options_keeps_what_it_does_not_name(kit: Kit) -> None:
    """Also that an unnamed session ends with its block."""

    async def main() -> None:
        async with kit.hub() as hub:
            seen = list[dict[str, object]]()
            first = hub.with_options(timeout=30, on_notification=seen.append)
            both = first.with_options(restart_on_loss=True)
            assert (both._timeout, both._restart_on_loss, both._on_notification) == (30, True, seen.append)
            assert both.with_options(timeout=None)._timeout is None
            chat = hub.session("chat").with_options(timeout=30).with_options(restart_on_loss=True)
            assert (chat._timeout, chat._restart_on_loss) == (30, True)
            async with hub.session().with_options(timeout=30) as unnamed:
                assert await count(unnamed) == 1
            with pytest.raises(stayput.SessionEndedError):
                await count(unnamed)

    asyncio.run(main())


def test_options_of_a_hub_hold_for_its_sessions_and_agents(kit: Kit) -> None:
    """Also for a session that a tool of LangChain finds by the thread."""

    async def main() -> None:
        async with kit.hub() as hub:
            hasty = hub.with_options(timeout=0.2)
            tools = {tool.name: tool for tool in await hasty.langchain_tools(key="thread_id", handle_errors=False)}
            thread: RunnableConfig = {"configurable": {"thread_id": "chat"}}
            slow = {"ms": 3_600_000, "steps": 1}
            calls: list[Callable[[], Awaitable[stayput.ToolResult]]] = [
                lambda: hasty.session("chat").call("counter", "slow", slow),
                lambda: hasty.session().call("counter", "slow", slow),
                lambda: hasty.agent("ann").session("chat").call("counter", "slow", slow),
            ]
            for call in calls:
                with pytest.raises(stayput.CallTimeoutError):
                    await asyncio.wait_for(call(), TEST_TIMEOUT)
            with pytest.raises(ToolFailedError, match="did not answer"):
                await asyncio.wait_for(tools["slow"].ainvoke(slow, thread), TEST_TIMEOUT)
            patient = hasty.session("chat").with_options(timeout=None)
            assert await count(patient) == 1

    asyncio.run(main())


def test_expiry_is_reported_and_an_ended_name_starts_fresh(kit: Kit) -> None:
    """R071: on a new object, as each request of a web server has one."""

    async def main() -> None:
        async with kit.hub(idle=0.3) as hub:
            events = hub.events()
            assert await count(hub.session("chat")) == 1
            async for event in events:
                if event.kind == "ended":
                    break
            again = hub.session("chat")
            await again.extend(60)
            with pytest.raises(stayput.StateLostError) as lost:
                await count(again)
            assert lost.value.reason == "expired"
            assert await count(again) == 1
            await again.end()
            assert await count(hub.session("chat")) == 1, "no error before it"

    asyncio.run(main())


def test_arguments_are_completed(kit: Kit) -> None:
    async def main() -> None:
        async with kit.hub() as hub, hub.session("chat") as chat:
            reference = {"type": "ref/prompt", "name": "greet"}
            assert await chat.complete("counter", reference, "who", "a") == ["a…"]
            assert await hub.complete("counter", reference, "who", "b") == ["b…"]

    asyncio.run(main())
