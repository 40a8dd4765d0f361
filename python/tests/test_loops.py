"""Event loops: asyncio, uvloop, trio, a notebook's, none; interrupts, timeouts and process pools."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
import signal
import subprocess
import sys
from collections.abc import Awaitable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import anyio
import anyio.to_thread
import pytest
import trio
import uvloop
from conftest import TEST_TIMEOUT, Kit, count, wait_for_cancel

import stayput
from stayput import sync


def test_session_moves_between_asyncio_and_uvloop(kit: Kit) -> None:
    """E21."""
    hub = kit.hub()

    async def work() -> list[int]:
        async with hub.session("chat") as chat:
            await chat.bind("counter")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(chat.call("counter", "slow", ms=3_600_000, steps=1), 0.2)
            await wait_for_cancel(chat)
            return await asyncio.gather(*(count(hub) for _ in range(5)))

    assert uvloop.run(work()) == [1, 2, 3, 4, 5]
    assert asyncio.run(work()) == [6, 7, 8, 9, 10]

    async def close() -> None:
        await hub.close()

    uvloop.run(close())


def test_trio_is_refused_with_a_hint_that_works(kit: Kit) -> None:
    hub = kit.hub()
    blocking = sync.Hub.from_config(kit.config())

    async def refused() -> None:
        with pytest.raises(stayput.InvalidInputError, match=r"asyncio.*`stayput\.sync`"):
            await count(hub.session("chat"))
        with pytest.raises(stayput.InvalidInputError, match="asyncio"):
            await hub.with_options(on_notification=print).session("chat").call("counter", "count")
        with pytest.raises(stayput.InvalidInputError, match="asyncio"):
            async with hub.session():
                pass

    def work() -> int:
        return int(blocking.call("counter", "count").text)

    async def advised() -> None:
        with blocking.session("chat"):
            assert [await trio.to_thread.run_sync(work), await trio.to_thread.run_sync(work)] == [1, 2]

    trio.run(refused)
    anyio.run(refused, backend="trio")
    trio.run(advised)
    blocking.close()
    hub.session("chat").call("counter", "count").close()  # never awaited: nothing was begun
    asyncio.run(close_hub(hub))
    assert not kit.processes()


def test_anyio_on_asyncio_works(kit: Kit) -> None:
    """Cancel scopes, task groups and worker threads of anyio."""

    async def main() -> None:
        async with kit.hub() as hub, hub.session("chat") as chat:
            await chat.bind("counter")
            with anyio.move_on_after(0.2) as scope:
                await chat.call("counter", "slow", ms=3_600_000, steps=1)
            assert scope.cancelled_caught
            await wait_for_cancel(chat)
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(count, hub)
            assert await anyio.to_thread.run_sync(asyncio.run, count(hub)) == 6

    anyio.run(main)


def test_sync_calls_work_inside_a_running_loop(kit: Kit) -> None:
    """As in a notebook. Coroutine handlers still answer."""

    async def roots(_: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"roots": [{"uri": "file:///notebook"}]}

    async def cell() -> None:
        with sync.Hub.from_config(kit.config(), handlers={"roots": roots}) as hub, hub.session("chat") as chat:
            assert chat.call("counter", "count").text == "1"
            assert "file:///notebook" in chat.call("counter", "roots").text
            current = hub.current
            assert current is not None and current.id == chat.id

    asyncio.run(cell())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="`asyncio.timeout` came with 3.11")
def test_asyncio_timeout_cancels_calls(kit: Kit) -> None:
    """The session continues."""

    async def main() -> None:
        async with kit.hub() as hub, hub.session("chat") as chat:
            await chat.bind("counter")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):  # type: ignore[attr-defined,unused-ignore]
                    await chat.call("counter", "slow", ms=3_600_000, steps=1)
            await wait_for_cancel(chat)
            assert await count(chat) == 1

    asyncio.run(main())


CTRL_C = """
import asyncio, json, sys
import stayput
async def main():
    async with stayput.Hub.from_config(json.loads(sys.argv[1])) as hub, hub.run():
        await hub.call("counter", "count")
        print("ready", flush=True)
        await hub.call("counter", "slow", ms=3_600_000, steps=1)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_the_run(kit: Kit) -> None:
    """R011: without other output, and no process is left."""
    import json

    command = [sys.executable, "-c", CTRL_C, json.dumps(kit.config())]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        message, errors = process.communicate(timeout=TEST_TIMEOUT)
    assert (message, errors, process.returncode) == ("interrupted\n", "", 0)
    assert not kit.processes()


inherited: sync.Hub | None = None
"""Hub that a forked process inherits from its parent."""


def in_another_process(config: dict[str, Any]) -> tuple[str, str]:
    """Returns the error of an inherited hub, if any, and the count of its own hub."""
    message = "nothing"
    if inherited is not None:
        try:
            inherited.session("chat").call("counter", "count")
        except stayput.HubForkedError as error:
            message = str(error)
    with sync.Hub.from_config(config) as hub, hub.run():
        return message, hub.call("counter", "count").text


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_process_pool_workers_build_their_own_hubs(kit: Kit, way: str) -> None:
    """A forked worker gets a hint about the hub of its parent."""
    global inherited
    with sync.Hub.from_config(kit.config()) as hub:
        hub.session("chat").call("counter", "count")
        inherited = hub
        try:
            with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(way)) as pool:
                answers = list(pool.map(in_another_process, [kit.config()] * 4, timeout=TEST_TIMEOUT))
        finally:
            inherited = None
        for message, counted in answers:
            assert ("build another" in message) == (way == "fork"), message
            assert counted == "1"
        assert hub.session("chat").call("counter", "count").text == "2", "nobody closed anything of the parent's"


def test_hubs_and_sessions_cannot_be_pickled(kit: Kit) -> None:
    """Copies are handles of the same session; results and errors can be pickled."""
    with sync.Hub.from_config(kit.config()) as hub, hub.session("chat") as chat:
        for it in (hub, chat):
            assert copy.copy(it) is it and copy.deepcopy({"x": it})["x"] is it
            with pytest.raises(TypeError, match=r"<stayput\.sync\..*ticket"):
                pickle.dumps(it)
        result = pickle.loads(pickle.dumps(chat.call("counter", "count")))
        assert (result.text, result.after_loss) == ("1", False)
        tool = hub.tools("counter")[0]
        assert pickle.loads(pickle.dumps(tool)) == tool


async def close_hub(hub: stayput.Hub) -> stayput.CloseReport:
    """Closes a hub."""
    closing: Awaitable[stayput.CloseReport] = hub.close()
    return await closing
