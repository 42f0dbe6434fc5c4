"""Golden prompts and replayed sessions of a Flakestorm file → golden prompts of Bylaw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bylaw.contract.import_parts import Account, Part, read_data, unused
from bylaw.contract.model import Weight
from bylaw.rules.files import NotRead

_PROMPT_KEYS = ("prompt", "messages", "input", "text", "question", "content")
_EXPECTED_KEYS = ("expected_output", "expected")
_SEVERITIES = (*(weight.value for weight in Weight), "error", "warning", "info")
_MOST_SESSIONS = 100
_LEFT_OUT = {
    "captured_at": "a golden prompt has no date",
    "context": "the agent is asked the input alone; write what it has to know into the prompt",
    "contract": "all invariants of the file are judged on every golden prompt",
    "expected_failure": "it says what went wrong once, and checks nothing",
    "severity": "an invariant has a severity, a prompt has none",
    "source": "a golden prompt has no origin",
    "tool_responses": "the agent's own tools answer; to make one fail, write a scenario with `tool_faults`",
}
"""keys of a session, and why Bylaw has no use for them"""


class Prompts:
    """`made`: the golden prompts. An expected answer becomes an invariant, which is added to `invariants`."""

    def __init__(self, account: Account, folder: Path, invariants: list[dict[str, Any]]) -> None:
        self.made: list[Any] = []
        self._account = account
        self._folder = folder
        self._invariants = invariants

    def add(self, given: Part) -> None:
        """A prompt: a text, a conversation, or a mapping that holds one of them."""
        asked, about = given, {}
        if given.is_mapping:
            asked = next((given[key] for key in _PROMPT_KEYS if given[key].value), given)
            if asked is given:
                given.leave_out("it holds no prompt")
                return
            about = {key: given[key].take() for key in ("dangerous", "variations") if given[key].value is not None}
        prompt = self._read_messages(asked)
        if prompt is None:
            return
        if given.is_mapping:
            self._add_expected(given, prompt, given.place)
            given.explain(_LEFT_OUT)
        self._add(prompt if not about else {"prompt": prompt, **about})

    def add_sessions(self, sessions: Sequence[Part]) -> None:
        for given in sessions[:_MOST_SESSIONS]:
            inner = self._open_file(given)
            for session in (given, *([inner] if inner else [])):
                self._add_session(session)
        for given in sessions[_MOST_SESSIONS:]:
            given.leave_out(f"no more than {_MOST_SESSIONS} sessions are imported")

    def _add(self, prompt: Any) -> None:
        if prompt not in self.made:
            self.made.append(prompt)

    def _add_session(self, session: Part) -> None:
        prompt = self._read_messages(session["input"]) if session["input"].value is not None else None
        if prompt is not None:
            id, name = session["id"].take_name(), session["name"].take_name()
            name = name or id or session.place or "session"
            self._add_expected(session, prompt, name)
            self._add(prompt)
            self._account.notes.append(f"the session `{name}` is a golden prompt now")
        session.explain(_LEFT_OUT)

    def _open_file(self, given: Part) -> Part | None:
        """The session in the file that is named; None if there is none."""
        name = given["file"].value
        if not isinstance(name, str):
            return None
        path = self._folder / name
        try:
            if not path.resolve().is_relative_to(self._folder.resolve()):
                given["file"].leave_out(f"`{name}` is outside the folder of the file")
                return None
            session = self._account.file(read_data(path, name), name)
        except NotRead as problem:
            given["file"].leave_out(f"`{name}` cannot be read: {problem.diagnostic.message}")
            return None
        given["file"].take()
        return session

    def _read_messages(self, given: Part) -> str | list[str] | None:
        """A text, or what the user says in a conversation."""
        if isinstance(given.value, str):
            text: str = given.take()
            if text.strip():
                return text
            given.leave_out("it is empty")
        elif isinstance(given.value, list):
            read = [self._read_message(part) for part in given.items()]
            messages = [text for text in read if text is not None]
            if messages:
                return messages if len(messages) > 1 else messages[0]
            given.leave_out("it holds no message of a user")
        else:
            given.leave_out("a prompt is a text, or a list of messages")
        return None

    def _read_message(self, given: Part) -> str | None:
        content = given["content"] if given.is_mapping else given
        if given.is_mapping and given["role"].take() not in (None, "user", "human"):
            given.leave_out("only what the user says is asked; the agent gives its own answers")
        elif isinstance(content.value, str) and content.value.strip():
            return str(content.take())
        else:
            given.leave_out("it holds no text")
        return None

    def _add_expected(self, given: Part, prompt: str | list[str], name: str) -> None:
        """What an answer should be like becomes an invariant of its own, with the prompt as its probe."""
        expected = next((given[key] for key in _EXPECTED_KEYS if given[key].value is not None), None)
        if expected is None:
            return
        if not isinstance(expected.value, str) or not isinstance(prompt, str):
            expected.leave_out("only a text can be compared with the answer, and only to one message")
            return
        id = unused(f"{name}-expected", [one["id"] for one in self._invariants])
        severity = {"severity": given["severity"].take()} if given["severity"].value in _SEVERITIES else {}
        made = {"id": id, "type": "similarity", "expected": expected.take(), **severity}
        self._invariants.append({**made, "probes": [prompt], "when": "no_chaos"})
        self._account.notes.append(f"`{expected.place}` is the invariant `{id}` now: the answer has to be similar")
