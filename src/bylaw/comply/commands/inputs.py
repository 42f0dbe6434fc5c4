"""The files that the commands of `comply` share: prompts, tools, aliases."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic

if TYPE_CHECKING:
    from bylaw.comply.prompt.model import ToolSpec

PROMPT_HELP = "The system prompt, as text or Markdown."
TOOLS_HELP = "The agent's tool schemas, as JSON or YAML: OpenAI's, Anthropic's or MCP's form."
ALIAS_HELP = "YAML or JSON: words of the prompt, and the tools that they stand for."


def read_prompt_file(path: str) -> str:
    return _read(path)


def read_tools_file(path: str) -> tuple[ToolSpec, ...]:
    from bylaw.comply.tools import read_tools

    return read_tools(_read_data(path), path)


def read_alias_file(path: str) -> Mapping[str, Sequence[str]]:
    data = _read_data(path)
    if not isinstance(data, dict):
        raise _problem(path, "wrong-type", "the file must map words to tools")
    aliases: dict[str, list[str]] = {}
    for words, tools in data.items():
        names = [tools] if isinstance(tools, str) else tools
        if not isinstance(words, str) or not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise _problem(path, "wrong-type", f"`{words}` must stand for a tool's name or a list of them")
        aliases[words] = names
    return aliases


def _read_data(path: str) -> Any:
    """JSON or YAML, by the reader of rule files: bounded, and with the place of what is wrong."""
    from bylaw.rules.documents import parse_documents
    from bylaw.rules.inputs import format_of
    from bylaw.rules.located import plain
    from bylaw.rules.problems import Problems, Unreadable
    from bylaw.rules.source import Source

    source = Source(path, _read(path))
    problems = Problems(source)
    documents = []
    with contextlib.suppress(Unreadable):
        documents = parse_documents(source, problems, format_of(path))
    errors = [problem for problem in problems.all if problem.is_error]
    if errors or not documents:
        raise InputError(errors)
    return plain(documents[0])


def _read(path: str) -> str:
    from bylaw.rules.files import NotRead, decode, read_text_file
    from bylaw.rules.located import MAX_BYTES

    try:
        if path == "-":
            return decode(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>")
        return read_text_file(Path(path), path)
    except NotRead as problem:
        raise InputError([problem.diagnostic]) from None


def _problem(path: str, code: str, message: str) -> InputError:
    return InputError([Diagnostic(code=code, message=message, file=path)])
