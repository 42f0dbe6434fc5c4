"""Which rules are in force: a version in the store, which every worker looks at before it decides; and rules as people
see them.

Versions come from rule files (`--policy`) and from the API. Whichever came last is in force: a rule file that has
changed since it was last read becomes the next version, and one that has not changed stays behind a version of the API,
also after a restart.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bylaw.errors import InputError
from bylaw.guard.decide.chain import Policies
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.guard import Guard
from bylaw.guard.model import Options
from bylaw.guard.policies import (
    clause_text,
    drop_repeated,
    fill_mode,
    guard_hash,
    known_mode,
    refuse_pausing_options,
    with_mode,
)
from bylaw.guard.service.carried_settings import NO_AGENT, carry_over
from bylaw.guard.service.errors import BadRequest, Conflict, NotFound, Unusable
from bylaw.guard.stores.ports import (
    GuardStore,
    StoreConflict,
    StoreUnavailable,
    each_followed,
    write_change,
)
from bylaw.guard.stores.records import ActiveRules, RuleVersion, RuleVersionStatus
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import GuardPolicy, GuardRule, GuardSet
from bylaw.rules import dump_manifest, load_guard, parse_guard
from bylaw.rules.files import format_of, index_of, read_text_file
from bylaw.rules.guard.manifest_documents import INDEX_KIND
from bylaw.rules.guard.manifest_export import as_json_text, as_yaml_text
from bylaw.rules.loader import parse_documents
from bylaw.rules.nodes import ListNode, MapNode, Node, Problems, Source, Unreadable
from bylaw.rules.versions import select_version
from bylaw.text.redaction.redactor import redacted

_log = logging.getLogger("bylaw")
LOOK_EVERY = 0.5
"""seconds between two looks at the store"""
ACTIVE = "active"
NOWHERE = "/nonexistent/bylaw"
"""the folder of rules that came over the network: no path in them leads to a file of this machine"""
MOST_FILES, MOST_TEXT = 20, 1 << 20
"""of one rule version: files, and characters in all"""


class LoadedRules(NamedTuple):
    """The policies of a version, and what there is to say about its text."""

    policies: Sequence[GuardPolicy]
    all_versions: Sequence[GuardPolicy]
    diagnostics: Sequence[Diagnostic]

    @property
    def hash(self) -> str:
        return guard_hash(drop_repeated(self.policies))


def parse_files(files: Mapping[str, str], folder: str | None, inputs: Mapping[str, str]) -> GuardSet:
    """The guards of all files with every problem in them. Does not raise for their content."""
    parts = []
    for name, text in files.items():
        base = Path(NOWHERE) if folder is None else Path(folder) / Path(name).parent
        if folder is None and (refused := paths_in(name, text)):
            parts.append(GuardSet((), tuple(refused)))
        else:
            parts.append(parse_guard(text, file=name, format=format_of(name), base=base, inputs=inputs))
    problems = sorted((one for part in parts for one in part.diagnostics), key=Diagnostic.sort_key)
    policies = tuple(policy for part in parts for policy in part.policies)
    return GuardSet(policies, tuple(problems), tuple(files))


def paths_in(name: str, text: str) -> list[Diagnostic]:
    """Paths of files in rules that came over the network: they must not be a way to look at this machine."""
    problems = Problems(Source(name, text))
    nodes: list[Node] = []
    with suppress(Unreadable):
        nodes = list(parse_documents(problems.source, problems, format_of(name)))
    found = []
    while nodes:
        node = nodes.pop()
        if isinstance(node, ListNode):
            nodes += node.items
        elif isinstance(node, MapNode):
            nodes += [entry.value for entry in node.entries.values()]
            if (entry := node.entries.get("schema_path")) is not None:
                message = "`schema_path` names a file, and these rules came without files"
                help, span = "write the schema in the rule: `schema: …`", entry.value.span
                found.append(Diagnostic(code="unreadable-schema", message=message, file=name, span=span, help=help))
    return found


def read_files(paths: Sequence[str], inputs: Mapping[str, str]) -> dict[str, str]:
    """Rule files as they are now; the files of a manifest's index in one. Raises InputError."""
    found: dict[str, str] = {}
    for path in paths:
        file = str(index_of(path))
        text = read_text_file(Path(file), file)
        if INDEX_KIND in text:
            content = dump_manifest(load_guard(file, inputs=inputs), inputs=inputs)
            text = as_json_text(content) if format_of(file) == "json" else as_yaml_text(content, documents=True)
        found[file] = text
    return found


