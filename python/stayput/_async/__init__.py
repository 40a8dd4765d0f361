"""Hubs and sessions with `await`. `derive_sync.py` generates `sync` from these files."""

from __future__ import annotations

from .events import Events, Notifications
from .hub import Hub
from .run import Run, SubAgent
from .session import Session

__all__ = ["Events", "Hub", "Notifications", "Run", "Session", "SubAgent"]
