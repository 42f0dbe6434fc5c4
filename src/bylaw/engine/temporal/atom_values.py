"""The value of each atom at one event.

It is true, false, unknown, or a `Hit`: it fits but for the variables, and these are the values to compare them with.
Only the atoms that can hold at an event of this sort, of this tool, are looked at; the others are false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from bylaw.engine.matching import arguments, compile_names, compile_text
from bylaw.engine.probes import compile_search
from bylaw.engine.temporal.truth import Key, all_of, any_of
from bylaw.engine.temporal.variables import NO_VALUE, UNKNOWN_KEY, AtomValue, AtomValues, Hit, key_of, solve
from bylaw.engine.values import ABSENT, UNREADABLE, compile_steps, compile_test, walk
from bylaw.model.demand import Calls
from bylaw.model.events import Event, Message, Response, ToolCall, ToolResult
from bylaw.model.temporal import AgentIs, Atom, Linear, ResultOf, Says, StopsFor, Test, ToolIs, UserSays, Variable
from bylaw.text.repeated_keys import repeated_key

_SAID, _UNREAD = -1, -2
"""in place of the number of a user atom: there was a message, or one whose text is not known any more"""
LONGEST_JSON = 1 << 20
"""result text that is read as JSON; longer text is only text"""


Read: TypeAlias = Callable[[Any], AtomValue]


class AtomReader:
    """The atoms of a rule, numbered, and how to read each off an event."""

    def __init__(self, atoms: Sequence[Atom]) -> None:
        self.atoms = tuple(atoms)
        self.all_false: AtomValues = (False,) * len(self.atoms)
        self._calls = [(i, compile_names(Calls(a.names)), _call(a)) for i, a in self._atoms_of_type(ToolIs)]
        self._results = [(i, compile_names(Calls(a.names)), _result(a)) for i, a in self._atoms_of_type(ResultOf)]
        self._agents = [(i, compile_names(Calls(a.names))) for i, a in self._atoms_of_type(AgentIs)]
        self._responses = [(i, _response(a)) for i, a in self._atoms_of_type(StopsFor, Says)]
        self.user_atoms = tuple((i, compile_text(a.probe)) for i, a in self._atoms_of_type(UserSays))
        self._routes: dict[str, tuple[tuple[int, Read], ...]] = {}
        self._ready: dict[str, AtomValues] = {}
        """the atom_values of calls for which the tool's name says everything"""

    def _atoms_of_type(self, *types: type[Any]) -> Iterator[tuple[int, Any]]:
        return ((i, atom) for i, atom in enumerate(self.atoms) if isinstance(atom, types))

    def at(self, event: Event, user: tuple[int, ...] = ()) -> AtomValues:
        """`user`: user atoms that messages since the last response made true."""
        if type(event) is ToolCall and event.name in self._ready:
            return self._ready[event.name]
        found: list[AtomValue] = list(self.all_false)
        if type(event) is ToolCall:
            for i, read in self._route(event.name):
                found[i] = read(event)
        elif type(event) is ToolResult:
            self._read_result(event, found)
        elif type(event) is Response:
            self._read_response(event, user, found)
        agent = event.origin.agent
        for i, matches in self._agents:
            found[i] = None if agent is None else matches(agent)
        return tuple(found)

    def of_turn(self, response: Response, user: tuple[int, ...]) -> AtomValues:
        """The atom_values of a whole turn, without results."""
        found: list[AtomValue] = list(self.at(response, user))
        for call in response.tool_calls:
            for i, read in self._route(call.name):
                found[i] = either(found[i], read(call))
        return tuple(found)

    def with_result(self, atom_values: AtomValues, result: ToolResult) -> AtomValues:
        found: list[AtomValue] = list(self.all_false)
        self._read_result(result, found)
        return tuple(map(either, atom_values, found))

    def awaiting_results(self, atom_values: AtomValues) -> AtomValues:
        """The atom_values of a turn whose results may not all be there."""
        growing = {i for i, _, _ in self._results}
        return tuple(None if i in growing and value is False else value for i, value in enumerate(atom_values))

    def after_message(self, message: Message, before: tuple[int, ...]) -> tuple[int, ...]:
        """The user atoms that are true after this message, with `_SAID`, and `_UNREAD` if it is not known."""
        if message.content is UNREADABLE:
            return tuple(sorted({*before, _UNREAD}))
        text = text_of(message.content)
        if text is None:
            return before
        return tuple(sorted({*before, _SAID, *(i for i, find in self.user_atoms if find(text) is not None)}))

    def _route(self, tool: str) -> tuple[tuple[int, Read], ...]:
        route = self._routes.get(tool)
        if route is None:
            route = tuple((i, read) for i, matches, read in self._calls if matches(tool))
            if len(self._routes) < _MOST_ROUTES:
                self._routes[tool] = route
                if not self._agents and all(read is _match_name for _, read in route):
                    concerned = {i for i, _ in route}
                    self._ready[tool] = tuple(i in concerned for i in range(len(self.atoms)))
        return route

    def _read_result(self, result: ToolResult, found: list[AtomValue]) -> None:
        call = result.certain_call
        name = result.name if result.name is not None else call.name if call else None
        for i, matches, read in self._results:
            if name is None:
                found[i] = _unsure(read(result))  # whose result it is was not recorded
            elif matches(name):
                found[i] = read(result)

    def _read_response(self, response: Response, user: tuple[int, ...], found: list[AtomValue]) -> None:
        for i, read in self._responses:
            found[i] = read(response)
        if self.user_atoms:
            texts = user_texts(response)
            for i, find in self.user_atoms:
                if i in user or any(find(text) is not None for text in texts or ()):
                    found[i] = True
                elif (texts is None and not user) or _UNREAD in user:
                    found[i] = None


