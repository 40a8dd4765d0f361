"""Servers that are added and removed at run time."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Kit, count, test_server, wait_until

import stayput
from stayput import sync


def test_server_is_added_replaced_and_removed(kit: Kit) -> None:
    """R105, E27: its links are closed, and its sessions get a report or an error."""

    async def main() -> None:
        async with stayput.Hub.from_config({"mcpServers": {}}) as hub, hub.session("chat") as chat:
            with pytest.raises(stayput.UnknownServerError, match="there are: none"):
                await count(chat)
            assert await hub.add_server("counter", kit.entry()) == []
            assert hub.server_names == ["counter"]
            assert [await count(chat), await count(chat)] == [1, 2]
            assert await hub.add_server("counter", kit.entry()) == []
            assert await count(chat) == 3, "the same once more changes nothing"
            await hub.add_server("counter", kit.entry("--tool", "own"))
            assert not kit.processes()
            with pytest.raises(stayput.StateLostError) as lost:
                await count(chat)
            assert (lost.value.reason, lost.value.may_have_run) == ("reconfigured", False)
            assert await count(chat) == 1
            assert "own" in [tool.name for tool in await chat.tools("counter")]
            assert await hub.remove_server("counter")
            assert not kit.processes() and hub.server_names == []
            with pytest.raises(stayput.UnknownServerError):
                await count(chat)
            assert not await hub.remove_server("counter")

    asyncio.run(main())


def test_agents_have_separate_servers(kit: Kit) -> None:
    """R085."""

    async def main() -> None:
        async with kit.hub() as hub:
            ann, bob = hub.agent("ann"), hub.agent("bob the 2nd")
            await ann.add_server("own", kit.entry())
            await bob.add_server("own", {**kit.entry(), "stayput": {"tools": {"deny": ["count"]}}})
            assert (ann.server_names, hub.server_names) == (["counter", "own"], ["counter"])
            assert await count(ann.session("chat"), "own") == 1
            with pytest.raises(stayput.AccessDeniedError):
                await count(bob.session("chat"), "own")
            with pytest.raises(stayput.UnknownServerError):
                await count(hub.session("chat"), "own")
            assert not await hub.remove_server("own") and await ann.remove_server("own")

    asyncio.run(main())


def test_wrong_entry_is_refused(kit: Kit) -> None:
    with sync.Hub.from_config(kit.config()) as hub:
        wrongs: list[tuple[dict[str, Any], str]] = [
            ({"args": []}, "command"),
            ({"command": "x", "stayput": {"isolatoin": "shared"}}, "isolation"),
            ({"command": object()}, "no JSON"),
            ({"url": "http://127.0.0.1:9/mcp", "stayput": {"warm": 1}}, "reached by a URL; remove `warm`"),
        ]
        for wrong, words in wrongs:
            with pytest.raises(stayput.ConfigError, match=words):
                hub.add_server("more", wrong)
        with pytest.raises(stayput.ConfigError, match="name"):
            hub.add_server("a b", kit.entry())
        with pytest.raises(stayput.InvalidInputError, match="disabled"):
            hub.add_server("more", {**kit.entry(), "disabled": True})
        assert hub.server_names == ["counter"]
        idle = {"url": "http://127.0.0.1:9/mcp", "stayput": {"delete_on_end": False}}
        assert hub.add_server("more", idle) == [], "which is no warning"
    with pytest.raises(stayput.HubClosedError):
        hub.add_server("more", kit.entry())


def test_spares_serve_one_session_each(kit: Kit) -> None:
    """`warm` starts processes before a session needs them, and replaces those that are taken."""
    with sync.Hub.from_config(kit.config(), warm={"counter": 2}) as hub:
        used = set[int]()
        for sessions in range(3):
            expected = 2 + sessions
            wait_until(lambda: len(kit.processes()) == expected, "there are not two spares")
            waiting = set(kit.processes())
            with hub.session(f"chat-{sessions}") as chat:
                pid = int(chat.call("counter", "pid").text)
            assert pid in waiting - used
            used.add(pid)
    with pytest.raises(stayput.InvalidInputError, match="no such server"):
        sync.Hub.from_config(kit.config(), warm={"other": 1})
    with pytest.raises(stayput.InvalidInputError, match="reached by a URL; remove `warm`"):
        sync.Hub.from_config({"mcpServers": {"web": {"url": "http://127.0.0.1:9/mcp"}}}, warm={"web": 1})


def test_url_and_headers_are_resolved_at_the_first_use(tmp_path: Path) -> None:
    """R122: in the wheel, too."""
    command = [test_server(), "http", "--era", "legacy", "--exit-with-stdin"]

    async def main(url: str) -> None:
        who, where = tmp_path / "who", tmp_path / "url"
        where.write_text("http://127.0.0.1:9/mcp")
        who.write_text("built")
        entry = {"url": f"${{file:{where}}}", "headers": {"x-who": f"${{file:{who}}}"}}
        async with stayput.Hub.from_config({"mcpServers": {"remote": entry}}) as hub, hub.run():
            where.write_text(url)
            who.write_text("used")
            assert (await hub.call("remote", "header", name="x-who")).text == "used"

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        asyncio.run(main(server.stdout.readline().strip()))
        server.kill()
