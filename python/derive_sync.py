"""Makes `stayput/sync.py` from `stayput/_hub.py`: the same face without `await`.

python derive_sync.py            writes it
python derive_sync.py --check    says whether it is as it should be
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent / "stayput"

# In this order.
WORDS = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait\s+", ""),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\b__aiter__\b", "__iter__"),
    (r"\b__anext__\b", "__next__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b_aio\b", "_blocking"),
    (r"\bainvoke\b", "invoke"),
    (r"asyncio\.run\(main\(\)\)", "main()"),
    (r"<stayput\.", "<stayput.sync."),
]


def derived() -> str:
    """What should be in the file."""
    text = (HERE / "_hub.py").read_text()
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    head = '"""Hubs and sessions, without `await`. Made from `_hub.py` by `derive_sync.py`; change that one."""'
    return re.sub(r'\A""".*?"""', head, text, count=1)


def main() -> int:
    target = HERE / "sync.py"
    if "--check" not in sys.argv[1:]:
        target.write_text(derived())
        return 0
    if target.read_text() == derived():
        return 0
    sys.stderr.write("stayput/sync.py is not what derive_sync.py makes of stayput/_hub.py: run it\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
