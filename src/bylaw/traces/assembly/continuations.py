"""Which conversation a request continues, in a file whose records name no session.

Such a file may hold conversations that interleave, that begin with the same examples, or that are equal word for word.
So a request continues a conversation only if it shows that it knows it. The strongest evidence is that it repeats the
latest request of the conversation and the recorded answer. Messages are compared by role, text, calls and results,
because clients move cache marks and drop thoughts. Only hashes are stored, and each is looked up in an index, so the
cost of a request depends on its own length alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bylaw.traces.assembly.content import CALL_BLOCKS, read_content
from bylaw.traces.records.jsontext import REFUSED

MOST_CONVERSATIONS = 1 << 10
"""conversations that a later request may still continue"""
TOOL_STOPS = ("tool_use", "tool_calls", "function_call")
_MOST_KNOWN = 1 << 15
_MOST_TOKENS = 8
"""calls of an answer, answers of a request, and equal conversations that are looked at"""
_THOUGHTS = frozenset(("thinking", "redacted_thinking", "reasoning"))
_decode = msgspec.json.Decoder().decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode


class Message(Struct, frozen=True, gc=False):
    """What identifies a message."""

    key: int
    says: tuple[int, ...] = ()
    """the text and the calls of an answer"""
    results: tuple[int, ...] = ()
    """the calls that it holds a result of; a call is the same number in `says`"""
    is_answer: bool = False
    """from the model or a tool"""


class Asked(Struct):
    """The messages of a request, or the beginning of them."""

    text: bytes
    """as JSON"""
    messages: list[Message]
    beginnings: list[int]
    """the hash of the first message, the first two, …, after that of none"""
    answers: list[int]
    """the positions of messages that say something"""


_NOTHING = Asked(b"[]", [], [0], [])


class Messages:
    """Reads the messages of requests. They repeat earlier ones, so only what is new is decoded."""

    def __init__(self) -> None:
        self._known: dict[int, Message] = {}
        self._latest = _NOTHING

    def read(self, text: bytes) -> Asked:
        """`text`: a list in JSON. Raises what the decoder raises."""
        start, latest = _NOTHING, self._latest
        size = len(latest.text) - 1
        rest = text
        if size > 1 and text[size : size + 1] == b"," and text.startswith(latest.text[:-1]):
            start, rest = latest, b"[" + text[size + 1 :]
        messages, beginnings, answers = [*start.messages], [*start.beginnings], [*start.answers]
        whole = beginnings[-1]
        for raw in _decode_list(rest):
            message = self._read(bytes(raw))
            if message.says:
                answers.append(len(messages))
            messages.append(message)
            whole = hash((whole, message.key))
            beginnings.append(whole)
        self._latest = Asked(text, messages, beginnings, answers)
        return self._latest

    def _read(self, text: bytes) -> Message:
        known = self._known
        message = known.get(hash(text))
        if message is None:
            try:
                message = identify(_decode(text))
            except REFUSED:
                message = Message(hash(text))
            if len(known) >= _MOST_KNOWN:
                known.clear()
            known[hash(text)] = message
        return message


def identify(message: Any) -> Message:
    if not isinstance(message, dict):
        return Message(hash(msgspec.json.encode(message)))
    role, kind, content = message.get("role"), message.get("type"), message.get("content")
    if len(message) == 2 and role in ("user", "assistant") and (plain := _plain_text(content)) is not None:
        is_answer = role == "assistant"  # the common case
        return Message(hash((plain, role)), (hash(("text", plain)),) if is_answer and plain else (), (), is_answer)
    is_model = role in ("assistant", "model") or (role is None and kind == "function_call")
    parts: list[Hashable] = [str(role or kind)]
    calls: list[int] = []
    results: list[int] = []
    text = (read_content(content)[1] or "").strip() if isinstance(content, (str, list)) else ""
    listed = message.get("tool_calls")
    items = [*(content if isinstance(content, list) else ()), *(listed if isinstance(listed, list) else ()), message]
    for item in items:
        if not isinstance(item, dict):
            continue
        block = item.get("type") if isinstance(item.get("type"), str) else None
        answered = item.get("tool_use_id") or item.get("tool_call_id")
        if block == "function_call_output":
            answered = item.get("call_id")
        if answered:
            results.append(hash(("call", str(answered))))
            shown = item.get("content", item.get("output"))
            parts.append((str(answered), shown if isinstance(shown, str) else msgspec.json.encode(shown)))
        elif block in CALL_BLOCKS or block == "function_call" or "function" in item:
            function = item.get("function")
            name = function.get("name") if isinstance(function, dict) else item.get("name")
            id = item.get("call_id") or item.get("id")
            calls.append(hash(("call", str(id))) if id else hash(("name", str(name))))
            parts.append((str(id), str(name)))
        elif item is not message and "text" not in item and block not in _THOUGHTS:
            parts.append(msgspec.json.encode({key: value for key, value in item.items() if key != "cache_control"}))
    says = (*((hash(("text", text)),) if text else ()), *calls[:_MOST_TOKENS]) if is_model else ()
    is_answer = is_model or bool(results) or role in ("tool", "function")
    return Message(hash((text, *parts)), says, tuple(results), is_answer)


def _plain_text(content: Any) -> str | None:
    if type(content) is list and len(content) == 1 and type(block := content[0]) is dict:
        content = block.get("text") if block.get("type") == "text" else None
    return content.strip() if type(content) is str else None


class _Conversation(Struct, eq=False):
    session: str
    first: int
    """the hash of the messages of its first request …"""
    examples: int
    """… and of those before the last one"""
    latest: int
    last: int
    """the last message of the latest request"""
    says: tuple[int, ...] = ()
    """the latest answer, and calls that were recorded after it"""
    response: str | None = None
    record: str | None = None
    """the id of the latest record"""
    is_answered: bool = False
    stop: str | None = None
    has_called: bool = False
    """a call was recorded after the latest answer"""
    has_results: bool = False
    places: list[Hashable] = []
    """where the index has it"""

    @property
    def goes_on(self) -> bool:
        """Whether tools ran after the latest answer, and that answer did not end the turn."""
        return self.has_called or (self.has_results and self.stop in (None, *TOOL_STOPS))


class Found(Struct, frozen=True):
    session: str | None = None
    """None: the request begins a session"""
    is_certain: bool = True


class Continuations:
    """The recent conversations, the latest last. INVARIANT: bounded, however long the file is."""

    def __init__(self, *, compare: bool) -> None:
        """`compare`: no request of the file carries answers, so requests that only grow are a conversation."""
        self._compare = compare
        self._conversations: dict[str, _Conversation] = {}
        self._index: dict[Hashable, dict[str, None]] = {}

    def find(self, asked: Asked, parent: str | None, current: str) -> Found:
        for at in reversed(asked.answers[-_MOST_TOKENS:]):
            for token in asked.messages[at].says:
                if found := self._pick(("answer", asked.beginnings[at], token), parent, current):
                    return Found(found)
        return (
            self._by_late_answer(asked, parent, current)
            or self._by_results(asked, parent, current)
            or self._by_messages(asked, parent, current)
        )

    def _by_late_answer(self, asked: Asked, parent: str | None, current: str) -> Found | None:
        """Something stands between a request and its answer, or the beginning of the history was dropped."""
        messages, beginnings, answers = asked.messages, asked.beginnings, asked.answers
        for at in reversed(answers[-_MOST_TOKENS:]):
            for token in messages[at].says:
                for earlier in range(at - 1, 0, -1) if at == answers[-1] else ():
                    if found := self._pick(("answer", beginnings[earlier], token), parent, current):
                        return Found(found)
                if at and (found := self._pick(("after", messages[at - 1].key, token), parent, current)):
                    return Found(found)
        return None

    def _by_results(self, asked: Asked, parent: str | None, current: str) -> Found | None:
        """It has results of the latest calls of a conversation, but not the answer that issued them."""
        messages, beginnings = asked.messages, asked.beginnings
        after = asked.answers[-1] + 1 if asked.answers else 0
        results = {token for message in messages[after:] for token in message.results}
        for end in range(len(messages) - 1, 0, -1) if results else ():
            for name in self._latest(("request", beginnings[end])):
                if not results.isdisjoint(self._conversations[name].says):
                    return Found(name)
        for token in results:
            if found := self._pick(("call", token), parent, current):
                return Found(found, len(self._index["call", token]) == 1)
        return None

    def _by_messages(self, asked: Asked, parent: str | None, current: str) -> Found:
        """It is the latest request of a conversation again, or begins with it but does not repeat its answer."""
        messages, beginnings = asked.messages, asked.beginnings
        if again := self._pick(("request", beginnings[-1]), parent, current):
            one = self._conversations[again]
            if one.goes_on or (not one.is_answered and any(message.is_answer for message in messages)):
                return Found(again, is_certain=False)  # or somebody else asks the same
        has_answer = False
        for end in range(len(messages) - 1, 0, -1):
            has_answer = has_answer or messages[end].is_answer
            if (has_answer or self._compare) and (found := self._pick(("request", beginnings[end]), parent, current)):
                one = self._conversations[found]
                return Found(found, self._compare or not (one.is_answered and one.says))
        named = self._pick(("record", parent), parent, current) if self._compare and parent else None
        if named is not None:
            one = self._conversations[named]
            if one.response == parent and one.stop in TOOL_STOPS:
                return Found(named)
        # Unknown answers are those of an unknown conversation, unless another request has the same in front of its
        # question: then they are examples.
        has_known = not has_answer or not self._conversations or ("examples", beginnings[-2]) in self._index
        return Found(is_certain=self._compare or has_known)

    def owner(self, parent: str | None, call_id: str | None, current: str) -> str | None:
        """The session of a call or a result that has a record of its own, if that can be told."""
        if parent is not None and (found := self._pick(("record", parent), parent, current)):
            return found
        return None if call_id is None else self._pick(("call", hash(("call", call_id))), parent, current)

    # What happens in a conversation

    def ask(self, session: str, asked: Asked) -> None:
        """A request of this session."""
        examples, latest = asked.beginnings[-2:]
        last = asked.messages[-1].key
        one = self._conversations.pop(session, None)
        if one is None:
            one = _Conversation(session, latest, examples, latest, last)
            if len(self._conversations) >= MOST_CONVERSATIONS:
                self._leave_index(self._conversations.pop(next(iter(self._conversations))))
        self._leave_index(one)
        self._conversations[session] = one
        one.latest, one.last, one.says, one.is_answered = latest, last, (), False
        one.stop, one.has_called, one.has_results = None, False, False
        self._enter_index(one, ("request", latest), ("examples", one.examples))
        for id in {one.response, one.record} - {None}:
            self._enter_index(one, ("record", id))

    def answer(self, session: str, answer: Message, record: str | None, stop: str | None) -> None:
        one = self._conversations.get(session)
        if one is not None:
            one.is_answered, one.stop, one.response = True, stop, record
            one.has_called = one.has_results = False
            self._add(one, record, answer.says)

    def act(self, session: str, record: str | None, *, call_id: str | None = None, is_result: bool = False) -> None:
        """A call or a result follows the answer. `call_id`: of a call, "" if it has none."""
        one = self._conversations.get(session)
        if one is not None:
            one.has_called = one.has_called or call_id is not None
            one.has_results = one.has_results or is_result
            token = hash(("call", call_id))
            is_new = call_id and token not in one.says and len(one.says) < _MOST_TOKENS
            self._add(one, record, (token,) if is_new else ())

    def _add(self, one: _Conversation, record: str | None, says: tuple[int, ...]) -> None:
        one.says = (*one.says, *says)
        for token in says:
            self._enter_index(one, ("answer", one.latest, token), ("after", one.last, token), ("call", token))
            if one.first != one.latest:
                self._enter_index(one, ("answer", one.first, token))
        if record is not None:
            one.record = record
            self._enter_index(one, ("record", record))

    # The index

    def _pick(self, place: Hashable, parent: str | None, current: str) -> str | None:
        """The conversation in this place: if several are, the one that `parent` names, else the current or latest."""
        names = self._index.get(place)
        if names is None:
            return None
        if len(names) > 1 and parent is not None:
            for name in self._latest(place):
                if self._conversations[name].record == parent:
                    return name
        return current if current in names else next(reversed(names))

    def _latest(self, place: Hashable) -> Iterable[str]:
        names = self._index.get(place, {})
        return [name for name, _ in zip(reversed(names), range(_MOST_TOKENS), strict=False)]

    def _enter_index(self, one: _Conversation, *places: Hashable) -> None:
        index, session = self._index, one.session
        for place in places:
            names = index.get(place)
            if names is None:
                index[place] = {session: None}
            else:
                names.pop(session, None)  # the latest is the last
                names[session] = None
        one.places += places

    def _leave_index(self, one: _Conversation) -> None:
        for place in one.places:
            names = self._index.get(place)
            if names is not None:
                names.pop(one.session, None)
                if not names:
                    del self._index[place]
        one.places.clear()
