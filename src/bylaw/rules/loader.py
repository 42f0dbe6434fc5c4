"""Files, texts and Python values → a RuleSet for `bylaw check`, or a GuardSet for `bylaw guard`.

`load_…` raises InputError with every problem found; `parse_…` and `read_rules` return the usable rules and the
problems.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import astuple, replace

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic, Span
from bylaw.model.rule import GuardPolicy, GuardSet, Rule, RuleSet
from bylaw.rules.files import (
    IN_CODE,
    FilePath,
    Format,
    UnusableFile,
    encode_values,
    format_of,
    index_of,
    is_in_code,
    paths_in,
    read_documents,
    read_text_file,
    refuse_trace,
)
from bylaw.rules.nodes import Node, Problems, Source, Unreadable, plain
from bylaw.rules.params import Context
from bylaw.rules.policy import read_file_keys, read_guard_policies, read_policy
from bylaw.rules.rule import Ids
from bylaw.rules.versions import Selection, VersionChoice

SectionReader: TypeAlias = Callable[[Sequence[Node], Sequence[Rule], Ids, Context], None]
"""reads a section beside the rules and reports its problems: documents, the rules that can be used, all ids, context"""

Rules: TypeAlias = str | os.PathLike[str] | RuleSet | Sequence[Rule]
"""rules as a caller passes them: the path of a rule file, the result of `load_rules`, or the rules themselves"""

_Input: TypeAlias = FilePath | Sequence[FilePath] | Mapping[str, Any] | Sequence[Mapping[str, Any]]
_Set = TypeVar("_Set", RuleSet, GuardSet)


# -- rules ------------------------------------------------------------------------------------------------------------


def as_rules(rules: Rules) -> RuleSet:
    if isinstance(rules, RuleSet):
        return rules
    if isinstance(rules, Sequence) and all(isinstance(rule, Rule) for rule in rules):
        return RuleSet(tuple(rules))  # type: ignore[arg-type]
    return load_rules(rules)  # type: ignore[arg-type]


def load_rules(source: _Input, *, inputs: Mapping[str, str] | None = None, version: VersionChoice = None) -> RuleSet:
    """The rules of a file, of several files together, or built in code; InputError with every problem found.

    Rules built in code are what a rule file would hold as JSON: a list of mappings, or a mapping with `rules`. Of an
    agent manifest, the rules are those that a guard with the same `inputs` and `version` enforces.
    """
    _check_inputs(inputs)
    if is_in_code(source):
        parse = partial(parse_rules, inputs=inputs, version=version)
        found = _load_values(source, parse, RuleSet)
        found = replace(found, rules=tuple(replace(rule, span=None) for rule in found.rules))
    else:
        found = read_rules(paths_in(source, "load_rules"), inputs=inputs, version=version)
    return _usable(found)


def read_rules(
    paths: Iterable[FilePath],
    *,
    sections: Sequence[SectionReader] = (),
    inputs: Mapping[str, str] | None = None,
    version: VersionChoice = None,
) -> RuleSet:
    """The usable rules of these files together, and every problem in them. Does not raise for their content.

    `sections` read the other sections of each file, such as a contract, and report what is wrong with them.
    """

    def read(parse: Callable[..., RuleSet]) -> list[RuleSet]:
        return [_load_file(path, parse, RuleSet) for path in paths]

    return _read_together(read, Selection(version), sections=sections, inputs=inputs)


def parse_files(files: Mapping[str, str], *, base: FilePath) -> RuleSet:
    """As `read_rules`, of the texts of files by their names. `base` is the folder of all of them."""

    def read(parse: Callable[..., RuleSet]) -> list[RuleSet]:
        return [parse(text, file=name, format=format_of(name), base=base) for name, text in files.items()]

    return _read_together(read, Selection())


def _read_together(
    read: Callable[[Callable[..., RuleSet]], Sequence[RuleSet]], selection: Selection, **options: Any
) -> RuleSet:
    """The rules of several files as those of one: ids, agents and allowlists of one count in the others."""
    parts = read(partial(_parse_rules, selection=selection, ids={}, **options))
    tools = tuple(tool for part in parts for tool in part.tools)
    joined = replace(_join(parts, RuleSet), strict=any(part.strict for part in parts), tools=tools)
    return _apply_selection(joined, selection)


def parse_rules(
    text: str,
    *,
    file: str = "<text>",
    format: Format = "yaml",
    base: FilePath | None = None,
    ids: Ids | None = None,
    sections: Sequence[SectionReader] = (),
    inputs: Mapping[str, str] | None = None,
    version: VersionChoice = None,
) -> RuleSet:
    """The usable rules of a text, and every problem in it. Does not raise for its content.

    `base` is the folder that `schema_path` is relative to. `ids` carries the ids of files read before.
    `sections` read what else the file holds. `inputs` and `version` as for `load_rules`.
    """
    selection = Selection(version)
    found = _parse_rules(
        text, selection, file=file, format=format, base=base, ids=ids, sections=sections, inputs=inputs
    )
    return _apply_selection(found, selection)


def _apply_selection(found: RuleSet, selection: Selection) -> RuleSet:
    problems = (*found.diagnostics, *selection.unknown())
    return replace(found, rules=_make_ids_unique(selection.finish(found.rules)), diagnostics=problems)


def _make_ids_unique(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Two files may have allowlists, which are rules without an id of their own."""
    by_id: dict[str, Rule] = {}
    for rule in rules:
        id = rule.id
        for number in itertools.count(2):
            if id not in by_id:
                break
            id = f"{rule.id} ({number})"
        by_id[id] = rule if id == rule.id else replace(rule, id=id)
    return tuple(by_id.values())


