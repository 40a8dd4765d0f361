# Made from `_face/__init__.py` by `derive_sync.py`; change that one.
"""Hubs and sessions, without `await`."""

from __future__ import annotations

from .events import Events
from .hub import Hub
from .run import Run, Sub
from .session import Session

__all__ = ["Events", "Hub", "Run", "Session", "Sub"]
