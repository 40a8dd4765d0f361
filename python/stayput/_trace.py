"""Trace context of the caller, for the `_meta` of its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_inject: Callable[[dict[str, str]], None] | None

try:
    from opentelemetry.propagate import inject as _found
except ImportError:
    _inject = None
else:
    _inject = _found


def call_meta(members: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns the `_meta` of a call: these members, and `traceparent` of the current OpenTelemetry span if there is one."""
    if _inject is None:
        return dict(members) if members else None
    carrier: dict[str, str] = {}
    _inject(carrier)
    return {**carrier, **(members or {})} or None
