"""A failed assertion of the conformance suite shows its values, as those of test files do."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.stores.conformance", "tests.stores.support")
