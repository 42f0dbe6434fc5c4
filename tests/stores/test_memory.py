"""The store in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bylaw.guard.stores import MemoryStore
from bylaw.guard.stores.ports import GuardStore
from tests.stores.conformance import StoreConformance


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def opener(self) -> Callable[..., GuardStore]:
        return MemoryStore
