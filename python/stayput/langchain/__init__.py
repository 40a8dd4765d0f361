"""Tools for LangChain and LangGraph with stateful MCP servers. Needs `stayput[langchain]`.

    hub = stayput.Hub.from_config("mcp.json")
    agent = create_agent(model, await hub.langchain_tools(key="thread_id"))
    await agent.ainvoke(messages, {"configurable": {"thread_id": "chat-42"}})

`MultiServerMCPClient` replaces the client of `langchain-mcp-adapters` by one changed import, and keeps the state.
"""

from __future__ import annotations

try:
    import langchain_core as _langchain_core
except ImportError as error:
    raise ImportError("`stayput.langchain` needs LangChain: pip install 'stayput[langchain]'") from error

from ._blocks import Artifact, content_blocks
from ._client import MultiServerMCPClient, ServerSession, load_mcp_prompt, load_mcp_resources, load_mcp_tools
from ._interceptors import CallbackContext, Callbacks, MCPToolCallRequest, ToolCallInterceptor
from ._resolver import Key
from ._tool import SessionTool, ToolFailedError
from ._tools import as_tools

del _langchain_core

__all__ = [
    "Artifact",
    "CallbackContext",
    "Callbacks",
    "Key",
    "MCPToolCallRequest",
    "MultiServerMCPClient",
    "ServerSession",
    "SessionTool",
    "ToolCallInterceptor",
    "ToolFailedError",
    "as_tools",
    "content_blocks",
    "load_mcp_prompt",
    "load_mcp_resources",
    "load_mcp_tools",
]
