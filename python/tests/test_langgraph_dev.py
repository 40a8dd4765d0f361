"""`langgraph dev` over HTTP."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from agents import Step, user_message
from conftest import TEST_TIMEOUT, Kit, wait_until

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("langgraph_api") is None, reason="`langgraph dev` is for CPython 3.11 and later"
)


@pytest.fixture
def server(kit: Kit, tmp_path: Path) -> Iterator[str]:
    """URL of `langgraph dev` with a graph, on its own port and without telemetry."""
    graph = Path(__file__).parent / "dev_graph.py"
    settings = {"dependencies": ["."], "graphs": {"agent": f"{graph}:graph"}}
    (tmp_path / "langgraph.json").write_text(json.dumps(settings))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload", "--n-jobs-per-worker", "4"]
    # Settings of a real installation must not apply.
    env = {name: value for name, value in os.environ.items() if not name.startswith("LANG")}
    env |= {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGGRAPH_NO_VERSION_CHECK": "true"}
    env |= {"STAYPUT_TEST_CONFIG": json.dumps(kit.config())}
    with open(tmp_path / "output", "w") as output:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            cwd=tmp_path,
            env=env,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        assert process.poll() is None, (tmp_path / "output").read_text()
        try:
            return httpx.get(f"{url}/ok").is_success
        except httpx.HTTPError:
            return False

    try:
        wait_until(ready, "`langgraph dev` answers")
        yield url
    finally:
        # The same signal as Ctrl-C.
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(TEST_TIMEOUT)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    print((tmp_path / "output").read_text())


class Thread:
    """Thread of the server, which stores its messages."""

    def __init__(self, client: httpx.AsyncClient, name: str) -> None:
        self._client = client
        self.name = name

    @classmethod
    async def begin(cls, client: httpx.AsyncClient) -> Thread:
        return cls(client, (await client.post("/threads", json={})).raise_for_status().json()["thread_id"])

    async def turn(self, *steps: Step) -> str:
        """A turn; what the agent says at its end."""
        (message,) = user_message(*steps)["messages"]
        asked = {"assistant_id": "agent", "input": {"messages": [{"role": "user", "content": message.content}]}}
        answer = await self._client.post(f"/threads/{self.name}/runs/wait", json=asked)
        body: dict[str, Any] = answer.raise_for_status().json()
        assert "messages" in body, body
        content = body["messages"][-1]["content"]
        return content if isinstance(content, str) else "".join(block["text"] for block in content)


def test_each_thread_has_a_session_across_turns(kit: Kit, server: str) -> None:
    """E35, R005, R037: two concurrent threads, each with its own process, and none is left when the server ends."""

    async def main() -> None:
        async with httpx.AsyncClient(base_url=server, timeout=TEST_TIMEOUT) as client:
            ann, ben = await Thread.begin(client), await Thread.begin(client)
            both: list[tuple[Thread, str]] = [(ann, "tea"), (ben, "milk")]
            for turns in range(1, 4):
                answers = await asyncio.gather(
                    *(it.turn([("note_add", {"text": text})], [("note_list", {})]) for it, text in both)
                )
                assert answers == ["\n".join([text] * turns) for _, text in both]
            counted = await ann.turn([("count", {})] * 3, [("count", {})])
            assert counted == "4"
            assert len(kit.processes()) == 2

    asyncio.run(main())
