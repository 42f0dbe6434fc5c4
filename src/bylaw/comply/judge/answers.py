"""What the judge wrote → verdicts. Everything that is not exactly as asked for is thrown away and said to be."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

from msgspec import Struct

from bylaw.comply.model import State
from bylaw.model.values import json_type

MOST_PROPOSED = 50
_LONGEST = 2_000
_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL)


class Judged(Struct, frozen=True, kw_only=True):
    """One verdict that holds together. `rule_id` is empty for a rule that the judge proposes, by its `quote`."""

    rule_id: str = ""
    quote: str = ""
    state: State
    event_indexes: tuple[int, ...] = ()
    explanation: str


class Answer(Struct, kw_only=True):
    verdicts: dict[str, Judged] = {}
    proposed: list[Judged] = []
    refused: list[str] = []
    """why a part of it was thrown away"""


def read_answer(text: str, asked: Collection[str], indexes: Collection[int], *, proposals: bool) -> Answer:
    answer = Answer()
    document = _document(text, answer)
    if document is None:
        return answer
    verdicts = document.get("verdicts")
    if not isinstance(verdicts, list):
        answer.refused.append("the judge's answer has no list `verdicts`")
        return answer
    doubled: set[str] = set()
    for judged in _read_each(verdicts, "verdicts", indexes, answer):
        if judged.rule_id not in asked:
            answer.refused.append(f"the judge answers for `{_short(judged.rule_id)}`, which it was not asked about")
        elif judged.rule_id in answer.verdicts and answer.verdicts[judged.rule_id].state is not judged.state:
            doubled.add(judged.rule_id)
        else:
            answer.verdicts[judged.rule_id] = judged
    for rule_id in sorted(doubled):
        del answer.verdicts[rule_id]
        answer.refused.append(f"the judge contradicts itself about `{rule_id}`")
    proposed = document.get("proposed")
    if proposals and isinstance(proposed, list):
        answer.proposed = list(_read_each(proposed[:MOST_PROPOSED], "proposed", indexes, answer))
    return answer


def _document(text: str, answer: Answer) -> dict[str, Any] | None:
    fenced = _FENCED.fullmatch(text)
    try:
        document = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        answer.refused.append("the judge's answer is not JSON")
        return None
    if not isinstance(document, dict):
        answer.refused.append(f"the judge's answer is {json_type(document)}, not an object")
        return None
    return document


def _read_each(entries: list[Any], key: str, indexes: Collection[int], answer: Answer) -> Iterator[Judged]:
    for place, entry in enumerate(entries):
        judged = _read(entry, key, indexes)
        if isinstance(judged, Judged):
            yield judged
        else:
            answer.refused.append(f"`{key}[{place}]` of the judge's answer was thrown away: {judged}")


def _read(entry: Any, key: str, indexes: Collection[int]) -> Judged | str:
    """The verdict, or why it is none."""
    if not isinstance(entry, dict):
        return f"it is {json_type(entry)}, not an object"
    named = "quote" if key == "proposed" else "rule_id"
    name, explanation, state = entry.get(named), entry.get("explanation"), entry.get("state")
    if not isinstance(name, str) or not name.strip():
        return f"it has no `{named}`"
    if not isinstance(explanation, str) or not explanation.strip():
        return "it has no `explanation`"
    if not isinstance(state, str) or state not in tuple(State):
        return f"its `state` is none of {', '.join(State)}"
    cited = _cited(entry.get("event_indexes"), indexes)
    if isinstance(cited, str) and state != State.UNDECIDED:
        return cited
    return Judged(
        rule_id=name if named == "rule_id" else "",
        quote=name if named == "quote" else "",
        state=State(state),
        event_indexes=() if isinstance(cited, str) else cited,
        explanation=" ".join(explanation.split())[:_LONGEST],
    )


def _cited(given: Any, indexes: Collection[int]) -> tuple[int, ...] | str:
    if not isinstance(given, list) or not given:
        return "it cites no event"
    if not all(type(index) is int for index in given):
        return "its `event_indexes` are not all whole numbers"
    unknown = next((index for index in given if index not in indexes), None)
    if unknown is not None:
        return f"it cites event {_short(str(unknown))}, which does not exist"
    return tuple(sorted(set(given)))


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
