"""How long something takes, for comparisons within one run."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def cpu_seconds(function: Callable[[], object]) -> float:
    """Seconds of CPU. Garbage is not collected meanwhile: that takes as long as all that the process has loaded."""
    gc.disable()
    try:
        began = time.process_time()
        function()
        return time.process_time() - began
    finally:
        gc.enable()
