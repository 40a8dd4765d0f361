"""Arguments of the native half: configurations and JSON. Closes all hubs at the end of the interpreter."""

from __future__ import annotations

import atexit
import json
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _core
from ._errors import ConfigError, InvalidInputError
from ._headers import HeaderCallback, HubCallbacks, StderrCallback
from ._log import update_level
from ._trace import call_meta
from ._types import Handlers

SHUTDOWN_TIMEOUT = 10.0
"""Seconds that hubs have to close at the end of the interpreter."""


__version__ = _core.__version__


def build_hub(
    config: str | os.PathLike[str] | Mapping[str, Any] | None,
    settings: dict[str, Any],
    handlers: Handlers,
    headers: HeaderCallback | None,
    stderr: StderrCallback | None = None,
) -> tuple[_core.Hub, HubCallbacks]:
    """Builds a hub with the servers of a file, of a mapping of the same form, or of a gateway, and starts its thread for
    callbacks if it has any."""
    update_level()
    wants = {"headers": headers is not None, "stderr": stderr is not None}
    settings = {**settings, "handlers": list(handlers), **wants}
    if config is None:
        core = _core.Hub.build(None, None, settings)
    elif isinstance(config, Mapping):
        core = _core.Hub.build(None, config_text(config), settings)
    else:
        core = _core.Hub.build(os.fspath(config), None, settings)
    return core, HubCallbacks(core, headers, stderr)


def header_callbacks(callbacks: HubCallbacks) -> HubCallbacks:
    """Returns the callbacks of a hub that was built with `headers`."""
    if not callbacks.has_headers:
        raise InvalidInputError("this hub was built without `headers`: give it a callback there, which may return {}")
    return callbacks


def config_text(config: Mapping[str, Any]) -> tuple[str, Path]:
    """Returns the configuration as text, and its origin: relative paths are resolved against the working directory."""
    try:
        return json.dumps(config), Path.cwd() / "<config>"
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the configuration is no JSON: {error}") from error


def encode_arguments(given: Any, named: dict[str, Any]) -> str:
    """Encodes the arguments of a call, from a mapping or by name, as JSON."""
    if given is not None and not isinstance(given, Mapping):
        kind: str = type(given).__name__
        raise InvalidInputError(f"give arguments by name, `text=…`, or in a mapping, `{{'text': …}}`, and not as a {kind}")
    try:
        return _encode({**given, **named} if given else named)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"the arguments are no JSON: {error}") from error


class _WorkerState:
    forked = False
    warned = False


def _note_fork() -> None:
    _WorkerState.forked = True


os.register_at_fork(after_in_child=_note_fork)


def warn_in_worker() -> None:
    """Warns once in a process that is probably one of several workers, and whose hub shares its sessions with none."""
    processes = sys.modules.get("multiprocessing")
    is_worker = _WorkerState.forked or (processes is not None and processes.parent_process() is not None)
    if is_worker and not _WorkerState.warned:
        _WorkerState.warned = True
        warnings.warn(
            "this process is one of several, and its hub has no store: each process has its own session of a name. Share "
            "them by `Hub.connect` or by `store`, see docs/workers.md",
            RuntimeWarning,
            stacklevel=4,
        )


def encode_meta(meta: Mapping[str, Any] | None) -> str | None:
    """Encodes the `_meta` of a call, with the trace context of the caller."""
    members = call_meta(meta)
    if members is None:
        return None
    try:
        return _encode(members)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"the `meta` of the call is no JSON: {error}") from error


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


# In a forked child the native half leaves the hubs of the parent open.
atexit.register(_core.close_all, SHUTDOWN_TIMEOUT)
