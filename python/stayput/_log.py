"""Log of the Rust library in Python's `logging`, under `stayput`. A thread passes the records on."""

from __future__ import annotations

import atexit
import logging
import os
import threading

from . import _core

_process = 0
"""Process that passes records on."""


def update_level() -> None:
    """Records from now on what the logger `stayput` lets through. The first call in a process starts the thread."""
    global _process
    records = _core.start_log(logging.getLogger("stayput").getEffectiveLevel())
    if records is None:
        return
    _process = os.getpid()
    thread = threading.Thread(target=_pass_on, args=(records,), name="stayput-log", daemon=True)
    thread.start()
    atexit.register(_stop, thread)


def _pass_on(records: _core.LogRecords) -> None:
    while True:
        level, target, message = records.next()
        if level == 0:
            return
        name = target.replace("::", ".").replace("stayput_", "stayput.", 1)
        logging.getLogger(name).log(level, "%s", message)


def _stop(thread: threading.Thread) -> None:
    # A forked child has no such thread.
    if _process == os.getpid():
        _core.stop_log()
        thread.join()
