"""Which invariant applies in which scenario, and the runs that this takes. Cells share runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from bylaw.contract.model import Contract, Invariant, Prompt, Refuses, Scenario, Unchanged, When, applies
from bylaw.contract.variations import Variation, vary
from bylaw.text.redaction.redactor import redacted

CALM = "calm baseline"
"""the name of the calm scenario that is added where the matrix has none"""
_UNSAFE = re.compile(r"[^a-z0-9]+")


class RunKey(Struct, frozen=True, order=True):
    """One run: a prompt asked for the nth time in a scenario."""

    scenario: str
    prompt: str
    repetition: int

    @property
    def name(self) -> str:
        """Used in file names, so it holds no secret.

        It seeds the faults. It does not depend on the other runs, so a part of the matrix gets the same faults as
        the whole.
        """
        digest = blake2b(f"{self.scenario}\0{self.prompt}".encode("utf-8", "replace"), digest_size=4).hexdigest()
        return f"{_slug(self.scenario)}/{_slug(redacted(self.prompt))}-{digest}/{self.repetition}"


WHY_NOT: dict[When, str] = {
    "always": "",
    "tool_faults_active": "no tool fault in this scenario",
    "llm_faults_active": "no model fault in this scenario",
    "any_chaos_active": "nothing goes wrong in this scenario",
    "no_chaos": "something goes wrong in this scenario",
}


def prompts_of(invariant: Invariant, contract: Contract) -> tuple[str, ...]:
    """The prompts for this invariant, each text once."""
    if invariant.probes:
        return tuple(dict.fromkeys(invariant.probes))
    dangerous_only = isinstance(invariant.check, Refuses)
    wanted = (prompt for prompt in contract.prompts if prompt.dangerous or not dangerous_only)
    return tuple(dict.fromkeys(prompt.text for prompt in wanted))


def calm_scenario(contract: Contract) -> Scenario:
    return next((one for one in contract.scenarios if not one.faults), Scenario(name=_unused(CALM, contract)))


class Varied(Struct, frozen=True):
    """A prompt that was made from another."""

    variation: str
    original: str


class Matrix(Struct, frozen=True):
    """The runs of each cell of a contract."""

    contract: Contract
    calm: Scenario
    cells: dict[tuple[str, str], tuple[RunKey, ...]]
    """(invariant, scenario) → its runs; empty where the invariant does not apply"""
    baselines: dict[tuple[str, RunKey], tuple[RunKey, ...]]
    """(invariant, run) → the calm runs that its answer is compared with"""
    varied: dict[str, Varied] = {}
    """the prompts that are variations of golden ones"""
    unvaried: tuple[Varied, ...] = ()
    """variations that change nothing in their prompt, so that they are not asked"""

    def runs(self) -> list[RunKey]:
        """All runs, each once, in the order in which they are made."""
        cells = (key for keys in self.cells.values() for key in keys)
        calm = (key for keys in self.baselines.values() for key in keys)
        return list(dict.fromkeys((*cells, *calm)))

    def scenario(self, key: RunKey) -> Scenario:
        return next((one for one in self.contract.scenarios if one.name == key.scenario), self.calm)


def lay_out(contract: Contract) -> Matrix:
    calm = calm_scenario(contract)
    made = [
        (prompt, one, _vary(prompt, one, contract.seed)) for prompt in contract.prompts for one in prompt.variations
    ]
    asked = {(prompt.text, one.name): texts for prompt, one, texts in made}
    cells = {
        (invariant.id, scenario.name): _runs(contract, invariant, scenario, asked)
        for scenario in contract.scenarios
        for invariant in contract.invariants
    }
    varied = {text: Varied(one.name, prompt.text) for prompt, one, texts in made for text in texts}
    unvaried = tuple(Varied(one.name, prompt.text) for prompt, one, texts in made if not texts)
    return Matrix(contract, calm, cells, dict(_baselines(contract, calm, cells, varied)), varied, unvaried)


def _vary(prompt: Prompt, variation: Variation, seed: int) -> tuple[str, ...]:
    """The texts that differ from the prompt and from each other."""
    texts = (vary(prompt.text, variation.name, number, seed) for number in range(variation.count))
    return tuple(dict.fromkeys(text for text in texts if text != prompt.text))


def _runs(
    contract: Contract, invariant: Invariant, scenario: Scenario, varied: Mapping[tuple[str, str], tuple[str, ...]]
) -> tuple[RunKey, ...]:
    """Variations are asked where nothing else goes wrong, so that a violation is theirs."""
    if not applies(invariant.when, scenario):
        return ()
    texts = list(prompts_of(invariant, contract))
    for prompt in contract.prompts if not scenario.faults else ():
        for one in prompt.variations if prompt.text in texts else ():
            if not one.invariants or invariant.id in one.invariants:
                texts += varied[prompt.text, one.name]
    repetitions = range(1, contract.runs + 1)
    return tuple(RunKey(scenario.name, text, n) for text in dict.fromkeys(texts) for n in repetitions)


def _baselines(
    contract: Contract,
    calm: Scenario,
    cells: dict[tuple[str, str], tuple[RunKey, ...]],
    varied: Mapping[str, Varied],
) -> Iterator[tuple[tuple[str, RunKey], tuple[RunKey, ...]]]:
    """The calm runs that each answer is compared with.

    A calm answer is never its own baseline: where each prompt is asked only once, it is asked once more. The answer to
    a variation is compared with those to its original.
    """
    for invariant in contract.invariants:
        if not isinstance(invariant.check, Unchanged) or invariant.check.baseline is not None:
            continue
        for scenario in contract.scenarios:
            for key in cells[invariant.id, scenario.name]:
                original = varied[key.prompt].original if key.prompt in varied else key.prompt
                is_own = key.scenario == calm.name and original == key.prompt
                repetitions = max(contract.runs, 2) if is_own else contract.runs
                asked = (RunKey(calm.name, original, n) for n in range(1, repetitions + 1))
                yield (invariant.id, key), tuple(one for one in asked if one != key)


def _slug(text: str) -> str:
    return _UNSAFE.sub("-", text[:200].lower()).strip("-")[:32].rstrip("-") or "x"


def _unused(name: str, contract: Contract) -> str:
    taken = {scenario.name for scenario in contract.scenarios}
    while name in taken:
        name += "'"
    return name


def narrow(contract: Contract, *, scenarios: Sequence[str] = (), invariants: Sequence[str] = ()) -> Contract:
    """The contract with these scenarios and invariants only; empty means all. Raises KeyError for an unknown name."""
    names, ids = {one.name for one in contract.scenarios}, {one.id for one in contract.invariants}
    unknown = [name for name in scenarios if name not in names] + [id for id in invariants if id not in ids]
    if unknown:
        raise KeyError(unknown[0])
    return replace(
        contract,
        scenarios=tuple(one for one in contract.scenarios if not scenarios or one.name in scenarios),
        invariants=tuple(one for one in contract.invariants if not invariants or one.id in invariants),
    )


def count_parts(contract: Contract) -> dict[str, int]:
    """How large the contract is, without running it."""
    matrix = lay_out(contract)
    return {
        "invariants": len(contract.invariants),
        "scenarios": len(contract.scenarios),
        "faults": sum(len(scenario.faults) for scenario in contract.scenarios),
        "applicable_cells": sum(bool(keys) for keys in matrix.cells.values()),
        "agent_runs": len(matrix.runs()),
    }
