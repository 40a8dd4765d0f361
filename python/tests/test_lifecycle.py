"""Cancellation, threads, forks, the end of the interpreter, and many calls at once."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from conftest import TEST_TIMEOUT, Kit, count, script, wait_until

import stayput

SETUP = """
import asyncio, json, os, sys
import stayput
hub = stayput.Hub.from_config(json.loads(sys.argv[1]))
async def count(): return (await hub.session("chat").call("counter", "count")).text
"""


def configuration(kit: Kit) -> str:
    import json

    return json.dumps(kit.config())


def test_cancelled_task_cancels_the_call(kit: Kit) -> None:
    """The server gets the cancellation, and the session continues."""

    async def main() -> None:
        async with kit.hub() as hub, hub.session("chat") as chat:
            assert await count(chat) == 1
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(chat.call("counter", "slow", ms=3_600_000, steps=1), 0.2)
            stats = (await chat.call("counter", "stats")).structured
            assert stats["cancels"] == 1, "it on_notification of that before the next call"
            assert await count(chat) == 2
            assert (await chat.status("counter")).in_flight == 0

    asyncio.run(main())


def test_slow_call_times_out(kit: Kit) -> None:
    async def main() -> None:
        async with kit.hub() as hub, hub.session("chat") as chat:
            with pytest.raises(stayput.CallTimeoutError) as late:
                await chat.with_options(timeout=0.2).call("counter", "slow", ms=60_000, steps=1)
            assert isinstance(late.value, TimeoutError) and late.value.may_have_run

    asyncio.run(main())


def test_concurrent_calls_are_isolated(kit: Kit) -> None:
    """R005, R036: 500 calls on ten sessions; ten processes, and none is left."""

    async def main() -> None:
        async with kit.hub() as hub:

            async def call(number: int) -> tuple[int, str]:
                session = hub.session(f"chat-{number % 10}")
                await session.call("counter", "note_add", text=f"note-{number}")
                message = await session.call("counter", "echo", {"number": number})
                return number, message.text

            answers = await asyncio.gather(*(call(number) for number in range(500)))
            assert [int(text.split(":")[1].rstrip("} ")) for _, text in answers] == list(range(500))
            assert len(kit.processes()) == 10
            for chat in range(10):
                notes = (await hub.session(f"chat-{chat}").call("counter", "note_list")).structured["notes"]
                assert sorted(notes) == sorted(f"note-{number}" for number in range(chat, 500, 10))

    asyncio.run(main())


def test_threads_with_own_loops_share_a_hub(kit: Kit) -> None:
    """E21."""
    hub, counted, lock = kit.hub(), list[int](), threading.Lock()

    async def work() -> None:
        for _ in range(20):
            number = await count(hub.session("chat"))
            with lock:
                counted.append(number)

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TEST_TIMEOUT)
    assert sorted(counted) == list(range(1, 81))
    assert len(kit.processes()) == 1

    async def close() -> stayput.CloseReport:
        return await hub.close()

    report = asyncio.run(close())
    assert (report.opened, report.sessions, report.links, report.killed) == (1, 1, 1, 0)

    async def closed() -> None:
        with pytest.raises(stayput.HubClosedError):
            await count(hub.session("chat"))

    asyncio.run(closed())


def test_waiting_call_releases_the_interpreter_lock(kit: Kit) -> None:
    """Another thread runs meanwhile."""
    from stayput import sync

    hub = sync.Hub.from_config(kit.config())
    chat, ticks, over = hub.session("chat"), [0], threading.Event()
    chat.call("counter", "count")

    def tick() -> None:
        while not over.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks[0]
    chat.call("counter", "slow", ms=500, steps=1)
    after = ticks[0]
    over.set()
    thread.join()
    hub.close()
    assert after - before > 20


def test_unclosed_hub_ends_with_its_last_user(kit: Kit) -> None:
    async def main() -> None:
        hub = kit.hub()
        await count(hub.session("chat"))
        assert len(kit.processes()) == 1

    asyncio.run(main())
    gc.collect()
    kit.wait_until_gone()


@pytest.mark.parametrize("how", ["", "sys.exit(3)", "raise ZeroDivisionError", "del hub"])
def test_interpreter_exit_closes_all_hubs(kit: Kit, how: str) -> None:
    done = script(SETUP + "print(asyncio.run(count()), flush=True)\n" + how, configuration(kit))
    assert done.stdout == "1\n", done.stderr
    assert "stayput" not in done.stderr.replace("stayput-testserver", "") or how == "raise ZeroDivisionError"
    assert not kit.processes()


def test_interpreter_exit_during_calls_does_not_hang(kit: Kit) -> None:
    """With a blocked thread and an abandoned loop."""
    text = """
