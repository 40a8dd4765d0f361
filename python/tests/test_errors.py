"""Exceptions: classes and messages."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from conftest import Kit, count
from pages import DOCS

import stayput


def test_dead_process_is_reported_once(kit: Kit) -> None:
    async def main() -> None:
        async with kit.hub() as hub, hub.session("chat") as chat:
            assert await count(chat) == 1
            with pytest.raises(stayput.StateLostError) as lost:
                await chat.call("counter", "crash")
            assert (lost.value.reason, lost.value.may_have_run) == ("exited", True)
            assert lost.value.exit_code is not None and "its process " in str(lost.value)
            assert "may or may not have been carried out" in str(lost.value)
            assert await count(chat) == 1
            again = chat.with_options(restart_on_loss=True)
            await chat.restart()
            result = await again.call("counter", "count")
            assert result.after_loss and result.text == "1"

    asyncio.run(main())


def test_each_kind_has_its_class_and_message(kit: Kit) -> None:
    config = kit.config(
        gone={"command": "/no/such/program"},
        some={**kit.entry(), "stayput": {"tools": {"allow": ["count"]}}},
    )

    async def main() -> None:
        async with stayput.Hub.from_config(config) as hub, hub.session("chat") as chat:
            with pytest.raises(stayput.UnknownServerError, match="there are: counter, gone, some"):
                await count(chat, "nowhere")
            with pytest.raises(stayput.ServerFailedError, match="the server `gone` could not be started") as failed:
                await count(chat, "gone")
            assert failed.value.server == "gone" and failed.value.kind == "server_failed"
            with pytest.raises(stayput.AccessDeniedError, match="not allowed by the configuration"):
                await chat.call("some", "note_list")
            with pytest.raises(stayput.ProtocolError, match="there is no tool") as refused:
                await chat.call("counter", "no_such_tool")
            assert refused.value.code == -32602 and refused.value.data is None
            with pytest.raises(stayput.InvalidInputError, match="no JSON"):
                await chat.call("counter", "echo", {"x": object()})
            with pytest.raises(stayput.InvalidInputError):
                await chat.call("counter", "echo", {"x": float("nan")})
            with pytest.raises(stayput.InvalidInputError, match="by name.*and not as a str"):
                await chat.call("counter", "echo", "x")  # type: ignore[arg-type]
            failed_tool = await chat.call("counter", "fail")
            assert failed_tool.is_error and "it failed" in failed_tool.text
        with pytest.raises(stayput.HubClosedError, match="closed"):
            await count(hub.session("chat"))

    asyncio.run(main())


def test_limit_raises_at_capacity(kit: Kit) -> None:
    async def main() -> None:
        async with kit.hub(processes=1, capacity_timeout=0.2) as hub:
            one = hub.session("one")
            slow = asyncio.create_task(one.call("counter", "slow", ms=120_000, steps=1))
            while (await one.status("counter")).state != "live" or not (await one.status("counter")).in_flight:
                await asyncio.sleep(0.02)
            with pytest.raises(stayput.AtCapacityError) as full:
                await count(hub.session("two"))
            assert full.value.retry_after == 1.0
            slow.cancel()

    asyncio.run(main())


def test_errors_can_be_pickled() -> None:
    error = stayput.StateLostError("gone", kind="state_lost", generation=3, reason="exited")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.generation, copy.reason) == (stayput.StateLostError, "gone", 3, "exited")


def test_every_error_is_a_stayput_error() -> None:
    import stayput._errors as errors

    classes = [getattr(errors, name) for name in errors.__all__]
    assert all(issubclass(it, stayput.StayputError) for it in classes)
    assert set(errors.__all__) <= set(stayput.__all__)
    assert all(name.endswith("Error") for name in errors.__all__)
    page = (DOCS / "python.md").read_text()
    assert [name for name in errors.__all__ if name not in page] == [], "not documented"


def test_messages_have_no_names_of_the_rust_library(kit: Kit) -> None:
    async def main() -> None:
        async with kit.hub() as hub:
            with pytest.raises(stayput.InvalidInputError) as ticket:
                await hub.resume("x")
            with pytest.raises(stayput.InvalidInputError) as profile:
                await hub.set_profile("counter", "x")
            with pytest.raises(stayput.NoSessionError) as session:
                await count(hub)
            for error in (ticket, profile, session):
                assert "::" not in str(error.value) and "into_" not in str(error.value)

    asyncio.run(main())
