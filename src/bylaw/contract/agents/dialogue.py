"""How an agent is asked several messages in one conversation.

A Python agent gets the conversation as its framework has it: earlier messages, or the thread of a graph that stores
them. A plain function takes `history` (or `messages`) or `session` (or `session_id`, `thread_id`, `conversation_id`).
Behind HTTP, and for commands, `{history}`, `{messages}` and `{session}` are placeholders. An agent that is made anew
for each run (`factory`), or that is reset before each, stores its conversation itself.
"""

from __future__ import annotations

import inspect
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from bylaw.contract.model import AgentSpec

Message: TypeAlias = dict[str, str]
Talk: TypeAlias = Callable[[str], Any]
"""answers one message of a conversation; an awaitable where the agent is asynchronous"""

HISTORY = ("history", "messages", "chat_history")
SESSION = ("session", "session_id", "thread_id", "conversation_id")
_PLACE = re.compile(r"\{(history|messages|session)\}")


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
    if spec.reset_endpoint or spec.reset_function:
        return None
    if spec.endpoint is not None:
        texts = [spec.request_template or "", *spec.query_params.values()]
        where = "`agent.request_template`"
    else:
        texts, where = list(spec.command), "an argument of `agent.command`"
    if any(_PLACE.search(text) for text in texts):
        return None
    return (
        f"each message is asked for itself, so the agent does not know the earlier ones; put `{{history}}`, "
        f"`{{messages}}` or `{{session}}` into {where}, or give `agent.reset_endpoint` if it stores the conversation "
        "itself"
    )


NOT_TOLD = (
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

        ask.dialogue = dialogue  # type: ignore[attr-defined]  # whoever has the answer adds it
        return ask

    given = [names[name] for name in (history_name, session_name) if name is not None]
    start.is_needed = any(one.default is one.empty for one in given)  # type: ignore[attr-defined]
    return start


def needs_talk(start: Callable[[], Talk] | None) -> bool:
    """Whether a function cannot be called without its history or session, even with a single prompt."""
    return getattr(start, "is_needed", False)


Arguments: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
"""makes the arguments of one run, which are the same for all messages of a conversation"""


def talk_to_pydantic_ai(agent: Any, arguments: Arguments) -> Callable[[], Talk]:
    def start() -> Talk:
        earlier: list[Any] = []
        given: dict[str, Any] = {}

        async def ask(prompt: str) -> Any:
            given.update({} if given else await arguments())
            result = await agent.run(prompt, message_history=list(earlier), **given)
            earlier[:] = result.all_messages()
            return result

        return ask

    return start


def talk_to_openai_agent(agent: Any, run: Any, arguments: Arguments) -> Callable[[], Talk]:
    def start() -> Talk:
        earlier: list[Any] = []
        given: dict[str, Any] = {}

        async def ask(prompt: str) -> Any:
            given.update({} if given else await arguments())
            result = await run(agent, [*earlier, {"role": "user", "content": prompt}], **given)
            earlier[:] = result.to_input_list()
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
