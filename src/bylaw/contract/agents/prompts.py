"""How an agent is asked: prompts in templates, and the messages of a conversation.

A template is the body or the query of an HTTP request, or the state that a graph is asked with. It is read as JSON
first, and the prompt is put into its texts, so quotes and newlines are escaped and no prompt can add a field. A
template that is not JSON is text. All placeholders are replaced in one pass, so that a placeholder inside a prompt is
left as it is.
"""

from __future__ import annotations

import inspect
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from bylaw.contract.faults.texts import as_text
from bylaw.contract.model import AgentSpec

_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
_FIELD = re.compile(r"^\s*[-*]?\s*([^\W\d][\w ]{0,63}?)\s*(?::|=|\s-\s)\s*(.*?)\s*$")
_BODYLESS = ("GET", "HEAD")
_DEFAULT_TEMPLATE = {"input": "{prompt}"}


class PromptRequest(Struct, frozen=True):
    """The request to the agent that carries a prompt, without its URL."""

    params: dict[str, str]
    headers: dict[str, str]
    body: bytes | None


def prompt_request(spec: AgentSpec, prompt: str, others: Mapping[str, Any] | None = None) -> PromptRequest:
    """`others`: placeholders beside the prompt, as those of a conversation."""
    values = {**(fields_in(prompt) if spec.parse_structured_input else {}), **(others or {}), "prompt": prompt}
    params = {name: fill_placeholders(value, values, always_text=True) for name, value in spec.query_params.items()}
    headers = {name.lower(): value for name, value in spec.headers.items()}
    template = _read(spec.request_template)
    if spec.method in _BODYLESS:
        return PromptRequest(_in_query(template, spec, params, values), headers, None)
    content = fill_placeholders(template, values)
    if isinstance(content, str):
        headers = {"content-type": "text/plain; charset=utf-8", **headers}
        return PromptRequest(params, headers, content.encode())
    return PromptRequest(params, {"content-type": "application/json", **headers}, msgspec.json.encode(content))


def fill_template(spec: AgentSpec, prompt: str) -> Any:
    """The template of the agent with the prompt in it."""
    values = {**(fields_in(prompt) if spec.parse_structured_input else {}), "prompt": prompt}
    return fill_placeholders(_read(spec.request_template), values)


def fields_in(prompt: str) -> dict[str, str]:
    """The lines of a prompt that read `name: value`, `name = value` or `name - value`."""
    found = (_FIELD.match(line) for line in prompt.splitlines()[:1000])
    return {field[1].strip().lower().replace(" ", "_"): field[2] for field in found if field is not None}


def fill_placeholders(template: Any, values: Mapping[str, Any], *, always_text: bool = False) -> Any:
    """The template with the placeholders in its texts replaced; a placeholder without a value stays.

    A text that is one placeholder becomes its value, which may be a list of messages, unless `always_text`.
    """
    if isinstance(template, str):
        whole = _PLACE.fullmatch(template)
        if whole and not always_text and isinstance(values.get(whole[1]), list):
            return values[whole[1]]
        return _PLACE.sub(lambda place: as_text(values.get(place[1], values.get(place[1].lower(), place[0]))), template)
    if isinstance(template, list):
        return [fill_placeholders(item, values) for item in template]
    if isinstance(template, dict):
        return {key: fill_placeholders(item, values) for key, item in template.items()}
    return template


def _read(template: str | None) -> Any:
    if template is None:
        return _DEFAULT_TEMPLATE
    try:
        return msgspec.json.decode(template)
    except (msgspec.DecodeError, RecursionError):
        return template


def _in_query(template: Any, spec: AgentSpec, params: dict[str, str], values: Mapping[str, Any]) -> dict[str, str]:
    """The parameters of a request without a body: the fields of the template, unless parameters hold the prompt."""
    has_prompt = any(_PLACE.search(value) for value in spec.query_params.values())
    if has_prompt and spec.request_template is None:
        return params
    fields = template if isinstance(template, dict) else {"input": template}
    texts = {key: fill_placeholders(value, values) for key, value in fields.items()}
    return {**{key: as_text(text) for key, text in texts.items()}, **params}


# Conversations
#
# A Python agent gets the conversation as its framework has it: earlier messages, or the thread of a graph that stores
# them. A plain function takes `history` (or `messages`) or `session` (or `session_id`, `thread_id`, `conversation_id`).
# Behind HTTP, and for commands, `{history}`, `{messages}` and `{session}` are placeholders. An agent that is made anew
# for each run (`factory`), or that is reset before each, stores its conversation itself.


Message: TypeAlias = dict[str, str]
Talk: TypeAlias = Callable[[str], Any]
"""answers one message of a conversation; an awaitable where the agent is asynchronous"""

