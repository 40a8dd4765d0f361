"""Several worker processes that share sessions by name."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import TEST_TIMEOUT, Kit, count, demo_server, program, script
from pages import DOCS, examples, run

import stayput

CHATS, TURNS = 20, 50


def read_url(process: subprocess.Popen[str], workers: int) -> str:
    """Reads lines until one had the URL of the process, and each worker has started: only workers listen."""
    assert process.stderr is not None
    url = ""
    for line in process.stderr:
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        url = url or (found.group() if found else "")
        workers -= "Application startup complete" in line
        if url and workers <= 0:
            return url
    raise AssertionError("the process said no URL, or a worker did not start")


@contextmanager
def running(command: list[str], workers: int = 0, **env: str) -> Iterator[str]:
    """Runs a server process, and gives its URL."""
    here = Path(__file__).parent
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=here, env={**os.environ, **env}) as process:
        try:
            yield read_url(process, workers)
        finally:
            process.terminate()
            # Its output must not fill the pipe.
            process.communicate(timeout=TEST_TIMEOUT)


@pytest.fixture
def gateway(kit: Kit, tmp_path: Path) -> Iterator[str]:
    """Gateway with the test server as `counter`."""
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps(kit.config()))
    listen = ["--listen", "127.0.0.1:0", "--store", "memory:"]
    with running([program(), "serve", "--config", str(config), *listen]) as url:
        yield url


def check_workers(**env: str) -> None:
    """Four workers of uvicorn with a FastAPI application, twenty chats, a thousand requests: each counter grows by one."""
    workers = [sys.executable, "-m", "uvicorn", "workers_app:app", "--workers", "4", "--port", "0", "--no-access-log"]

    async def chat(client: httpx.AsyncClient, name: str) -> list[list[int]]:
        return [[int(word) for word in (await client.get(f"/{name}")).text.split()] for _ in range(TURNS)]

    async def main(url: str) -> None:
        # A connection for each request, so that the workers share them.
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=url, timeout=TEST_TIMEOUT, limits=limits) as client:
            found = await asyncio.gather(*(chat(client, f"chat-{n}") for n in range(CHATS)))
        for counted in found:
            assert [number for number, _ in counted] == list(range(1, TURNS + 1))
        assert len({worker for counted in found for _, worker in counted}) > 1, "one worker did it all"

    with running(workers, 4, **env) as url:
        asyncio.run(main(url))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the environment of the tests has FastAPI from 3.11 on")
def test_workers_on_a_gateway_share_each_chat(gateway: str) -> None:
    """The server is a child process of the gateway."""
    check_workers(STAYPUT_GATEWAY=gateway)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the environment of the tests has FastAPI from 3.11 on")
def test_workers_on_a_store_share_each_chat(tmp_path: Path) -> None:
    """The server is behind a URL: an idle worker gives up the session, and the next one goes on with it."""
    store = {"store": f"sqlite:{tmp_path / 'sessions.db'}", "folders": str(tmp_path / "folders")}
    with demo_server() as url:
        config = json.dumps({"mcpServers": {"counter": {"url": url}}})
        settings = json.dumps({**store, "release_after": 0.05, "takeover_timeout": TEST_TIMEOUT})
        check_workers(STAYPUT_CONFIG=config, STAYPUT_SETTINGS=settings)


def test_session_with_a_process_of_another_hub_is_an_error_at_once(kit: Kit, tmp_path: Path) -> None:
    """Waiting would not help: the state of a child process stays where it is. `lease` frees it after a kill."""

    async def main() -> None:
        store = {"store": f"sqlite:{tmp_path / 'sessions.db'}", "folders": str(tmp_path / "folders"), "lease": 2.0}
        async with kit.hub(**store) as first, kit.hub(**store) as second:
            assert await count(first.session("chat")) == 1
            with pytest.raises(stayput.SessionHeldElsewhereError, match="gateway"):
                await asyncio.wait_for(count(second.session("chat")), 1.5)
            assert await count(first.session("chat")) == 2
        with pytest.raises(stayput.InvalidInputError, match="lease"):
            kit.hub(**{**store, "lease": 0.1})

    asyncio.run(main())


KILLED = """
import asyncio, json, os, signal, sys
import stayput
async def main():
    hub = stayput.Hub.from_config(json.loads(sys.argv[1]), **json.loads(sys.argv[2]))
    print((await hub.session("chat").call("counter", "count")).text, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


def test_sessions_of_a_killed_process_are_free_after_its_lease(kit: Kit, tmp_path: Path) -> None:
    """The next process waits for the lease, and reports the loss of the child process that ended with the killed one."""
    store = {"store": f"sqlite:{tmp_path / 'sessions.db'}", "folders": str(tmp_path / "folders"), "lease": 2.0}
    killed = script(KILLED, json.dumps(kit.config()), json.dumps(store))
    assert killed.stdout.strip() == "1", killed.stderr

    async def main() -> None:
        async with kit.hub(**store, takeover_timeout=TEST_TIMEOUT) as hub:
            began = time.monotonic()
            with pytest.raises(stayput.StateLostError, match=r"\(released: the program that had its process ended") as lost:
                await count(hub.session("chat"))
            assert lost.value.reason == "released"
            assert time.monotonic() - began < 10, "it waited for longer than a lease of two seconds"
            assert await count(hub.session("chat")) == 1

    asyncio.run(main())


def test_connected_hub_has_the_same_methods(gateway: str, kit: Kit) -> None:
    """Sessions by name, runs, sub-agents, lists, losses and ends, on the sessions of the gateway."""

    async def main() -> None:
        first, second = stayput.Hub.connect(gateway), stayput.Hub.connect(gateway)
        assert [await count(first.session("chat")), await count(second.session("chat"))] == [1, 2]
        assert await count(first.agent("ann").session("chat")) == 1, "names of agents are their own"
        assert "count" in [tool.name for tool in await first.tools("counter")]
        async with first.run():
            assert [await count(first), await count(first)] == [1, 2]
            async with first.isolated("counter"):
                assert await count(first) == 1
            async with first.denied("counter"):
                with pytest.raises(stayput.AccessDeniedError):
                    await count(first)
            async with stayput.Hub.connect(gateway) as fresh, fresh.denied("counter"):
                with pytest.raises(stayput.AccessDeniedError):
                    await count(fresh.session("x"))
            for _ in range(2):
                with pytest.raises(stayput.UnknownServerError, match="conter"):
                    async with first.denied("conter"):
                        pytest.fail("entered")
                with pytest.raises(stayput.UnknownServerError, match="conter"):
                    await count(first, "conter")
        async with second.session("chat") as chat, second.isolated("counter"):
            assert await count(chat) == 1, "a session of its own"
        await first.close()
        events = second.events()
        assert await count(second.session("chat")) == 3, "the session went on"
        with pytest.raises(stayput.StateLostError) as lost:
            await second.session("chat").call("counter", "crash")
        assert lost.value.may_have_run and lost.value.server == "counter"
        seen = [await anext(events) for _ in range(3)]
        assert [(event.kind, event.tool) for event in seen] == [("called", "count"), ("lost", None), ("called", "crash")]
        assert {event.session_name for event in seen} == {"chat"}
        assert await count(second.session("chat")) == 1
        await second.session("chat").end()
        # Another worker may remember what was there, so the gateway tells the next call of that name.
        with pytest.raises(stayput.StateLostError):
            await count(second.session("chat"))
        assert await count(second.session("chat")) == 1
        await second.close()

    asyncio.run(main())


WORKER = """
import asyncio, json, multiprocessing, sys
import stayput
def work(config):
    async def main():
        hub = stayput.Hub.from_config(config)
        for name in ["a", "b"]:
            await hub.session(name).open()
        await hub.close()
    asyncio.run(main())
if __name__ == "__main__":
    config = json.loads(sys.argv[1])
    work(config)
    worker = multiprocessing.get_context(sys.argv[2]).Process(target=work, args=(config,))
    worker.start()
    worker.join()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_without_a_store_warns_once(kit: Kit, tmp_path: Path, method: str) -> None:
    """Only the worker does, because a program of one process has nothing to share."""
    path = tmp_path / "workers.py"
    path.write_text(WORKER)
    command = [sys.executable, str(path), json.dumps(kit.config()), method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TEST_TIMEOUT)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("its hub has no store") == 1, done.stderr


def test_workers_page_runs(kit: Kit, tmp_path: Path) -> None:
    """docs/workers.md, with a server that repeats its calls as the browser."""
    page, config = DOCS / "workers.md", tmp_path / "mcp.json"
    server = str(Path(__file__).parent / "odd_server.py")
    browser = {"command": sys.executable, "args": [server], "env": {"TOKEN": kit.marker}}
    config.write_text(json.dumps({"mcpServers": {"browser": browser}}))
    names = dict[str, Any]()

    async def main(url: str) -> None:
        for piece in examples(page):
            await run(page, piece.replace("http://127.0.0.1:7337", url), names)
        assert await names["handle"]("chat-42") == '{"browser_snapshot": {}}'
        await names["hub"].close()

    with running([program(), "serve", "--config", str(config), "--listen", "127.0.0.1:0", "--store", "memory:"]) as url:
        asyncio.run(main(url))
