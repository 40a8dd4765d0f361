"""Scope of a task: it follows the work, and is isolated from other tasks."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import threading
from collections.abc import AsyncIterator

import pytest
from conftest import Kit, count

import stayput


async def deep(hub: stayput.Hub) -> int:
    """R006: the session is not a parameter."""
    await asyncio.sleep(0)
    return await count(hub)


def test_scope_follows_await_gather_and_threads(kit: Kit) -> None:
    """R003, R083, R107."""

    async def main() -> None:
        async with kit.hub() as hub, hub.run():
            assert await deep(hub) == 1
            counted = await asyncio.gather(*(deep(hub) for _ in range(20)))
            assert sorted(counted) == list(range(2, 22))
            assert await asyncio.create_task(deep(hub)) == 22
            assert await asyncio.to_thread(asyncio.run, deep(hub)) == 23, "a loop in a thread"
            assert len(kit.processes()) == 1

    asyncio.run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="task groups came with 3.11")
def test_scope_follows_task_groups(kit: Kit) -> None:
    """R003."""

    async def main() -> None:
        async with kit.hub() as hub, hub.run():
            async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined,unused-ignore]
                tasks = [group.create_task(deep(hub)) for _ in range(5)]
            assert sorted(task.result() for task in tasks) == [1, 2, 3, 4, 5]

    asyncio.run(main())


def test_child_task_has_a_copy_of_the_scope(kit: Kit) -> None:
    """R004, R010: its changes affect neither its parent nor its siblings."""

    async def child(hub: stayput.Hub, name: str) -> str | None:
        async with hub.session(name) as own:
            await asyncio.sleep(0.01)
            assert await count(hub) == 1
            return own.id

    async def main() -> None:
        async with kit.hub() as hub, hub.run() as root:
            assert await count(hub) == 1
            ids = await asyncio.gather(child(hub, "a"), child(hub, "b"))
            assert len({*ids, root.id}) == 3
            current = hub.current
            assert current is not None and current.id == root.id
            assert await count(hub) == 2

    asyncio.run(main())


def test_concurrent_requests_are_isolated(kit: Kit) -> None:
    """R005: on one loop, as in a web server."""

    async def request(hub: stayput.Hub, chat: str) -> list[int]:
        async with hub.session(chat):
            return [await deep(hub) for _ in range(10)]

    async def main() -> None:
        async with kit.hub() as hub:
            answers = await asyncio.gather(*(request(hub, f"chat-{n}") for n in range(4)))
            assert answers == [list(range(1, 11))] * 4
            assert hub.current is None

    asyncio.run(main())


def test_root_ends_a_run_and_sub_agents_join_it(kit: Kit) -> None:
    """R001, R008, R009, R010, R011."""

    async def sub_agent(hub: stayput.Hub) -> int:
        async with hub.run():
            return await count(hub)

    async def main() -> None:
        async with kit.hub() as hub:
            async with hub.run():
                assert await count(hub) == 1
                assert await sub_agent(hub) == 2
                assert await count(hub) == 3, "a sub-agent that is done closes nothing"
            assert not kit.processes(), "the end of a run was waited for"
            with pytest.raises(ValueError, match="mine"):
                async with hub.run():
                    assert await count(hub) == 1
                    raise ValueError("mine")
            await asyncio.to_thread(kit.wait_until_gone)
            async with hub.run():
                pass
            assert hub.current is None

    asyncio.run(main())


def test_leaving_a_run_waits_for_its_end(kit: Kit) -> None:
    """R011: also if its server ignores the request to exit."""

    async def main() -> None:
        async with stayput.Hub.from_config(kit.config(stubborn=kit.entry("--ignore-eof"))) as hub:
            async with hub.run():
                assert await count(hub, "stubborn") == 1
            assert not kit.processes()

    asyncio.run(main())


def test_cancelled_run_ends(kit: Kit) -> None:
    """R011."""

    async def main() -> None:
        async with kit.hub() as hub:

            async def forever() -> None:
                async with hub.run():
                    await count(hub)
                    await asyncio.sleep(3600)

            task = asyncio.create_task(forever())
            await asyncio.to_thread(lambda: [None for _ in iter(lambda: len(kit.processes()) == 1, True)])
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(kit.wait_until_gone)

    asyncio.run(main())


def test_decorator_makes_each_call_a_run(kit: Kit) -> None:
    """R012."""

    async def main() -> None:
        async with kit.hub() as hub:

            @hub.run()
            async def agent(calls: int) -> list[int]:
                return [await deep(hub) for _ in range(calls)]

            assert agent.__name__ == "agent"
            assert list(await asyncio.gather(agent(2), agent(3))) == [[1, 2], [1, 2, 3]]
            async with hub.run():
                assert await agent(1) == [1]
                assert await agent(1) == [2], "inside a run it joins"

    asyncio.run(main())


def test_async_generator_is_one_run_across_tasks(kit: Kit) -> None:
    """E05: other tasks take the steps, and one generator is not read to its end."""

    async def main() -> None:
        async with kit.hub() as hub:

            @hub.run()
            async def stream() -> AsyncIterator[int]:
                for _ in range(3):
                    yield await deep(hub)

            pieces = stream()

            async def step() -> int:
                return await pieces.__anext__()

            assert [await asyncio.create_task(step()) for _ in range(3)] == [1, 2, 3]
            with pytest.raises(StopAsyncIteration):
                await pieces.__anext__()
            await asyncio.to_thread(kit.wait_until_gone)
            async with hub.session("mine") as mine:
                async for piece in stream():
                    assert piece == 1, "it joins the session that it is read in"
                    current = hub.current
                    assert current is not None and current.id == mine.id
                    break
            async for piece in stream():
                assert hub.current is None, "its scope is not that of whoever reads it"
                break

    asyncio.run(main())


def test_sub_agents_inherit_isolate_or_are_denied(kit: Kit) -> None:
    """R009."""

    async def main() -> None:
        async with stayput.Hub.from_config(kit.config(cart=kit.entry())) as hub:

            @hub.isolated("counter")
            async def isolated() -> tuple[int, int]:
                return await count(hub), await count(hub, "cart")

            async with hub.run():
                assert [await count(hub), await count(hub, "cart")] == [1, 1]
                assert await isolated() == (1, 2)
                assert await isolated() == (1, 3), "what was its own ended with it"
                async with hub.isolated("counter"):
                    assert await count(hub) == 1
                    async with hub.inherited("counter"):
                        assert await count(hub) == 2, "the server of the sub-agent around it"
                with pytest.raises(stayput.UnknownServerError):
                    async with hub.inherited("conter"):
                        pytest.fail("entered")
                async with hub.denied("cart"):
                    assert await count(hub) == 2
                    with pytest.raises(stayput.AccessDeniedError, match="denied to this sub-agent"):
                        await count(hub, "cart")
                    async with hub.isolated("cart"):
                        with pytest.raises(stayput.AccessDeniedError):
                            await count(hub, "cart")
                assert await count(hub, "cart") == 4

    asyncio.run(main())


def test_two_tasks_enter_one_run_object_as_separate_runs(kit: Kit) -> None:
    """The task that is done first ends only its own run."""

    async def main() -> None:
        async with kit.hub() as hub:
            run, first_is_done = hub.run(), asyncio.Event()

            async def first() -> None:
                async with run:
                    assert await count(hub) == 1
                first_is_done.set()

            async def second() -> list[int]:
                async with run:
                    counted = [await count(hub)]
                    await first_is_done.wait()
                    return [*counted, await count(hub)]

            _, counted = await asyncio.gather(first(), second())
            assert counted == [1, 2]

    asyncio.run(main())


def test_leaving_restores_the_outer_scope(kit: Kit) -> None:
    """R082."""

    async def main() -> None:
        async with kit.hub() as hub:
            async with hub.session("outer") as outer:
                async with hub.session("inner"):
                    assert await count(hub) == 1
                assert hub.current is not None and hub.current.id == outer.id
            assert hub.current is None

    asyncio.run(main())


def test_hubs_have_separate_scopes(kit: Kit) -> None:
    async def main() -> None:
        async with kit.hub() as one, kit.hub() as two, one.run():
            with pytest.raises(stayput.NoSessionError):
                await count(two)
            async with two.run():
                assert [await count(one), await count(two), await count(one)] == [1, 1, 2]

    asyncio.run(main())


def test_run_that_is_never_left_ends_with_its_last_user(kit: Kit) -> None:
    """Also if it was the first caller of its loop: the loop keeps no context."""

    async def main() -> None:
        async with kit.hub() as hub:

            async def careless() -> None:
                await hub.session().__aenter__()
                assert await count(hub) == 1
                await hub.run().__aenter__()

            await asyncio.create_task(careless())
            gc.collect()
            await asyncio.to_thread(kit.wait_until_gone)

    asyncio.run(main())


def test_session_is_closed_in_another_task_loop_or_thread(kit: Kit) -> None:
    """E21: without error or leak."""
    hub = kit.hub()

    async def open_it(session: stayput.Session) -> None:
        await session.__aenter__()
        assert await count(hub) == 1

    async def close_it(session: stayput.Session) -> None:
        await session.__aexit__(None, None, None)

    async def other_task() -> None:
        session = hub.session()
        await asyncio.create_task(open_it(session))
        await asyncio.create_task(close_it(session))

    asyncio.run(other_task())
    kit.wait_until_gone()
    session = hub.session()
    asyncio.run(open_it(session))
    assert len(kit.processes()) == 1, "it outlives the loop that it was opened on"
    asyncio.run(close_it(session))
    kit.wait_until_gone()
    session = hub.session()
    asyncio.run(open_it(session))
    thread = threading.Thread(target=lambda: asyncio.run(close_it(session)))
    thread.start()
    thread.join()
    kit.wait_until_gone()

    async def run() -> None:
        runs = hub.run()
        await asyncio.create_task(runs.__aenter__())
        await runs.__aexit__(None, None, None)

    contextvars.copy_context().run(asyncio.run, run())
    asyncio.run(hub.close())