class RuleVersions:
    """The versions in one store, as one guard uses them."""

    def __init__(
        self,
        store: GuardStore,
        *,
        mode: str | None = None,
        labels: Mapping[str, str] | str | None = None,
        inputs: Mapping[str, str] | None = None,
        options: Options | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`mode`, `labels` and `inputs` as for `Guard`: they apply to every version that says nothing else."""
        self._store, self._clock = store, clock
        self._mode, self._labels, self._inputs = mode, labels, dict(inputs or {})
        self._options = options or Options()
        self._guard: Guard | None = None
        self._in_force = ""
        self._next = 0.0
        self._lock = threading.Lock()

    # -- reading --------------------------------------------------------------------------------------------------

    def list(self) -> Sequence[RuleVersion]:
        """The newest first."""
        return sorted(each_followed(self._store, RuleVersion), key=lambda one: -one.number)

    def get(self, version_id: str) -> RuleVersion:
        with self._store.transaction("") as transaction:
            found = transaction.followed(RuleVersion, version_id)
        if found is None:
            raise NotFound(f"there is no rule version `{version_id}`")
        return found

    def active_id(self) -> str | None:
        found = self._store.followed(ActiveRules, limit=1)
        return found[0].rules if found else None

    def active(self) -> RuleVersion:
        id = self.active_id()
        if id is None:
            raise NotFound("no rules are in force")
        return self.get(id)

    def load(self, version: RuleVersion) -> LoadedRules:
        """Raises Unusable."""
        return self.check(version.files, **version.settings)

    def check(
        self,
        files: Mapping[str, str],
        folder: str | None = None,
        modes: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        off: Sequence[str] = (),
    ) -> LoadedRules:
        """The policies that these files would bring into force. Raises Unusable with every problem."""
        found = parse_files(files, folder, self._inputs)
        problems = list(found.diagnostics)
        try:
            if not found.ok:
                raise InputError(problems)
            chosen = select_version(found.policies, self._chosen(found.policies, labels or {}))
            policies = [_change_modes(policy, modes or {}, off) for policy in chosen]
            policies = with_mode(policies, self._mode)
            refuse_pausing_options(policies, self._options)
            compiled = [CompiledPolicy(policy) for policy in drop_repeated(policies)]
            if Policies(compiled, depth=self._options.max_depth).decide_nothing:
                raise ValueError("these rules decide nothing: no rule has `then`, and there is no allowlist")
        except InputError as bad:
            raise Unusable("the rules cannot be used", diagnostics=list(bad.diagnostics)) from None
        except ValueError as bad:
            problem = Diagnostic(code="unusable-rules", message=str(bad), file=next(iter(files), "<rules>"))
            raise Unusable("the rules cannot be used", diagnostics=[*problems, problem]) from None
        return LoadedRules(policies, list(found.policies), problems)

    def _chosen(self, policies: Sequence[GuardPolicy], labels: Mapping[str, str]) -> Any:
        """The versions of agents that the service was started with, and over them the `labels` of a rule version.
        Labels of agents that the text no longer has mean nothing, as their modes do."""
        known = {policy.agent or NO_AGENT for policy in policies}
        labels = {agent: label for agent, label in labels.items() if agent in known}
        if not labels:
            return self._labels
        versioned = {policy.agent or "": policy for policy in policies if policy.version is not None}
        own = dict(self._labels) if isinstance(self._labels, Mapping) else {}
        if isinstance(self._labels, str):
            own = dict.fromkeys(versioned, self._labels)
        return own | {agent if agent != NO_AGENT else "": label for agent, label in labels.items()}

    # -- writing --------------------------------------------------------------------------------------------------

    def add(
        self,
        files: Mapping[str, str],
        *,
        by: str,
        note: str = "",
        status: RuleVersionStatus = "released",
        expected: str | None = None,
        digest: str | None = None,
        **more: Any,
    ) -> RuleVersion:
        """A new version; a `released` one is in force from now on. `expected`: the version that must still be in
        force. `digest`: of the rule files, if it was read from them. Raises Unusable, and Conflict if another version
        came in between."""
        loaded = self.check(files, **{name: more[name] for name in RuleVersion.SETTINGS if name in more})
        try:
            with self._store.transaction("") as transaction:
                active = transaction.followed(ActiveRules, ACTIVE) or ActiveRules(id=ACTIVE, rules="")
                before = active.rules or None
                check_expected(expected, before)
                number = 1
                while transaction.followed(RuleVersion, f"rules-{number}") is not None:
                    number += 1
                id, now, note = f"rules-{number}", self._clock(), redacted(note)
                about: dict[str, Any] = {"policy": loaded.hash, "by": by, "note": note, "before": before, **more}
                version = RuleVersion(id=id, number=number, at=now, status=status, files=dict(files), **about)
                version = transaction.put_followed(version)
                if status == "released":
                    read = active.files if digest is None else digest
                    transaction.put_followed(replace(active, rules=id, files=read, at=now))
                write_change(transaction, now, f"rules {status}", by, rules=id, note=note)
        except StoreConflict:
            raise Conflict("other rules were activated at the same moment; look at them first") from None
        if status == "released":
            self.look(now=True)
        return version

    def release(self, version: RuleVersion, *, by: str, note: str = "", expected: str | None = None) -> RuleVersion:
        """Bring the text of an earlier or a testing version into force, as a new version."""
        restores = version.id if version.status == "released" else None
        more = {"restores": restores, "on": version.on, **version.settings}
        return self.add(version.files, by=by, note=note, expected=expected, **more)

    def earlier(self, version: RuleVersion) -> str | None:
        """The version that a rollback from this one leads to. One that brought an earlier version back counts as that
        one, so that the next rollback goes further back, and not to what was rolled back."""
        while version.restores is not None:
            version = self.get(version.restores)
        return version.before

    # -- the guard of this worker ---------------------------------------------------------------------------------

    def begin(self, paths: Sequence[str]) -> LoadedRules:
        """The rules in force, after the rule files became a version if they have changed. Raises InputError."""
        self.read_again(paths)
        version = self.active()
        self._in_force = version.id
        try:
            return self.load(version)
        except Unusable as bad:  # another version of bylaw has accepted it
            raise InputError(bad.details["diagnostics"]) from None

    def read_again(self, paths: Sequence[str]) -> bool:
        """Whether the rule files have changed since they were last read, and are in force now. What was set over the
        API stays, as far as the new files allow it. Raises InputError."""
        files = read_files(paths, self._inputs)
        digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
        has_met_others = False
        while True:
            known = self._store.followed(ActiveRules, limit=1)
            if not files or (known and known[0].files == digest):
                return has_met_others
            active = self.get(known[0].rules) if known else None
            try:
                self._add_files(files, active, digest)
            except Unusable as bad:
                raise InputError(bad.details["diagnostics"]) from None
            except Conflict:  # another worker has read them at the same moment, or somebody has activated others
                has_met_others = True
                continue
            return True

    def _add_files(self, files: Mapping[str, str], active: RuleVersion | None, digest: str) -> None:
        more: dict[str, Any] = {"by": "rule files", "origin": "file", "folder": "", "digest": digest}
        note = "read from " + ", ".join(files)
        if active is None:
            self.add(files, note=note, **more)
            return
        before: Sequence[GuardPolicy] = ()
        with suppress(Unusable):  # another version of bylaw has accepted it
            before = self.load(active).policies if active.origin == "api" else ()
        check = partial(self.check, folder="")
        carried = carry_over(active, before, files, lambda *text, **settings: check(*text, **settings).all_versions)
        if carried.dropped:
            _log.warning("the rule files have changed; no longer as set over the API: %s", ", ".join(carried.dropped))
        self.add(carried.files, note=note + carried.note, expected=active.id, **carried.settings, **more)

    def attach(self, guard: Guard) -> None:
        """Keep the rules of this guard up to date: it looks before its decisions."""
        self._guard = guard
        guard._before_decision = self.look

    def look(self, *, now: bool = False) -> None:
        """Load the version that is in force, if it is another one. At most every half second, unless `now`."""
        if self._guard is None or (time.monotonic() < self._next and not now):
            return
        if not self._lock.acquire(blocking=now):
            return
        try:
            self._next = time.monotonic() + LOOK_EVERY
            id = self.active_id()
            if id is not None and id != self._in_force:
                self._guard.reload(GuardSet(tuple(self.load(self.get(id)).policies)))
                self._in_force = id
        except StoreUnavailable:  # the decision itself will say so
            pass
        except Exception as problem:  # whoever asks for a decision gets one
            _log.error("the rules have changed and cannot be used, so the old ones stay in force: %s", problem)
        finally:
            self._lock.release()

    @property
    def in_force(self) -> str:
        """The version by which this worker decides."""
        return self._in_force


def check_expected(expected: str | None, active: str | None) -> None:
    """Raises Conflict if somebody has seen another version than the one in force."""
    if expected is not None and expected != active:
        raise Conflict(f"`{active}` is in force, and not `{expected}`; look at it first", active=active)


def _change_modes(policy: GuardPolicy, modes: Mapping[str, str], off: Sequence[str]) -> GuardPolicy:
    name = policy.agent or NO_AGENT
    if name in modes:
        policy = fill_mode([replace(policy, mode=None)], known_mode(modes[name]))[0]
    return replace(policy, switched_off=True) if name in off else policy


def check_size(files: Mapping[str, str], known: Collection[str]) -> None:
    """`known`: the files in force, whose names may be the paths that they were read from."""
    if not files or len(files) > MOST_FILES or sum(map(len, files.values())) > MOST_TEXT:
        raise BadRequest(f"expected 1 to {MOST_FILES} files with at most {MOST_TEXT:,} characters in all")
    for name in files:
        is_path = ".." in name.split("/") or name.startswith("/")
        if not name or len(name) > 200 or not name.isprintable() or (is_path and name not in known):
            raise BadRequest(f"`{name[:80]}` is not the name of a rule file")


# -- rules as people see them ------------------------------------------------------------------------------------------

Effect: TypeAlias = Literal["preventive", "detective", "closing", "follow-up"]


class RuleView(Struct, frozen=True, kw_only=True):
    id: str
    agent: str | None = None
    """None: of every agent"""
    version: str | None = None
    """of the agent, from a manifest"""
    then: str
    reason: str | None = None
    kind: str
    """`guard` for a rule with `when` alone"""
    severity: str
    params: Any = None
    when: tuple[str, ...] = ()
    effect: Effect
    """`preventive`: can stop a call; `detective`: needs what the model or tool answered; `closing`: only the end of the
    session decides it; `follow-up`: never gates a call"""
    shadow: bool = False
    switched_off: bool = False
    approvals: int = 1
    approvers: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """events that the host has to feed for it"""
    file: str | None = None
    line: int | None = None
    end_line: int | None = None


def rule_views(guard: Guard) -> list[RuleView]:
    """The rules by which this worker decides."""
    return [view for policy in guard.policies.all for view in _views(policy)]


def views_of(policies: Sequence[GuardPolicy]) -> list[RuleView]:
    return [view for policy in drop_repeated(policies) for view in _views(CompiledPolicy(policy))]


def _views(compiled: CompiledPolicy) -> list[RuleView]:
    effects: dict[str, Effect] = dict.fromkeys(compiled.follow_up_only, "follow-up")
    effects |= {
        rule.id: label.value for rule, label in zip(compiled.calls.rules, compiled.calls.prevention, strict=True)
    }
    return [_view(rule, compiled, effects.get(rule.rule.id, "preventive")) for rule in compiled.policy.rules]


def _view(guarded: GuardRule, compiled: CompiledPolicy, effect: Effect) -> RuleView:
    rule, span = guarded.rule, guarded.rule.span
    return RuleView(
        id=rule.id,
        agent=compiled.agent,
        version=compiled.policy.version,
        then=guarded.then.value,
        reason=guarded.reason,
        kind=rule.kind,
        severity=rule.severity.value,
        params=rule.params,
        when=tuple(clause_text(clause) for clause in rule.when),
        effect=effect,
        shadow=guarded.shadow,
        switched_off=compiled.policy.switched_off,
        approvals=guarded.approvals,
        approvers=guarded.approvers,
        needs=tuple(sorted(compiled.needs.get(rule.id, ()))),
        file=None if span is None else span.file,
        line=None if span is None else span.line,
        end_line=None if span is None else span.end_line,
    )
