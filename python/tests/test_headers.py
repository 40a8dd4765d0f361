"""Headers by callback: asked for each request, and no part of a server's identity."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from conftest import count, demo_server
from pages import DOCS, examples, run

import stayput
from stayput import sync


class Guarded:
    """Server that accepts only valid tokens, in front of the stateful demo server."""

    def __init__(self, upstream: str) -> None:
        self.valid = set[str]()
        self.seen = list[str]()
        address = urlsplit(upstream)
        guarded = self

        class Handler(BaseHTTPRequestHandler):
            def forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                token = self.headers.get("authorization", "")
                guarded.seen.append(token)
                if token not in guarded.valid:
                    self.send_response(401)
                    self.send_header("content-length", "0")
                    self.end_headers()
                    return
                link = http.client.HTTPConnection(address.netloc)
                kept = {name: value for name, value in self.headers.items() if name.lower() != "host"}
                link.request(self.command, address.path, body, kept)
                answer = link.getresponse()
                content = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() in ("content-type", "mcp-session-id"):
                        self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                link.close()

            do_POST = do_DELETE = forward

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def config(self) -> dict[str, Any]:
        """Configuration with this server as `counter`."""
        host, port = self.server.server_address[:2]
        return {"mcpServers": {"counter": {"url": f"http://{host!s}:{port}/mcp"}}}


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    with demo_server() as url:
        it = Guarded(url)
        yield it
        it.server.shutdown()


def test_refreshed_token_keeps_the_session(guarded: Guarded) -> None:
    """R113: with and without `await`; a refused token is asked for once more."""
    issued = 0

    async def headers(request: stayput.HeaderRequest) -> dict[str, str]:
        nonlocal issued
        await asyncio.sleep(0)
        if request.rejected or issued == 0:
            issued += 1
            guarded.valid = {f"Bearer {issued}"}
        assert request.server == "counter"
        return {"Authorization": f"Bearer {issued}"}

    async def main() -> None:
        async with stayput.Hub.from_config(guarded.config(), headers=headers) as hub:
            chat = hub.session("chat")
            assert await count(chat) == 1
            guarded.valid = set()
            assert await count(chat) == 2, "the token was refreshed, the session went on"
            guarded.valid = set()
            assert await count(hub.session("chat")) == 3
        assert issued == 3

    asyncio.run(main())


def test_each_session_has_its_own_token(guarded: Guarded) -> None:
    """Headers of a session override those of its agent, and those of the hub."""
    guarded.valid = {f"Bearer {name}" for name in ("hub", "ann", "chat-7", "new")}

    async def main() -> None:
        with pytest.raises(stayput.InvalidInputError, match="built without `headers`"):
            stayput.Hub.from_config(guarded.config()).session("x").with_headers(lambda _: {})
        async with stayput.Hub.from_config(
            guarded.config(), headers=lambda request: {"Authorization": f"Bearer {request.session_name or 'hub'}"}
        ) as hub:
            guarded.valid.add("Bearer bob")
            assert await count(hub.session("bob")) == 1
            assert guarded.seen[-1] == "Bearer bob"
            ann = hub.agent("ann")
            ann.set_headers(lambda request: {"authorization": "Bearer ann"})
            assert await count(ann.session("bob")) == 1
            assert guarded.seen[-1] == "Bearer ann"
            chat = ann.session("chat").with_headers(lambda _: {"authorization": "Bearer chat-7"})
            assert await count(chat) == 1
            assert guarded.seen[-1] == "Bearer chat-7"
            chat.with_headers(lambda _: {"authorization": "Bearer new"})
            assert await count(chat) == 2 and guarded.seen[-1] == "Bearer new"

            def broken(_: stayput.HeaderRequest) -> dict[str, str]:
                raise RuntimeError("s3cr3t-token")

            chat.with_headers(broken)
            with pytest.raises(stayput.CallFailedError, match="raised RuntimeError") as failed:
                await count(chat)
            assert "s3cr3t" not in str(failed.value) and not failed.value.may_have_run

    asyncio.run(main())


def test_headers_without_await(guarded: Guarded) -> None:
    guarded.valid = {"Bearer x"}
    with sync.Hub.from_config(guarded.config(), headers=lambda _: {"authorization": "Bearer x"}) as hub:
        assert hub.session("chat").call("counter", "count").text == "1"


def test_credentials_page_runs(guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/credentials.md: the requests of Ann's session have her token."""
    page = DOCS / "credentials.md"
    monkeypatch.chdir(tmp_path)
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"notes": guarded.config()["mcpServers"]["counter"]}}))
    guarded.valid = {"Bearer s3cr3t-of-ann"}
    names: dict[str, Any] = {"stayput": stayput, "tokens": {"ann": "s3cr3t-of-ann"}}

    async def main() -> None:
        for piece in examples(page):
            await run(page, piece, names)
        assert (await names["hub"].session("ann").call("notes", "note_list")).text == "1. buy milk"
        await names["hub"].close()

    asyncio.run(main())
    assert set(guarded.seen) == guarded.valid
