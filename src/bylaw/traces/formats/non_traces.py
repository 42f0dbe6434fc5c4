"""Files that are no traces: say what they look like, so that one message replaces a list of decoding errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"\xcf\xfa\xed\xfe", "a program"),
    (b"\xca\xfe\xba\xbe", "a program"),
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"GIF8", "an image"),
    (b"BM", "an image"),
    (b"RIFF", "an image, or sound"),
    (b"%PDF", "a PDF document"),
    (b"SQLite format 3\0", "a SQLite database"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"PAR1", "a Parquet table"),
    (b"ARROW1", "an Arrow table"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ", "an xz file"),
    (b"7z\xbc\xaf", "a 7z archive"),
)
_HELP = {
    "a rule file": "give it with `--policy`, and name the recorded trace here",
    "a table": "of tables, only Langfuse's exports can be read",
    "text in UTF-16": "save it as UTF-8; in PowerShell, write `| Out-File -Encoding utf8 FILE` instead of `> FILE`",
    "an HTML page": "download the export itself, not the page that shows it",
    "a bzip2 file": "unpack it first; `.gz` and `.zst` need not be unpacked",
    "an xz file": "unpack it first; `.gz` and `.zst` need not be unpacked",
    "a 7z archive": "unpack it first; `.gz` and `.zst` need not be unpacked",
}
_STREAM = "a stream of server-sent events"
_CONSOLE = "what JavaScript's console prints, which is not JSON"
_HELP |= {
    _STREAM: "store the whole response with its request, or run the program with `bylaw record`",
    _CONSOLE: "use an exporter that writes JSON, or let the program send its spans to `bylaw receive`",
}
_SECTIONS = frozenset(("rules", "guard", "contract", "chaos_matrix", "golden_prompts", "versions", "agentManifestKey"))
_RULE_KEYS = (frozenset(("id", "kind", "params")), frozenset(("id", "when", "then")))
_YAML_SECTION = re.compile(rb"^(?:" + "|".join(sorted(_SECTIONS)).encode() + rb"):(?:\s|$)", re.MULTILINE)
_YAML_RULE = re.compile(rb"\A(?:#[^\n]*\n|\s)*- +(?:\{ *)?(?:id|kind): ")
_YAML_KEY = re.compile(rb"\A(?:#[^\n]*\n|---|\s)*(?:- +)?[A-Za-z_][\w.-]*:(?:\s|\Z)")
_EVENT_STREAM = re.compile(rb"\A\s*(?:(?:event|id): [^\n]*\n)*data: ")
_JAVASCRIPT = re.compile(rb"\A\s*(?:\w+ )?[\[{]\s*(?:\{\s*)?[A-Za-z_$][\w$]*: ")
_MARKUP = re.compile(rb"\A\s*<(!doctype html|html|head|body|\?xml|svg|!--|[a-z]+[ >])", re.IGNORECASE)
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")


def describe_undecodable(head: bytes) -> str:
    """A guess at the type of a file without JSON, by its first bytes."""
    for magic, noun in _MAGIC:
        if head.startswith(magic) and (len(magic) > 2 or _is_binary(head)):
            return noun
    if markup := _MARKUP.match(head):
        return "an image" if markup[1].lower() == b"svg" else "XML" if markup[1][:1] == b"?" else "an HTML page"
    if _is_binary(head):
        return "binary data"
    if _YAML_SECTION.search(head) or _YAML_RULE.match(head):
        return "a rule file"
    if _EVENT_STREAM.match(head):
        return _STREAM
    if _JAVASCRIPT.match(head):
        return _CONSOLE
    if _is_table(head):
        return "a table"
    return "YAML" if _YAML_KEY.match(head) else "plain text"


def is_javascript(head: bytes) -> bool:
    return _JAVASCRIPT.match(head) is not None


def describe_values(values: Sequence[Any]) -> str | None:
    """What a file of JSON records looks like that is in no trace format; None if it may be an unknown one."""
    first = _first_object(values)
    if first is None:
        return None
    if not _SECTIONS.isdisjoint(first) or any(keys <= first.keys() for keys in _RULE_KEYS):
        return "a rule file"
    schema = first.get("schema")
    if isinstance(schema, str) and schema.startswith("bylaw."):
        return f"a report of `bylaw {schema.removeprefix('bylaw.').partition('/')[0]}`"
    if "$schema" in first or (first.get("type") == "object" and "properties" in first):
        return "a JSON Schema"
    return None


_SEEN: tuple[tuple[frozenset[str], str, str], ...] = (
    (frozenset(("resourceMetrics",)), "OpenTelemetry metrics", "export traces (`resourceSpans`), not metrics"),
    (frozenset(("__REALTIME_TIMESTAMP",)), "a system journal", "export the agent's own log"),
    (frozenset(("log", "stream", "time")), "a container's log", "keep only the text of `log`, line by line"),
    (frozenset(("timestamp", "severity", "textPayload")), "a cloud log", "export traces instead"),
    (frozenset(("prompt", "completion")), "pairs of prompts and completions", "record messages with their roles"),
    (frozenset(("input", "expected_output")), "a dataset", "record what the agent did with it"),
    (
        frozenset(("event", "run_id", "parent_ids")),
        "events of LangChain's `astream_events`",
        "store the messages of the final state with `messages_to_dict`, or trace with OpenTelemetry or LangSmith",
    ),
    *(
        (
            keys,
            "what older versions of `codex exec --json` print",
            "give the rollout of the session, in `~/.codex/sessions`, or run a newer version",
        )
        for keys in (frozenset(("sandbox", "approval", "workdir", "provider")), frozenset(("id", "msg")))
    ),
    (
        frozenset(("lc", "type", "repr")),
        "an object that LangChain could not serialize",
        "of a result of a model, write `dumps(result.generations)`, not `dumps(result)`",
    ),
)
"""marks of files that people try: what they are, and what to give instead"""
_MOST_KEYS = 6


def describe_records(values: Sequence[Any]) -> str:
    """A description of the records of an unknown format."""
    first = _first_object(values)
    if first is None:
        return "its records are no objects" if values else "its records are null, or it has none"
    noun = next((noun for keys, noun, _ in _SEEN if keys <= first.keys()), None)
    keys = ", ".join(f"`{key[:40]}`" for key in list(first)[:_MOST_KEYS])
    return f"it looks like {noun}" if noun else f"its records have the keys {keys or 'of an empty object'}"


def advise_on_records(values: Sequence[Any], readable: str | None) -> str:
    """What to do with a file in an unknown format. `readable`: a format as which it can be read."""
    if readable is not None:
        return f"`--from {readable}` finds turns in it; check what it reads with `bylaw inspect`"
    first = _first_object(values) or {}
    instead = next((advice for keys, _, advice in _SEEN if keys <= first.keys()), None)
    return instead or "export OpenTelemetry spans, chat messages, or write Bylaw JSONL: one event a line"


def _first_object(values: Sequence[Any]) -> dict[str, Any] | None:
    first = values[0] if values else None
    if isinstance(first, list) and first:
        first = first[0]
    return first if isinstance(first, dict) else None


def advise(noun: str) -> str | None:
    """What to do with such a file."""
    return _HELP.get(noun)


def _is_binary(head: bytes) -> bool:
    try:
        head[:4096].decode()
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return True
    return _CONTROL.search(head[:4096]) is not None


def _is_table(head: bytes) -> bool:
    """Whether the first lines have the same number of the same separator."""
    lines = [line for line in head[:4096].split(b"\n")[:5] if line.strip()]
    counts = [{line.count(separator) for line in lines} for separator in (b",", b";", b"\t")]
    return len(lines) > 1 and any(len(count) == 1 and min(count) > 0 for count in counts)
