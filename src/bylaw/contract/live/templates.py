"""The request that carries a prompt to an agent's endpoint.

A template is read as JSON first, and the prompt is put into its texts: so quotes and newlines are escaped, and no
prompt can add a field. A template that is no JSON is text. One pass replaces all placeholders, so that a prompt that
holds one is left as it is.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from bylaw.contract.model import AgentSpec

_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
_FIELD = re.compile(r"^\s*[-*]?\s*([^\W\d][\w ]{0,63}?)\s*(?::|=|\s-\s)\s*(.*?)\s*$")
_BODYLESS = ("GET", "HEAD")
_DEFAULT = {"input": "{prompt}"}


class Asking(Struct, frozen=True):
    """One request to the agent, without its address."""

    params: dict[str, str]
    headers: dict[str, str]
    body: bytes | None


def asking(spec: AgentSpec, prompt: str) -> Asking:
    values = {**(fields_in(prompt) if spec.parse_structured_input else {}), "prompt": prompt}
    params = {name: filled(value, values) for name, value in spec.query_params.items()}
    headers = {name.lower(): value for name, value in spec.headers.items()}
    template = _read(spec.request_template)
    if spec.method in _BODYLESS:
        return Asking(_in_query(template, spec, params, values), headers, None)
    if isinstance(template, str):
        return Asking(
            params, {"content-type": "text/plain; charset=utf-8", **headers}, filled(template, values).encode()
        )
    body = msgspec.json.encode(filled(template, values))
    return Asking(params, {"content-type": "application/json", **headers}, body)


def fields_in(prompt: str) -> dict[str, str]:
    """The lines of a prompt that read `name: value`, `name = value` or `name - value`."""
    found = (_FIELD.match(line) for line in prompt.splitlines()[:1000])
    return {field[1].strip().lower().replace(" ", "_"): field[2] for field in found if field is not None}


def filled(template: Any, values: dict[str, str]) -> Any:
    """The template with its placeholders replaced, in texts alone; one that nothing is known for stays."""
    if isinstance(template, str):
        return _PLACE.sub(lambda place: _value(place, values), template)
    if isinstance(template, list):
        return [filled(item, values) for item in template]
    if isinstance(template, dict):
        return {key: filled(item, values) for key, item in template.items()}
    return template


def _value(place: re.Match[str], values: dict[str, str]) -> str:
    name = place[1]
    return values.get(name, values.get(name.lower(), place[0]))


def _read(template: str | None) -> Any:
    if template is None:
        return _DEFAULT
    try:
        return msgspec.json.decode(template)
    except (msgspec.DecodeError, RecursionError):
        return template


def _in_query(template: Any, spec: AgentSpec, params: dict[str, str], values: dict[str, str]) -> dict[str, str]:
    """A request without a body: the fields of the template are parameters, unless those given carry the prompt."""
    carried = any(_PLACE.search(value) for value in spec.query_params.values())
    if carried and spec.request_template is None:
        return params
    fields = template if isinstance(template, dict) else {"input": template}
    told = {key: filled(value, values) for key, value in fields.items()}
    return {**{key: v if isinstance(v, str) else msgspec.json.encode(v).decode() for key, v in told.items()}, **params}
