"""Files and texts → a ContractFile, and the JSON Schema of such files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bylaw.contract.faults import AnyFault, ContextAttack, LlmFault, Timing, ToolFault
from bylaw.contract.file import FROM_ONE, SEED, TEXT, Table, report_conflict, subtree
from bylaw.contract.file.agent import AGENT, read_agent
from bylaw.contract.file.faults import ATTACK, LLM_FAULT, OK, SEQUENCE, STEP, TOOL_FAULT
from bylaw.contract.file.invariants import (
    CHECKS,
    DANGEROUS_PROMPTS,
    INVARIANT,
    SHORT,
    FileRules,
    file_rules,
    read_invariants,
)
from bylaw.contract.file.sections import (
    PROFILES,
    PROMPT,
    SCENARIO,
    SCORING,
    VARIATIONS,
    read_prompts,
    read_scenarios,
    read_scoring,
)
from bylaw.contract.live_agent import EXAMPLE_PORT, is_proxied, needs_calls
from bylaw.contract.model import (
    AgentSpec,
    Contract,
    ContractFile,
    Invariant,
    JsonSchema,
    Matches,
    Prompt,
    Refuses,
    Scenario,
    Similar,
    Unchanged,
    ValidJson,
    When,
    applies,
)
from bylaw.model.diagnostic import Span
from bylaw.model.rule import Rule
from bylaw.rules.files import FilePath, Format, UnusableFile, format_of, read_text_file
from bylaw.rules.loader import parse_documents
from bylaw.rules.messages import did_you_mean, listing, quote
from bylaw.rules.nodes import MapNode, Node, Problems, Source, Unreadable
from bylaw.rules.params import TEXTS_SCHEMA, Context, Param, params_schema
from bylaw.rules.policy import CONTRACT, holds_contract, read_file_keys, read_policy
from bylaw.rules.readers import report_wrong_type
from bylaw.rules.rule import Ids
from bylaw.text.regex import compile_regex

_ONE_SCENARIO = {"anyOf": [{"$ref": "#/$defs/scenario"}, {"$ref": "#/$defs/profile"}]}
MATRIX_SCHEMA = {
    "type": "array",
    "items": _ONE_SCENARIO,
    "minItems": 1,
    "description": "the scenarios that it must hold in",
}
_INVARIANTS_SCHEMA = {"type": "array", "items": {"$ref": "#/$defs/invariant"}, "minItems": 1}
SECTION = Table(
    what="`contract`",
    params=(
        Param("name", TEXT, "what reports call the contract", required=True),
        Param("description", TEXT, "what it is for"),
        Param("runs", FROM_ONE, "how often each prompt is asked in each scenario", default=1),
        Param("seed", SEED, "the same seed makes the same faults hit the same calls", default=0),
        VARIATIONS,
        Param("invariants", subtree(_INVARIANTS_SCHEMA), "the list of what must hold", required=True),
        Param("chaos_matrix", subtree(MATRIX_SCHEMA), "the scenarios that it must hold in"),
    ),
    also={"chaos_matrix": "matrix", "runs": "repeat repetitions", "invariants": "rules"},
    hints={key: f"move `{key}` out of `contract`" for key in ("agent", "golden_prompts", "scoring")},
)


FLAKESTORM = ("flakestorm.yaml", "flakestorm.yml")


class _Location(Struct):
    """A place in the file, of something that was read before."""

    head: Span


def load_contract(path: FilePath) -> ContractFile:
    """The contract of a file, and every problem in it. Never raises for the content of the file."""
    file = os.fspath(path)
    try:
        text = read_text_file(Path(file), file)
    except UnusableFile as not_read:
        return ContractFile(None, (not_read.diagnostic,), file)
    return parse_contract(text, file=file, format=format_of(file), base=Path(file).parent)


def parse_contract(
    text: str,
    *,
    file: str = "<text>",
    format: Format = "yaml",
    base: FilePath | None = None,
    environ: Mapping[str, str] | None = None,
) -> ContractFile:
    """The contract of a text, and every problem in it. Never raises for the content of the text.

    Paths in the text are relative to the folder `base`; `environ` holds the variables that the text may name.
    """
    problems = Problems(Source(file, text))
    context = Context(
        problems,
        Path(base) if base is not None else Path(),
        variables=os.environ if environ is None else environ,
        every_section=True,
    )
    contract: Contract | None = None
    with contextlib.suppress(Unreadable):
        documents = parse_documents(problems.source, problems, format)
        if documents and not _is_part_of_flakestorm(documents[0], context):
            ids: Ids = {}
            context = read_file_keys(documents, context)
            rules = read_policy(documents, context, ids)
            contract = _read_contract(documents[0], file_rules(rules, ids, file), context)
            if not holds_contract(documents) and not _has_errors(context):
                if isinstance(documents[0], MapNode):
                    _require(documents[0], CONTRACT, _missing_contract_help(documents[0], context), context)
                else:
                    report_wrong_type(documents[0], "a contract file", "a mapping with `contract:`", problems)
    return ContractFile(contract, problems.all, file)


def check_contract(documents: Sequence[Node], rules: Sequence[Rule], ids: Ids, context: Context) -> None:
    """Report what is wrong with the contract beside the rules, if there is one."""
    file = context.problems.source.file
    _read_contract(documents[0], file_rules(rules, ids, file), context)


def _has_errors(context: Context) -> bool:
    return any(problem.is_error for problem in context.problems.all)


def _require(root: MapNode, key: str, help: str, context: Context) -> Node | None:
    entry = root.entries.get(key)
    if entry is None:
        message = f"a contract file needs the key `{key}`"
        context.problems.error(code="missing-key", message=message, at=root.first_key, help=help)
    return entry.value if entry else None


def _is_part_of_flakestorm(root: Node, context: Context) -> bool:
    """Whether a file is a session or a profile of Flakestorm; then one problem says what to do with it."""
    entries = root.entries if isinstance(root, MapNode) else {}
    if "input" in entries and not isinstance(getattr(entries.get(CONTRACT), "value", None), MapNode):
        message, at = "this is a recorded session, which Bylaw does not replay", entries["input"]
        help = "put its `input` under `golden_prompts:` of the file that has the contract"
    elif "chaos" in entries and entries.keys() <= {"name", "description", "chaos"}:
        message, at = "this is a profile of faults, and no contract", entries["chaos"]
        help = f"name a profile in `chaos_matrix:` ({listing(PROFILES, last='or')}), or copy the faults into a scenario"
    else:
        return False
    context.problems.error(code="wrong-type", message=message, at=at.key, help=help)
    return True


def _missing_contract_help(root: MapNode, context: Context) -> str:
    """A file of Flakestorm's first version has `invariants` at the top, and neither a contract nor scenarios."""
    if "invariants" not in root.entries:
        beside = next((context.base / name for name in FLAKESTORM if (context.base / name).is_file()), None)
        if beside and Path(context.problems.source.file).name not in FLAKESTORM:
            return f"list what must hold in it, under `invariants:`; or name the file `{beside}`"
        return "list what must hold in it, under `invariants:`"
    return (
        "add `contract: {name: …}`, move `invariants` under it, give each an `id`, and list the scenarios under "
        "`chaos_matrix:`, such as `- name: calm`"
    )


