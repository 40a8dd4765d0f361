"""Minimal web server around an agent: `POST /THREAD` with the steps of a turn."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from agents import Agent, turn

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def web(graph: Agent) -> Callable[..., Awaitable[None]]:
    """ASGI application without state between requests."""

    async def application(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        response = await turn(graph, scope["path"].strip("/"), *json.loads(body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": response.encode()})

    return application
