"""Stateful MCP servers for agents: sessions that follow the task, shared with sub-agents by choice, closed for certain.

    hub = stayput.Hub.from_config("mcp.json")
    async with hub.session("chat-42") as chat:
        await chat.call("browser", "browser_navigate", url="https://example.com")

`stayput.sync` is the same without `await`. `stayput.langchain` has tools for LangChain and LangGraph.
"""

from __future__ import annotations

from ._async import Events, Hub, Run, Session, SubAgent
from ._errors import (
    AccessDenied,
    AtCapacity,
    CallFailed,
    CallTimedOut,
    ConfigError,
    HubClosed,
    HubForked,
    InputRequired,
    InvalidInput,
    NameTaken,
    NoSession,
    ProtocolError,
    ServerFailed,
    SessionEnded,
    SessionUnavailable,
    StateLost,
    StayputError,
    UnknownServer,
    UnknownSession,
)
from ._types import (
    CloseReport,
    Event,
    Handler,
    Handlers,
    Prompt,
    Resource,
    SessionInfo,
    SessionStatus,
    Tool,
    ToolResult,
)

__all__ = [
    "AccessDenied",
    "AtCapacity",
    "CallFailed",
    "CallTimedOut",
    "CloseReport",
    "ConfigError",
    "Event",
    "Events",
    "Handler",
    "Handlers",
    "Hub",
    "HubClosed",
    "HubForked",
    "InputRequired",
    "InvalidInput",
    "NameTaken",
    "NoSession",
    "Prompt",
    "ProtocolError",
    "Resource",
    "Run",
    "ServerFailed",
    "Session",
    "SessionEnded",
    "SessionInfo",
    "SessionStatus",
    "SessionUnavailable",
    "StateLost",
    "StayputError",
    "SubAgent",
    "Tool",
    "ToolResult",
    "UnknownServer",
    "UnknownSession",
]
