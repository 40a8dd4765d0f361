"""A client of the 2024-11-05 transport on the official Python SDK: `old_client.py URL`.

Counts twice, then prints what it was told as one line of JSON."""

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.sse import sse_client


async def main(url: str) -> None:
    async with sse_client(url) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = await session.list_tools()
        counted = [(await session.call_tool("count", {})).content[0].text for _ in range(2)]
        print(json.dumps({"tools": len(tools.tools), "counted": counted}), flush=True)


asyncio.run(main(sys.argv[1]))
