"""FastMCP's client: `fastmcp_client.py URL [MODE]`, as a legacy client unless the mode is another one."""

import sys

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from lines import run

URL, MODE = sys.argv[1], (sys.argv[2:] or ["legacy"])[0]

run(
    lambda headers: Client(StreamableHttpTransport(URL, headers=headers), mode=MODE),
    lambda client: client.protocol_version,
    # What a tool says went wrong is an answer here, not an exception.
    lambda client, tool, arguments, meta: client.call_tool_mcp(tool, arguments, meta=meta),
)
