"""FastMCP's client as a legacy client: `fastmcp_client.py URL`."""

import sys

from fastmcp import Client

from lines import run

run(
    lambda: Client(sys.argv[1], mode="legacy"),
    lambda client: client.protocol_version,
    # What a tool says went wrong is an answer here, not an exception.
    lambda client, tool, arguments: client.call_tool_mcp(tool, arguments),
)
