"""A file's tree → the contract it holds."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from bylaw.contract.file.agent import read_agent
from bylaw.contract.file.gaps import At, warn_never_applies, warn_outlasts
from bylaw.contract.file.invariants import read_invariants
from bylaw.contract.file.prompts import read_prompts
from bylaw.contract.file.rule_check import FileRules
from bylaw.contract.file.scenarios import read_scenarios
from bylaw.contract.file.scoring import read_scoring
from bylaw.contract.file.types import FROM_ONE, SEED, TEXT
from bylaw.contract.model import Contract, Invariant, Prompt, Refuses, Scenario
from bylaw.rules.fields import Fields
from bylaw.rules.located import Entry, MapNode, Node
from bylaw.rules.params import Context, Param, Values, take_params
from bylaw.rules.policy import CONTRACT
from bylaw.rules.readers import read_map, report_wrong_type

PARAMS = (
    Param("name", TEXT, "what reports call the contract", required=True),
    Param("description", TEXT, "what it is for"),
    Param("runs", FROM_ONE, "how often each prompt is asked in each scenario", default=1),
    Param("seed", SEED, "the same seed makes the same faults hit the same calls", default=0),
)
_KEY_WORDS = {"matrix": "chaos_matrix", "repeat": "runs", "repetitions": "runs", "rules": "invariants"}
_MISPLACED = {key: f"move `{key}` out of `contract`" for key in ("agent", "golden_prompts", "scoring")}


class _Section(Struct, frozen=True):
    """What stands under `contract:`."""

    values: Values | None
    invariants: list[Invariant]
    matrix: Entry | None


def read_contract(documents: Sequence[Node], rules: FileRules, context: Context) -> Contract | None:
    """None where the file has no contract, or one that cannot be run; everything wrong with it is reported."""
    root = documents[0]
    entry = root.entries.get(CONTRACT) if isinstance(root, MapNode) else None
    if entry is None or not isinstance(root, MapNode):
        return None
    section = _read_section(entry, rules, context)
    scenarios = _read_matrix(root, section.matrix if section else None, context)
    agent_node, scoring_node = _required(root, "agent", _AGENT_HELP, context), root.entries.get("scoring")
    agent = read_agent(agent_node, context) if agent_node else None
    scoring = read_scoring(scoring_node.value, context) if scoring_node else None
    invariants = section.invariants if section else []
    prompts = _read_golden(root, invariants, context)
    invariants = [_with_dangers(invariant, prompts, context) for invariant in invariants]
    if any(problem.is_error for problem in context.problems.all):
        return None
    assert section is not None and section.values is not None and agent is not None
    warn_never_applies(invariants, scenarios, context.problems)
    warn_outlasts(scenarios, agent, context.problems)
    return Contract(
        **section.values,
        invariants=tuple(invariants),
        scenarios=tuple(scenarios),
        prompts=tuple(prompts),
        agent=agent,
        scoring=scoring,
    )


def report_no_contract(documents: Sequence[Node], context: Context) -> None:
    """Of a file that was to hold a contract and does not."""
    root = documents[0]
    if any(problem.is_error for problem in context.problems.all):
        return
    if not isinstance(root, MapNode):
        report_wrong_type(root, "a contract's file", "a mapping with `contract:`", context.problems)
        return
    _required(root, CONTRACT, "write what must hold under it", context)


def _read_section(entry: Entry, rules: FileRules, context: Context) -> _Section | None:
    mapping = read_map(entry.value, CONTRACT, context.problems)
    if mapping is None:
        return None
    fields = Fields(mapping, context.problems, what="`contract`")
    values = take_params(fields, PARAMS, context)
    node = fields.require("invariants", help="write what must hold as a list under it")
    matrix = fields.entry("chaos_matrix")
    fields.finish(synonyms=_KEY_WORDS, hints=_MISPLACED)
    return _Section(values, read_invariants(node, rules, context) if node else [], matrix)


def _read_matrix(root: MapNode, inner: Entry | None, context: Context) -> list[Scenario]:
    outer = root.entries.get("chaos_matrix")
    if inner and outer:
        context.problems.error(
            code="duplicate-parameter",
            message="`chaos_matrix` is given twice: beside the contract and inside it",
            at=outer.key,
            help="keep one of them",
            related=(context.problems.related(inner.key, "the other one"),),
        )
    if inner is None and outer is None:
        _required(root, "chaos_matrix", _MATRIX_HELP, context)
        return []
    found = [read_scenarios(entry.value, context) for entry in (inner, outer) if entry]
    return found[0]


def _read_golden(root: MapNode, invariants: list[Invariant], context: Context) -> list[Prompt]:
    entry = root.entries.get("golden_prompts")
    if entry is not None:
        return read_prompts(entry.value, context)
    if not invariants or not all(invariant.probes for invariant in invariants):
        _required(root, "golden_prompts", "list what the agent is asked", context)
    return []


def _with_dangers(invariant: Invariant, prompts: list[Prompt], context: Context) -> Invariant:
    """`refusal_check` asks the golden prompts that are marked, where it has none of its own."""
    if invariant.probes or not isinstance(invariant.check, Refuses):
        return invariant
    dangerous = tuple(prompt.text for prompt in prompts if prompt.dangerous)
    if not dangerous and invariant.span is not None:
        context.problems.error(
            code="missing-key",
            message=f"the invariant `{invariant.id}` has no prompt that must be refused",
            at=At(invariant.span),
            help="give it `dangerous_prompts`, or mark golden prompts: `{prompt: …, dangerous: true}`",
        )
    return replace(invariant, probes=dangerous)


def _required(root: MapNode, key: str, help: str, context: Context) -> Node | None:
    entry = root.entries.get(key)
    if entry is None:
        message = f"a contract's file needs the key `{key}`"
        context.problems.error(code="missing-key", message=message, at=root.first_key, help=help)
    return entry.value if entry else None


_AGENT_HELP = "say how the agent is reached: `agent: {endpoint: …}`"
_MATRIX_HELP = "list the scenarios; `- name: calm` is one in which nothing goes wrong"
