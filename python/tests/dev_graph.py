"""A graph as people write them for `langgraph dev`: tools of Stayput, made where there is no `await`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from agents import assembled  # noqa: E402

from stayput import sync  # noqa: E402

hub = sync.Hub.from_config(json.loads(os.environ["STAYPUT_TEST_CONFIG"]))
# Without a memory: `langgraph dev` brings its own.
graph = assembled(hub.langchain_tools(key="thread_id")).compile()
