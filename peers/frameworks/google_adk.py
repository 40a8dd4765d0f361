"""Google ADK through the gateway: one URL per conversation."""

from __future__ import annotations

import asyncio
import sys
import uuid

from google.adk.tools.mcp_tool import McpToolset, StreamableHTTPConnectionParams


async def main(gateway: str) -> None:
    url = f"{gateway}/mcp/notes/~adk-{uuid.uuid4()}"
    texts = []
    for note in ["milk", "bread"]:
        toolset = McpToolset(connection_params=StreamableHTTPConnectionParams(url=url))
        tools = {tool.name: tool for tool in await toolset.get_tools()}
        session = await toolset._mcp_session_manager.create_session()
        await session.call_tool("note_add", {"text": note})
        texts.append((await session.call_tool("note_list", {})).content[0].text)
        assert "note_add" in tools
        await toolset.close()
    assert texts == ["1. milk", "1. milk\n2. bread"], texts
    print("google-adk: the conversation goes on over connections")


asyncio.run(main(sys.argv[2]))
