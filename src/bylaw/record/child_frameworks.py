"""Models of frameworks inside a recorded command, which no HTTP carries: recorded in the command's own process.

`startup_hook` begins it. The calls are appended to the file of `bylaw record`, as a part of its recording; a log
beside it tells `bylaw record` how many there were.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from bylaw.record.api import begin_recording
from bylaw.record.frameworks import FRAMEWORKS, mark_carried
from bylaw.record.recording import Recording
from bylaw.record.turns import ModelCall
from bylaw.text.redaction.redactor import recording_redactor
from bylaw.wire.exchange import Exchange
from bylaw.wire.formats import model_call

_SETTINGS, _LOG = "BYLAW_RECORD_SETTINGS", "BYLAW_RECORD_LOG"
_HOOK = Path(__file__).with_name("startup_hook.py")


class Settings(Struct, frozen=True):
    """What the processes of a command need to know about the recording."""

    path: str
    session: str
    recording: str
    agent: str | None = None
    redacts: bool = True
    patterns: dict[str, str] = {}
    durable: bool = False


class Found(Struct, frozen=True):
    """What the processes of a command recorded themselves."""

    counts: Mapping[str, int]
    """of `turn`, `error` and `lost`"""
    unable: list[str]
    """frameworks of a Python that cannot load Bylaw"""


def hook_variables(environment: Mapping[str, str], settings: Settings, folder: Path) -> dict[str, str]:
    """The variables that make each Python of the command run the hook; `folder` gets the hook and the log."""
    hook = folder / "python"
    hook.mkdir()
    shutil.copyfile(_HOOK, hook / "sitecustomize.py")
    path = os.pathsep.join(filter(None, (str(hook), environment.get("PYTHONPATH"))))
    log = folder / "frameworks.log"
    log.touch()
    return {"PYTHONPATH": path, _LOG: str(log), _SETTINGS: msgspec.json.encode(settings).decode()}


def read_log(folder: Path) -> Found:
    lines = (folder / "frameworks.log").read_text("utf-8", "replace").splitlines()
    words = [line.split(" ", 2) for line in lines if line]
    unable = dict.fromkeys(word[1] for word in words if word[0] == "unable" and len(word) > 1)
    return Found(Counter(word[0] for word in words), list(unable))


# In a process of the command


def begin() -> Any:
    """Record the frameworks of this process until it ends. Returns the finder that patches them on import."""
    settings = msgspec.json.decode(os.environ[_SETTINGS], type=Settings)
    begin_recording(_Part(settings, os.environ[_LOG]))
    return FRAMEWORKS.finder


class _Part(Recording):
    """A part of the recording of `bylaw record`, whose proxy records what HTTP carries."""

    def __init__(self, settings: Settings, log: str) -> None:
        super().__init__(
            settings.path,
            session=settings.session,
            agent=settings.agent,
            redact=recording_redactor(settings.patterns) if settings.redacts else None,
            durable=settings.durable,
            part_of=settings.recording,
        )
        self._log = log

    def listen(self, exchange: Exchange, *, session: str | None = None) -> Exchange:
        if model_call(exchange.request) is not None:
            mark_carried()
        return exchange

    def add(self, call: ModelCall | Exception, *, session: str | None = None) -> None:
        """Nothing is written once `bylaw record` has ended: then the log is gone, and its recording has its end."""
        try:
            with self._lock, open(os.open(self._log, os.O_WRONLY | os.O_APPEND), "w") as log:
                before = self.turns, self.errors
                super().add(call, session=session)
                kind = "turn" if self.turns > before[0] else "error" if self.errors > before[1] else "lost"
                log.write(f"{kind}\n")
        except FileNotFoundError:
            pass
        except OSError as problem:
            self._failed(problem)
