"""A reply that is passed on while it streams: each piece is told to the exchange, and it may be broken off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bylaw.wire.current import current_run
from bylaw.wire.exchange import Exchange
from bylaw.wire.values import one_line


class Passing:
    def __init__(self, exchange: Exchange, broken: Exception) -> None:
        self._exchange = exchange
        self._broken = broken
        self._passed = 0

    def wait(self) -> None:
        """Before the first byte."""
        run = current_run()
        if run is not None:
            run.wait(self._exchange.first_byte_delay)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        cut_after = self._exchange.cut_after
        left = len(data) if cut_after is None else cut_after - self._passed
        self._passed += len(data)
        self._exchange.chunk(data[:left])
        if left > 0:
            yield data[:left]
        if left < len(data):
            self._exchange.end(error="the connection was broken off")
            raise self._broken

    def finished(self) -> None:
        self._exchange.end()


@contextmanager
def telling(exchange: Exchange) -> Iterator[None]:
    """The exchange ends here. What breaks a stream off is told; that its reader stops reading is no failure."""
    try:
        yield
    except Exception as error:
        exchange.end(error=one_line(error))
        raise
    finally:
        exchange.end()
