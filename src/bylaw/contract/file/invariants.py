"""`contract.invariants` → Invariants."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from bylaw.contract.file.checks import CHECKS, LEAK_PROBES
from bylaw.contract.file.rule_check import FileRules, read_rule_check
from bylaw.contract.file.types import TEXT, word
from bylaw.contract.file.variants import Variant, Variants
from bylaw.contract.file.words import INVARIANT_KEY_WORDS, TYPE_WORDS, WEIGHT_WORDS, WHEN_WORDS
from bylaw.contract.model import Check, Invariant, Weight, When
from bylaw.rules.files import NotRead, read_text_file
from bylaw.rules.located import ListNode, MapNode, Node
from bylaw.rules.param_types import FLAG, NAMES
from bylaw.rules.params import Context, Param
from bylaw.rules.readers import report_wrong_type
from bylaw.rules.rule_fields import Ids
from bylaw.rules.words import quote

WHENS: tuple[When, ...] = get_args(When)
WEIGHTS = tuple(weight.value for weight in Weight)

_WEIGHT = word(
    code="unknown-severity",
    what="severity",
    words=WEIGHTS,
    synonyms=WEIGHT_WORDS,
    error="high",
    warning="medium",
    info="low",
)
_WHEN = word(code="unknown-when", what="`when`", words=WHENS, synonyms=WHEN_WORDS)
_TYPE = word(code="unknown-type", what="invariant type", words=tuple(CHECKS), synonyms=TYPE_WORDS)

INVARIANT = Variants(
    what="an invariant",
    key="type",
    tag=_TYPE,
    kinds={name: check.params for name, check in CHECKS.items()},
    common=(
        Param("id", TEXT, "its name in reports, unique in the contract", required=True),
        Param("severity", _WEIGHT, "what it weighs in the score; a broken `critical` one fails", default="medium"),
        Param("when", _WHEN, "the scenarios it is judged in", default="always"),
        Param("negate", FLAG, "the opposite must hold", default=False),
        Param("description", TEXT, "why it exists; shown in reports"),
        Param("probes", NAMES, "prompts to ask for it instead of the golden ones"),
    ),
    synonyms=INVARIANT_KEY_WORDS,
)


def read_invariants(node: Node, rules: FileRules, context: Context) -> list[Invariant]:
    """The usable ones; everything wrong with the others is reported."""
    if not isinstance(node, ListNode):
        report_wrong_type(node, "`invariants`", "a list", context.problems, help="start each with `- id: …`")
        return []
    if not node.items:
        context.problems.error(
            code="empty-value", message="`invariants` is empty, so the contract demands nothing", at=node
        )
    ids: Ids = {}
    found = [_read_invariant(item, rules, ids, context) for item in node.items]
    return [invariant for invariant in found if invariant is not None]


def _read_invariant(node: Node, rules: FileRules, ids: Ids, context: Context) -> Invariant | None:
    read = INVARIANT.read(node, context)
    unique = _is_unique(node, ids, context)
    if read is None or not unique:
        return None
    probes = _probes(read, context)
    check = _check(read, rules, context)
    if check is None or probes is None:
        return None
    values = read.values
    return Invariant(
        id=values["id"],
        type=read.tag,
        check=check,
        severity=Weight(values["severity"]),
        when=values["when"],
        negate=values["negate"],
        description=values.get("description"),
        probes=probes,
        span=read.node.head,
    )


def _is_unique(node: Node, ids: Ids, context: Context) -> bool:
    entry = node.entries.get("id") if isinstance(node, MapNode) else None
    id = getattr(entry.value, "value", None) if entry else None
    if entry is None or not isinstance(id, str):
        return True
    first = ids.setdefault(id, context.problems.related(entry.value, "first used here"))
    if first.span == entry.value.head:
        return True
    context.problems.error(
        code="duplicate-id",
        message=f"the id {quote(id)} is used twice",
        at=entry.value,
        help="give each invariant an id of its own",
        related=(first,),
    )
    return False


def _probes(read: Variant, context: Context) -> tuple[str, ...] | None:
    given = [key for key in ("probes", "dangerous_prompts") if key in read.values]
    if len(given) == 2:
        _report_both(read, "dangerous_prompts", "probes", context)
        return None
    default = LEAK_PROBES if read.tag == "system_prompt_leak_probe" else ()
    return tuple(read.values[given[0]]) if given else default


def _check(read: Variant, rules: FileRules, context: Context) -> Check | None:
    if read.tag == "rule":
        return read_rule_check(read.values["rule"], read.node, rules, context)
    if read.tag == "system_prompt_leak_probe":
        read = _with_system_prompt(read, context) or read
        if not {"patterns", "system_prompt"} & read.values.keys():
            return None
    make = CHECKS[read.tag].make
    assert make is not None
    return make(read.values)


def _with_system_prompt(read: Variant, context: Context) -> Variant | None:
    """The leak probe with the text of its file; None, and why, where it has nothing to look for."""
    values = dict(read.values)
    path = values.pop("system_prompt_path", None)
    if path is not None and "system_prompt" in values:
        _report_both(read, "system_prompt_path", "system_prompt", context)
    elif path is not None:
        text = _read_prompt_file(path, read.node.entries["system_prompt_path"].value, context)
        values |= {} if text is None else {"system_prompt": text}
    elif not {"patterns", "system_prompt"} & values.keys():
        context.problems.error(
            code="missing-key",
            message="an invariant of type `system_prompt_leak_probe` needs what to look for",
            at=read.node.first_key,
            help="give `patterns`, `system_prompt` or `system_prompt_path`",
        )
    return Variant(read.tag, values, read.node)


def _read_prompt_file(path: str, node: Node, context: Context) -> str | None:
    try:
        text = read_text_file(context.base / Path(path), path, regular=True).strip()
    except NotRead as not_read:
        context.problems.error(
            code="unreadable-file",
            message=f"cannot read the system prompt {quote(path)}: {not_read.diagnostic.message}",
            at=node,
            help="the path is relative to the contract's file",
        )
        return None
    if not text:
        context.problems.error(code="empty-value", message=f"the system prompt {quote(path)} is empty", at=node)
    return text or None


def _report_both(read: Variant, one: str, other: str, context: Context) -> None:
    entries = read.node.entries
    context.problems.error(
        code="duplicate-parameter",
        message=f"`{one}` and `{other}` give the same parameter",
        at=entries[one].key,
        help="keep one of them",
        related=(context.problems.related(entries[other].key, "the other one"),),
    )
