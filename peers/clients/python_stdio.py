"""The official Python SDK over standard input and output: `python_stdio.py MODE COMMAND ARGS…`, where MODE
is `legacy` or `auto`."""

import os
import sys

from mcp import Client, StdioServerParameters

from lines import run

mode, command, *args = sys.argv[1:]

run(
    lambda _headers: Client(StdioServerParameters(command=command, args=args, env=dict(os.environ)), mode=mode),
    lambda client: client.protocol_version,
    lambda client, tool, arguments, meta: client.call_tool(tool, arguments, meta=meta),
)