import threading
from stayput import sync
other = sync.Hub.from_config(json.loads(sys.argv[1]))
slow = threading.Thread(target=lambda: other.session("b").call("counter", "slow", ms=3_600_000, steps=1), daemon=True)
slow.start()
loop = asyncio.new_event_loop()
task = loop.create_task(hub.session("a").call("counter", "slow", ms=3_600_000, steps=1))
loop.run_until_complete(asyncio.sleep(0.5))
"""
    done = script(SETUP + text, configuration(kit))
    assert done.returncode == 0, done.stderr
    kit.wait_until_gone()


def test_interpreter_exit_releases_sessions(kit: Kit, tmp_path: Path) -> None:
    """The next process opens them at once, without waiting for the lease."""
    config, store, folders = configuration(kit), f"sqlite:{tmp_path}/sessions.db", str(tmp_path / "folders")
    text = """
import asyncio, ctypes, json, sys
import stayput
hub = stayput.Hub.from_config(json.loads(sys.argv[1]), store=sys.argv[2], folders=sys.argv[3])
print(asyncio.run(hub.session("chat").info()).name, flush=True)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(hub._hub))  # nothing else lets go of it
"""
    assert script(text, config, store, folders).stdout == "chat\n"

    async def main() -> None:
        async with kit.hub(store=store, folders=folders) as hub:
            await asyncio.wait_for(hub.find("chat"), 10)

    asyncio.run(main())


def test_kill_9_leaves_no_process(kit: Kit) -> None:
    text = SETUP + "print(asyncio.run(count()), flush=True)\nimport time; time.sleep(3600)"
    command = [sys.executable, "-c", text, configuration(kit)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None and victim.stdout.readline() == "1\n"
        assert len(kit.processes()) == 1
        victim.kill()
    kit.wait_until_gone()


def test_forked_hub_is_refused_and_a_new_one_works(kit: Kit) -> None:
    """The old hub raises, closes nothing and does not hang."""
    text = """
assert asyncio.run(count()) == "1"
run = hub.run()
asyncio.run(run.__aenter__())
loop = asyncio.new_event_loop()
slow = loop.create_task(hub.session("chat").call("counter", "slow", ms=1500, steps=1))
loop.run_until_complete(asyncio.sleep(0.2))
child = os.fork()
if child == 0:
    slow.cancel()
    loop.run_until_complete(asyncio.wait([slow]))
    try:
        asyncio.run(count())
    except stayput.HubForkedError as error:
        print("forked:", error, flush=True)
    try:
        asyncio.run(run.__aexit__(None, None, None))
    except stayput.HubForkedError:
        print("inert", flush=True)
    del run
    import gc
    gc.collect()
    hub = stayput.Hub.from_config(json.loads(sys.argv[1]))
    print("new:", asyncio.run(count()), flush=True)
    sys.exit(0)
_, status = os.waitpid(child, 0)
print("not cancelled:", loop.run_until_complete(slow).is_error, flush=True)
print("status:", status, "parent:", asyncio.run(count()), flush=True)
"""
    done = script(SETUP + text, configuration(kit))
    lines = done.stdout.splitlines()
    assert lines[0].startswith("forked: this hub belongs to the process that this one was forked from"), done
    assert lines[1:] == ["inert", "new: 1", "not cancelled: False", "status: 0 parent: 2"], done
    kit.wait_until_gone()


def test_ctrl_c_interrupts_a_blocked_thread(kit: Kit) -> None:
    text = """
from stayput import sync
other = sync.Hub.from_config(json.loads(sys.argv[1])).session("b")
other.call("counter", "count")
print("ready", flush=True)
try:
    other.call("counter", "slow", ms=3_600_000, steps=1)
except KeyboardInterrupt:
    print("interrupted", other.status("counter").in_flight, other.call("counter", "count").text, flush=True)
"""
    command = [sys.executable, "-c", SETUP + text, configuration(kit)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline().startswith("interrupted ")
        assert process.wait(TEST_TIMEOUT) == 0


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_calls_leak_no_file_descriptors(kit: Kit, run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    """A thousand calls, sequential and concurrent."""

    async def main() -> None:
        async with kit.hub() as hub, hub.session("chat") as chat:
            await count(chat)
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(500):
                await count(chat)
            await asyncio.gather(*(count(chat) for _ in range(500)))
            assert len(os.listdir("/proc/self/fd")) <= before

    run(main())


def test_closed_loops_leak_no_file_descriptors(kit: Kit) -> None:
    """A hundred loops, one after the other."""
    hub = kit.hub()

    async def once() -> int:
        return await count(hub.session("chat"))

    asyncio.run(once())
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        asyncio.run(once())
    gc.collect()

    async def close() -> None:
        await hub.close()

    assert len(os.listdir("/proc/self/fd")) <= before + 4

    # A loop that was closed in the middle of a call.
    loop = asyncio.new_event_loop()
    task = loop.create_task(hub.session("chat").call("counter", "slow", ms=3_600_000, steps=1))
    loop.run_until_complete(asyncio.sleep(0.1))
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    left = weakref.ref(loop)
    del loop, task
    asyncio.run(once())
    gc.collect()
    assert left() is None
    asyncio.run(close())
    wait_until(lambda: not kit.processes(), "the process goes with the hub")
