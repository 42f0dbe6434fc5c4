"""JSON Schemas in a rule: read and compiled, without access to the network or other files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bylaw.model.diagnostic import Diagnostic, Related
from bylaw.rules.files import NotRead, read_text_file
from bylaw.rules.located import ListNode, Located, MapNode, Node, ScalarNode, plain
from bylaw.rules.located_json import parse_json
from bylaw.rules.messages import did_you_mean, quote, synonyms
from bylaw.rules.readers import read_json, read_text, report_wrong_type
from bylaw.rules.source import Problems, Source

if TYPE_CHECKING:
    import jsonschema_rs

_MAX_REASON = 200
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_TYPE_SYNONYMS = synonyms(
    {
        "boolean": "bool",
        "object": "dict",
        "number": "float",
        "integer": "int",
        "array": "list",
        "string": "str text",
    }
)


class _Refused(Exception):
    """Not a usable schema."""

    def __init__(self, reason: str, *, help: str | None = None, path: list[str | int] | None = None) -> None:
        self.reason = reason
        self.help = help
        self.path = path or []
        """the way to the part at fault"""
        self.related: tuple[Related, ...] = ()


def read_schema(node: Node, name: str, problems: Problems) -> Any:
    """A schema written in the rule."""
    if not isinstance(node, MapNode) and not (isinstance(node, ScalarNode) and isinstance(node.value, bool)):
        help = "to read it from a file use `schema_path`" if node.kind() == "text" else None
        report_wrong_type(node, quote(name), "a JSON Schema", problems, help=help)
        return None
    schema = read_json(node, problems)
    try:
        _prove(schema)
    except _Refused as refused:
        message = f"not a JSON Schema: {refused.reason}"
        problems.error(code="invalid-schema", message=message, at=_find(node, refused.path), help=refused.help)
        return None
    return schema


def read_schema_file(node: Node, name: str, problems: Problems, base: Path, cache: dict[str, Any]) -> Any:
    """A schema in a file of its own; `base` is the folder of the rule file. `cache` holds the files read before."""
    text = read_text(node, name, problems)
    if text is None:
        return None
    if text not in cache:
        cache[text] = _load(text, base)
    found = cache[text]
    if isinstance(found, Diagnostic):
        problems.error(
            code="unreadable-schema",
            message=f"cannot read the schema {quote(text)}: {found.message}",
            at=node,
            help="the path is relative to the rule file",
        )
        return None
    if isinstance(found, _Refused):
        message = f"{quote(text)} is not a JSON Schema: {found.reason}"
        problems.error(code="invalid-schema", message=message, at=node, help=found.help, related=found.related)
        return None
    return found


def _load(text: str, base: Path) -> Any:
    """The schema, or the reason why there is none."""
    try:
        return _schema_in(Source(text, read_text_file(base / text, text, regular=True)))
    except NotRead as not_read:
        return not_read.diagnostic
    except _Refused as refused:
        return refused


def _schema_in(source: Source) -> Any:
    """The schema in a file. A problem is reported with its place but without its text: a rule that names any
    file must not be a way to print it."""
    problems = Problems(source)
    root = parse_json(source, problems)
    if problems.all:
        fault = problems.all[0]
        refused = _Refused(fault.message)
        refused.related = (Related(fault.span, fault.message),) if fault.span else ()
        raise refused
    if root is None:
        raise _Refused("the file is empty")
    schema = plain(root)
    try:
        _prove(schema)
    except _Refused as refused:
        refused.related = (Related(_find(root, refused.path).head, "at fault here"),)
        raise
    return schema


def _prove(schema: Any) -> None:
    """Compile the schema as the engine will: without any access to files or the network, linear-time patterns only."""
    import jsonschema_rs  # slow to import, and few rule files hold a schema

    try:
        jsonschema_rs.validator_for(
            schema, offline=True, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=False
        )
    except jsonschema_rs.ValidationError as error:
        raise _refused(error) from None
    except Exception as error:
        raise _Refused(_clip(str(error))) from None


def _refused(error: jsonschema_rs.ValidationError) -> _Refused:
    path, message = list(error.instance_path), error.message
    if path[-1:] == ["type"] and isinstance(error.instance, str):
        near = did_you_mean(error.instance, _TYPES, _TYPE_SYNONYMS)
        return _Refused(f"there is no type {quote(error.instance)}", help=near, path=path)
    help = next((help for part, help in _HELP.items() if part in message), None)
    return _Refused(_clip(message), help=help, path=path)


_HELP = {
    "retriev": "a `$ref` to another file or address is not followed; put the part under `$defs`",
    'is not a "regex"': "patterns must do without look-around and back-references",
}


def _find(node: Node, path: list[str | int]) -> Located:
    """The node at the end of `path`, or the last one on the way that exists."""
    for step in path:
        if isinstance(node, MapNode) and str(step) in node.entries:
            node = node.entries[str(step)].value
        elif isinstance(node, ListNode) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
    return node


def _clip(reason: str) -> str:
    line = " ".join(reason.split())
    line = line[:1].lower() + line[1:] if line[1:2].islower() else line
    return line if len(line) <= _MAX_REASON else f"{line[: _MAX_REASON - 1]}…"
