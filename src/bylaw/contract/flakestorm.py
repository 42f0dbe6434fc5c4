"""A file of Flakestorm → a file of Bylaw, and a list of what was left out or is said differently.

Both versions are read. Invariants at the top of a file judge prompts without faults there, in variations that a model
writes; here they become invariants with `when: no_chaos`, and the mutations become `variations`. What comes out is
plain data; `api.load_contract` judges it like any other file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from bylaw.contract.file.agent import AGENT
from bylaw.contract.file.faults import ATTACK, LLM_FAULT, TOOL_FAULT
from bylaw.contract.file.invariants import INVARIANT
from bylaw.contract.file.types import Variants
from bylaw.rules.files import NotRead, read_text_file
from bylaw.rules.loader import parse_documents
from bylaw.rules.located import plain
from bylaw.rules.params import Param
from bylaw.rules.source import Problems, Source, Unreadable

MUTATIONS: Mapping[str, tuple[str, ...]] = {
    "paraphrase": ("synonyms", "reordered"),
    "noise": ("typos", "casing"),
    "tone_shift": ("rude",),
    "prompt_injection": ("injection",),
    "encoding_attacks": ("base64", "homoglyphs", "zero_width"),
    "context_manipulation": ("filler", "reordered"),
    "length_extremes": ("long",),
    "multilingual": ("other_language",),
    "typos": ("typos",),
    "politeness": ("polite",),
    "whitespace": ("whitespace",),
    "unicode": ("homoglyphs", "zero_width"),
}
_NOT_RUN = {
    "model": "Bylaw makes variations offline and asks no model for them",
    "output": "the format is a flag here: `--format terminal`, `json` or `markdown`",
    "version": None,
}
_MOST_SESSIONS = 100
_DOUBLED = re.compile(r"(?:[^\\]|\\\\)*")
_RENAMED = {"threshold": "similarity_threshold"}
_SECTIONS: dict[str, type] = {
    "contract": Mapping, "agent": Mapping, "chaos": Mapping, "chaos_matrix": list, "invariants": list,
    "golden_prompts": list,
}  # fmt: skip


class Imported(Struct):
    """The file that was made, and notes on what is not in it; each says what and why."""

    file: dict[str, Any]
    notes: list[str]


def import_flakestorm(root: Mapping[str, Any], folder: Path) -> Imported:
    """`root`: the parsed file; `folder`: where the sessions that it names are."""
    return _Import(folder).run(root)


class _Import:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._notes: list[str] = []

    def run(self, root: Mapping[str, Any]) -> Imported:
        contract = _mapping(root.get("contract")) if not _is_session(root) else {}
        made: dict[str, Any] = {}
        invariants = self._invariants(_list(contract.get("invariants")), "contract.invariants", {})
        invariants += self._invariants(_list(root.get("invariants")), "invariants", {"when": "no_chaos"}, invariants)
        scenarios = self._scenarios(root, contract)
        if invariants or contract:
            if not any(not scenario.keys() - {"name", "description"} for scenario in scenarios):
                scenarios.insert(0, {"name": _unused("calm", [one["name"] for one in scenarios])})
            about: dict[str, Any] = {"name": str(contract.get("name") or "imported contract")}
            about |= {"description": str(contract["description"])} if contract.get("description") else {}
            seed = _mapping(root.get("advanced")).get("seed")
            about |= {"seed": seed} if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 else {}
            variations = self._variations(root.get("mutations"))
            about |= {"variations": variations} if variations else {}
            made["contract"] = {**about, "invariants": invariants}
        if scenarios:
            made["chaos_matrix"] = scenarios
        if agent := _mapping(root.get("agent")):
            made["agent"] = self._agent(agent)
        if prompts := self._prompts(root):
            made["golden_prompts"] = prompts
        self._note_rest(root)
        for key, kind in _SECTIONS.items():
            if root.get(key) is not None and not isinstance(root[key], kind) and not _is_session(root):
                self._leave_out(key, f"it is no {'mapping' if kind is Mapping else 'list'}")
        missing = [key for key in ("contract", "chaos_matrix", "agent", "golden_prompts") if key not in made]
        if missing:
            self._notes.append(f"the file cannot be run before it has {', '.join(f'`{key}`' for key in missing)}")
        has_faults = any(scenario.keys() - {"name"} for scenario in scenarios)
        if has_faults and str(made.get("agent", {}).get("endpoint")).startswith(("http:", "https:")):
            self._notes.append(
                "faults reach an agent behind HTTP through Bylaw's proxy only: give `agent.command`, or `agent."
                "proxy_port` and start the agent with the base URL of the proxy (`bylaw contract validate` says how)"
            )
        return Imported(made, self._notes)

    def _leave_out(self, what: str, why: str) -> None:
        self._notes.append(f"`{what}` was left out: {why}")

    def _kept(self, given: Mapping[str, Any], params: Sequence[Param], place: str, what: str) -> dict[str, Any]:
        """The keys that Bylaw has; values that are null say nothing."""
        known = {name for param in params for name in param.spellings}
        kept: dict[str, Any] = {}
        for key, value in given.items():
            if key in known and value is not None:
                kept[key] = value
            elif value is not None:
                self._leave_out(f"{place}.{key}", f"{what} has no such key")
        return kept

    # Invariants

    def _invariants(
        self, items: Sequence[Any], place: str, more: Mapping[str, Any], others: Sequence[Mapping[str, Any]] = ()
    ) -> list[dict[str, Any]]:
        ids = [str(one["id"]) for one in others]
        found: list[dict[str, Any]] = []
        for number, item in enumerate(items):
            made = self._invariant(_mapping(item), f"{place}[{number}]", ids)
            if made is not None:
                ids.append(made["id"])
                found.append({**made, **({} if "when" in made else more)})
        return found

    def _invariant(self, given: Mapping[str, Any], place: str, taken: Sequence[str]) -> dict[str, Any] | None:
        kind = str(given.get("type"))
        if kind not in INVARIANT.kinds:
            self._leave_out(place, f"Bylaw has no invariant of type `{kind}`")
            return None
        params = (*INVARIANT.params, *INVARIANT.kinds[kind])
        names = {name for param in params for name in param.spellings}
        rest = {key: value for key, value in given.items() if key not in ("id", "type")}
        for old, new in _RENAMED.items():
            if old in rest and old not in names and new in names:
                rest[new] = rest.pop(old)
        if not isinstance(rest.get("dangerous_prompts"), list | tuple) and kind != "refusal_check":
            rest.pop("dangerous_prompts", None)  # written into every invariant there, and looked at in none
        if kind not in ("similarity", "behavior_unchanged"):
            rest.pop("threshold", None)
        kept = self._kept(rest, params, place, f"an invariant of type `{kind}`")
        missing = [param.name for param in params if param.required and not set(param.spellings) & {*kept, "id"}]
        if missing:
            self._leave_out(place, f"an invariant of type `{kind}` needs `{missing[0]}`")
            return None
        for key in ("pattern", "patterns"):
            if key in kept:
                kept[key] = self._patterns(kept[key], place)
        id = _unused(str(given.get("id") or kind.replace("_", "-")), taken)
        if given.get("id") and id != given["id"]:
            self._notes.append(f"`{place}` is called `{id}`, because another invariant has the id `{given['id']}`")
        return {"id": id, "type": kind, **kept}

    def _patterns(self, value: Any, place: str) -> Any:
        if isinstance(value, list):
            return [self._patterns(item, place) for item in value]
        if isinstance(value, str) and "\\\\" in value and _DOUBLED.fullmatch(value):
            self._notes.append(f"the pattern of `{place}` has single backslashes now: doubled ones matched nothing")
            return value.replace("\\\\", "\\")
        return value

    # Scenarios

    def _scenarios(self, root: Mapping[str, Any], contract: Mapping[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for place, given in (("contract.chaos_matrix", contract), ("chaos_matrix", root)):
            for number, item in enumerate(_list(given.get("chaos_matrix"))):
                scenario = _mapping(item)
                name = _unused(str(scenario.get("name") or f"scenario {number + 1}"), [one["name"] for one in found])
                found.append({"name": name, **self._faults(scenario, f"{place}[{number}]")})
        if chaos := _mapping(root.get("chaos")):
            faults = self._faults(chaos, "chaos")
            name = str(root.get("name") or "chaos") if _is_profile(root) else "chaos"
            if faults:
                found.append({"name": _unused(name, [one["name"] for one in found]), **faults})
                self._notes.append("`chaos` is a scenario of its own now: there it changed every scenario")
        return found

    def _faults(self, given: Mapping[str, Any], place: str) -> dict[str, Any]:
        made: dict[str, Any] = {}
        tables = {"tool_faults": TOOL_FAULT, "llm_faults": LLM_FAULT, "context_attacks": ATTACK}
        for key, table in tables.items():
            items = given.get(key)
            if isinstance(items, Mapping):
                items = [{table.key: tag, **_mapping(one)} for tag, one in items.items()]
            read = [self._fault(_mapping(one), table, f"{place}.{key}[{n}]") for n, one in enumerate(_list(items))]
            if usable := [one for one in read if one is not None]:
                made[key] = usable
        return made

    def _fault(self, given: Mapping[str, Any], table: Variants, place: str) -> dict[str, Any] | None:
        tag = str(given.get(table.key))
        if tag not in table.kinds:
            self._leave_out(place, f"{table.what} has no {table.key} `{tag}`")
            return None
        if given.get("probability") == 0 or given.get("trigger_probability") == 0:
            self._leave_out(place, "a fault with probability 0 can never happen")
            return None
        rest = {key: value for key, value in given.items() if key not in (table.key, *table.unused)}
        params = (*table.params, *table.kinds[tag])
        return {table.key: tag, **self._kept(rest, params, place, f"{table.what} of {table.key} `{tag}`")}

    # The rest

    def _agent(self, given: Mapping[str, Any]) -> dict[str, Any]:
        kept = self._kept(given, AGENT.params, "agent", "an agent")
        if "timeout" in kept:
            kept["timeout_ms"] = kept.pop("timeout")
        return {key: value for key, value in kept.items() if value != {}}

    def _variations(self, mutations: Any) -> dict[str, Any]:
        given = _mapping(mutations)
        types = [str(one) for one in _list(given.get("types"))]
        if given and not types:
            types = ["paraphrase", "noise", "tone_shift", "prompt_injection"]
        count = given.get("count", 10)
        each = max(1, math.ceil(count / len(types))) if types and isinstance(count, int) else 1
        made: dict[str, Any] = {}
        for kind in types:
            names = MUTATIONS.get(kind, ())
            if not names:
                self._leave_out(f"mutations.types: {kind}", "Bylaw has no such variation")
            for name in names:
                made[name] = {"count": min(50, max(1, math.ceil(each / len(names))))}
        for key in given:
            if key not in ("count", "types"):
                self._leave_out(f"mutations.{key}", "all variations weigh the same: each has to keep the invariants")
        if made:
            self._notes.append("`mutations` are `contract.variations` now: made by the seed, without a model")
        return made

    def _prompts(self, root: Mapping[str, Any]) -> list[Any]:
        prompts: list[Any] = [one for one in _list(root.get("golden_prompts")) if isinstance(one, str) and one.strip()]
        sessions = [root] if _is_session(root) else _list(_mapping(root.get("replays")).get("sessions"))
        for number, item in enumerate(sessions[:_MOST_SESSIONS]):
            session = self._session(_mapping(item), number)
            if isinstance(text := session.get("input"), str) and text.strip():
                if text not in prompts:
                    prompts.append(text)
                name = session.get("name") or session.get("id") or f"replays.sessions[{number}]"
                self._notes.append(f"the session `{name}` is a golden prompt now; its recorded results were left out")
        return prompts

    def _session(self, given: Mapping[str, Any], number: int) -> Mapping[str, Any]:
        file = given.get("file")
        if not isinstance(file, str):
            return given
        path = self._folder / file
        if not path.resolve().is_relative_to(self._folder.resolve()):
            self._leave_out(f"replays.sessions[{number}]", f"`{file}` is outside the folder of the file")
            return {}
        try:
            return _mapping(read_data(path, file))
        except NotRead as problem:
            self._leave_out(f"replays.sessions[{number}]", f"`{file}` cannot be read: {problem.diagnostic.message}")
            return {}

    def _note_rest(self, root: Mapping[str, Any]) -> None:
        for key in root:
            if _NOT_RUN.get(key):
                self._leave_out(key, str(_NOT_RUN[key]))
        for key in _mapping(root.get("advanced")):
            if key != "seed":
                self._leave_out(f"advanced.{key}", "no request is repeated; `agent.concurrency` makes runs at once")
        if _mapping(root.get("replays")).get("sources"):
            self._leave_out("replays.sources", "Bylaw does not fetch recordings; `bylaw check` reads them from files")
        if root.get("scoring"):
            self._leave_out("scoring", "`bylaw ci` has other parts: the contract, a check and a diff")
        known = {"agent", "golden_prompts", "invariants", "mutations", "chaos", "chaos_matrix", "contract", "replays"}
        known |= {"advanced", "scoring", *_NOT_RUN}
        known |= {"name", "description"} if _is_profile(root) else set()
        for key in root if not _is_session(root) else ():
            if key not in known:
                self._leave_out(str(key), "Bylaw does not know this section")


def read_data(path: Path, name: str) -> Any:
    """The data of a YAML or JSON file, with the limits that all files have. Raises NotRead."""
    problems = Problems(Source(name, read_text_file(path, name, regular=True)))
    try:
        documents = parse_documents(problems.source, problems, "json" if name.endswith(".json") else "yaml")
    except Unreadable:
        documents = []
    errors = [problem for problem in problems.all if problem.is_error]
    if errors:
        raise NotRead(errors[0])
    return plain(documents[0]) if documents else None


def _is_session(root: Mapping[str, Any]) -> bool:
    return "input" in root and not isinstance(root.get("contract"), Mapping)


def _is_profile(root: Mapping[str, Any]) -> bool:
    return "chaos" in root and root.keys() <= {"name", "description", "chaos"}


def _mapping(value: Any) -> Mapping[str, Any]:
    return {str(key): one for key, one in value.items()} if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _unused(name: str, taken: Sequence[str]) -> str:
    number, found = 2, name
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    return found
