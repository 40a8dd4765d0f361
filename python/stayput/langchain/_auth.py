"""`auth` of a connection: an `httpx.Auth`, asked for the headers of each request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from .._headers import HeaderCallback, HeaderRequest


def auth_headers(connections: Mapping[str, Mapping[str, Any]]) -> HeaderCallback | None:
    """Returns the callback for the headers of those connections that have an `auth`, if any has."""
    found = {name: (str(it.get("url")), it["auth"]) for name, it in connections.items() if it.get("auth") is not None}

    async def headers(request: HeaderRequest) -> dict[str, str]:
        if request.server not in found:
            return {}
        url, auth = found[request.server]
        return await _headers_of(url, auth, request.rejected)

    return headers if found else None


async def _headers_of(url: str, auth: Any, rejected: bool) -> dict[str, str]:
    """Runs the flow of an `httpx.Auth` until it would send the request. Its own requests, such as for a token, are sent. After a
    refusal the flow is told of it."""
    import httpx

    async with httpx.AsyncClient() as client:
        request = httpx.Request("POST", url)
        before = dict(request.headers)
        flow: AsyncGenerator[httpx.Request, httpx.Response] = auth.async_auth_flow(request)
        try:
            current = await anext(flow)
            while True:
                if current is not request:
                    current = await flow.asend(await client.send(current))
                elif rejected:
                    rejected = False
                    current = await flow.asend(httpx.Response(401, request=request))
                else:
                    break
        except StopAsyncIteration:
            pass
        finally:
            await flow.aclose()
        return {name: value for name, value in request.headers.items() if before.get(name) != value}
