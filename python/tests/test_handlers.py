"""What servers ask and say during a call."""

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
    """Each call is answered by its own task's context, also when two are under way."""
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


def test_a_session_has_handlers_of_its_own(kit: Kit) -> None:
    async def main() -> None:
        async with kit.hub(handlers={"roots": lambda _: {"roots": [{"uri": "file:///hub"}]}}) as hub:
            own = hub.session("own").with_handlers({"roots": lambda _: {"roots": [{"uri": "file:///own"}]}})
            async with own:
                assert "file:///own" in (await hub.call("counter", "roots")).text
                assert "file:///hub" in (await hub.session("other").call("counter", "roots")).text

    asyncio.run(main())


def test_a_handler_that_fails_is_told_to_the_server(kit: Kit) -> None:
    def failing(_: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("the user is away")

    async def main() -> None:
        async with kit.hub(handlers={"sampling": failing}) as hub, hub.run():
            try:
                told = (await hub.call("counter", "sample", prompt="x")).raw
            except stayput.ProtocolError as refused:
                told = refused.raw
            assert "the user is away" in told

    asyncio.run(main())


def test_an_unknown_kind_of_handler_is_refused(kit: Kit) -> None:
    with pytest.raises(stayput.InvalidInput, match="not for `dreams`"):
        kit.hub(handlers={"dreams": lambda _: {}})


def test_progress_is_heard(kit: Kit) -> None:
    heard = list[dict[str, Any]]()

    async def main() -> None:
        async with kit.hub() as hub, hub.session("chat") as chat:
            await chat.with_options(on_notification=heard.append).call("counter", "slow", ms=50, steps=5)

    asyncio.run(main())
    assert [it["method"] for it in heard] == ["notifications/progress"] * 6


def test_a_thread_that_waits_hears_and_answers(kit: Kit) -> None:
    heard = list[dict[str, Any]]()
    hub = sync.Hub.from_config(kit.config(), handlers={"roots": lambda _: {"roots": [{"uri": "file:///x"}]}})
    with hub, hub.run():
        assert "file:///x" in hub.call("counter", "roots").text
        hub.with_options(on_notification=heard.append).call("counter", "slow", ms=50, steps=5)
    assert len(heard) == 6
