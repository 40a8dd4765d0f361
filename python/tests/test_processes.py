"""Sessions that continue in another process, on a server over HTTP."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import TEST_TIMEOUT, program

import stayput

FIRST = """
import asyncio, json, sys, time
import stayput
config, settings = json.loads(sys.argv[1]), json.loads(sys.argv[2])
async def main():
    hub = stayput.Hub.from_config(config, **settings)
    chat = hub.session("chat")
    await chat.call("notes", "note_add", text="buy milk")
    print("ready" if settings else await chat.ticket(), flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""


@pytest.fixture
def config() -> Iterator[dict[str, object]]:
    """Server over HTTP with one notebook per session."""
    command = [program(), "demo-server", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        yield {"mcpServers": {"notes": {"url": url}}}
        server.kill()


def run_and_kill(config: dict[str, object], settings: dict[str, str]) -> str:
    """Runs another process, kills it with `SIGKILL`, and returns its output."""
    command = [sys.executable, "-c", FIRST, json.dumps(config), json.dumps(settings)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = process.stdout.readline().strip()
        process.kill()
    return output


def test_another_process_continues_after_kill(config: dict[str, object], tmp_path: Path) -> None:
    """E35, R037: by the name of the chat, from a store."""
    settings = {"store": f"sqlite:{tmp_path}/sessions.db", "folders": str(tmp_path / "folders")}
    assert run_and_kill(config, settings) == "ready"

    async def main() -> str:
        hub = stayput.Hub.from_config(config, store=settings["store"], folders=settings["folders"])
        async with hub, hub.session("chat") as chat:
            return (await asyncio.wait_for(chat.call("notes", "note_list"), TEST_TIMEOUT)).text

    assert asyncio.run(main()) == "1. buy milk"


def test_ticket_moves_a_session(config: dict[str, object]) -> None:
    ticket = run_and_kill(config, {})

    async def main() -> None:
        async with stayput.Hub.from_config(config) as hub:
            chat = await hub.resume(ticket)
            assert chat.name == "chat"
            assert (await chat.call("notes", "note_list")).text == "1. buy milk"
            with pytest.raises(stayput.NameTakenError):
                await hub.resume(ticket)
            with pytest.raises(stayput.InvalidInputError, match="must come from a session"):
                await hub.resume("{}")

    asyncio.run(main())


def test_profile_moves_to_another_hub(config: dict[str, object]) -> None:
    async def main() -> None:
        async with stayput.Hub.from_config(config) as one, stayput.Hub.from_config(config) as two:
            await one.wait_ready("notes", TEST_TIMEOUT)
            await two.set_profile("notes", await one.profile("notes"))
            assert await one.tools("notes") == await two.tools("notes")

    asyncio.run(main())
