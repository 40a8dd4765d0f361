"""Scope of a task: the session it belongs to."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Generic, TypeVar

from . import _core
from ._types import Handlers


T = TypeVar("T")


class Scope:
    """Scope of a task."""

    __slots__ = ("core", "handlers")

    def __init__(self, core: _core.Scope, handlers: Handlers | None) -> None:
        self.core = core
        self.handlers = handlers


# The interpreter copies it into every task, callback and thread of `asyncio.to_thread`; a change of a copy does not
# affect the original.
current: ContextVar[Scope | None] = ContextVar("stayput.scope", default=None)


def current_core() -> _core.Scope | None:
    """Returns the native scope of the current task."""
    scope = current.get()
    return None if scope is None else scope.core


class ScopeStack(Generic[T]):
    """Scopes that were entered with one context manager, possibly by several tasks at once, each with the resource to
    release at its exit."""

    __slots__ = ("_stack",)

    def __init__(self) -> None:
        self._stack: list[tuple[Token[Scope | None], T]] = []

    def __len__(self) -> int:
        return len(self._stack)

    def push(self, scope: Scope, resource: T) -> None:
        """Makes a scope the current one."""
        self._stack.append((current.set(scope), resource))

    def pop(self) -> T | None:
        """Restores the scope before the last `push` of this task, and returns its resource."""
        for entry in reversed(self._stack):
            try:
                current.reset(entry[0])
            except ValueError:
                # The entry belongs to another task.
                continue
            self._stack.remove(entry)
            return entry[1]
        # Entered in one task and left in another: the scope ends with the context of the first.
        return self._stack.pop()[1] if self._stack else None
