"""AutoGen through the gateway: one URL per conversation."""

from __future__ import annotations

import asyncio
import sys
import uuid

from autogen_core import CancellationToken
from autogen_ext.tools.mcp import StreamableHttpServerParams, mcp_server_tools


async def main(gateway: str) -> None:
    server = StreamableHttpServerParams(url=f"{gateway}/mcp/notes/~autogen-{uuid.uuid4()}")
    texts = []
    for note in ["milk", "bread"]:
        # AutoGen opens a connection for each call.
        tools = {tool.name: tool for tool in await mcp_server_tools(server)}
        await tools["note_add"].run_json({"text": note}, CancellationToken())
        listed = await tools["note_list"].run_json({}, CancellationToken())
        texts.append(tools["note_list"].return_value_as_string(listed))
    assert "milk" in texts[1] and "bread" in texts[1] and "bread" not in texts[0], texts
    print("autogen: the conversation goes on over connections")


asyncio.run(main(sys.argv[2]))
