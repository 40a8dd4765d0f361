"""Servers of 2026-07-28 alone, which ask their client by `input_required` results."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import Kit

import stayput

Json = dict[str, Any]


def modern(kit: Kit, **settings: Any) -> stayput.Hub:
    """Builds a hub with a server of the modern era as `counter`."""
    entry = kit.entry()
    entry["args"] = ["modern" if word == "legacy" else word for word in entry["args"]]
    return stayput.Hub.from_config({"mcpServers": {"counter": entry}}, **settings)


def test_each_kind_of_question_is_answered_by_its_handler(kit: Kit) -> None:
    """The call is repeated with the answers of the handler, and returns the last result."""
    asked = list[str]()

    async def elicitation(question: Json) -> Json:
        await asyncio.sleep(0)
        asked.append("elicitation")
        return {"action": "accept", "content": {"name": f"asked {question['message']}"}}

    def sampling(_: Json) -> Json:
        asked.append("sampling")
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "a verse"}}

    def roots(_: Json) -> Json:
        asked.append("roots")
        return {"roots": [{"uri": "file:///work"}]}

    async def main() -> None:
        handlers = {"elicitation": elicitation, "sampling": sampling, "roots": roots}
        async with modern(kit, handlers=handlers) as hub, hub.session("a") as session:
            assert "asked who?" in (await session.call("counter", "elicit", message="who?")).raw
            assert "a verse" in (await session.call("counter", "sample", prompt="write")).raw
            assert "file:///work" in (await session.call("counter", "roots")).raw

    asyncio.run(main())
    assert asked == ["elicitation", "sampling", "roots"]


def test_question_without_a_handler_is_an_error(kit: Kit) -> None:
    """The server is not told of a capability without a handler, and says which one it needs."""

    async def main() -> None:
        async with modern(kit) as hub, hub.session("a") as session:
            with pytest.raises(stayput.ProtocolError):
                await session.call("counter", "elicit", message="who?")

    asyncio.run(main())
