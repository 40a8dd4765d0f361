"""LangGraph agent with a real browser behind `@playwright/mcp`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from agents import Step, agent, turn
from conftest import TEST_TIMEOUT, Kit, wait_until
from web import web

import stayput
from stayput.langchain import MultiServerMCPClient


def peers() -> Path | None:
    """Folder in which `scripts/install peers` installs third-party programs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("STAYPUT_TEST_PEERS") or cache / "stayput" / "peers")
    return folder if (folder / "stamp").is_file() else None


LEFT_OUT = "STAYPUT_TEST_QUICK" in os.environ or ("STAYPUT_TEST_PEERS" not in os.environ and peers() is None)

pytestmark = pytest.mark.skipif(LEFT_OUT, reason="the peers are not here: run `scripts/install peers`")

SHOP = 'data:text/html,<title>Shop of {0}</title><h1 id=n>0 for {0}</h1><button onclick="{1}">Add</button>'
ADD = "n.textContent=(parseInt(n.textContent)+1)+' for {0}'"

READ: Step = [("browser_snapshot", {})]
CLICK: Step = [("browser_click", {"element": "the button", "target": "<Add>"})]


def go(name: str) -> Step:
    return [("browser_navigate", {"url": SHOP.format(name, ADD.format(name))})]


@pytest.fixture
def temporary() -> Iterator[str]:
    """Folder for the sockets of a browser, with a short path."""
    folder = tempfile.mkdtemp(prefix="pw")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def playwright() -> list[str]:
    """Command of the server, with the browser of this machine."""
    folder = peers()
    assert folder is not None, "the peers are not here: run `scripts/install peers`"
    chromium = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])))
    server = str(folder / "node_modules/@playwright/mcp/cli.js")
    return [server, "--headless", "--no-sandbox", "--executable-path", chromium]


def browser(kit: Kit, temporary: str) -> dict[str, Any]:
    """Entry of the recipe, with settings that keep files out of the home folder."""
    args = ["--output-dir=${session.dir}/output", "--user-data-dir=${session.dir}/profile"]
    env = {"TOKEN": kit.marker, "TMPDIR": temporary}
    env |= {"XDG_CONFIG_HOME": "${session.dir}/config", "XDG_CACHE_HOME": "${session.dir}/cache"}
    return {"command": "node", "args": [*playwright(), *args], "env": env}


async def shopping(client: httpx.AsyncClient, name: str) -> None:
    """Conversation of four requests: open the page, add twice, read."""
    pages = [await ask(client, name, go(name), READ)]
    pages += [await ask(client, name, READ, CLICK, READ), await ask(client, name, CLICK, READ)]
    pages += [await ask(client, name, READ)]
    for page, number in zip(pages, [0, 1, 2, 2]):
        assert f'heading "{number} for {name}"' in page and f"Page Title: Shop of {name}" in page, page


async def ask(client: httpx.AsyncClient, name: str, *steps: Step) -> str:
    answer = await client.post(f"/{name}", json=steps)
    assert answer.status_code == 200
    return answer.text


def drivers(kit: Kit) -> list[int]:
    """Ids of the processes that control a browser."""

    def is_one(pid: int) -> bool:
        try:
            return b"@playwright/mcp/cli.js" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    return [pid for pid in kit.processes() if is_one(pid)]


def test_browser_stays_open_across_requests_of_a_thread(kit: Kit, temporary: str) -> None:
    """R037, R064, R107, E35: one browser per thread."""

    async def main() -> None:
        config = {"mcpServers": {"browser": browser(kit, temporary)}}
        async with stayput.Hub.from_config(config) as hub:
            app = web(agent(await hub.langchain_tools(key="thread_id")))
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://web", timeout=120
            ) as client:
                await asyncio.gather(shopping(client, "Ann"), shopping(client, "Ben"))
            assert len(drivers(kit)) == 2
            await (await hub.find("Ann")).end()
            wait_until(lambda: len(drivers(kit)) == 1, "the browser goes with its session")

    asyncio.run(main())


def test_replaced_client_keeps_the_page_open(kit: Kit, temporary: str) -> None:
    """R064: the client of the old adapter, with and without threads."""

    async def main() -> None:
        async with MultiServerMCPClient({"browser": {"transport": "stdio", **browser(kit, temporary)}}) as client:
            tools = {tool.name: tool for tool in await client.get_tools()}
            await tools["browser_navigate"].ainvoke({"url": SHOP.format("Eve", ADD.format("Eve"))})
            page = str(await tools["browser_snapshot"].ainvoke({}))
            assert "Shop of Eve" in page and "about:blank" not in page
            picture = await tools["browser_take_screenshot"].ainvoke({})
            assert any(block["type"] == "image" and len(block["base64"]) > 1000 for block in picture), picture
            assert len(drivers(kit)) == 1

    asyncio.run(main())


FIRST = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
import stayput, test_langgraph_browser as story
from agents import agent, turn
async def main():
    hub = stayput.Hub.from_config(json.loads(sys.argv[2]), **json.loads(sys.argv[3]))
    graph = agent(await hub.langchain_tools(key="thread_id"))
    output = await turn(graph, "Ann", story.go("Ann"), story.READ, story.CLICK, story.READ)
    print("1 for Ann" in output, flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""


def test_another_process_continues_the_browser_after_kill(kit: Kit, temporary: str) -> None:
    """E35: the server is reached over HTTP; after `kill -9` the next process clicks on the same page."""
    config_home = {"XDG_CONFIG_HOME": temporary, "XDG_CACHE_HOME": temporary}
    command = ["node", *playwright(), "--isolated", "--port", "0", "--output-dir", temporary]
    env = {**os.environ, "TOKEN": kit.marker, "TMPDIR": temporary, **config_home}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env, cwd=temporary) as server:
        assert server.stderr is not None
        try:
            url = server.stderr.readline().split()[-1]
            config = {"mcpServers": {"browser": {"url": f"{url}/mcp"}}}
            settings = {"store": f"sqlite:{temporary}/sessions.db", "folders": f"{temporary}/folders"}
            here = str(Path(__file__).parent)
            first = [sys.executable, "-c", FIRST, here, json.dumps(config), json.dumps(settings)]
            with subprocess.Popen(first, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "True\n"
                process.kill()
            assert "2 for Ann" in asyncio.run(continue_conversation(config, settings))
        finally:
            server.terminate()


async def continue_conversation(config: dict[str, Any], settings: dict[str, str]) -> str:
    async with stayput.Hub.from_config(config, store=settings["store"], folders=settings["folders"]) as hub:
        graph = agent(await hub.langchain_tools(key="thread_id"))
        return await asyncio.wait_for(turn(graph, "Ann", READ, CLICK, READ), 2 * TEST_TIMEOUT)
