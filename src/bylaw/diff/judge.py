"""The judge of answers: a function of the user that scores a response from 0 to 1."""

from __future__ import annotations

import contextlib
import importlib
import math
import queue
import sys
import threading
from collections.abc import Callable
from numbers import Real
from typing import Any

from bylaw.model.events import Response
from bylaw.rules.files import note_module
from bylaw.traces.comparison.recording import Step

ResponseJudge = Callable[[Response], float | None]
SECONDS = 60.0
"""how long a named judge may take for one response"""


def checked_score(score: object) -> float | None:
    """A judge's score: from 0 to 1, or None where it has no opinion. Anything else would distort the mean unseen."""
    if score is None:
        return None
    if not isinstance(score, Real) or not 0 <= float(score) <= 1:  # NaN is not in between
        raise ValueError(f"judge returned {score!r}: expected a number from 0 to 1, or None")
    return float(score)


class _TooSlow(Exception):
    pass


class NamedJudge:
    """A judge that was named in a file or on the command line. The first time it fails, or gives no score within
    `seconds`, it is not asked again, and the comparison says so: it is never a pass then.

    It is loaded and called in one thread of its own, which is left behind if it does not return.
    """

    def __init__(self, address: str, seconds: float = SECONDS) -> None:
        if not isinstance(seconds, Real) or not 0 < float(seconds) < math.inf:
            raise ValueError(f"judge_timeout={seconds!r}: expected a number of seconds above 0")
        self._address: str = address
        self._seconds: float = float(seconds)
        self._work: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self.failure: str | None = None
        note_module(address, "")
        threading.Thread(target=self._serve, name="judge", daemon=True).start()
        try:
            self._judge: ResponseJudge = self._run(lambda: load_judge(address))
        except _TooSlow:
            raise ValueError(f"cannot load {address!r}: it was not imported within {self._seconds:g} seconds") from None

    def __call__(self, step: Step) -> float | None:
        if self.failure is not None:
            return None
        try:
            with contextlib.redirect_stdout(sys.stderr):
                return checked_score(self._run(lambda: self._judge(step.response)))
        except _TooSlow:
            self.failure = f"{self._address} gave no score for turn {step.turn} within {self._seconds:g} seconds"
        except (Exception, SystemExit) as error:  # the user's own code, often asking a service
            self.failure = f"{self._address} failed at turn {step.turn}: {type(error).__name__}: {error}"
        return None

    def _run(self, work: Callable[[], Any]) -> Any:
        """What `work` returns or raises, in the thread of the judge."""
        self._work.put(work)
        try:
            result, error = self._done.get(timeout=self._seconds)
        except queue.Empty:
            raise _TooSlow from None
        if error is not None:
            raise error
        return result

    def _serve(self) -> None:
        while True:
            work = self._work.get()
            try:
                self._done.put((work(), None))
            except BaseException as error:  # raised again by who waits
                self._done.put((None, error))


def load_judge(address: str) -> ResponseJudge:
    """The function at `module:function`, searched from the working directory; ValueError where there is none.

    Output of the import goes to stderr, because stdout is for the report.
    """
    module_name, _, name = address.partition(":")
    if not module_name or not name:
        raise ValueError(f"{address!r}: expected `module:function`")
    sys.path.insert(0, "")
    try:
        with contextlib.redirect_stdout(sys.stderr):
            found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # importing runs the user's own code
        raise ValueError(f"cannot load {address!r}: {type(error).__name__}: {error}") from error
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove("")
    if not callable(found):
        raise ValueError(f"{address!r} is not a function")
    return found  # type: ignore[no-any-return]
