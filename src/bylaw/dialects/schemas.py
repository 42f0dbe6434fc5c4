"""JSON Schemas in a rule: read, proved to compile, and kept away from the network and other files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bylaw.dialects.files import NotRead, read_text_file
from bylaw.dialects.located import Located, MapNode, Node, ScalarNode, plain
from bylaw.dialects.located_json import parse_json
from bylaw.dialects.problems import Problems
from bylaw.dialects.readers import read_json, read_text, report_wrong_type
from bylaw.dialects.source import Source
from bylaw.dialects.words import did_you_mean, quote
from bylaw.model.diagnostic import Related

if TYPE_CHECKING:
    import jsonschema_rs

_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_MAX_REASON = 200


class _Refused(Exception):
    """Not a usable schema: why, and the path to the part at fault."""

    def __init__(self, reason: str, path: list[str | int]) -> None:
        self.reason = reason
        self.path = path


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
        at = _find(node, refused.path)
        problems.error(
            code="invalid-schema", message=f"not a JSON Schema: {refused.reason}", at=at, help=_help(refused.reason)
        )
        return None
    return schema


def read_schema_file(node: Node, name: str, problems: Problems, base: Path) -> Any:
    """A schema in a file of its own; `base` is the folder of the rule file."""
    text = read_text(node, name, problems)
    if text is None:
        return None
    try:
        source = Source(text, read_text_file(base / text, text, regular=True))
    except NotRead as not_read:
        reason = not_read.diagnostic.message
        problems.error(
            code="unreadable-schema",
            message=f"cannot read the schema {quote(text)}: {reason}",
            at=node,
            help="the path is relative to the rule file",
        )
        return None
    return _schema_in(source, node, problems)


def _schema_in(source: Source, node: Node, problems: Problems) -> Any:
    """A fault is shown at the rule, with its place in the schema file beside it: that file's text is not printed."""
    inner = Problems(source)
    root = parse_json(source, inner)
    faults = [diagnostic for diagnostic in inner.all if diagnostic.is_error]
    if root is None or faults:
        reason = faults[0].message if faults else "the file is empty"
        span = faults[0].span if faults else None
        _report_file(source, node, problems, reason, () if span is None else (Related(span, reason),))
        return None
    try:
        schema = plain(root)
        _prove(schema)
        return schema
    except _Refused as refused:
        related = Related(_find(root, refused.path).head, "at fault here")
        _report_file(source, node, problems, refused.reason, (related,))
        return None


def _report_file(source: Source, node: Node, problems: Problems, reason: str, related: tuple[Related, ...]) -> None:
    problems.error(
        code="invalid-schema",
        message=f"{quote(source.file)} is not a JSON Schema: {reason}",
        at=node,
        help=_help(reason),
        related=related,
    )


def _prove(schema: Any) -> None:
    """Compile the schema as the engine will: without any access to files or the network, linear-time patterns only."""
    import jsonschema_rs  # slow to import, and few rule files hold a schema

    try:
        jsonschema_rs.validator_for(
            schema, offline=True, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=False
        )
    except jsonschema_rs.ValidationError as error:
        raise _Refused(_wording(error), list(error.instance_path)) from None
    except Exception as error:
        raise _Refused(_clip(str(error)), []) from None


def _wording(error: jsonschema_rs.ValidationError) -> str:
    path = [str(step) for step in error.instance_path]
    if path[-1:] == ["type"] and isinstance(error.instance, str):
        return f"there is no type {quote(error.instance)}"
    return _clip(error.message)


def _find(node: Node, path: list[str | int]) -> Located:
    """The node at the end of `path`, or the last one on the way that exists."""
    for step in path:
        if not isinstance(node, MapNode) or str(step) not in node.entries:
            items = getattr(node, "items", [])
            if not isinstance(step, int) or step >= len(items):
                break
            node = items[step]
        else:
            node = node.entries[str(step)].value
    return node


def _clip(reason: str) -> str:
    line = " ".join(reason.split())
    line = line[:1].lower() + line[1:] if line[1:2].islower() else line
    return line if len(line) <= _MAX_REASON else f"{line[: _MAX_REASON - 1]}…"


def _help(reason: str) -> str | None:
    if reason.startswith("there is no type"):
        words = {"text": "string", "str": "string", "int": "integer", "float": "number", "list": "array"}
        return did_you_mean(reason.partition("`")[2].rstrip("`"), _TYPES, words | {"dict": "object", "bool": "boolean"})
    if "retriev" in reason:
        return "a `$ref` to another file or address is not followed; put the part under `$defs`"
    if 'is not a "regex"' in reason:
        return "patterns must do without look-around and back-references"
    return None
