"""Loops of every kind, and none: asyncio's, uvloop's, trio's, that of a notebook; interrupted, limited, in other processes."""

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
from conftest import LONG, Kit, cancelled, count

import stayput
from stayput import sync


def test_uvloop(kit: Kit) -> None:
    """E21: what is left of one loop is used from the next, of another kind."""
    hub = kit.hub()

    async def work() -> list[int]:
        async with hub.session("chat") as chat:
            await chat.bind("counter")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(chat.call("counter", "slow", ms=3_600_000, steps=1), 0.2)
            await cancelled(chat)
            return await asyncio.gather(*(count(hub) for _ in range(5)))

    assert uvloop.run(work()) == [1, 2, 3, 4, 5]
    assert asyncio.run(work()) == [6, 7, 8, 9, 10]

    async def close() -> None:
        await hub.close()

    uvloop.run(close())


def test_on_trio_it_says_what_to_do(kit: Kit) -> None:
    """Without a loop of asyncio there is a sentence, and what it advises works, in the session of the task."""
    hub = kit.hub()
    blocking = sync.Hub.from_config(kit.config())

    async def refused() -> None:
        with pytest.raises(stayput.InvalidInput, match=r"asyncio.*`stayput\.sync`"):
            await count(hub.session("chat"))
        with pytest.raises(stayput.InvalidInput, match="asyncio"):
            await hub.with_options(on_notification=print).session("chat").call("counter", "count")
        with pytest.raises(stayput.InvalidInput, match="asyncio"):
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
    asyncio.run(closed(hub))
    assert not kit.alive()


def test_anyio_on_asyncio(kit: Kit) -> None:
    """Cancel scopes, task groups and worker threads of anyio."""

    async def main() -> None:
        async with kit.hub() as hub, hub.session("chat") as chat:
            await chat.bind("counter")
            with anyio.move_on_after(0.2) as scope:
                await chat.call("counter", "slow", ms=3_600_000, steps=1)
            assert scope.cancelled_caught
            await cancelled(chat)
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(count, hub)
            assert await anyio.to_thread.run_sync(asyncio.run, count(hub)) == 6

    anyio.run(main)


def test_without_await_inside_a_loop_that_runs(kit: Kit) -> None:
    """As in a notebook: a cell has a loop, and calls without `await`. Handlers that are coroutines answer all the same."""

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
def test_a_timeout_around_calls(kit: Kit) -> None:
    """It cancels what is under way, and the session goes on."""

    async def main() -> None:
        async with kit.hub() as hub, hub.session("chat") as chat:
            await chat.bind("counter")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):  # type: ignore[attr-defined,unused-ignore]
                    await chat.call("counter", "slow", ms=3_600_000, steps=1)
            await cancelled(chat)
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


def test_ctrl_c_in_the_middle_of_a_call(kit: Kit) -> None:
    """R011: the run ends, nothing else is said, and no process is left."""
    import json

    command = [sys.executable, "-c", CTRL_C, json.dumps(kit.config())]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=LONG)
    assert (said, errors, process.returncode) == ("interrupted\n", "", 0)
    assert not kit.alive()


inherited: sync.Hub | None = None
"""What a forked process has of its parent."""


def in_another_process(config: dict[str, Any]) -> tuple[str, str]:
    """What it says of a hub that it inherited, if any, and what its own one counts to."""
    said = "nothing"
    if inherited is not None:
        try:
            inherited.session("chat").call("counter", "count")
        except stayput.HubForked as error:
            said = str(error)
    with sync.Hub.from_config(config) as hub, hub.run():
        return said, hub.call("counter", "count").text


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_pools_of_processes(kit: Kit, way: str) -> None:
    """Each has a hub of its own; a forked one says of its parent's what to do."""
    global inherited
    with sync.Hub.from_config(kit.config()) as hub:
        hub.session("chat").call("counter", "count")
        inherited = hub
        try:
            with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(way)) as pool:
                answers = list(pool.map(in_another_process, [kit.config()] * 4, timeout=LONG))
        finally:
            inherited = None
        for said, counted in answers:
            assert ("build another" in said) == (way == "fork"), said
            assert counted == "1"
        assert hub.session("chat").call("counter", "count").text == "2", "nobody closed anything of the parent's"


def test_what_is_of_a_process_cannot_be_pickled(kit: Kit) -> None:
    """It says what to do; copied, it leads to the same; results and errors can be sent along."""
    with sync.Hub.from_config(kit.config()) as hub, hub.session("chat") as chat:
        for it in (hub, chat):
            assert copy.copy(it) is it and copy.deepcopy({"x": it})["x"] is it
            with pytest.raises(TypeError, match=r"<stayput\.sync\..*ticket"):
                pickle.dumps(it)
        result = pickle.loads(pickle.dumps(chat.call("counter", "count")))
        assert (result.text, result.after_loss) == ("1", False)
        tool = hub.tools("counter")[0]
        assert pickle.loads(pickle.dumps(tool)) == tool


async def closed(hub: stayput.Hub) -> stayput.CloseReport:
    """Closes it, as a coroutine."""
    closing: Awaitable[stayput.CloseReport] = hub.close()
    return await closing
