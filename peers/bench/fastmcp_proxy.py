"""FastMCP's proxy: `fastmcp_proxy.py PORT URL`, or `fastmcp_proxy.py PORT COMMAND ARGS...`."""

import sys

from fastmcp.server import create_proxy

port, target, *arguments = sys.argv[1:]
if not target.startswith("http://"):
    target = {"mcpServers": {"counter": {"command": target, "args": arguments}}}
create_proxy(target).run(
    "http", host="127.0.0.1", port=int(port), path="/mcp", show_banner=False, log_level="error"
)
