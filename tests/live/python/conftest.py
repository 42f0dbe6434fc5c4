from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.python.support import Served, serving


@pytest.fixture(scope="module")
def one_server() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture
def server(one_server: Served) -> Served:
    one_server.asked.clear()
    return one_server
