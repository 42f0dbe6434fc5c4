from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.record.server import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        yield started
