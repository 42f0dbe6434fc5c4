"""What all readers of a sentence need: the tools with their words, the aliases, and the sentence itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from bylaw.comply.prompt.model import ToolSpec
from bylaw.comply.prompt.prose.sentence import Sentence
from bylaw.comply.prompt.words import Vocabulary, stem

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SMALL_WORDS = """
    a an the of to for by with from in on at and or its their this that any all
"""
_SMALL = frozenset(_SMALL_WORDS.split())

_IRREGULAR = {
    "sent": "send", "made": "make", "paid": "pay", "told": "tell", "given": "give", "gave": "give", "written": "write",
    "wrote": "write", "taken": "take", "took": "take", "found": "find", "got": "get", "gotten": "get", "ran": "run",
    "built": "build", "withdrawn": "withdraw", "kept": "keep", "chosen": "choose", "drawn": "draw", "sold": "sell",
    "bought": "buy", "shown": "show", "read": "read", "lent": "lend", "spent": "spend", "put": "put",
}  # fmt: skip
"""forms that no stemmer knows"""


def roots(text: str) -> list[str]:
    """The stems of a text, in order. `verify` and `verification` come out equal, which stemming alone does not do."""
    parts = _WORD.findall(_HUMP.sub(" ", text.replace("_", " ").replace("'s", " ")))
    return [root(part) for part in parts if part.lower() not in _SMALL]


def root(word: str) -> str:
    lowered = word.lower()
    return stem(_IRREGULAR.get(lowered, lowered)).rstrip("i")


class Tools:
    """The tools of a prompt, looked up by the words of their names. Made once for a prompt."""

    def __init__(self, tools: Sequence[ToolSpec], aliases: Mapping[str, Sequence[str]]) -> None:
        self.specs = {tool.name: tool for tool in tools}
        self.aliases = aliases
        self.words = {tool.name: tuple(roots(tool.name)) for tool in tools}

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(tuple(self.specs.values()))

    @cached_property
    def params(self) -> dict[str, tuple[str, ...]]:
        """Each parameter's name with the tools that take it."""
        found: dict[str, list[str]] = {}
        for tool in self.specs.values():
            for param in tool.params:
                found.setdefault(param, []).append(tool.name)
        return {param: tuple(names) for param, names in found.items()}

    def schema(self, tool: str, param: str) -> dict[str, object]:
        return dict(self.specs[tool].params.get(param, {})) if tool in self.specs else {}


class Context:
    """One sentence among the tools."""

    def __init__(self, sentence: Sentence, tools: Tools, *, section: str | None = None) -> None:
        self.sentence = sentence
        self.tools = tools
        self.section = section
        """the tool whose section the sentence stands in"""
