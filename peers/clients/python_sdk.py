"""The official Python SDK: `python_sdk.py URL [MODE]`, as a legacy client unless the mode is another one."""

import sys

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from lines import run

URL, MODE = sys.argv[1], (sys.argv[2:] or ["legacy"])[0]


def connect(headers):
    http = create_mcp_http_client(headers=headers)
    return Client(streamable_http_client(URL, http_client=http), mode=MODE)


run(
    connect,
    lambda client: client.protocol_version,
    lambda client, tool, arguments, meta: client.call_tool(tool, arguments, meta=meta),
)
