"""PydanticAI through the gateway: one URL per conversation."""

from __future__ import annotations

import asyncio
import sys
import uuid

from pydantic_ai.mcp import MCPToolset


async def main(gateway: str) -> None:
    chat = f"pydantic-{uuid.uuid4()}"
    texts = []
    for note in ["milk", "bread"]:
        # A new connection for each turn, as an agent makes it.
        async with MCPToolset(f"{gateway}/mcp/notes/~{chat}") as server:
            await server.direct_call_tool("note_add", {"text": note})
            texts.append(str(await server.direct_call_tool("note_list", {})))
    assert "milk" in texts[1] and "bread" in texts[1] and "bread" not in texts[0], texts
    print("pydantic-ai: the conversation goes on over connections")


asyncio.run(main(sys.argv[2]))