def _parse_rules(
    text: str,
    selection: Selection,
    *,
    file: str,
    format: Format,
    base: FilePath | None = None,
    ids: Ids | None = None,
    sections: Sequence[SectionReader] = (),
    inputs: Mapping[str, str] | None = None,
) -> RuleSet:
    rules: list[Rule] = []
    strict, tools = False, tuple[str, ...]()
    seen: Ids = {} if ids is None else ids

    def read(documents: Sequence[Node], context: Context) -> None:
        nonlocal strict, tools
        strict, tools = context.strict, context.tools
        rules.extend(read_policy(documents, context, seen))
        for read_section in sections:
            read_section(documents, rules, seen, context)

    problems = _parse(text, file, format, base, read, every_section=bool(sections), inputs=inputs, selection=selection)
    return RuleSet(tuple(rules), problems, (file,), strict, tools)


def source_line(span: Span) -> str | None:
    """The line of a rule file that a span starts on, or as much of it as can be shown."""
    try:
        return Source(span.file, read_text_file(Path(span.file), span.file)).excerpt(span)[0]
    except (UnusableFile, IndexError):
        return None


# -- guards -----------------------------------------------------------------------------------------------------------


def load_guard(source: _Input, *, inputs: Mapping[str, str] | None = None) -> GuardSet:
    """The guards of a file, of several files, or built in code; InputError with every problem found.

    A file is a `bylaw.yaml` with `guard:`, a list of rules, or an agent manifest; the folder of a manifest's index is
    one too. `inputs` says what `{{inputs.NAME}}` stands for.
    """
    _check_inputs(inputs)
    parse = partial(parse_guard, inputs=inputs)
    if is_in_code(source):
        found = _load_values(source, parse, GuardSet)
        found = replace(found, policies=tuple(map(strip_spans, found.policies)))
    else:
        paths = paths_in(source, "load_guard")
        found = _join([_load_file(path, parse, GuardSet) for path in paths], GuardSet)
    return _usable(found)


def parse_guard(
    text: str,
    *,
    file: str = "<text>",
    format: Format = "yaml",
    base: FilePath | None = None,
    inputs: Mapping[str, str] | None = None,
) -> GuardSet:
    """The guards of a text with their usable rules, and every problem in it. Does not raise for its content.

    `base` is the folder that `schema_path` and the files of a manifest's index are relative to.
    """
    policies: list[GuardPolicy] = []

    def read(documents: Sequence[Node], context: Context) -> None:
        policies.extend(read_guard_policies(documents, context))

    problems = _parse(text, file, format, base, read, inputs=inputs)
    return GuardSet(tuple(policies), problems, (file,))