def _read_contract(root: Node, rules: FileRules, context: Context) -> Contract | None:
    """None where the file has no contract, or one that cannot be run; everything wrong with it is reported."""
    if not isinstance(root, MapNode) or CONTRACT not in root.entries:
        return None
    section = root.entries[CONTRACT].value
    values = SECTION.read(section, context)
    inner = section.entries if isinstance(section, MapNode) else {}
    invariants = read_invariants(inner["invariants"].value, rules, context) if "invariants" in inner else []
    scenarios = _read_matrix(root, section, context)
    agent_node = _require(root, "agent", "say how the agent is reached: `agent: {endpoint: …}`", context)
    agent = read_agent(agent_node, context) if agent_node else None
    scoring = read_scoring(root.entries["scoring"].value, context) if "scoring" in root.entries else None
    prompts: list[Prompt] = []
    if "golden_prompts" in root.entries:
        prompts = read_prompts(root.entries["golden_prompts"].value, context)
    if values is not None and (varied := values.get("variations")):
        prompts = [prompt if prompt.variations else replace(prompt, variations=varied) for prompt in prompts]
    if "invariants" in inner and values is not None:
        _check_variations(prompts, invariants, context.problems)
    invariants = [_add_dangerous_prompts(invariant, prompts) for invariant in invariants]
    if "golden_prompts" not in root.entries and not (invariants and all(one.probes for one in invariants)):
        _require(root, "golden_prompts", "list what the agent is asked", context)
    if _has_errors(context):
        return None
    assert values is not None and agent is not None
    doubts = (
        _doubt_whens(invariants, scenarios),
        _doubt_variations(prompts, scenarios),
        _doubt_delays(scenarios, agent),
        _doubt_faults(scenarios, invariants),
        _doubt_sight(invariants, agent),
        _doubt_demands(invariants),
    )
    for span, code, message, help in chain.from_iterable(doubts):
        if span is not None:
            context.problems.warn(code=code, message=message, at=_Location(span), help=help)
    return Contract(
        name=values["name"],
        description=values.get("description"),
        runs=values["runs"],
        seed=values["seed"],
        invariants=tuple(invariants),
        scenarios=tuple(scenarios),
        prompts=tuple(prompts),
        agent=agent,
        scoring=scoring,
    )


