"""Prompts in templates: the body and the query of an HTTP request, and the state that a graph is asked with.

A template is read as JSON first, and the prompt is put into its texts, so quotes and newlines are escaped and no prompt
can add a field. A template that is not JSON is text. All placeholders are replaced in one pass, so that a placeholder
inside a prompt is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

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
    params = {name: filled(value, values, as_text=True) for name, value in spec.query_params.items()}
    headers = {name.lower(): value for name, value in spec.headers.items()}
    template = _read(spec.request_template)
    if spec.method in _BODYLESS:
        return PromptRequest(_in_query(template, spec, params, values), headers, None)
    content = filled(template, values)
    if isinstance(content, str):
        headers = {"content-type": "text/plain; charset=utf-8", **headers}
        return PromptRequest(params, headers, content.encode())
    return PromptRequest(params, {"content-type": "application/json", **headers}, msgspec.json.encode(content))


def fill_template(spec: AgentSpec, prompt: str) -> Any:
    """The template of the agent with the prompt in it."""
    values = {**(fields_in(prompt) if spec.parse_structured_input else {}), "prompt": prompt}
    return filled(_read(spec.request_template), values)


def fields_in(prompt: str) -> dict[str, str]:
    """The lines of a prompt that read `name: value`, `name = value` or `name - value`."""
    found = (_FIELD.match(line) for line in prompt.splitlines()[:1000])
    return {field[1].strip().lower().replace(" ", "_"): field[2] for field in found if field is not None}


def filled(template: Any, values: Mapping[str, Any], *, as_text: bool = False) -> Any:
    """The template with the placeholders in its texts replaced; a placeholder without a value stays.

    A text that is one placeholder becomes its value, which may be a list of messages, unless `as_text`.
    """
    if isinstance(template, str):
        whole = _PLACE.fullmatch(template)
        if whole and not as_text and isinstance(values.get(whole[1]), list):
            return values[whole[1]]
        return _PLACE.sub(lambda place: _text(values.get(place[1], values.get(place[1].lower(), place[0]))), template)
    if isinstance(template, list):
        return [filled(item, values) for item in template]
    if isinstance(template, dict):
        return {key: filled(item, values) for key, item in template.items()}
    return template


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


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
    texts = {key: filled(value, values) for key, value in fields.items()}
    return {**{key: v if isinstance(v, str) else msgspec.json.encode(v).decode() for key, v in texts.items()}, **params}
