"""Runs one agent of the shop once: `agent.py NAME`, with the prompt on its input, or `agent.py NAME PROMPT`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import shop

if __name__ == "__main__":
    print(shop.AGENTS[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else sys.stdin.read()))
