"""ASGI application of several workers: `GET /CHAT` counts in the session of the chat."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import stayput

if "STAYPUT_GATEWAY" in os.environ:
    hub = stayput.Hub.connect(os.environ["STAYPUT_GATEWAY"])
else:
    hub = stayput.Hub.from_config(json.loads(os.environ["STAYPUT_CONFIG"]), **json.loads(os.environ["STAYPUT_SETTINGS"]))


async def app(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Answers with the counter of the chat and the worker's process id."""
    if scope["type"] != "http":
        return
    async with hub.session(scope["path"].strip("/")) as chat:
        counted = await chat.call("counter", "count")
    body = f"{counted.text} {os.getpid()}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body})
