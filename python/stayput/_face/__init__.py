"""Hubs and sessions, for coroutines. `sync` is made from these files by `derive_sync.py`."""

from __future__ import annotations

from .events import Events
from .hub import Hub
from .run import Run, Sub
from .session import Session

__all__ = ["Events", "Hub", "Run", "Session", "Sub"]
