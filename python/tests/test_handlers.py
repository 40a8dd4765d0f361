"""Notifications and requests of servers during a call."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest
from conftest import Kit

import stayput
from stayput import sync

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


def test_handlers_run_in_the_context_and_loop_of_the_call(kit: Kit) -> None:
    """Also with two concurrent calls."""
    loops = list[asyncio.AbstractEventLoop]()

    async def elicitation(question: dict[str, Any]) -> dict[str, Any]:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0.01)
        return {"action": "accept", "content": {"name": who.get(), "asked": question["message"]}}

    async def main() -> None:
        async with kit.hub(handlers={"elicitation": elicitation}) as hub:

            async def call(name: str) -> str:
                who.set(f"it is {name}")
                async with hub.session(name):
                    return (await hub.call("counter", "elicit", message=f"for {name}")).text

            answers = await asyncio.gather(call("ann"), call("bob"))
            assert "it is ann" in answers[0] and "for ann" in answers[0] and "bob" not in answers[0]
            assert "it is bob" in answers[1] and "for bob" in answers[1] and "ann" not in answers[1]
            assert set(loops) == {asyncio.get_running_loop()}

    asyncio.run(main())


def test_session_handlers_override_those_of_the_hub(kit: Kit) -> None:
    async def main() -> None:
        async with kit.hub(handlers={"roots": lambda _: {"roots": [{"uri": "file:///hub"}]}}) as hub:
            own = hub.session("own").with_handlers({"roots": lambda _: {"roots": [{"uri": "file:///own"}]}})
            async with own:
                assert "file:///own" in (await hub.call("counter", "roots")).text
                assert "file:///hub" in (await hub.session("other").call("counter", "roots")).text

    asyncio.run(main())


def test_failed_handler_is_reported_to_the_server(kit: Kit) -> None:
    def failing(_: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("the user is away")

    async def main() -> None:
        async with kit.hub(handlers={"sampling": failing}) as hub, hub.run():
            try:
                result = (await hub.call("counter", "sample", prompt="x")).raw
            except stayput.ProtocolError as refused:
                result = refused.raw
            assert "the user is away" in result

    asyncio.run(main())


def test_unknown_kind_of_handler_is_refused(kit: Kit) -> None:
    with pytest.raises(stayput.InvalidInputError, match="not for `dreams`"):
        kit.hub(handlers={"dreams": lambda _: {}})


def test_progress_reaches_the_callback(kit: Kit) -> None:
    heard = list[dict[str, Any]]()

    async def main() -> None:
        async with kit.hub() as hub, hub.session("chat") as chat:
            await chat.with_options(on_notification=heard.append).call("counter", "slow", ms=50, steps=5)

    asyncio.run(main())
    assert [it["method"] for it in heard] == ["notifications/progress"] * 6


def test_blocked_thread_gets_notifications_and_answers_requests(kit: Kit) -> None:
    heard = list[dict[str, Any]]()
    hub = sync.Hub.from_config(kit.config(), handlers={"roots": lambda _: {"roots": [{"uri": "file:///x"}]}})
    with hub, hub.run():
        assert "file:///x" in hub.call("counter", "roots").text
        hub.with_options(on_notification=heard.append).call("counter", "slow", ms=50, steps=5)
    assert len(heard) == 6