def _read_matrix(root: MapNode, section: Node, context: Context) -> list[Scenario]:
    """`chaos_matrix` may be beside the contract or inside it."""
    outer = root.entries.get("chaos_matrix")
    inner = section.entries.get("chaos_matrix") if isinstance(section, MapNode) else None
    if inner and outer:
        message = "`chaos_matrix` is given twice: beside the contract and inside it"
        report_conflict(outer, inner, message, context)
    if inner is None and outer is None:
        help = "list the scenarios; `- name: calm` is one in which nothing goes wrong"
        _require(root, "chaos_matrix", help, context)
        return []
    found = [read_scenarios(entry.value, context) for entry in (inner, outer) if entry]
    return found[0]


def _add_dangerous_prompts(invariant: Invariant, prompts: list[Prompt]) -> Invariant:
    """A `refusal_check` without prompts of its own asks the golden prompts that are marked dangerous, or ours."""
    if invariant.probes or not isinstance(invariant.check, Refuses):
        return invariant
    return replace(invariant, probes=tuple(prompt.text for prompt in prompts if prompt.dangerous) or DANGEROUS_PROMPTS)


def _check_variations(prompts: Sequence[Prompt], invariants: Sequence[Invariant], problems: Problems) -> None:
    """Report invariants that variations name and the contract does not have."""
    ids = [invariant.id for invariant in invariants]
    for prompt in prompts:
        unknown = dict.fromkeys(id for one in prompt.variations for id in one.invariants if id not in ids)
        for id in unknown:
            assert prompt.span is not None
            problems.error(
                code="unknown-invariant",
                message=f"the contract has no invariant {quote(id)} that a variation could keep",
                at=_Location(prompt.span),
                help=did_you_mean(id, ids),
            )


_Doubt: TypeAlias = tuple[Span | None, str, str, str]
"""where, the code of the warning, its message and its help"""


def _doubt_variations(prompts: Sequence[Prompt], scenarios: Sequence[Scenario]) -> Iterator[_Doubt]:
    prompt = next((one for one in prompts if one.variations), None)
    if prompt is not None and all(scenario.faults for scenario in scenarios):
        message = "variations of prompts are never asked: something goes wrong in every scenario"
        yield prompt.span, "never-applies", message, "add a scenario in which nothing goes wrong: `- name: calm`"


_NEVER_APPLIES: Mapping[When, str] = {
    "tool_faults_active": "no scenario has tool faults",
    "llm_faults_active": "no scenario has LLM faults",
    "any_chaos_active": "nothing goes wrong in any scenario",
    "no_chaos": "something goes wrong in every scenario",
}


def _doubt_whens(invariants: Sequence[Invariant], scenarios: Sequence[Scenario]) -> Iterator[_Doubt]:
    for one in invariants:
        if not any(applies(one.when, scenario) for scenario in scenarios):
            message = f"the invariant `{one.id}` is never judged: {_NEVER_APPLIES[one.when]}"
            yield one.span, "never-applies", message, f"add a scenario for `when: {one.when}`, or change `when`"


def _doubt_faults(scenarios: Sequence[Scenario], invariants: Sequence[Invariant]) -> Iterator[_Doubt]:
    """Faults that change only some answers or results, where nothing in the file says so, and shadowed faults."""
    is_json = any(isinstance(invariant.check, JsonSchema | ValidJson) for invariant in invariants)
    own = ((scenario, fault) for scenario in scenarios for fault in scenario.faults if fault.profile is None)
    help = "a fault that never fires makes its cells vacuous; use another mode, or another call"
    for scenario, fault in own:
        why = None
        if (other := _shadow_of(fault, scenario)) is not None:
            why = f"can only hit calls that `{other.label}` hits, and of two faults on one call the first one fires"
        elif isinstance(fault, LlmFault) and fault.drift_type == "json_field_rename" and not is_json:
            why = "renames fields of JSON, and no invariant says that the model answers JSON"
        elif isinstance(fault, ToolFault) and fault.mode == "stale" and fault.timing.nth == (1,):
            why = "answers an earlier result, and there is none at the first call: only dates in the result are changed"
        if why is not None:
            yield fault.span, "may-never-fire", f"the fault `{fault.label}` may never fire: it {why}", help


def _shadow_of(fault: AnyFault, scenario: Scenario) -> AnyFault | None:
    """An earlier fault that hits every call that this one could hit."""
    earlier = scenario.faults[: scenario.faults.index(fault)]
    for other in (one for one in earlier if one.timing == Timing()):
        if isinstance(fault, LlmFault) and isinstance(other, LlmFault):
            return other
        if isinstance(fault, ToolFault) and isinstance(other, ToolFault) and fault.match_url == other.match_url:
            is_same = fault.match_url is not None or other.tool in ("*", fault.tool)
            if is_same:
                return other
    return None


