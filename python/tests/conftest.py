"""What the tests share: real servers, and a look at which of their processes live."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stayput

LONG = 60.0
"""Long enough for everything on a busy machine; nothing that goes well waits for it."""

_numbers = itertools.count()


def program() -> str:
    """The program that the wheel brought along."""
    return str(Path(sysconfig.get_path("scripts")) / "stayput")


def test_server() -> str:
    """The small server with state of the test kit."""
    return os.environ["STAYPUT_TEST_SERVER"]


test_server.__test__ = False  # type: ignore[attr-defined]


class Kit:
    """Servers whose processes carry a word that no other test has."""

    def __init__(self) -> None:
        self.word = f"python-{os.getpid()}-{next(_numbers)}-"

    def entry(self, *more: str) -> dict[str, Any]:
        """The test server, a child with a counter and notes of its own."""
        args = ["stdio", "--era", "legacy", *more]
        return {"command": test_server(), "args": args, "env": {"TOKEN": self.word}}

    def config(self, **servers: dict[str, Any]) -> dict[str, Any]:
        """A configuration with the test server as `counter`, and others."""
        return {"mcpServers": {"counter": self.entry(), **servers}}

    def hub(self, **settings: Any) -> stayput.Hub:
        """A hub with the test server as `counter`."""
        return stayput.Hub.from_config(self.config(), **settings)

    def alive(self) -> list[int]:
        """The processes that carry the word."""
        mark, found = f"TOKEN={self.word}".encode(), list[int]()
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

    def gone(self) -> None:
        """Waits until nobody carries it."""
        until(lambda: not self.alive(), f"processes are left: {self.alive()}")


@pytest.fixture
def kit() -> Iterator[Kit]:
    """A kit, of which nothing is left when the test is over and its hubs are gone."""
    it = Kit()
    yield it
    it.gone()


def until(check: Callable[[], object], what: str) -> None:
    """Waits for something to become true."""
    end = time.monotonic() + LONG
    while not check():
        assert time.monotonic() < end, f"it did not happen: {what}"
        time.sleep(0.02)


def script(text: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in an interpreter of its own."""
    command = [sys.executable, "-c", text, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONG, env={**os.environ, **env})


async def count(calls: stayput.Hub | stayput.Session, server: str = "counter") -> int:
    """Counts one up; says what it counted to."""
    return int((await calls.call(server, "count")).text)


async def cancelled(session: stayput.Session, server: str = "counter") -> None:
    """Waits until the server was told that a call is cancelled: what comes next can be there before."""
    end = time.monotonic() + LONG
    while not (await session.call(server, "stats")).structured["cancels"]:
        assert time.monotonic() < end, "nobody told the server"
        await asyncio.sleep(0.01)


async def busy(session: stayput.Session, server: str = "counter") -> None:
    """Waits until a call is in flight."""
    end = time.monotonic() + LONG
    while (await session.status(server)).in_flight == 0:
        assert time.monotonic() < end, "no call is made"
        await asyncio.sleep(0.01)
