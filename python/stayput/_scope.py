"""What follows a task: the session it belongs to."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Generic, TypeVar

from . import _core
from ._types import Handlers


T = TypeVar("T")


class Scope:
    """The scope of a task."""

    __slots__ = ("core", "handlers")

    def __init__(self, core: _core.Scope, handlers: Handlers | None) -> None:
        self.core = core
        self.handlers = handlers


# Copied by the interpreter into every task, callback and thread of `asyncio.to_thread`; a copy never changes what it
# was copied from.
current: ContextVar[Scope | None] = ContextVar("stayput.scope", default=None)


def around() -> _core.Scope | None:
    """The scope that this code runs in."""
    scope = current.get()
    return None if scope is None else scope.core


class Entered(Generic[T]):
    """The scopes that were entered with one context manager, which several tasks may do at once, each with what it
    has to let go of at the end."""

    __slots__ = ("_entered",)

    def __init__(self) -> None:
        self._entered: list[tuple[Token[Scope | None], T]] = []

    def __len__(self) -> int:
        return len(self._entered)

    def push(self, scope: Scope, thing: T) -> None:
        """Makes it the current one."""
        self._entered.append((current.set(scope), thing))

    def pop(self) -> T | None:
        """Makes current what was so before, and gives what was entered with it."""
        for entry in reversed(self._entered):
            try:
                current.reset(entry[0])
            except ValueError:
                # Of another task.
                continue
            self._entered.remove(entry)
            return entry[1]
        # Opened on one task and closed on another: the context of that one goes with it.
        return self._entered.pop()[1] if self._entered else None
