"""Exceptions. Most messages come from the Rust library."""

from __future__ import annotations

import json
from typing import Any

__all__ = [
    "AccessDeniedError",
    "AtCapacityError",
    "CallFailedError",
    "CallTimeoutError",
    "ConfigError",
    "HubClosedError",
    "HubForkedError",
    "InputRequiredError",
    "InvalidInputError",
    "NameTakenError",
    "NoSessionError",
    "ProtocolError",
    "ServerFailedError",
    "SessionEndedError",
    "SessionHeldElsewhereError",
    "SessionUnavailableError",
    "StateLostError",
    "StayputError",
    "StoreFailedError",
    "UnknownServerError",
    "UnknownSessionError",
]


class StayputError(Exception):
    """Base of all exceptions of this package.

    >>> error = StayputError("it went wrong")
    >>> error.kind, error.may_have_run
    ('invalid_input', False)
    """

    kind: str = "invalid_input"
    """Kind of the error, as a stable word for programs."""
    may_have_run: bool = False
    """Whether the call may have run though there is no result."""
    server: str | None = None
    """Server that the error concerns, if any."""
    retry_after: float | None = None
    """Seconds after which a repeated attempt can succeed, if the error is known to pass."""

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message)
        self.__dict__.update(details)


class StateLostError(StayputError):
    """The state behind the session was lost. The call did not run, unless `may_have_run`; the next one runs on a fresh
    state."""

    generation: int = 0
    """Generation that begins. It counts the losses."""
    reason: str = ""
    """Reason in one word: `exited`, `session_unknown`, `expired`, …"""
    exit_code: int | None = None
    """Exit code of the server's process, if it exited; minus the signal, if it was killed, as in `subprocess`."""
    detail: str = ""
    """Last lines that the process wrote to stderr, without the configured secrets. Not meant for a model."""


class NoSessionError(StayputError):
    """The call is in no scope, names no session, and there is no default session."""


class UnknownServerError(StayputError):
    """There is no server of this name."""


class AccessDeniedError(StayputError):
    """The sub-agent may not use the server, or the configuration does not allow the tool."""


class UnknownSessionError(StayputError):
    """There is no session of this name."""


class NameTakenError(StayputError):
    """There already is a session of this name."""

    name: str = ""
    """The name."""


class SessionEndedError(StayputError):
    """The session was ended."""

    session: str = ""
    """Id of the session."""


class HubClosedError(StayputError):
    """The hub was closed."""


class HubForkedError(StayputError):
    """The hub belongs to the process that this one was forked from. Build another one here."""


class AtCapacityError(StayputError):
    """The limit of processes, links or sessions is reached. A later attempt can succeed."""


class ServerFailedError(StayputError):
    """The server cannot be started or reached."""


class CallFailedError(StayputError):
    """The call got no answer."""


class CallTimeoutError(CallFailedError, TimeoutError):
    """The call got no answer in time."""


class ProtocolError(StayputError):
    """The server answered with a JSON-RPC error."""

    code: int = 0
    """Code of the error."""
    raw: str = "{}"
    """The whole error object, as JSON."""

    @property
    def data(self) -> Any:
        """Additional data of the error."""
        return json.loads(self.raw).get("data")


class InputRequiredError(StayputError):
    """The server requires input that no handler provides."""


class ConfigError(StayputError, ValueError):
    """The configuration is wrong."""


class SessionUnavailableError(StayputError):
    """The session cannot be opened."""


class SessionHeldElsewhereError(StayputError):
    """Another process has the session, and did not give it up in time. Send the requests of one session to one process,
    or connect all processes to one gateway by `Hub.connect`."""


class StoreFailedError(StayputError):
    """The store cannot be opened."""


class InvalidInputError(StayputError, ValueError):
    """A value cannot be used: an argument, a setting, or a result that does not fit."""


_KINDS: dict[str, type[StayputError]] = {
    "state_lost": StateLostError,
    "no_session": NoSessionError,
    "unknown_server": UnknownServerError,
    "denied": AccessDeniedError,
    "unknown_session": UnknownSessionError,
    "name_taken": NameTakenError,
    "session_ended": SessionEndedError,
    "hub_closed": HubClosedError,
    "hub_forked": HubForkedError,
    "at_capacity": AtCapacityError,
    "server_failed": ServerFailedError,
    "call_failed": CallFailedError,
    "timed_out": CallTimeoutError,
    "protocol_error": ProtocolError,
    "input_required": InputRequiredError,
    "config": ConfigError,
    "session_unavailable": SessionUnavailableError,
    "session_held_elsewhere": SessionHeldElsewhereError,
    "store_failed": StoreFailedError,
    "invalid_input": InvalidInputError,
}


_MESSAGES = {
    "no_session": "this call belongs to no session: make it inside `hub.run()` or `hub.session(…)`, on a session, "
    "or after `hub.enable_default_session()`",
}
"""Messages that differ from the Rust library, because they mention Python names."""


def make_error(kind: str, message: str, details: dict[str, Any]) -> StayputError:
    """Creates the exception of a kind. The native half calls this."""
    message = _MESSAGES.get(kind, message)
    return _KINDS.get(kind, StayputError)(message, kind=kind, **details)
