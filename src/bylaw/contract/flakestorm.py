"""A file of Flakestorm → a file of Bylaw, and a list of what was left out or is said differently.

Both versions are read. Invariants at the top of a file judge prompts without faults there, in variations that a model
writes; here they become invariants with `when: no_chaos`, and the mutations become `variations`. What comes out is
plain data; `loader.load_contract` judges it like any other file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from bylaw.contract.file import Variants
from bylaw.contract.file.agent import AGENT
from bylaw.contract.file.faults import ATTACK, LLM_FAULT, TOOL_FAULT
from bylaw.contract.file.invariants import INVARIANT
from bylaw.contract.file.sections import PROFILES
from bylaw.contract.import_parts import Part, read_data, unused_name
from bylaw.contract.model import Weight
from bylaw.rules.files import UnusableFile
from bylaw.rules.params import Param

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
_DEFAULT_MUTATIONS = ("paraphrase", "noise", "tone_shift", "prompt_injection")
_FAULTS = {"tool_faults": TOOL_FAULT, "llm_faults": LLM_FAULT, "context_attacks": ATTACK}
_MORE_THAN_A_PROFILE = {"contract", "agent", "golden_prompts", "chaos_matrix", "invariants"}
_DOUBLED = re.compile(r"(?:[^\\]|\\\\)*")
_IGNORES_CASE = re.compile(r"\(\?[a-zA-Z]*i")
_INVARIANT_KEYS = {name for params in INVARIANT.kinds.values() for param in params for name in param.spellings}

# Why a key is left out, where there is more to say than that Bylaw has no such key

_SECTIONS = {
    "model": "Bylaw makes variations offline and asks no model for them",
    "output": "the format is a flag here: `--format terminal`, `json` or `markdown`",
}
_ADVANCED = {
    "concurrency": "it had no effect there; `agent.concurrency` says how many runs the agent takes at once",
    "retries": "no request is repeated: an agent that fails once has failed",
    "seed": "a seed is a whole number from 0 up",
}
_MUTATION_KEYS = {
    "weights": "all variations weigh the same: each has to keep the invariants",
    "custom_templates": "no model writes variations, so there is nothing to instruct",
    "count": "it is no whole number from 1 up",
}
_REPLAYS = {"sources": "Bylaw does not fetch recordings; `bylaw check` reads them from files"}
_SCORING = dict.fromkeys(("mutation", "chaos", "replay"), "`bylaw ci` does not run this part")
_NO_SUCH_KEY = "Bylaw has nothing of this name"


_PROMPT_KEYS = ("prompt", "messages", "input", "text", "question", "content")
_EXPECTED_KEYS = ("expected_output", "expected")
_SEVERITIES = (*(weight.value for weight in Weight), "error", "warning", "info")
_MOST_SESSIONS = 100
_LEFT_OUT = {
    "captured_at": "a golden prompt has no date",
    "context": "the agent is asked the input alone; write what it has to know into the prompt",
    "contract": "all invariants of the file are judged on every golden prompt",
    "expected_failure": "it says what went wrong once, and checks nothing",
    "severity": "an invariant has a severity, a prompt has none",
    "source": "a golden prompt has no origin",
    "tool_responses": "the agent's own tools answer; to make one fail, write a scenario with `tool_faults`",
}
"""keys of a session, and why Bylaw has no use for them"""


class ImportResult(Struct):
    """The file that was made, and notes on what is not in it; each says what and why."""

    file: dict[str, Any]
    notes: list[str]


def import_flakestorm(root: Mapping[str, Any], folder: Path) -> ImportResult:
    """`root`: the parsed file; `folder`: where the sessions that it names are."""
    importing = _Import(folder)
    made = importing.run(Part(root, importing.notes))
    return ImportResult(made, importing.notes)


class _Import:
    def __init__(self, folder: Path) -> None:
        self.notes: list[str] = []
        self._folder = folder
        self._invariants: list[dict[str, Any]] = []
        self._scenarios: list[dict[str, Any]] = []
        self._prompts: list[Any] = []
        self._files: list[Part] = []
        """the sessions in files of their own"""

    def run(self, root: Part) -> dict[str, Any]:
        is_session = "input" in root.value and not isinstance(root.value.get("contract"), Mapping)
        contract = root["nothing"] if is_session else root["contract"]
        for item in contract["invariants"].items():
            self._add_invariant(item, {})
        for item in root["invariants"].items():
            self._add_invariant(item, {"when": "no_chaos"})
        for item in (*contract["chaos_matrix"].items(), *root["chaos_matrix"].items()):
            self._add_scenario(item)
        self._add_chaos(root)
        for item in root["golden_prompts"].items():
            self._add_prompt(item)
        self._add_sessions([root] if is_session else root["replays"]["sessions"].items())
        made: dict[str, Any] = {}
        if self._invariants or (contract.is_mapping and contract.value):
            made["contract"] = {**self._about(contract, root), "invariants": self._invariants}
            if not any(scenario.keys() <= {"name", "description"} for scenario in self._scenarios):
                self._scenarios.insert(0, {"name": self._scenario_name("calm")})
        made |= {
            "chaos_matrix": self._scenarios,
            "agent": self._agent(root["agent"]),
            "golden_prompts": self._prompts,
            "scoring": self._scoring(root["scoring"]),
        }
        made = {key: section for key, section in made.items() if section}
        root["version"].take_name()
        root.explain(_SECTIONS)
        root["advanced"].explain(_ADVANCED)
        root["replays"].explain(_REPLAYS)
        for file in (root, *self._files):
            file.close(_NO_SUCH_KEY)
        self._note_what_it_needs(made)
        return made

    def _note_what_it_needs(self, made: Mapping[str, Any]) -> None:
        missing = [key for key in ("contract", "chaos_matrix", "agent", "golden_prompts") if key not in made]
        if missing:
            self.notes.append(f"the file cannot be run before it has {', '.join(f'`{key}`' for key in missing)}")
        has_faults = any(scenario.keys() - {"name", "description"} for scenario in self._scenarios)
        agent = made.get("agent", {})
        is_reached = "command" in agent or "proxy_port" in agent
        if has_faults and not is_reached and str(agent.get("endpoint")).startswith(("http:", "https:")):
            self.notes.append(
                "faults reach an agent behind HTTP through Bylaw's proxy only: give `agent.command`, or `agent."
                "proxy_port` and start the agent with the base URL of the proxy (`bylaw contract validate` says how)"
            )

    def _read_known_keys(self, given: Iterable[Part], params: Sequence[Param], what: str) -> dict[str, Any]:
        """The values of the keys that Bylaw has. A null says nothing."""
        known = {name for param in params for name in param.spellings}
        found: dict[str, Any] = {}
        for part in given:
            key = str(part.path[-1])
            if part.value is None and key in {*known, *_INVARIANT_KEYS}:  # written into all invariants there
                part.take()
            elif key in known:
                found[key] = part.take()
            else:
                part.leave_out(f"{what} has no such key")
        return found

    # Invariants

    def _add_invariant(self, given: Part, more: Mapping[str, Any]) -> None:
        entries = given.entries()
        kind = given["type"].take_name()
        if kind not in INVARIANT.kinds:
            if given.is_mapping:
                given.leave_out(f"Bylaw has no invariant of type `{kind}`" if "type" in entries else "it has no `type`")
            return
        params = (*INVARIANT.params, *INVARIANT.kinds[kind])
        rest = (part for key, part in entries.items() if key not in ("id", "type"))
        found = self._read_known_keys(rest, params, f"an invariant of type `{kind}`")
        missing = [param.name for param in params if param.required and not set(param.spellings) & {*found, "id"}]
        if missing:
            given.leave_out(f"an invariant of type `{kind}` needs `{missing[0]}`")
            return
        for key in sorted({"pattern", "patterns"} & found.keys()):
            found[key] = self._patterns(found[key], given.place, ignores_case=kind == "excludes_pattern")
        wanted = given["id"].take_name()
        id = unused_name(wanted or kind.replace("_", "-"), [one["id"] for one in self._invariants])
        if wanted and id != wanted:
            self.notes.append(f"`{given.place}` is called `{id}`, because another invariant has the id `{wanted}`")
        self._invariants.append({"id": id, "type": kind, **found, **({} if "when" in found else more)})

    def _patterns(self, value: Any, place: str, *, ignores_case: bool) -> Any:
        """`ignores_case`: upper and lower case are the same there; a pattern that says so itself is left as it is."""
        if isinstance(value, list):
            return [self._patterns(item, place, ignores_case=ignores_case) for item in value]
        if isinstance(value, str) and "\\\\" in value and _DOUBLED.fullmatch(value):
            self.notes.append(f"the pattern of `{place}` has single backslashes now: doubled ones matched nothing")
            value = value.replace("\\\\", "\\")
        is_marked = ignores_case and isinstance(value, str) and not _IGNORES_CASE.match(value)
        return f"(?i){value}" if is_marked else value

    # Scenarios

    def _add_scenario(self, given: Part, name: str = "scenario") -> bool:
        """Whether it is one that Bylaw can make."""
        if isinstance(given.value, str):
            profiles, faults = self._profiles(given), {}
            name = given.value
        elif given.is_mapping:
            faults = self._faults(given)
            profiles = [*self._profiles(given["profile"]), *self._profiles(given["profiles"])]
            name = given["name"].take_name() or name
            faults |= given.take_description()
        else:
            given.leave_out("it is neither a scenario nor the name of a profile")
            return False
        faults |= {"profiles": profiles} if profiles else {}
        is_calm = not any(given[key].value for key in (*_FAULTS, "profile", "profiles")) if given.is_mapping else False
        if not is_calm and not faults.keys() - {"description"}:
            if given.is_mapping:
                given.leave_out("nothing of what goes wrong in it can be made, so it would be calm")
            return False
        self._scenarios.append({"name": self._scenario_name(name), **faults})
        return True

    def _scenario_name(self, wanted: str) -> str:
        return unused_name(wanted, [one["name"] for one in self._scenarios])

    def _add_chaos(self, root: Part) -> None:
        is_profile = "chaos" in root.value and not root.value.keys() & _MORE_THAN_A_PROFILE
        chaos, name = root["chaos"], (root["name"].take_name() if is_profile else "") or "chaos"
        if chaos.value and self._add_scenario(chaos, name) and not is_profile:
            self.notes.append("`chaos` is a scenario of its own now: there it changed every scenario")
        if is_profile and self._scenarios:
            for key, text in root.take_description().items():
                self._scenarios[-1].setdefault(key, text)

    def _profiles(self, given: Part) -> list[str]:
        found: list[str] = []
        for part in [given] if isinstance(given.value, str) else given.items():
            if isinstance(part.value, str) and part.value in PROFILES:
                found.append(part.take())
            else:
                part.leave_out(f"Bylaw has no profile `{part.value}`; it has {', '.join(PROFILES)}")
        return found

    def _faults(self, given: Part) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, table in _FAULTS.items():
            if table is ATTACK and given[key].is_mapping:
                read = [self._fault(one, table, tag) for tag, one in given[key].entries().items()]
            else:
                read = [self._fault(one, table) for one in given[key].items()]
            if usable := [one for one in read if one is not None]:
                made[key] = usable
        return made

    def _fault(self, given: Part, table: Variants, tag: str | None = None) -> dict[str, Any] | None:
        """`tag`: where the type of an attack is its key."""
        if tag is None and table is not TOOL_FAULT and isinstance(given.value, str) and given.value in table.kinds:
            return {table.key: given.take()}
        if tag is not None and (given.value is None or isinstance(given.value, bool)):
            return {table.key: tag, **({} if given.take() is not False else {"enabled": False})}
        if not given.is_mapping:
            given.leave_out(f"{table.what} is a mapping with `{table.key}`")
            return None
        tag = given[table.key].take_name() if tag is None else tag
        if tag not in table.kinds:
            given.leave_out(f"{table.what} has no {table.key} `{tag}`" if tag else f"{table.what} needs `{table.key}`")
            return None
        if 0 in (given["probability"].value, given["trigger_probability"].value):
            given.leave_out("a fault with probability 0 can never happen")
            return None
        given.explain(table.unused)
        rest = (part for key, part in given.entries().items() if key != table.key and not part.is_settled)
        params = (*table.params, *table.kinds[tag])
        return {table.key: tag, **self._read_known_keys(rest, params, f"{table.what} of {table.key} `{tag}`")}

    # The rest

    def _about(self, contract: Part, root: Part) -> dict[str, Any]:
        about: dict[str, Any] = {"name": contract["name"].take_name() or "imported contract"}
        about |= contract.take_description()
        seed = root["advanced"]["seed"]
        if isinstance(seed.value, int) and not isinstance(seed.value, bool) and seed.value >= 0:
            about["seed"] = seed.take()
        variations = self._variations(root["mutations"])
        return {**about, **({"variations": variations} if variations else {})}

    def _agent(self, given: Part) -> dict[str, Any]:
        found = self._read_known_keys(given.entries().values(), AGENT.params, "an agent")
        if "timeout" in found:
            timeout = found.pop("timeout")
            if "timeout_ms" in found:
                given["timeout"].leave_out("`agent.timeout_ms` beside it says the same")
            found.setdefault("timeout_ms", timeout)
        return {key: value for key, value in found.items() if value != {}}

    def _variations(self, given: Part) -> dict[str, Any]:
        entries = given.entries()
        types: list[Part | str] = [*given["types"].items()] or [*(_DEFAULT_MUTATIONS if entries else ())]
        count = given["count"]
        each = 10 if count.value is None else 1
        if isinstance(count.value, int) and not isinstance(count.value, bool) and count.value > 0:
            each = count.take()
        made: dict[str, Any] = {}
        for one in types:
            kind = one if isinstance(one, str) else one.value
            names = MUTATIONS.get(str(kind), ())
            if isinstance(one, Part):
                one.take() if names else one.leave_out(f"Bylaw has no variation like `{kind}`")
            for name in names:
                made[name] = {"count": min(50, max(1, math.ceil(each / len(types) / len(names))))}
        given.explain(_MUTATION_KEYS)
        if made:
            self.notes.append("`mutations` are `contract.variations` now: made by the seed, without a model")
        return made

    def _scoring(self, given: Part) -> dict[str, Any]:
        """The weights of the parts that `bylaw ci` has, too."""
        weights = given["weights"] if given["weights"].value is not None else given
        found = {
            key: weights[key].take()
            for key in ("contract", "contract_compliance", "check", "diff")
            if isinstance(weights[key].value, int | float) and weights[key].value > 0
        }
        weights.explain(_SCORING)
        return found

    # Golden prompts and replayed sessions

    def _add_prompt(self, given: Part) -> None:
        """A prompt: a text, a conversation, or a mapping that holds one of them."""
        asked, about = given, {}
        if given.is_mapping:
            asked = next((given[key] for key in _PROMPT_KEYS if given[key].value), given)
            if asked is given:
                given.leave_out("it holds no prompt")
                return
            about = {key: given[key].take() for key in ("dangerous", "variations") if given[key].value is not None}
        prompt = self._read_messages(asked)
        if prompt is None:
            return
        if given.is_mapping:
            self._add_expected(given, prompt, given.place)
            given.explain(_LEFT_OUT)
        asks = prompt if not about else {"prompt": prompt, **about}
        self._prompts += [] if asks in self._prompts else [asks]

    def _add_sessions(self, sessions: Sequence[Part]) -> None:
        for given in sessions[:_MOST_SESSIONS]:
            inner = self._open_file(given)
            for session in (given, *([inner] if inner else [])):
                self._add_session(session)
        for given in sessions[_MOST_SESSIONS:]:
            given.leave_out(f"no more than {_MOST_SESSIONS} sessions are imported")

    def _add_session(self, session: Part) -> None:
        prompt = self._read_messages(session["input"]) if session["input"].value is not None else None
        if prompt is not None:
            id, name = session["id"].take_name(), session["name"].take_name()
            name = name or id or session.place or "session"
            self._add_expected(session, prompt, name)
            self._prompts += [] if prompt in self._prompts else [prompt]
            self.notes.append(f"the session `{name}` is a golden prompt now")
        session.explain(_LEFT_OUT)

    def _open_file(self, given: Part) -> Part | None:
        """The session in the file that is named; None if there is none."""
        name = given["file"].value
        if not isinstance(name, str):
            return None
        path = self._folder / name
        try:
            if not path.resolve().is_relative_to(self._folder.resolve()):
                given["file"].leave_out(f"`{name}` is outside the folder of the file")
                return None
            session = Part(read_data(path, name), self.notes, (name,))
        except UnusableFile as problem:
            given["file"].leave_out(f"`{name}` cannot be read: {problem.diagnostic.message}")
            return None
        given["file"].take()
        self._files.append(session)
        return session

    def _read_messages(self, given: Part) -> str | list[str] | None:
        """A text, or what the user says in a conversation."""
        if isinstance(given.value, str):
            text: str = given.take()
            if text.strip():
                return text
            given.leave_out("it is empty")
        elif isinstance(given.value, list):
            read = [self._read_message(part) for part in given.items()]
            messages = [text for text in read if text is not None]
            if messages:
                return messages if len(messages) > 1 else messages[0]
            given.leave_out("it holds no message of a user")
        else:
            given.leave_out("a prompt is a text, or a list of messages")
        return None

    def _read_message(self, given: Part) -> str | None:
        content = given["content"] if given.is_mapping else given
        if given.is_mapping and given["role"].take() not in (None, "user", "human"):
            given.leave_out("only what the user says is asked; the agent gives its own answers")
        elif isinstance(content.value, str) and content.value.strip():
            return str(content.take())
        else:
            given.leave_out("it holds no text")
        return None

    def _add_expected(self, given: Part, prompt: str | list[str], name: str) -> None:
        """What an answer should be like becomes an invariant of its own, with the prompt as its probe."""
        expected = next((given[key] for key in _EXPECTED_KEYS if given[key].value is not None), None)
        if expected is None:
            return
        if not isinstance(expected.value, str) or not isinstance(prompt, str):
            expected.leave_out("only a text can be compared with the answer, and only to one message")
            return
        id = unused_name(f"{name}-expected", [one["id"] for one in self._invariants])
        severity = {"severity": given["severity"].take()} if given["severity"].value in _SEVERITIES else {}
        made = {"id": id, "type": "similarity", "expected": expected.take(), **severity}
        self._invariants.append({**made, "probes": [prompt], "when": "no_chaos"})
        self.notes.append(f"`{expected.place}` is the invariant `{id}` now: the answer has to be similar")
