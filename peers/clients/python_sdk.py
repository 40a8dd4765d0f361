"""The official Python SDK as a legacy client: `python_sdk.py URL`, or in another mode: `python_sdk.py URL auto`."""

import sys

from mcp import Client

from lines import run

run(
    lambda: Client(sys.argv[1], mode=sys.argv[2] if len(sys.argv) > 2 else "legacy"),
    lambda client: client.protocol_version,
    lambda client, tool, arguments: client.call_tool(tool, arguments),
)
