"""API without `await`."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Kit

import stayput
from stayput import sync


def count(calls: sync.Hub | sync.Session) -> int:
    return int(calls.call("counter", "count").text)


def test_sync_package_is_up_to_date() -> None:
    """R109."""
    script = Path(__file__).parent.parent / "derive_sync.py"
    assert subprocess.run([sys.executable, str(script), "--check"]).returncode == 0
    for name in ["Hub", "Session", "Run", "SubAgent", "Events"]:
        ours = {it for it in vars(getattr(stayput, name)) if not it.startswith("_")}
        assert ours == {it for it in vars(getattr(sync, name)) if not it.startswith("_")}
        assert not [it for _, it in inspect.getmembers(getattr(sync, name)) if inspect.iscoroutinefunction(it)]


def test_sessions_runs_and_sub_agents(kit: Kit) -> None:
    """R076, R080, R082, R109."""
    with sync.Hub.from_config(kit.config()) as hub:
        with hub.session("chat") as chat:
            assert [count(chat), count(hub)] == [1, 2]
        with hub.session("chat") as chat, hub.isolated("counter"):
            assert count(hub) == 1
        with hub.run():
            assert [count(hub), count(hub)] == [1, 2]

        @hub.run()
        def agent() -> int:
            return count(hub)

        @hub.run()
        def stream() -> Iterator[int]:
            yield count(hub)
            yield count(hub)

        assert [agent(), agent(), list(stream())] == [1, 1, [1, 2]]
        assert [tool.name for tool in hub.tools("counter")][0] == "count"
        with pytest.raises(stayput.NoSessionError):
            count(hub)
        events = hub.events()
        with hub.session():
            count(hub)
        assert [next(events).kind, next(events).kind] == ["linked", "called"]
        with pytest.raises(stayput.UnknownSessionError):
            hub.find("nobody")


def test_threads_have_separate_scopes(kit: Kit) -> None:
    """R107."""
    hub, counted = sync.Hub.from_config(kit.config()), list[list[int]]()

    def work(name: str) -> None:
        with hub.session(name):
            counted.append([count(hub) for _ in range(10)])

    threads = [threading.Thread(target=work, args=(f"chat-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted == [list(range(1, 11))] * 4
    hub.close()
