"""What follows a task: the session it belongs to."""

from __future__ import annotations

from contextvars import ContextVar, Token

from . import _core
from ._types import Handlers


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


class Entered:
    """The scopes that were entered with one context manager, which may be used by several tasks at once."""

    __slots__ = ("_tokens",)

    def __init__(self) -> None:
        self._tokens: list[Token[Scope | None]] = []

    def push(self, scope: Scope) -> None:
        """Makes it the current one."""
        self._tokens.append(current.set(scope))

    def pop(self) -> int:
        """Makes current what was so before; says how many are still entered."""
        for token in reversed(self._tokens):
            try:
                current.reset(token)
            except ValueError:
                # Of another task.
                continue
            self._tokens.remove(token)
            return len(self._tokens)
        # Opened on one task and closed on another: the context of that one goes with it.
        if self._tokens:
            self._tokens.pop()
        return len(self._tokens)