_MOST_ROUTES = 1024


def _unsure(value: AtomValue) -> AtomValue:
    return Hit(False, value.values) if isinstance(value, Hit) else False if value is False else None


def either(left: AtomValue, right: AtomValue) -> AtomValue:
    """Without variables: turns have none."""
    assert not isinstance(left, Hit) and not isinstance(right, Hit)
    return any_of((left, right))


# -- calls and results ------------------------------------------------------------------------------------------------


def _call(atom: ToolIs) -> Read:
    return _compile_tests(atom.tests, {"args": arguments})


def _result(atom: ResultOf) -> Read:
    roots: dict[str, Callable[[Any], Any]] = {
        "args": lambda result: UNREADABLE if result.certain_call is None else arguments(result.call),
        "result": lambda result: UNREADABLE if result.content is None else content_of(result.content),
        "error": lambda result: UNREADABLE if result.is_error is None else result.is_error,
    }
    return _compile_tests(atom.tests, roots)


def _compile_tests(tests: tuple[Test, ...], roots: dict[str, Callable[[Any], Any]]) -> Read:
    fixed = [(roots[t.root], compile_test(t.path, t.op, t.value)) for t in tests if not isinstance(t.value, Variable)]
    free = [(roots[t.root], compile_steps(t.path), t.linear) for t in tests if isinstance(t.value, Variable)]
    if not fixed and not free:
        return _match_name
    if not fixed and len(free) == 1:
        only, path, linear = free[0]
        return lambda event: Hit(True, (_key_at(only(event), path, linear),))

    def read(event: Any) -> AtomValue:
        truth = all_of(test(root(event)) for root, test in fixed)
        if truth is False or not free:
            return truth
        return Hit(truth is True, tuple(_key_at(root(event), steps, linear) for root, steps, linear in free))

    return read


def _match_name(event: Any) -> AtomValue:
    """An atom that asks for nothing but the name."""
    return True


def _key_at(root: Any, steps: tuple[Any, ...], linear: Linear | None) -> Key:
    found = walk(root, steps)
    if linear is not None and found is not ABSENT and found is not UNREADABLE:
        found = solve(linear, found)
    return NO_VALUE if found is ABSENT else UNKNOWN_KEY if found is UNREADABLE else key_of(found)


def content_of(content: Any) -> Any:
    """What a tool returned: decoded if it is JSON text, and UNREADABLE if an object in that has a key twice."""
    if isinstance(content, list) and content and all(isinstance(b, dict) and b.get("type") == "text" for b in content):
        content = text_of(content)
    if not isinstance(content, str) or len(content) > LONGEST_JSON or content.lstrip()[:1] not in ("{", "["):
        return content
    try:
        value = msgspec.json.decode(content)
        return UNREADABLE if repeated_key(content, value) is not None else value
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return content


# -- responses --------------------------------------------------------------------------------------------------------


def _response(atom: StopsFor | Says) -> Read:
    if isinstance(atom, StopsFor):
        wanted = atom.reason
        return lambda response: None if response.stop_reason is None else response.stop_reason == wanted
    search = compile_search(atom.probe)
    return lambda response: None if response.text is None else search(response) is not None


def user_texts(response: Response) -> list[str] | None:
    """The user's messages since the model's last answer; None if they are not recorded."""
    asked = response.request.message_slice if response.request is not None else None
    if asked is None:
        return None
    texts: list[str] = []
    messages, start, end = asked
    for at in range(end - 1, start - 1, -1):
        message = messages[at]
        if not isinstance(message, dict) or message.get("role") == "assistant":
            break
        text = text_of(message.get("content")) if message.get("role") == "user" else None
        if text is not None:
            texts.append(text)
    return texts


def text_of(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    parts = [block.get("text") for block in content if isinstance(block, dict) and block.get("type") == "text"]
    texts = [part for part in parts if isinstance(part, str)]
    return "\n".join(texts) if texts else None
