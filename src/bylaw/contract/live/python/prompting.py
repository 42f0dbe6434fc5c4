"""Context attacks on an agent whose model calls nobody sees: they go into the prompt itself."""

from __future__ import annotations

import sys
from typing import Any

from bylaw.contract.faults import ContextAttack
from bylaw.contract.live.attacks import attack_text, placed
from bylaw.contract.live.plan import Plan

_MODEL_LIBRARIES = frozenset(
    ("agents", "anthropic", "langchain", "langchain_anthropic", "langchain_core", "langchain_openai", "langgraph",
     "litellm", "openai", "pydantic_ai")
)  # fmt: skip


class PromptPlan(Plan):
    """A plan whose attacks on the context were put into the prompt, and nowhere a second time."""

    def attacks(self, *, on_result_of: str | None = None) -> list[ContextAttack]:
        return [] if on_result_of is None else super().attacks(on_result_of=on_result_of)

    def attacked(self, prompt: str) -> str:
        for attack in super().attacks():
            text = attack_text(attack, self.random(attack))
            changed = placed(prompt, text, attack.strategy)
            if changed != prompt:
                self.hit(attack)
            prompt = changed
        return prompt


def uses_model_library(agent: Any) -> bool:
    """Whether the module that defines a plain agent holds anything of a library that talks to models."""
    module = sys.modules.get(getattr(agent, "__module__", None) or type(agent).__module__)
    return any(_root(value) in _MODEL_LIBRARIES for value in list(vars(module).values())) if module else False


def _root(value: Any) -> str:
    """The library a module, a class or an object comes from."""
    name = getattr(value, "__name__", None) if isinstance(value, type(sys)) else getattr(value, "__module__", None)
    return str(name or type(value).__module__).partition(".")[0]
