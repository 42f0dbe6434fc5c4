"""The store in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bylaw.adapters.stores import MemoryStore
from bylaw.model.stores import GuardStore
from tests.stores.conformance import StoreConformance


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def opener(self) -> Callable[..., GuardStore]:
        return MemoryStore
