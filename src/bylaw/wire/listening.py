"""Who has a part in an exchange of this process: the run it belongs to, which may alter it, and those who only listen.

A listener is given each exchange as it begins and returns one that also tells what passes. Nobody listens most of the
time: `listen_with` sets the one function that knows who does, and takes it away again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from bylaw.contract.live.tools.decorator import names_being_called
from bylaw.wire.current import LiveRun, current_run, is_aside
from bylaw.wire.exchange import Exchange, Outgoing
from bylaw.wire.formats import wire_at

Listener: TypeAlias = Callable[[Exchange], Exchange]
Listeners: TypeAlias = Callable[[], Sequence[Listener]]
HandOn: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""the same function, heard by those who listen here, in whatever thread it will run"""


class _Listening:
    listeners: Listeners | None = None
    hand_on: HandOn | None = None


_listening = _Listening()


def listen_with(listeners: Listeners | None, hand_on: HandOn | None) -> None:
    _listening.listeners, _listening.hand_on = listeners, hand_on


def handed_on(function: Callable[..., Any]) -> Callable[..., Any]:
    hand_on = _listening.hand_on
    return function if hand_on is None else hand_on(function)


class Passage:
    """What a patched library needs to know of whoever has a part in its exchange."""

    def __init__(self, run: LiveRun | None, listeners: Sequence[Listener]) -> None:
        self._run = run
        self._listeners = listeners

    def begin(self, request: Outgoing) -> Exchange:
        exchange = Exchange(request)
        if self._run is not None:
            exchange = self._run.interceptor.begin(request, in_tool=bool(names_being_called()))
        for listener in self._listeners:
            exchange = listener(exchange)
        return exchange

    def wait(self, seconds: float) -> None:
        if self._run is not None:
            self._run.wait(seconds)
        elif seconds > 0:
            time.sleep(seconds)


def passage(method: str, url: str) -> Passage | None:
    """None where nobody has a part in this request of the code now running: it is then sent as if we were not here.

    A run has a part in every request, a listener only in those that may go to a model.
    """
    if is_aside():
        return None
    run = current_run()
    who = _listening.listeners
    if run is None and (who is None or wire_at(method, url) is None):
        return None
    listeners = () if who is None else who()
    return Passage(run, listeners) if run is not None or listeners else None
