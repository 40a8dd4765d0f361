"""The official Python SDK as a legacy client: `python_sdk.py URL`."""

import sys

from mcp import Client

from lines import run

run(
    lambda: Client(sys.argv[1], mode="legacy"),
    lambda client: client.protocol_version,
    lambda client, tool, arguments: client.call_tool(tool, arguments),
)