HISTORY = ("history", "messages", "chat_history")
SESSION = ("session", "session_id", "thread_id", "conversation_id")
_CONVERSATION_FIELDS = re.compile(r"\{(history|messages|session)\}")


class Dialogue:
    """One conversation with an agent in another process, message by message."""

    def __init__(self) -> None:
        self.session = uuid.uuid4().hex
        self.history: list[Message] = []

    def values(self, prompt: str) -> dict[str, Any]:
        """The placeholders of a template for the next message; `messages` includes it, `history` does not."""
        messages = [*self.history, {"role": "user", "content": prompt}]
        return {"session": self.session, "history": list(self.history), "messages": messages}

    def add(self, prompt: str, answer: str) -> None:
        self.history += [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]


def why_no_conversation(spec: AgentSpec) -> str | None:
    """Why an agent in another process cannot be asked more than one message; None if it can."""
    if spec.has_reset:
        return None
    if spec.endpoint is not None:
        texts = [spec.request_template or "", *spec.query_params.values()]
        where = "`agent.request_template`"
    else:
        texts, where = list(spec.command), "an argument of `agent.command`"
    if any(_CONVERSATION_FIELDS.search(text) for text in texts):
        return None
    return (
        f"each message is asked for itself, so the agent does not know the earlier ones; put `{{history}}`, "
        f"`{{messages}}` or `{{session}}` into {where}, or give `agent.reset_endpoint` if it stores the conversation "
        "itself"
    )


NO_CONVERSATION = (
    "the function takes neither `history` nor `session`, so it does not know the earlier messages; let it take one of "
    "these, or write `factory: true` or `reset_function` if the agent stores the conversation itself"
)


def talk_to_function(asked: Callable[..., Any]) -> Callable[[], Talk] | None:
    """Starts a conversation with a function that takes the earlier messages or the name of the session."""
    try:
        names = inspect.signature(asked).parameters
    except (TypeError, ValueError):  # a function without a signature
        return None
    history_name = next((name for name in HISTORY if name in names), None)
    session_name = next((name for name in SESSION if name in names), None)
    if history_name is None and session_name is None:
        return None

    def start() -> Talk:
        dialogue = Dialogue()

        def ask(prompt: str) -> Any:
            given: dict[str, Any] = {} if history_name is None else {history_name: list(dialogue.history)}
            given |= {} if session_name is None else {session_name: dialogue.session}
            return asked(prompt, **given)

        ask.dialogue = dialogue  # type: ignore[attr-defined]  # the caller that has the answer adds it
        return ask

    given = [names[name] for name in (history_name, session_name) if name is not None]
    start.is_needed = any(one.default is one.empty for one in given)  # type: ignore[attr-defined]
    return start


def needs_talk(start: Callable[[], Talk] | None) -> bool:
    """Whether a function cannot be called without its history or session, even with a single prompt."""
    return getattr(start, "is_needed", False)


Arguments: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
"""makes the arguments of one run, which are the same for all messages of a conversation"""


def talk_with_history(run: Callable[..., Any], messages_in: str, arguments: Arguments) -> Callable[[], Talk]:
    """`run` takes a prompt, the earlier messages and arguments; the method `messages_in` of its result has them all."""

    def start() -> Talk:
        earlier: list[Any] = []
        given: dict[str, Any] = {}

        async def ask(prompt: str) -> Any:
            given.update({} if given else await arguments())
            result = await run(prompt, list(earlier), **given)
            earlier[:] = getattr(result, messages_in)()
            return result

        return ask

    return start


def talk_to_graph(
    agent: Any,
    invoke: Callable[[Any, dict[str, Any], dict[str, Any]], Any],
    first: Callable[[str], Any],
    config: dict[str, Any],
) -> Callable[[], Talk] | None:
    """A graph that stores threads gets the same thread again, another one all messages so far.

    `invoke` takes the input, the configuration, and a mapping in which it stores arguments for the next message.
    """
    stores = bool(getattr(agent, "checkpointer", None))
    sample = first("")
    if not stores and not (isinstance(sample, dict) and isinstance(sample.get("messages"), list)):
        return None

    def start() -> Talk:
        earlier: list[Any] = []
        given: dict[str, Any] = {}
        thread = {"thread_id": uuid.uuid4().hex}
        own = {**config, "configurable": {**thread, **(config.get("configurable") or {})}} if stores else config

        async def ask(prompt: str) -> Any:
            asked = first(prompt)
            if not stores:
                asked = {**asked, "messages": [*earlier, *asked["messages"]]}
            result = await invoke(asked, own, given)
            if isinstance(result, dict) and isinstance(result.get("messages"), list):
                earlier[:] = result["messages"]
            return result

        return ask

    return start
