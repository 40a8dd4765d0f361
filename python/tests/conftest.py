"""Support of the tests: real servers, and their processes."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import stayput

TEST_TIMEOUT = 60.0
"""Upper bound for a busy machine; a successful test does not wait for it."""

_numbers = itertools.count()


def program() -> str:
    """Path of the program in the wheel."""
    return str(Path(sysconfig.get_path("scripts")) / "stayput")


def test_server() -> str:
    """Path of the stateful server of the test kit."""
    return os.environ["STAYPUT_TEST_SERVER"]


test_server.__test__ = False  # type: ignore[attr-defined]


class Kit:
    """Servers of one test. A unique environment value marks their processes."""

    def __init__(self) -> None:
        self.marker = f"python-{os.getpid()}-{next(_numbers)}-"

    def entry(self, *more: str) -> dict[str, Any]:
        """Configuration entry of the test server, a child with its own counter and notes."""
        args = ["stdio", "--era", "legacy", *more]
        return {"command": test_server(), "args": args, "env": {"TOKEN": self.marker}}

    def config(self, **servers: dict[str, Any]) -> dict[str, Any]:
        """Configuration with the test server as `counter`, and others."""
        return {"mcpServers": {"counter": self.entry(), **servers}}

    def hub(self, **settings: Any) -> stayput.Hub:
        """Builds a hub with the test server as `counter`."""
        return stayput.Hub.from_config(self.config(), **settings)

    def processes(self) -> list[int]:
        """Ids of the marked processes."""
        mark, found = f"TOKEN={self.marker}".encode(), list[int]()
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    environment = (folder / "environ").read_bytes().split(b"\0")
                    state = (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]
                except OSError:
                    continue
                if mark in environment and state != "Z":
                    found.append(int(folder.name))
        return found

    def wait_until_gone(self) -> None:
        """Waits until no marked process is left."""
        wait_until(lambda: not self.processes(), f"processes are left: {self.processes()}")


@pytest.fixture
def kit() -> Iterator[Kit]:
    """Kit that checks after the test that no process is left."""
    it = Kit()
    yield it
    it.wait_until_gone()


@contextmanager
def demo_server() -> Iterator[str]:
    """Runs the demo server over HTTP, with its state per session, and gives its URL."""
    command = [program(), "demo-server", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.kill()


def wait_until(check: Callable[[], object], what: str) -> None:
    """Waits until a condition is true."""
    end = time.monotonic() + TEST_TIMEOUT
    while not check():
        assert time.monotonic() < end, f"timed out: {what}"
        time.sleep(0.02)


def script(text: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a new interpreter."""
    command = [sys.executable, "-c", text, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=TEST_TIMEOUT, env={**os.environ, **env})


async def count(calls: stayput.Hub | stayput.Session, server: str = "counter") -> int:
    """Increments the counter, and returns it."""
    return int((await calls.call(server, "count")).text)


async def wait_for_cancel(session: stayput.Session, server: str = "counter") -> None:
    """Waits until the server got a cancellation, which can arrive after the next call."""
    end = time.monotonic() + TEST_TIMEOUT
    while not (await session.call(server, "stats")).structured["cancels"]:
        assert time.monotonic() < end, "the server got no cancellation"
        await asyncio.sleep(0.01)


async def wait_for_call(session: stayput.Session, server: str = "counter") -> None:
    """Waits until a call is in flight."""
    end = time.monotonic() + TEST_TIMEOUT
    while (await session.status(server)).in_flight == 0:
        assert time.monotonic() < end, "no call is in flight"
        await asyncio.sleep(0.01)
