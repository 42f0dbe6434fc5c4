"""What the agent must or must not say, where the sentence gives the words: `never say "guaranteed"`.

Without words in quotes nothing can be looked for, and the rule stays undecided.
"""

from __future__ import annotations

import re

from msgspec import Struct

from bylaw.comply.prompt.prose.lowering import Draft, formula, literal_pattern, pattern
from bylaw.comply.prompt.prose.sentence import Literal

SPEAKS = re.compile(
    r"\b(?:say|saying|mention|mentioning|includ\w*|reveal\w*|disclos\w*|writ(?:e|ing)|stat(?:e|ing)|us(?:e"
    r"|ing) the (?:words?|phrases?|terms?)|contain\w*|repl(?:y|ies|ying)"
    r"|respond\w*|answer\w*|tell\w*|output\w*|begin\w*|start\w*|end(?:s|ing)?|finish\w*|open\w*|clos(?:e|es"
    r"|ing)|greet\w*|sign off|append\w*|prefix\w*|utter\w*|print\w*|add\w*|the (?:words?|phrases?|terms?)"
    r"|address\w*|call(?:ing)? (?:the )?(?:user|customer))\b",
    re.IGNORECASE,
)
_OPENS = re.compile(r"\b(?:begin|start|open|prefix|greet|introduce)\w*\b", re.IGNORECASE)
_ENDS = re.compile(r"\b(?:end|finish|clos|conclud|sign off|append)\w*\b", re.IGNORECASE)
_CONVERSATION = re.compile(
    r"\b(?:conversation|chat|session|call|at least once|first (?:message|reply|response))\b", re.IGNORECASE
)
_FINAL = re.compile(r"\b(?:final|last) (?:answer|message|reply|response|output)\b", re.IGNORECASE)
_ALWAYS = re.compile(r"\b(?:always|every|each|all|any)\b", re.IGNORECASE)


class Words(Struct, frozen=True):
    """The literals of a clause that are to be said."""

    literals: tuple[str, ...]

    def either(self, *, before: str = "", after: str = "") -> str:
        atoms = [f"text({pattern(text, before=before, after=after)})" for text in self.literals]
        return atoms[0] if len(atoms) == 1 else f"({' | '.join(atoms)})"


def find_words(text: str, literals: list[Literal]) -> Words | None:
    """The words that a clause says are to be said or not."""
    wanted = tuple(literal.text for literal in literals if literal.text.strip())
    return Words(wanted) if wanted and SPEAKS.search(text) else None


def unsaid(words: Words) -> list[Draft]:
    """One rule for each of them."""
    return [
        Draft("forbidden_text", {"text": _bounded(text), "regex": True, "ignore_case": True}, "text")
        for text in words.literals
    ]


def said(text: str, words: Words, *, any_of: bool) -> list[Draft]:
    """Where it has to be said: at the beginning, in every answer, or once."""
    chosen = [words] if any_of else [Words((literal,)) for literal in words.literals]
    return [_said(text, one) for one in chosen]


def _said(text: str, words: Words) -> Draft:
    if _FINAL.search(text):
        last = "!X F text(/\\S/)"
        return formula(f"G ((text(/\\S/) & {last}) -> {_placed(text, words)})", "text")
    if _CONVERSATION.search(text):
        if _OPENS.search(text) or re.search(r"\bfirst\b", text, re.IGNORECASE):
            return formula(f"!text(/\\S/) W {words.either()}", "text")
        if not _ENDS.search(text):
            return formula(f"F {words.either()}", "text")
        return formula(f"G ((text(/\\S/) & !X F text(/\\S/)) -> {words.either()})", "text")
    if _ALWAYS.search(text) or _OPENS.search(text) or _ENDS.search(text):
        return formula(f"G ((text(/\\S/) & !tool(*)) -> {_placed(text, words)})", "text", over="turns")
    return formula(f"F {words.either()}", "text")


def _placed(text: str, words: Words) -> str:
    if _OPENS.search(text):
        return words.either(before=r"^\s*")
    return words.either(after=r"\W*$") if _ENDS.search(text) else words.either()


def _bounded(text: str) -> str:
    """At the bounds of words, where the engine's patterns know them: beside ASCII letters and digits."""
    left = r"\b" if re.match(r"\w", text, re.ASCII) else ""
    return f"{left}{literal_pattern(text)}" + (r"\b" if re.search(r"\w$", text, re.ASCII) else "")
