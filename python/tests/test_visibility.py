"""Visibility of servers, and hooks: stderr, events of calls, `_meta`, trace context, log, kept session ids, notifications."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import Kit, count, wait_until

import stayput


def test_stderr_comes_line_by_line_without_secrets(kit: Kit) -> None:
    """The callback gets each line while the process runs, and what it wrote before its end."""
    lines = list[stayput.StderrLine]()

    def note(line: stayput.StderrLine) -> None:
        lines.append(line)
        raise ValueError("a callback that fails loses no line")

    async def main() -> None:
        async with kit.hub(on_stderr=note) as hub, hub.run():
            await hub.call("counter", "stderr", text="one\ntwo")
            await hub.call("counter", "stderr", text=f"the token is {kit.marker}")
            await asyncio.to_thread(wait_until, lambda: len(lines) >= 3, "three lines")

    asyncio.run(main())
    assert [line.text for line in lines[:2]] == ["one", "two"]
    assert {line.server for line in lines} == {"counter"}
    assert lines[2].text.startswith("the token is ") and kit.marker not in lines[2].text


def test_meta_of_a_call_reaches_the_server(kit: Kit) -> None:
    """Also beside members that the hub needs; other options stay."""

    async def main() -> None:
        async with kit.hub() as hub, hub.run():
            plain = json.loads((await hub.call("counter", "meta")).text)
            assert not plain
            tenant = hub.with_options(meta={"example.com/tenant": "a"}).with_options(on_notification=print)
            sent = json.loads((await tenant.call("counter", "meta")).text)
            assert sent["example.com/tenant"] == "a" and "progressToken" in sent
            with pytest.raises(stayput.InvalidInputError, match="meta"):
                await hub.with_options(meta={"x": object()}).call("counter", "meta")

    asyncio.run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the environment of the tests has OpenTelemetry from 3.11 on")
def test_trace_context_of_opentelemetry_is_passed_on(kit: Kit) -> None:
    """The server gets `traceparent` of the current span, beside the members of the caller."""
    from opentelemetry.sdk.trace import TracerProvider

    async def main() -> None:
        tracer = TracerProvider().get_tracer("test")
        async with kit.hub() as hub, hub.run():
            with tracer.start_as_current_span("turn") as span:
                sent = json.loads((await hub.with_options(meta={"x": 1}).call("counter", "meta")).text)
            trace, identity = span.get_span_context().trace_id, span.get_span_context().span_id
            assert sent["traceparent"].startswith(f"00-{trace:032x}-{identity:016x}-") and sent["x"] == 1
            assert "traceparent" not in (json.loads((await hub.call("counter", "meta")).text) or {}), "no span"

    asyncio.run(main())


def test_events_tell_calls_in_order(kit: Kit) -> None:
    """A link comes before its calls; the end of a process has its exit code and its last words."""

    async def main() -> None:
        async with kit.hub() as hub:
            events = hub.events()
            async with hub.session("chat") as chat:
                assert await count(chat) == 1
                await chat.call("counter", "stderr", text="last words")
                with pytest.raises(stayput.StateLostError) as lost:
                    await chat.call("counter", "exit", code=7)
                assert lost.value.exit_code == 7 and "last words" in lost.value.detail
                await chat.end()
            seen = [await anext(events) for _ in range(6)]
        assert [event.kind for event in seen] == ["linked", "called", "called", "lost", "called", "ended"]
        assert {event.session_name for event in seen} == {"chat"}
        assert [event.tool for event in seen] == [None, "count", "stderr", None, "exit", None]
        assert all(event.duration is not None and event.duration > 0 for event in seen if event.kind == "called")
        assert seen[3].exit_code == 7 and "last words" in seen[3].detail
        assert [seen[1].reason, seen[4].reason] == [None, "state_lost"]

    asyncio.run(main())


def test_log_of_the_library_is_in_logging(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    """Under `stayput.…`, as verbose as the logger is."""

    async def main(name: str) -> None:
        async with kit.hub() as hub:
            await count(hub.session(name))

    with caplog.at_level(logging.WARNING, "stayput"):
        asyncio.run(main("quiet"))
        assert not caplog.records
    with caplog.at_level(logging.INFO, "stayput"):
        asyncio.run(main("loud"))
        wait_until(lambda: any("session linked" in record.getMessage() for record in caplog.records), "a record")
    assert {record.name.split(".")[0] for record in caplog.records} == {"stayput"}
    assert all(record.levelno >= logging.INFO for record in caplog.records)


def test_ticket_of_a_session_that_goes_on(kit: Kit) -> None:
    """Both hubs use the same session on the server."""
    from conftest import demo_server

    async def main(url: str) -> None:
        config = {"mcpServers": {"remote": {"url": url}}}
        async with stayput.Hub.from_config(config) as first, stayput.Hub.from_config(config) as second:
            chat = first.session("chat")
            assert await count(chat, "remote") == 1
            there = await second.resume(await chat.ticket(release=False))
            assert [await count(there, "remote"), await count(chat, "remote")] == [2, 3]

    with demo_server() as url:
        asyncio.run(main(url))


def test_store_of_another_key_is_refused(tmp_path: object) -> None:
    """With the older key after the new one it opens."""
    from conftest import demo_server

    old, new = "1" * 64, "2" * 64
    store: dict[str, Any] = {"store": f"sqlite:{tmp_path}/sessions.db"}

    async def main(url: str) -> None:
        config = {"mcpServers": {"remote": {"url": url}}}
        async with stayput.Hub.from_config(config, **store, seal=old) as hub:
            assert await count(hub.session("chat"), "remote") == 1
        with pytest.raises(stayput.InvalidInputError, match="another key"):
            stayput.Hub.from_config(config, **store, seal=new)
        async with stayput.Hub.from_config(config, **store, seal=[new, old]) as hub:
            assert await count(hub.session("chat"), "remote") == 2

    with demo_server() as url:
        asyncio.run(main(url))


class Kept:
    """Keeper of session ids in a dict, by the name of the server; saving is a coroutine."""

    def __init__(self) -> None:
        self.texts = dict[str, str]()
        self.notes = list[str]()

    def load(self, link: stayput.KeptLink) -> str | None:
        return self.texts.get(link.server)

    async def save(self, link: stayput.KeptLink, text: str) -> None:
        self.notes.append(f"save {link.session_name}")
        self.texts[link.server] = text

    def clear(self, link: stayput.KeptLink) -> None:
        self.notes.append(f"clear {link.session_name}")
        del self.texts[link.server]


def test_run_continues_with_the_ids_of_its_keeper() -> None:
    """R116, R119: in another hub, too; a run without the keeper has its own session."""
    from conftest import demo_server

    async def main(url: str) -> None:
        config = {"mcpServers": {"remote": {"url": url}}}
        keeper = Kept()
        async with stayput.Hub.from_config(config) as first, stayput.Hub.from_config(config) as second:
            for number, hub in enumerate([first, first, second], 1):
                async with hub.run(keeper=keeper):
                    assert await count(hub, "remote") == number
            async with second.run():
                assert await count(second, "remote") == 1
            chat = first.session("chat").with_keeper(keeper)
            assert await count(chat, "remote") == 4
            await chat.end()
            assert keeper.notes[-2:] == ["save chat", "clear chat"] and not keeper.texts

    with demo_server() as url:
        asyncio.run(main(url))


def test_keepers_of_many_threads_have_numbers_of_their_own() -> None:
    """One user's session id never goes to the keeper of another."""
    from stayput.sync import Hub

    keepers = [Kept() for _ in range(400)]
    with Hub.from_config({"mcpServers": {}}) as hub, ThreadPoolExecutor(8) as threads:
        numbers = list(threads.map(hub._headers.add_keeper, keepers))
        assert sorted(numbers) == list(range(len(keepers)))
        assert [hub._headers._keepers[number] for number in numbers] == keepers


