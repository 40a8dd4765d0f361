"""Serves an ASGI app on a loopback port, any free one if it is 0, and prints its URL first."""

import socket

import uvicorn


def listen(app, port: int) -> None:
    listener = socket.create_server(("127.0.0.1", port))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])
