"""JSON in a text: all of it, line by line, or in blocks between sentences; and the keys of YAML and tables."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from msgspec import Struct

from bylaw.model.canonical import json_type, short_digest

_MOST_VALUES = 500
"""leaves that are looked at one by one"""
_MOST_TYPES = 200
"""paths with their types"""
_MOST_WALKED = 5_000
"""values whose types are looked at"""
_MOST_TRIED = 16
"""code fences, and other places of a text where JSON may begin, that are tried; what is not read as JSON is prose"""
_LIKE_OBJECT = re.compile(r'(?<![^\s:(>=])(?:\{\s{0,40}"|\[\s{0,40}\{\s{0,40}")')
"""`[1]` may be a footnote and `{name}` a gap to fill in"""
_FENCED_YAML = re.compile(r"^```ya?ml[ \t]*\n(.*?)(?:^```|\Z)", re.MULTILINE | re.DOTALL)
_YAML_LINE = re.compile(
    r"[ \t]{0,40}(?:-[ \t]+)?(?:([A-Za-z_][\w.-]{0,60}):(?:[ \t]\S.{0,2000})?|-[ \t]+\S.{0,2000}|#.{0,2000})"
)
_TABLE_HEAD = re.compile(
    r"^[ \t]{0,20}\|([^\n]{1,1000})\|[ \t]{0,20}\n[ \t]{0,20}\|(?:[ \t]{0,20}:?-{2,100}:?[ \t]{0,20}\|)+[ \t]{0,20}$",
    re.MULTILINE,
)
_MOST_KEYS = 100
IN_TEXT = "in text"
_NO_JSON = (msgspec.DecodeError, RecursionError, ValueError)
_decode = json.JSONDecoder().raw_decode


class JsonText(Struct, frozen=True):
    value: Any
    form: str = ""
    """`lines` for a list of one value per line, `in text` for a part of the text"""
    rest: str = ""
    """the text around it"""
    others: tuple[Any, ...] = ()
    """further blocks between the sentences"""

    @property
    def shape(self) -> tuple[Any, ...]:
        """Its type and keys, after the form; then those of the other blocks."""
        kinds = [
            ("object", frozenset(value)) if isinstance(value, dict) else (json_type(value),)
            for value in (self.value, *self.others)
        ]
        return (*([self.form] if self.form else ()), *(part for kind in kinds for part in kind))

    @property
    def roots(self) -> list[tuple[str, Any]]:
        """Each block with the path that its values begin with."""
        first = "lines" if self.form == "lines" else ""
        return [(first, self.value), *((f"block {number}", value) for number, value in enumerate(self.others, 2))]


def read_json(text: str) -> JsonText | None:
    """The JSON object or list of a text, in a code fence or not; None for prose."""
    if "{" not in text and "[" not in text:
        return None
    whole = _strip_fence(text.strip())
    try:
        if whole.startswith(("{", "[")):
            return JsonText(msgspec.json.decode(whole))
    except _NO_JSON:
        pass
    return _lines(whole) or _find_json(text)


def json_shape(text: str | None) -> Any:
    found = read_json(text or "")
    return None if found is None else found.shape


def _strip_fence(text: str) -> str:
    if text.startswith("```") and text.endswith("```") and text.count("```") == 2 and "\n" in text:
        return text.split("\n", 1)[1].removesuffix("```").strip()
    return text


def _lines(text: str) -> JsonText | None:
    lines = [line for line in text.split("\n") if line.strip()] if text.startswith("{") else []
    try:
        return JsonText([msgspec.json.decode(line) for line in lines], "lines") if len(lines) > 1 else None
    except _NO_JSON:
        return None


def _find_json(text: str) -> JsonText | None:
    """The fenced blocks that are JSON, then the objects in what is left."""
    parts = text.split("```")
    found, kept = list[Any](), parts[:1]
    for at in range(1, len(parts)):
        block = parts[at].partition("\n")[2].strip() if "\n" in parts[at] else parts[at].strip()
        if at % 2 and at < 2 * _MOST_TRIED and block.startswith(("{", "[")):
            try:
                found.append(msgspec.json.decode(block))
                continue
            except _NO_JSON:
                pass
        kept.append(parts[at])
    rest, at, said = "```".join(kept), 0, 0
    prose: list[str] = []
    for _ in range(_MOST_TRIED):
        begin = _LIKE_OBJECT.search(rest, at)
        if begin is None:
            break
        at = begin.end()
        try:
            _, end = _decode(rest, begin.start())  # to find the end; it takes NaN too, which is no JSON
            found.append(msgspec.json.decode(rest[begin.start() : end]))
        except _NO_JSON:
            continue
        prose.append(rest[said : begin.start()])
        at = said = end
    return JsonText(found[0], IN_TEXT, "\n".join([*prose, rest[said:]]), tuple(found[1:])) if found else None


def json_values(found: JsonText, is_text: Any) -> tuple[frozenset[tuple[str, str]], list[str]]:
    """The leaves of JSON by their path, and apart from them those that `is_text` says are written for people.

    Beyond a number of leaves, one fact stands for all of them.
    """
    waiting, texts = [("" if path == "lines" else path, value) for path, value in found.roots], list[str]()
    facts: set[tuple[str, str]] = set()
    while waiting and len(facts) < _MOST_VALUES:
        path, one = waiting.pop()
        if isinstance(one, dict):
            waiting += [(f"{path}.{key}" if path else str(key), child) for key, child in one.items()]
        elif isinstance(one, list):
            waiting += [(f"{path}[{index}]", child) for index, child in enumerate(one)]
        elif isinstance(one, str) and is_text(one):
            texts.append(one)
        else:
            if isinstance(one, float) and one.is_integer():
                one = int(one)
            facts.add(("value", f"{path}: {msgspec.json.encode(one).decode(errors='replace')}"))
    if waiting:
        whole = [found.value, *found.others] if found.others else found.value
        facts.add(("value", f"in all (digest): {short_digest(whole)}"))
    return frozenset(facts), texts


def json_types(found: JsonText) -> frozenset[str]:
    """Each path with the type of its values: `items[].id: number`."""
    types: dict[str, None] = {}
    waiting = found.roots
    for path, one in waiting:  # grows
        if len(types) == _MOST_TYPES:
            break
        types[f"{path}: {json_type(one)}"] = None
        room = max(0, _MOST_WALKED - len(waiting))
        if isinstance(one, dict):
            waiting += [(f"{path}.{key}" if path else str(key), child) for key, child in list(one.items())[:room]]
        elif isinstance(one, list):
            waiting += [(f"{path}[]", child) for child in one[:room]]
    return frozenset(types)


def written_keys(text: str) -> frozenset[tuple[str, str]]:
    """The keys of YAML, in a code fence or as all of the text, and the columns of tables, each after what it is."""
    heads = [found[1] for _, found in zip(range(_MOST_TRIED), _TABLE_HEAD.finditer(text), strict=False)]
    found = {("table column", cell.strip(" \t*_`")): None for head in heads for cell in head.split("|") if cell.strip()}
    fenced = [found[1] for _, found in zip(range(_MOST_TRIED), _FENCED_YAML.finditer(text), strict=False)]
    for block in fenced or [text]:
        lines = [line for line in block.split("\n") if line.strip() and line.strip() != "---"]
        read = [_YAML_LINE.fullmatch(line.rstrip()) for line in lines]
        keys = [one[1] for one in read if one is not None and one[1]]
        # "Note: …" is a sentence; where nothing says that a text is YAML, all lines are, and a key begins in lower case
        if fenced or (len(lines) > 1 and all(read) and keys and all(key[0].islower() for key in keys)):
            found |= {("YAML key", key): None for key in keys}
    return frozenset(list(found)[:_MOST_KEYS])