def test_keeper_is_let_go_with_its_run_or_session() -> None:
    """A web server that makes a keeper for each request does not keep all of them."""
    from conftest import demo_server

    async def main(url: str) -> None:
        async with stayput.Hub.from_config({"mcpServers": {"remote": {"url": url}}}) as hub:
            gone = list[weakref.ref[Kept]]()

            async def request(name: str) -> None:
                keeper = Kept()
                gone.append(weakref.ref(keeper))
                async with hub.run(keeper=keeper):
                    await count(hub, "remote")
                    async with hub.run(keeper=keeper):  # joins the run
                        await count(hub, "remote")
                    assert list(hub._headers._keepers.values()) == [keeper]
                async with hub.session(name).with_keeper(keeper) as chat:
                    await count(chat.with_options(timeout=30), "remote")

            await asyncio.gather(request("a"))
            gc.collect()
            await asyncio.to_thread(wait_until, lambda: not hub._headers._keepers, "the keepers are let go")
            assert gone[0]() is None

    with demo_server() as url:
        asyncio.run(main(url))


def test_keeper_that_fails_is_an_error_without_its_text() -> None:
    """Only the type of its exception is told."""
    from conftest import demo_server

    class Failing(Kept):
        def load(self, link: stayput.KeptLink) -> str | None:
            raise KeyError("the-secret")

    async def main(url: str) -> None:
        async with stayput.Hub.from_config({"mcpServers": {"remote": {"url": url}}}) as hub, hub.run(keeper=Failing()):
            with pytest.raises(stayput.ServerFailedError, match="KeyError") as failed:
                await count(hub, "remote")
            assert "the-secret" not in str(failed.value)

    with demo_server() as url:
        asyncio.run(main(url))


def test_notifications_outside_of_calls_are_heard(kit: Kit) -> None:
    """Changed lists, updated resources and log messages, until the session ends."""

    async def main() -> None:
        async with kit.hub() as hub:
            chat = hub.session("chat")
            heard = await chat.listen("counter", ["test://count"])
            await chat.call("counter", "notify", log="the disk is full")
            notes = [await anext(heard) for _ in range(3)]
            assert {note["method"] for note in notes} == {
                "notifications/tools/list_changed",
                "notifications/resources/updated",
                "notifications/message",
            }
            assert "the disk is full" in [note["params"].get("data") for note in notes]
            await chat.end()
            assert [note async for note in heard] == []
            await heard.close()

    asyncio.run(main())
