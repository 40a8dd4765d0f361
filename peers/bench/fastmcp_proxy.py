"""FastMCP's proxy: `fastmcp_proxy.py PORT URL`, or `fastmcp_proxy.py PORT COMMAND ARGS...`."""

import sys

from fastmcp.server import create_proxy
from fastmcp.server.providers.proxy import FastMCPProxy, StatefulProxyClient

port, target, *arguments = sys.argv[1:]
if target.startswith("http://"):
    # Its way for servers with state. By itself it opens a session of the server for each call, which is slow and
    # keeps nothing: that would be another job than that of those it is measured beside.
    client = StatefulProxyClient(target)
    proxy = FastMCPProxy(client_factory=client.new_stateful)
else:
    proxy = create_proxy({"mcpServers": {"counter": {"command": target, "args": arguments}}})
proxy.run("http", host="127.0.0.1", port=int(port), path="/mcp", show_banner=False, log_level="error")