def dump_manifest(guards: GuardSet | _Input, *, inputs: Mapping[str, str] | None = None) -> Any:
    """The guards as an agent manifest, in JSON values; a list of documents where there are several.

    `guards`: what `load_guard` returns or takes. A manifest comes out as it went in; see `bylaw guard export`.
    InputError if a manifest cannot say the same.
    """
    from bylaw.rules.guard.manifest_export import manifest_of

    def read(text: str, names: Collection[str]) -> GuardSet:
        given = {name: value for name, value in (inputs or {}).items() if name in names}
        return parse_guard(text, format="json", inputs=given)

    return manifest_of(guards if isinstance(guards, GuardSet) else load_guard(guards, inputs=inputs), read)


def load_content(path: FilePath) -> Any:
    """The content of a rule file, as JSON values; InputError if it cannot be read."""
    file = os.fspath(index_of(path))
    try:
        problems = Problems(Source(file, read_text_file(Path(file), file, index=True)))
        documents = [plain(one) for one in parse_documents(problems.source, problems, format_of(file))]
    except UnusableFile as not_read:
        raise InputError([not_read.diagnostic]) from None
    if not documents:
        raise InputError(problems.all)
    return documents[0] if len(documents) == 1 else documents


def _check_inputs(inputs: Any) -> None:
    """Raises TypeError for anything but texts, and ValueError for a text that needs an input itself."""
    if inputs is None:
        return
    if not isinstance(inputs, Mapping):
        raise TypeError(f"inputs={inputs!r}: expected a mapping from names to texts")
    for name, value in inputs.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"inputs: {name!r} is {value!r}, and expected are names and texts")
        if "{{" in value:
            raise ValueError(f"inputs: the value of {name!r} holds a placeholder: {value!r}")


def strip_spans(policy: GuardPolicy) -> GuardPolicy:
    rules = tuple(replace(one, rule=replace(one.rule, span=None)) for one in policy.rules)
    return replace(policy, rules=rules)


# -- both -------------------------------------------------------------------------------------------------------------


def _parse(
    text: str,
    file: str,
    format: Format,
    base: FilePath | None,
    read: Callable[[Sequence[Node], Context], None],
    *,
    every_section: bool = False,
    inputs: Mapping[str, str] | None = None,
    selection: Selection | None = None,
) -> tuple[Diagnostic, ...]:
    problems = Problems(Source(file, text))
    folder = Path() if base is None else Path(base)
    with contextlib.suppress(Unreadable):
        if documents := parse_documents(problems.source, problems, format):
            chosen = selection or Selection()
            context = Context(problems, folder, every_section=every_section, inputs=inputs or {}, selection=chosen)
            read(documents, read_file_keys(documents, context))
    return problems.all


def parse_documents(source: Source, problems: Problems, format: Format) -> list[Node]:
    """The trees of the text's documents; none where the text cannot be used, which is then reported.

    Only agent manifests may be several in one file.
    """

    def may_be_one_of_several(document: Node) -> bool:
        from bylaw.rules.guard import manifest_documents  # only for a file with a second document

        return manifest_documents.may_be_one_of_several(document)

    def left_alone(document: Node) -> Iterable[Node]:
        from bylaw.rules.guard import manifest_documents  # only for a file with values that are out of range

        return manifest_documents.left_alone(document)

    return read_documents(source, problems, format, may_be_one_of_several, left_alone)


def _load_file(path: FilePath, parse: Callable[..., _Set], result: type[_Set]) -> _Set:
    file = os.fspath(index_of(path))
    try:
        text = read_text_file(Path(file), file, index=True)
        refuse_trace(text, file)
    except UnusableFile as not_read:
        return result((), (not_read.diagnostic,), (file,))
    return parse(text, file=file, format=format_of(file), base=Path(file).parent)


def _load_values(values: Any, parse: Callable[..., _Set], result: type[_Set]) -> _Set:
    text = encode_values(values)
    if isinstance(text, Diagnostic):
        return result((), (text,), (IN_CODE,))
    return parse(text, file=IN_CODE, format="json")


def _join(parts: Sequence[_Set], result: type[_Set]) -> _Set:
    contents, diagnostics, files = zip(*(astuple(part)[:3] for part in parts), strict=True) if parts else ((), (), ())
    problems = sorted((one for some in diagnostics for one in some), key=Diagnostic.sort_key)
    return result(
        tuple(one for some in contents for one in some), tuple(problems), tuple(f for some in files for f in some)
    )


def _usable(found: _Set) -> _Set:
    if not found.ok:
        raise InputError(found.diagnostics)
    return found
