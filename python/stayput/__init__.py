"""Stateful MCP servers for agents: sessions that follow the task, shared with sub-agents by choice, closed for certain.

    hub = stayput.Hub.from_config("mcp.json")
    async with hub.session("chat-42") as chat:
        await chat.call("browser", "browser_navigate", url="https://example.com")

`stayput.sync` is the same without `await`. `stayput.langchain` has tools for LangChain and LangGraph.
"""

from __future__ import annotations

from ._async import Events, Hub, Notifications, Run, Session, SubAgent
from ._build import __version__
from ._errors import (
    AccessDeniedError,
    AtCapacityError,
    CallFailedError,
    CallTimeoutError,
    ConfigError,
    HubClosedError,
    HubForkedError,
    InputRequiredError,
    InvalidInputError,
    NameTakenError,
    NoSessionError,
    ProtocolError,
    ServerFailedError,
    SessionEndedError,
    SessionHeldElsewhereError,
    SessionUnavailableError,
    StateLostError,
    StayputError,
    StoreFailedError,
    UnknownServerError,
    UnknownSessionError,
)
from ._headers import HeaderCallback, HeaderRequest, KeptLink, SessionIdKeeper, StderrCallback, StderrLine
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
    "AccessDeniedError",
    "AtCapacityError",
    "CallFailedError",
    "CallTimeoutError",
    "CloseReport",
    "ConfigError",
    "Event",
    "Events",
    "Handler",
    "Handlers",
    "HeaderCallback",
    "HeaderRequest",
    "Hub",
    "HubClosedError",
    "HubForkedError",
    "InputRequiredError",
    "InvalidInputError",
    "KeptLink",
    "NameTakenError",
    "NoSessionError",
    "Notifications",
    "Prompt",
    "ProtocolError",
    "Resource",
    "Run",
    "ServerFailedError",
    "Session",
    "SessionEndedError",
    "SessionHeldElsewhereError",
    "SessionIdKeeper",
    "SessionInfo",
    "SessionStatus",
    "SessionUnavailableError",
    "StateLostError",
    "StayputError",
    "StderrCallback",
    "StderrLine",
    "StoreFailedError",
    "SubAgent",
    "Tool",
    "ToolResult",
    "UnknownServerError",
    "UnknownSessionError",
    "__version__",
]
