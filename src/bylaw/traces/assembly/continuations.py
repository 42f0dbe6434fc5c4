"""Which conversation a request continues, in a file whose records name no session.

Such a file may hold conversations that interleave, that begin with the same examples, or that are equal word for word.
So a request continues a conversation only if it shows that it knows it. The strongest evidence is that it repeats the
latest request of the conversation and the recorded answer. Its `parent` is none: writers chain every record to the one
before. It only decides between equal conversations. Messages are compared by role, text, calls and results,
because clients move cache marks and drop thoughts. Only hashes are stored, and each is looked up in an index, so the
cost of a request depends on its own length alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from bylaw.traces.assembly.content import CALL_BLOCKS, foreign_call, foreign_result, read_content, stops_for_tools
from bylaw.traces.records.jsontext import REFUSED

MOST_CONVERSATIONS = 1 << 10
"""conversations that a later request may still continue"""
_MOST_KNOWN = 1 << 15
_MOST_TOKENS = 8
"""calls of an answer, answers of a request, and equal conversations that are looked at"""
_THOUGHTS = frozenset(("thinking", "redacted_thinking", "reasoning"))
_ANSWER, _AFTER, _CALL, _REQUEST, _RECORD, _EXAMPLES = range(6)
"""what a place of the index is about"""
_decode = msgspec.json.Decoder().decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode


class _PlainMessage(Struct, forbid_unknown_fields=True, gc=False):
    """The common message."""

    role: Literal["user", "assistant"]
    content: str


class MessageSkim(Struct, gc=False):
    """The part of a message that shows who it is from."""

    role: str | None = None
    type: str | None = None


_decode_plain = msgspec.json.Decoder(_PlainMessage).decode
_decode_skim = msgspec.json.Decoder(MessageSkim).decode


class Message(Struct, frozen=True, gc=False):
    """What identifies a message."""

    key: int
    says: tuple[int, ...] = ()
    """the text and the calls of an answer"""
    calls: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    """the calls that it holds a result of; a call is the same number in `says`"""
    is_answer: bool = False
    """from the model or a tool"""


class RequestMessages(Struct):
    """The messages of a request. They are good until the next request is read."""

    messages: list[Message]
    beginnings: list[int]
    """the hash of the first message, the first two, …, after that of none"""
    answers: list[int]
    """the positions of messages that say something"""


class Messages:
    """Reads the messages of requests. They repeat earlier ones, so only what is new is decoded."""

    def __init__(self) -> None:
        self._known: dict[int, Message] = {}
        self._latest = RequestMessages([], [0], [])
        self._head = b"["
        """the latest list in JSON, without its end"""

    def read(self, text: bytes) -> RequestMessages:
        """`text`: a list in JSON. Raises what the decoder raises."""
        asked, size = self._latest, len(self._head)
        if len(text) == size + 1 and text.startswith(self._head):
            return asked  # the same again
        if size > 1 and text[size : size + 1] == b"," and text.startswith(self._head):
            rest = _decode_list(b"[" + text[size + 1 :])
        else:
            rest = _decode_list(text)
            asked = RequestMessages([], [0], [])
        new = [self._read(bytes(raw)) for raw in rest]
        messages, beginnings = asked.messages, asked.beginnings
        whole = beginnings[-1]
        for message in new:
            if message.says:
                asked.answers.append(len(messages))
            messages.append(message)
            whole = hash((whole, message.key))
            beginnings.append(whole)
        self._latest, self._head = asked, text[:-1]
        return asked

    def _read(self, text: bytes) -> Message:
        known, digest = self._known, hash(text)
        message = known.get(digest)
        if message is None:
            message = _identify_text(text)
            if len(known) >= _MOST_KNOWN:
                known.clear()
            known[digest] = message
        return message


def _identify_text(text: bytes) -> Message:
    try:
        plain = _decode_plain(text)
    except REFUSED:
        _decode_skim(text)  # raises if it is no message
        try:
            return identify(_decode(text))
        except REFUSED:
            return Message(hash(text))
    return _identify_plain(plain.content.strip(), plain.role)


def identify_answer(content: Any) -> Message:
    """The content of a response, as the message that a later request repeats."""
    plain = _plain_text(content)
    return identify({"role": "assistant", "content": content}) if plain is None else _identify_plain(plain, "assistant")


def _identify_plain(text: str, role: str) -> Message:
    is_answer = role == "assistant"
    return Message(hash((text, role)), (hash(("text", text)),) if is_answer and text else (), (), (), is_answer)


def identify(message: Any) -> Message:
    if not isinstance(message, dict):
        return Message(hash(msgspec.json.encode(message)))
    role, kind, content = message.get("role"), message.get("type"), message.get("content")
    if len(message) == 2 and role in ("user", "assistant") and (plain := _plain_text(content)) is not None:
        return _identify_plain(plain, role)
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
        elif item is not message and (call := foreign_call(item)) is not None:
            id, name = call["id"], call["name"]
            calls.append(hash(("call", str(id))) if id else hash(("name", str(name))))
            parts.append((str(id), str(name)))
        elif item is not message and (result := foreign_result(item)) is not None:
            if result.call_id:
                results.append(hash(("call", result.call_id)))
            parts.append((str(result.call_id or result.name), msgspec.json.encode(result.content)))
        elif item is not message and "text" not in item and block not in _THOUGHTS:
            parts.append(msgspec.json.encode({key: value for key, value in item.items() if key != "cache_control"}))
    issued = tuple(calls[:_MOST_TOKENS]) if is_model else ()
    says = (*issued, hash(("text", text))) if is_model and text else issued  # equal conversations differ in ids
    is_answer = is_model or bool(results) or role in ("tool", "function")
    return Message(hash((text, *parts)), says, issued, tuple(results), is_answer)


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
    latest: int = 0
    last: int = 0
    """the last message of the latest request"""
    size: int = 0
    """how many messages that has"""
    says: tuple[int, ...] = ()
    """the latest answer, and calls that were recorded after it"""
    calls: tuple[int, ...] = ()
    """those of them that are calls"""
    records: list[str] = []
    """the ids of the latest records"""
    response: str | None = None
    record: str | None = None
    """the id of the latest record"""
    is_answered: bool = False
    stop: str | None = None
    has_called: bool = False
    """a call was recorded after the latest answer"""
    has_results: bool = False
    places: list[int] = []
    """where the index has it; nothing while it is the open one"""

    @property
    def goes_on(self) -> bool:
        """Whether tools ran after the latest answer, and that answer did not end the turn."""
        return self.has_called or (self.has_results and (self.stop is None or stops_for_tools(self.stop)))


class Continuation(Struct, frozen=True):
    """The conversation that a request continues."""

    session: str = ""
    """empty: the request begins one"""
    is_certain: bool = True


class Continuations:
    """The recent conversations, the latest last. INVARIANT: bounded, however long the file is."""

    def __init__(self, *, compare: bool) -> None:
        """`compare`: no request of the file carries answers, so requests that only grow are a conversation."""
        self._compare = compare
        self._conversations: dict[str, _Conversation] = {}
        self._open: _Conversation | None = None
        """the conversation of the latest request, which enters the index only when it is looked up"""
        self._index: dict[int, str | dict[str, None]] = {}
        """place → the conversation there, or several of them, the latest last"""

    def find(self, asked: RequestMessages, parent: str | None, current: str) -> Continuation:
        open_one, answers = self._open, asked.answers
        if open_one is not None:
            at = open_one.size
            if (
                open_one.session == current
                and answers
                and answers[-1] == at
                and asked.beginnings[at] == open_one.latest
            ):
                for token in asked.messages[at].says:  # the common case: nobody else has the same
                    if token in open_one.says and hash((_ANSWER, open_one.latest, token)) not in self._index:
                        return Continuation(current)
            self._put_in_index(open_one)
            self._open = None
        for at in reversed(asked.answers[-_MOST_TOKENS:]):
            places = (hash((_ANSWER, asked.beginnings[at], token)) for token in asked.messages[at].says)
            if found := self._pick_one(places, parent, current):
                return found
        return (
            self._find_by_late_answer(asked, parent, current)
            or self._find_by_results(asked, parent, current)
            or self._find_by_messages(asked, parent, current)
        )

    def _find_by_late_answer(self, asked: RequestMessages, parent: str | None, current: str) -> Continuation | None:
        """Something stands between a request and its answer, or the beginning of the history was dropped."""
        messages, beginnings, answers = asked.messages, asked.beginnings, asked.answers
        for at in reversed(answers[-_MOST_TOKENS:]):
            for token in messages[at].says:
                for earlier in range(at - 1, 0, -1) if at == answers[-1] else ():
                    if found := self._pick(hash((_ANSWER, beginnings[earlier], token)), parent, current):
                        return found
                if at and (found := self._pick(hash((_AFTER, messages[at - 1].key, token)), parent, current)):
                    return found
        return None

    def _find_by_results(self, asked: RequestMessages, parent: str | None, current: str) -> Continuation | None:
        """It has results of the latest calls of a conversation, but not the answer that issued them."""
        messages, beginnings = asked.messages, asked.beginnings
        after = asked.answers[-1] + 1 if asked.answers else 0
        results = {token for message in messages[after:] for token in message.results}
        for end in range(len(messages) - 1, 0, -1) if results else ():
            names = self._latest(hash((_REQUEST, beginnings[end])))
            fitting = [name for name in names if not results.isdisjoint(self._conversations[name].says)]
            if fitting:
                return Continuation(fitting[0], len(fitting) == 1)
        return self._pick_one((hash((_CALL, token)) for token in results), parent, current)

    def _find_by_messages(self, asked: RequestMessages, parent: str | None, current: str) -> Continuation:
        """It is the latest request of a conversation again, or begins with it but does not repeat its answer."""
        messages, beginnings = asked.messages, asked.beginnings
        if again := self._pick(hash((_REQUEST, beginnings[-1])), parent, current):
            one = self._conversations[again.session]
            if one.goes_on or (not one.is_answered and any(message.is_answer for message in messages)):
                return Continuation(again.session, is_certain=False)  # or somebody else asks the same
        has_answer = False
        for end in range(len(messages) - 1, 0, -1):
            has_answer = has_answer or messages[end].is_answer
            if not has_answer and not self._compare:
                continue
            if found := self._pick(hash((_REQUEST, beginnings[end])), parent, current):
                one = self._conversations[found.session]
                is_next = self._compare or not (one.is_answered and one.says)
                return Continuation(found.session, found.is_certain and is_next)
        # Unknown answers are those of an unknown conversation, unless another request has the same in front of its
        # question: then they are examples.
        has_known = not has_answer or not self._conversations or hash((_EXAMPLES, beginnings[-2])) in self._index
        return Continuation(is_certain=self._compare or has_known)

    def owner(self, parent: str | None, call_id: str | None, current: str) -> str | None:
        """The session of a call or a result that has a record of its own, if it is known."""
        if self._open is not None:
            if parent is not None and parent in self._open.records and hash((_RECORD, parent)) not in self._index:
                return self._open.session
            self._put_in_index(self._open)
            self._open = None
        if parent is not None and (found := self._pick(hash((_RECORD, parent)), parent, current)):
            return found.session
        found = None if call_id is None else self._pick(hash((_CALL, hash(("call", call_id)))), parent, current)
        return None if found is None else found.session

    # What happens in a conversation

    def ask(self, session: str, asked: RequestMessages) -> None:
        """A request of this session."""
        beginnings = asked.beginnings
        one = self._conversations.pop(session, None)
        if one is None:
            one = _Conversation(session, beginnings[-1], beginnings[-2])
            if len(self._conversations) >= MOST_CONVERSATIONS:
                self._leave_index(self._conversations.pop(next(iter(self._conversations))))
        elif one.places:
            self._leave_index(one)
        self._conversations[session] = self._open = one
        one.latest, one.last, one.size = beginnings[-1], asked.messages[-1].key, len(asked.messages)
        one.says, one.calls, one.is_answered = (), (), False
        one.stop, one.has_called, one.has_results = None, False, False
        one.records = [id for id in (one.response, one.record) if id is not None]

    def answer(self, session: str, answer: Message, record: str | None, stop: str | None) -> None:
        one = self._conversations.get(session)
        if one is not None:
            one.is_answered, one.stop, one.response = True, stop, record
            one.has_called = one.has_results = False
            self._add(one, record, answer.says, answer.calls)

    def act(self, session: str, record: str | None, *, call_id: str | None = None, is_result: bool = False) -> None:
        """A call or a result follows the answer. `call_id`: of a call, "" if it has none."""
        one = self._conversations.get(session)
        if one is not None:
            one.has_called = one.has_called or call_id is not None
            one.has_results = one.has_results or is_result
            token = hash(("call", call_id))
            is_new = call_id and token not in one.says and len(one.says) < _MOST_TOKENS
            new = (token,) if is_new else ()
            self._add(one, record, new, new)

    def _add(self, one: _Conversation, record: str | None, says: tuple[int, ...], calls: tuple[int, ...]) -> None:
        one.says += says
        one.calls += calls
        if record is not None:
            one.record = record
            one.records.append(record)
        if one is not self._open:
            self._put_in_index(one)

    # The index

    def _pick(self, place: int, parent: str | None, current: str) -> Continuation | None:
        """The conversation in this place: if several are, the one that `parent` names, else the current or latest."""
        names = self._index.get(place)
        if names is None:
            return None
        if isinstance(names, str):
            return Continuation(names)
        if parent is not None:
            for name in self._latest(place):
                if self._conversations[name].record == parent:
                    return Continuation(name)
        return Continuation(current if current in names else next(reversed(names)), is_certain=False)

    def _pick_one(self, places: Iterable[int], parent: str | None, current: str) -> Continuation | None:
        """The conversation in one of these places: the first that is certain, else the first."""
        first = None
        for place in places:
            found = self._pick(place, parent, current)
            if found is not None and found.is_certain:
                return found
            first = first or found
        return first

    def _latest(self, place: int) -> Iterable[str]:
        names = self._index.get(place, {})
        if isinstance(names, str):
            return [names]
        return [name for name, _ in zip(reversed(names), range(_MOST_TOKENS), strict=False)]

    def _put_in_index(self, one: _Conversation) -> None:
        index, session, latest, last = self._index, one.session, one.latest, one.last
        places = [hash((_EXAMPLES, one.examples)), hash((_REQUEST, latest))]
        for token in one.says:
            places += (hash((_ANSWER, latest, token)), hash((_AFTER, last, token)))
        places += [hash((_CALL, token)) for token in one.calls]
        places += [hash((_RECORD, id)) for id in one.records]
        if one.first != latest:
            places += [hash((_ANSWER, one.first, token)) for token in one.says]
        for place in places:
            names = index.setdefault(place, session)
            if type(names) is dict:
                names.pop(session, None)  # the latest is the last
                names[session] = None
            elif isinstance(names, str) and names != session:
                index[place] = {names: None, session: None}
        one.places = places

    def _leave_index(self, one: _Conversation) -> None:
        index, session = self._index, one.session
        for place in one.places:
            names = index.get(place)
            if type(names) is dict:
                names.pop(session, None)
                if len(names) == 1:
                    index[place] = next(iter(names))
            elif names == session:
                del index[place]
        one.places = []
