"""What a call costs from Python: `calls.py SERVER`, where SERVER is the program of the test server.

Beside each other, in turns, on servers of the same program: Stayput on a held session, with and without `await`, the
client of the official SDK on a held session, and the same with a session for each call, as those do it who hold none.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from mcp import Client, StdioServerParameters

import stayput
from stayput import sync

ROUNDS, CALLS, COSTLY, AT_ONCE = 7, 400, 8, 200
SERVER = sys.argv[1]
ARGS = ["stdio", "--era", "legacy"]

Call = Callable[[], Awaitable[object]]
missed = list[str]()


async def timed(call: Call, calls: int) -> list[float]:
    """Seconds that each of some calls took, one after the other."""
    took = list[float]()
    for _ in range(calls):
        start = time.perf_counter()
        await call()
        took.append(time.perf_counter() - start)
    return took


async def together(call: Call) -> float:
    """Seconds for each of many calls at once."""
    start = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(AT_ONCE)))
    return (time.perf_counter() - start) / AT_ONCE


def sdk() -> Client:
    return Client(StdioServerParameters(command=SERVER, args=ARGS, env=dict(os.environ)), mode="legacy")


def line(what: str, took: list[float], than: float | None = None, target: float | None = None) -> float:
    """Shows the median, the 99th percentile, and how that is beside another."""
    middle, late = statistics.median(took), sorted(took)[int(len(took) * 0.99)]
    beside = "" if than is None else f"{middle / than:8.2f} of the SDK"
    if than is not None and target is not None:
        met = middle / than <= target
        beside += f"   target {target}: {'met' if met else 'MISSED'}"
        if not met:
            missed.append(what)
    print(f"  {what:<44} {middle * 1e6:10.0f} µs {late * 1e6:10.0f} µs {beside}")
    return middle


async def main() -> None:
    config = {"mcpServers": {"test": {"command": SERVER, "args": ARGS}}}
    blocking = sync.Hub.from_config(config)
    thread = blocking.session("bench")

    async def one_session() -> None:
        async with sdk() as client:
            await client.call_tool("echo", {"x": 1})

    async def waiting() -> None:
        # On this thread: what is measured is the call, not the way to another thread.
        thread.call("test", "echo", x=1)

    async with stayput.Hub.from_config(config) as hub, hub.session("bench") as session, sdk() as client:
        ways: dict[str, Call] = {
            "sdk": lambda: client.call_tool("echo", {"x": 1}),
            "ours": lambda: session.call("test", "echo", x=1),
            "sync": waiting,
        }
        took: dict[str, list[float]] = {name: [] for name in [*ways, "each", "sdk together", "ours together"]}
        for call in ways.values():
            await timed(call, 50)
        for _ in range(ROUNDS):
            for name, call in ways.items():
                took[name] += await timed(call, CALLS)
            for name in ["sdk", "ours"]:
                took[f"{name} together"].append(await together(ways[name]))
        took["each"] = await timed(one_session, COSTLY)
    blocking.close()
    print(f"A call from Python over stdio, {ROUNDS} rounds of {CALLS}: median and 99th percentile")
    held = line("official SDK, held session", took["sdk"])
    line("stayput, held session", took["ours"], held, 0.5)
    line("stayput.sync, held session", took["sync"], held)
    line(f"official SDK, a session for each call ({COSTLY})", took["each"], held)
    print(f"Each of {AT_ONCE} calls at once")
    held = line("official SDK, held session", took["sdk together"])
    line("stayput, held session", took["ours together"], held)


asyncio.run(main())
if missed:
    sys.exit(1)
