"""FastAPI application of several workers: `GET /CHAT` counts in the session of the chat."""

from __future__ import annotations

import json
import os

from fastapi import FastAPI, Response

import stayput

if "STAYPUT_GATEWAY" in os.environ:
    hub = stayput.Hub.connect(os.environ["STAYPUT_GATEWAY"])
else:
    hub = stayput.Hub.from_config(json.loads(os.environ["STAYPUT_CONFIG"]), **json.loads(os.environ["STAYPUT_SETTINGS"]))

app = FastAPI()


@app.get("/{chat_id}")
async def count(chat_id: str) -> Response:
    """Answers with the counter of the chat and the worker's process id."""
    async with hub.session(chat_id) as chat:
        counted = await chat.call("counter", "count")
    return Response(f"{counted.text} {os.getpid()}", media_type="text/plain")
