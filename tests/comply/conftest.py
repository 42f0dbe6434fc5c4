from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from bylaw.comply import api as comply
from bylaw.comply.model import PromptRule
from tests.comply.support import be_kind, never_drop


@pytest.fixture
def stated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Says what the prompt states, whatever the grammar reads: `stated(rule, …)`."""

    def state(*rules: PromptRule) -> None:
        comply._compile_prompt.cache_clear()
        monkeypatch.setattr("bylaw.comply.prompt.extract_rules", lambda prompt, **more: rules)

    yield state
    comply._compile_prompt.cache_clear()


@pytest.fixture
def two_rules(stated: Callable[..., None]) -> None:
    """One that the engine decides and one that it cannot."""
    stated(never_drop(), be_kind())


@pytest.fixture
def judge_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYLAW_ENABLE_JUDGE", " TRUE ")
    for name in ("BYLAW_JUDGE_URL", "BYLAW_JUDGE_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("bylaw.comply.judge.providers.BACK_OFF", (0.01, 0.01))
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-test")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-a-test")
