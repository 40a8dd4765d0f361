# Generated from `_async/__init__.py` by `derive_sync.py`; edit that file.
"""Hubs and sessions without `await`."""

from __future__ import annotations

from .events import Events, Notifications
from .hub import Hub
from .run import Run, SubAgent
from .session import Session

__all__ = ["Events", "Hub", "Notifications", "Run", "Session", "SubAgent"]