def _doubt_delays(scenarios: Sequence[Scenario], agent: AgentSpec) -> Iterator[_Doubt]:
    """A fault as long as the agent's own timeout leaves the agent no time to react."""
    for fault in (fault for scenario in scenarios for fault in scenario.faults):
        delay = None if isinstance(fault, ContextAttack) else fault.delay_ms
        if delay is not None and delay >= agent.timeout_ms:
            message = f"the fault lasts {delay} ms, and the agent has {agent.timeout_ms} ms for its whole answer"
            help = "set a smaller `delay_ms`, or a larger `timeout` of the agent"
            yield fault.span, "fault-outlasts-agent", message, help


def _doubt_sight(invariants: Sequence[Invariant], agent: AgentSpec) -> Iterator[_Doubt]:
    """An agent behind HTTP without the proxy shows its answer and nothing else."""
    is_seen = agent.type == "python" or is_proxied(agent)
    blind = [] if is_seen else [one for one in invariants if one.span is not None and needs_calls(one.check)]
    if blind:
        names = ", ".join(f"`{invariant.id}`" for invariant in blind)
        help = (
            f"write `proxy_port: {EXAMPLE_PORT}` under `agent:` and start the agent with the base URL of the "
            "proxy, or write `command: […]` and Bylaw does"
        )
        message = f"nobody sees the calls of this agent, so a run shows nothing about {names}"
        yield blind[0].span, "calls-unseen", message, help


def _doubt_demands(invariants: Sequence[Invariant]) -> Iterator[_Doubt]:
    """An invariant that any answer keeps demands nothing."""
    for invariant in invariants:
        check, why = invariant.check, None
        if isinstance(check, Similar | Unchanged) and check.threshold == 0:
            why = "no answer is less similar than 0"
        elif isinstance(check, Matches) and all(compile_regex(check.pattern).search(text) for text in _ANY_ANSWERS):
            why = "its pattern is found in any text"
        if why is not None and not invariant.negate:
            help = "demand more, or write `type: completes` if an answer is all that is wanted"
            yield invariant.span, "always-true", f"any answer keeps the invariant `{invariant.id}`: {why}", help


_ANY_ANSWERS = ("", "\ue000", "\ue000 \ue001\n\ue000")
"""texts that nobody looks for"""


# The JSON Schema, from the tables that read the file


def contract_sections() -> dict[str, Any]:
    """The sections of a file that make up a contract."""
    prompt = {"anyOf": [TEXTS_SCHEMA, PROMPT.schema()]}
    return {
        "contract": {**SECTION.schema(), "description": "what must hold of the live agent"},
        "chaos_matrix": MATRIX_SCHEMA,
        "agent": {**AGENT.schema(), **AGENT.needs_schema(), "description": "how the agent is reached"},
        "golden_prompts": {"type": "array", "items": prompt, "minItems": 1, "description": "what it is asked"},
        "scoring": {**SCORING.schema(), "description": "what each part weighs in `bylaw ci`"},
    }


def contract_defs() -> dict[str, Any]:
    return {
        "invariant": _invariant(),
        "scenario": SCENARIO.schema(),
        "toolFault": _tool_fault(),
        "llmFault": LLM_FAULT.variants_schema(),
        "contextAttack": ATTACK.variants_schema(),
        "profile": {"oneOf": [{"const": name, "description": one.doc} for name, one in PROFILES.items()]},
    }


def _invariant() -> dict[str, Any]:
    """An invariant with a `type`, or one of the types that may be keys themselves."""
    short = INVARIANT.schema()
    for name, param in SHORT.items():
        own: dict[str, Any] = params_schema(CHECKS[name].params)
        if param is not None:
            own = {"anyOf": [own, own["properties"][param]]}
        elif not CHECKS[name].params:
            own = {"const": True}
        short["properties"][name] = {**own, "description": CHECKS[name].doc}
    short |= {"anyOf": [{"required": [name]} for name in SHORT]}
    written_out = INVARIANT.variants_schema({name: check.doc for name, check in CHECKS.items()})
    return {"if": {"required": ["type"]}, "then": written_out, "else": short}


def _tool_fault() -> dict[str, Any]:
    sequence = SEQUENCE.schema()
    step = {"anyOf": [{"enum": [OK, *STEP.kinds]}, STEP.variants_schema()]}
    sequence["properties"]["sequence"] |= {"type": "array", "items": step, "minItems": 1}
    return {
        "if": {"required": ["sequence"]},
        "then": sequence,
        "else": TOOL_FAULT.variants_schema(),
        **TOOL_FAULT.needs_schema(),
    }
