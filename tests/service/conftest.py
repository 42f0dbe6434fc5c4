from __future__ import annotations

import pytest

from tests.service.support import Site


@pytest.fixture
def site() -> Site:
    return Site()
