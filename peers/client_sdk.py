"""A client on the official Python SDK: `client_sdk.py URL MODE` uses all servers behind the URL, in an era
of the protocol, and prints what it saw as JSON."""

import asyncio
import json
import sys

from mcp.client import Client


async def main(url: str, mode: str) -> None:
    async with Client(url, mode=mode) as client:
        tools = await client.list_tools()
        prompts = await client.list_prompts()
        resources = await client.list_resources()
        counted = [
            (await client.call_tool(name, {})).content[0].text
            for name in ["one__count", "one__count", "two__count", "notes__count"]
        ]
        greeting = await client.get_prompt("two__greet", {"name": "Ann"})
        read = await client.read_resource("test://count")
        seen = {
            "version": client.protocol_version,
            "server": client.server_info.name,
            "instructions": client.instructions,
            "tools": [tool.name for tool in tools.tools],
            "prompts": [prompt.name for prompt in prompts.prompts],
            "resources": [str(resource.uri) for resource in resources.resources],
            "counted": counted,
            "greeting": greeting.messages[0].content.text,
            "read": read.contents[0].text,
        }
    print(json.dumps(seen))


asyncio.run(main(sys.argv[1], sys.argv[2]))
