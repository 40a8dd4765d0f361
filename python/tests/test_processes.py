"""Sessions that go on in another process, on a server over HTTP."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import LONG, program

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
    """A server over HTTP with a notebook for each session."""
    command = [program(), "demo-server", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        yield {"mcpServers": {"notes": {"url": url}}}
        server.kill()


def killed(config: dict[str, object], settings: dict[str, str]) -> str:
    """What another process says before it is killed as nobody should be."""
    command = [sys.executable, "-c", FIRST, json.dumps(config), json.dumps(settings)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        process.kill()
    return said


def test_a_second_process_goes_on_after_the_first_was_killed(config: dict[str, object], tmp_path: Path) -> None:
    """E35, R037: by the name of the chat, out of a store, with what was written."""
    settings = {"store": f"sqlite:{tmp_path}/sessions.db", "folders": str(tmp_path / "folders")}
    assert killed(config, settings) == "ready"

    async def main() -> str:
        hub = stayput.Hub.from_config(config, store=settings["store"], folders=settings["folders"])
        async with hub, hub.session("chat") as chat:
            return (await asyncio.wait_for(chat.call("notes", "note_list"), LONG)).text

    assert asyncio.run(main()) == "1. buy milk"


def test_a_ticket_takes_a_session_along(config: dict[str, object]) -> None:
    ticket = killed(config, {})

    async def main() -> None:
        async with stayput.Hub.from_config(config) as hub:
            chat = await hub.resume(ticket)
            assert chat.name == "chat"
            assert (await chat.call("notes", "note_list")).text == "1. buy milk"
            with pytest.raises(stayput.NameTaken):
                await hub.resume(ticket)
            with pytest.raises(stayput.InvalidInput, match="into_ticket"):
                await hub.resume("{}")

    asyncio.run(main())


def test_what_is_known_of_a_server_can_be_taken_along(config: dict[str, object]) -> None:
    async def main() -> None:
        async with stayput.Hub.from_config(config) as one, stayput.Hub.from_config(config) as two:
            await one.wait_ready("notes", LONG)
            await two.set_profile("notes", await one.profile("notes"))
            assert await one.tools("notes") == await two.tools("notes")

    asyncio.run(main())
