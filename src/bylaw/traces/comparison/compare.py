"""Pairs the sessions of two sides, and compares two recordings of one task turn by turn.

Sessions are paired by session id, else by task id, else by how they begin. Sessions of one file that were recorded with
the same id are trials if they begin alike; if not, the id names no task and is ignored. Sessions that begin alike are
trials of one task if the user says the same in all of them or begins with more than a greeting, and are paired one to
one if not. If most begin with the same message under different system prompts, the prompt may hold the task: they are
paired one to one by its words. Sessions whose requests were not recorded are paired in order, and those that begin
otherwise by similar words. These three are guesses, and the report says so. Sessions that share few words are not
paired. Ids that a reader made up (`1`, `2`, `3`, …) match nothing in another file and are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from msgspec import Struct, field
from rapidfuzz.distance import Levenshtein

from bylaw.model.canonical import json_type
from bylaw.model.events import Response
from bylaw.model.ports import TextSimilarity
from bylaw.text.json_text import json_shape
from bylaw.text.similarity import Lexicon, words
from bylaw.traces.assembly.sessions import REPEATED
from bylaw.traces.comparison.align import Pair, align
from bylaw.traces.comparison.recording import Recording, Step, arguments


class Group(Struct):
    """Sessions of the same task: at least one recording on each side."""

    name: str
    baseline: list[Recording] = field(default_factory=list)
    candidate: list[Recording] = field(default_factory=list)
    matched_by: str = ""
    """what showed that these sessions belong together"""
    is_unlike: bool = False
    """they were compared because each side has no other, and nothing else speaks for it"""

    @property
    def is_guess(self) -> bool:
        return self.is_unlike or self.matched_by in (_SIMILAR, _IN_ORDER)

    @property
    def has_repeats(self) -> bool:
        """Whether the baseline has several trials, which show its own run-to-run divergence."""
        return len(self.baseline) > 1


class Pairing(Struct):
    groups: list[Group] = field(default_factory=list)
    missing: list[Recording] = field(default_factory=list)
    """baseline sessions with no counterpart"""
    extra: list[Recording] = field(default_factory=list)
    """candidate sessions with no counterpart"""
    doubts: list[str] = field(default_factory=list)
    """where the pairs may be wrong"""


def pair_sessions(baseline: Sequence[Recording], candidate: Sequence[Recording]) -> Pairing:
    baseline = [recording for recording in baseline if recording.steps]
    candidate = [recording for recording in candidate if recording.steps]
    ids = _recorded_ids(baseline) | _recorded_ids(candidate)
    if len(baseline) == len(candidate) == 1:
        [b], [c] = baseline, candidate
        is_same = id(b) in ids and ids[id(b)] == ids.get(id(c))
        group = Group(b.session, [b], [c], "the only session", not (is_same or _is_alike(b, c)))
        return Pairing([group], doubts=list(_doubts([group])))
    sessions = len(baseline) + len(candidate)
    groups: list[Group] = []
    for matched_by, key_of in (
        ("session id", lambda one: ids.get(id(one))),
        ("task id", lambda one: one.task),
        ("system prompt and first message", lambda one: one.openings[0]),
        ("first message", lambda one: one.openings[1]),
    ):
        found, baseline, candidate = _match(baseline, candidate, key_of, matched_by)
        for group in found:
            if matched_by == "session id":
                groups += [group] if _names_one_task(group, sessions) else ()
            else:
                is_one = matched_by == "task id" or _is_one_task(group, sessions)
                groups += [group] if is_one else _one_to_one(group)
        paired = {id(one) for group in groups for one in (*group.baseline, *group.candidate)}
        left = [[one for group in found for one in getattr(group, side)] for side in ("baseline", "candidate")]
        baseline += [one for one in left[0] if id(one) not in paired]
        candidate += [one for one in left[1] if id(one) not in paired]
    baseline, candidate = _join(groups, baseline, candidate, ids, sessions)
    unopened = [[one for one in side if one.openings[1] is None] for side in (baseline, candidate)]
    groups += [Group(b.session, [b], [c], _IN_ORDER) for b, c in zip(*unopened, strict=False)]
    opened = [[one for one in side if one.openings[1] is not None] for side in (baseline, candidate)]
    groups += _one_to_one(Group("", opened[0], opened[1], _SIMILAR), may_share_nothing=False)
    used = {id(one) for group in groups for one in (*group.baseline, *group.candidate)}
    left = [[one for one in side if id(one) not in used] for side in (baseline, candidate)]
    return Pairing(groups, left[0], left[1], list(_doubts(groups)))


def _doubts(groups: Sequence[Group]) -> Iterator[str]:
    """Ids that were given to other tasks: a session begins word for word like another one of the baseline, and unlike
    the one that has its id. Ids that were given to several runs in a format that tells sessions apart by them.
    """
    merged = [one for group in groups for one in (*group.baseline, *group.candidate) if one.begins_again]
    if merged:
        yield (
            f"warning: {len(merged):,} sessions begin again, so they hold several runs with one id"
            f" ({merged[0].name}): each is compared as one session; record runs with ids or files of their own"
        )
    explicit = [group for group in groups if group.matched_by in ("session id", "task id")]
    begun: dict[str, Group] = {}
    for group in explicit:
        for one in group.baseline:
            if one.openings[0] is not None:
                begun.setdefault(one.openings[0], group)
    moved = []
    for group in explicit:
        own = {one.openings[0] for one in group.baseline}
        found = [begun.get(one.openings[0] or "") for one in group.candidate if one.openings[0] not in own]
        moved += [(group.name, other.name) for other in found if other is not None]
    if moved:
        name, other = moved[0]
        yield (
            f"warning: paired by id, but {len(moved):,} of {len(explicit):,} begin word for word like another session"
            f" of the baseline ({name} like {other}): were the ids given to other tasks?"
        )


def _recorded_ids(recordings: Sequence[Recording]) -> dict[int, str]:
    """The recorded session id of each recording of one side, by `id()`.

    A reader names a session `s0#2` if another one of the file was recorded as `s0`, and by its number if it has no id:
    so numbers up to that of the sessions are no ids, unless the file has larger ones.
    """
    names: dict[str, set[str]] = {}
    for recording in recordings:
        names.setdefault(recording.trace, set()).add(recording.session)
    numeric = {trace for trace, found in names.items() if any(_number(name) > len(found) for name in found)}
    ids = {}
    for recording in recordings:
        wanted, known = recording.session, names[recording.trace]
        while (parts := wanted.rpartition(REPEATED))[0] in known and parts[2].isdecimal():
            wanted = parts[0]
        if recording.trace in numeric or not 0 <= _number(wanted) <= len(known):
            ids[id(recording)] = wanted
    return ids


def _number(name: str) -> float:
    """-1 for a name that is no number."""
    return float(name[:12]) if name.isdecimal() else -1


def _names_one_task(group: Group, sessions: int) -> bool:
    """Whether sessions with one id are trials of a task. They are if they stand in files of their own. In one file, the
    id may be that of a user or of the program, so they also have to begin alike.
    """
    for side in (group.baseline, group.candidate):
        begun = {one.openings[1] for one in side}
        is_repeated = len({one.trace for one in side}) < len(side)
        if is_repeated and not (len(begun) == 1 and _is_one_task(Group("", side), sessions)):
            return False
    return True


def _join(
    groups: Sequence[Group],
    baseline: Sequence[Recording],
    candidate: Sequence[Recording],
    ids: Mapping[int, str],
    sessions: int,
) -> tuple[list[Recording], list[Recording]]:
    """Add sessions without an id to the one group that begins like them: further trials. Returns those that remain."""
    begun: dict[str | None, Group | None] = {None: None}
    for group in groups:
        for opening in {one.openings[0] for one in (*group.baseline, *group.candidate)}:
            begun[opening] = group if begun.get(opening, group) is group else None
    left: tuple[list[Recording], list[Recording]] = ([], [])
    for number, side in enumerate((baseline, candidate)):
        for one in side:
            same = None if id(one) in ids else begun.get(one.openings[0])
            if same is not None and _is_one_task(Group("", [one, *same.baseline, *same.candidate]), sessions):
                (same.candidate if number else same.baseline).append(one)
            else:
                left[number].append(one)
    return left


_Split = tuple[list[Group], list[Recording], list[Recording]]


def _match(
    baseline: Sequence[Recording],
    candidate: Sequence[Recording],
    key_of: Callable[[Recording], str | None],
    matched_by: str,
) -> _Split:
    """Groups of equal keys, and the remaining recordings on each side."""
    groups: dict[str, Group] = {}
    for recording in baseline:
        key = key_of(recording)
        if key is not None:
            groups.setdefault(key, Group(recording.session, matched_by=matched_by)).baseline.append(recording)
    for recording in candidate:
        key = key_of(recording)
        if key is not None and key in groups:
            groups[key].candidate.append(recording)
    full = [group for group in groups.values() if group.candidate]
    used = {id(recording) for group in full for recording in (*group.baseline, *group.candidate)}
    return full, [r for r in baseline if id(r) not in used], [r for r in candidate if id(r) not in used]


def _is_one_task(group: Group, sessions: int) -> bool:
    """Whether sessions that begin alike are trials of one task.

    "Hi" begins many conversations. What the user says later shows that they are different ones. A beginning that says
    more states the task, even if a user answers differently later on; unless it is short and most sessions have it.
    What most sessions have states no task either if their system prompts differ.
    """
    found = [*group.baseline, *group.candidate]
    length = len(words(found[0].openings[1] or ""))
    is_common = 2 * len(found) > sessions
    if _has_several_prompts(group) and (is_common or length < _MORE_THAN_GREETING):
        return False
    states_task = length >= _LONG or (length >= _MORE_THAN_GREETING and not is_common)
    return states_task or len({one.user_messages for one in found}) == 1


_MORE_THAN_GREETING, _LONG = 4, 8
"""words of a first message"""


def _has_several_prompts(group: Group) -> bool:
    """Whether the system prompts of one side differ in more than the date and the time."""
    return any(
        len(side) > 1
        and len({one.openings[0] for one in side}) > 1
        and len({_CLOCK.sub("", one.system_prompt) for one in side}) > 1
        for side in (group.baseline, group.candidate)
    )


_CLOCK = re.compile(
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*(?= \d)"
    r"|\d+:[\d:.]+|\d{4}-\d\d-\d\d(?:T[\d:.]+Z?)?|\d{1,2}(?:st|nd|rd|th)?,? 20\d\d"
    r"|\d{1,2}(?:st|nd|rd|th)? (?:of )?[a-z]{3,9},? 20\d\d)\b",
    re.IGNORECASE,
)


def _one_to_one(group: Group, *, may_share_nothing: bool = True) -> list[Group]:
    """Pairs of sessions that begin alike and go on differently: first those with equal messages of the user, then by
    the words that few share, the surest pair first. Near linear: only sessions that share a rare word are compared.

    If their system prompts differ, the words of these count too, and the pairs are a guess.
    """
    by_prompt = _has_several_prompts(group)
    matched_by = _SIMILAR if by_prompt else group.matched_by
    by_messages: dict[tuple[str, ...], Group] = {}
    for side in ("baseline", "candidate"):
        for one in getattr(group, side):
            said = (one.system_prompt, *one.user_messages) if by_prompt else one.user_messages
            same = by_messages.setdefault(said, Group(one.session, matched_by=matched_by))
            getattr(same, side).append(one)
    pairs = [one for one in by_messages.values() if one.baseline and one.candidate]
    left_b = [r for one in by_messages.values() if not one.candidate for r in one.baseline]
    left_c = [r for one in by_messages.values() if not one.baseline for r in one.candidate]
    words_by_recording = {id(one): _words_of(one) for one in (*left_b, *left_c)}
    if by_prompt:
        prompts = {id(one): {*words(one.system_prompt)} for one in (*left_b, *left_c)}
        in_all = set.intersection(*prompts.values()) if prompts else set()
        words_by_recording = {key: found | prompts[key] - in_all for key, found in words_by_recording.items()}
    holding: dict[str, list[int]] = {}
    for number, recording in enumerate(left_c):
        for word in words_by_recording[id(recording)]:
            holding.setdefault(word, []).append(number)
    edges = []
    for place, recording in enumerate(left_b):
        votes: dict[int, float] = {}
        for word in words_by_recording[id(recording)]:
            found = holding.get(word, ())
            if len(found) <= _COMMON:
                for number in found:
                    votes[number] = votes.get(number, 0.0) + 1 / len(found)
        edges += [(-round(weight, 9), place, number) for number, weight in votes.items()]
    chosen: dict[int, int] = {}
    free = dict.fromkeys(range(len(left_c)))
    tried = [0] * len(left_b)
    for _, place, number in sorted(edges):  # the surest pair first, wherever it stands in the file
        if place in chosen or number not in free or tried[place] == _MOST_TRIED:
            continue
        if may_share_nothing or _is_alike(left_b[place], left_c[number]):
            chosen[place] = number
            del free[number]
        tried[place] += 1
    for place, recording in enumerate(left_b):
        nearest, how = chosen.get(place), matched_by
        if nearest is None and may_share_nothing:
            nearest, how = next(iter(free), None), _IN_ORDER
            free.pop(nearest, None)  # type: ignore[arg-type]
        if nearest is not None:
            pairs.append(Group(recording.session, [recording], [left_c[nearest]], how))
    return pairs


def _is_alike(b: Recording, c: Recording) -> bool:
    """Whether at least half of the words of one are in the other: of the first messages, or of all that the user says.
    Sessions without recorded requests may be alike.
    """
    if b.openings[1] is None or c.openings[1] is None:
        return True
    both = (({*words(b.openings[1])}, {*words(c.openings[1])}), (_words_of(b), _words_of(c)))
    return any(2 * len(left & right) >= min(len(left), len(right)) for left, right in both)


_SIMILAR, _IN_ORDER = "similar messages", "order"


_MOST_TRIED = 10
"""sessions with the most rare words in common that are compared as a whole"""
_COMMON = 50
"""a word that more sessions share tells them apart too little to be worth the time"""


def _words_of(recording: Recording) -> set[str]:
    return {word for text in recording.user_messages for word in words(text)}


def conforms(baseline: Response, candidate: Response | None) -> bool | None:
    """Whether the candidate has the baseline's shape; None if the baseline has no structured output and no call.

    Structured output keeps its shape if it is JSON of the same type and, for an object, with the same keys. Calls keep
    theirs if each baseline call has a candidate call of the same tool with the same argument keys.
    """
    structure = json_shape(baseline.text)
    if structure is not None:
        return candidate is not None and json_shape(candidate.text) == structure
    if not baseline.tool_calls:
        return None
    left = [] if candidate is None else [_call_shape(call) for call in candidate.tool_calls]
    for call in baseline.tool_calls:
        if _call_shape(call) not in left:
            return False
        left.remove(_call_shape(call))
    return True


def _call_shape(call: Any) -> tuple[str, Any]:
    found = arguments(call)
    return call.name, frozenset(found) if isinstance(found, dict) else json_type(found)


Sides: TypeAlias = tuple[Step | None, Step | None]


class Comparison:
    """A baseline recording and a candidate recording (or two of the baseline, for its own run-to-run divergence)."""

    def __init__(self, baseline: Recording, candidate: Recording, lexicon: Lexicon) -> None:
        self.baseline = baseline
        self.candidate = candidate
        self._lexicon = lexicon

    @cached_property
    def pairs(self) -> list[Pair]:
        return align(self.baseline.steps, self.candidate.steps, self._lexicon)

    @property
    def sides(self) -> Iterator[Sides]:
        for b, c in self.pairs:
            yield (
                None if b is None else self.baseline.steps[b],
                None if c is None else self.candidate.steps[c],
            )

    def semantic(self, texts: TextSimilarity | None = None) -> list[float]:
        """How much each turn's text changed, by its words unless `texts` is passed: 0 the same, 1 nothing in common,
        or no counterpart.
        """
        texts = texts or self._lexicon
        moved = []
        for b, c in self.sides:
            if b is None or c is None:
                moved += [1.0] if (b or c).text else []  # type: ignore[union-attr]
            elif b.text or c.text:
                moved.append(1.0 - texts.similarity(b.text, c.text))
        return moved

    def trajectory(self) -> list[float]:
        return [_calls_apart(b, c, lambda step: step.tokens) for b, c in self.sides]

    def structure(self) -> list[float]:
        """The trajectory without argument values."""
        return [_calls_apart(b, c, lambda step: step.shape) for b, c in self.sides]

    def conformance(self) -> list[float]:
        """For each turn with structured output or calls: 0 if the other side has the same shape, else 1.

        Each turn is compared in both directions, so that the distance does not depend on which side is which.
        """
        sides = list(self.sides)
        found = [conforms(b.response, c.response if c else None) for b, c in sides if b]
        found += [conforms(c.response, b.response if b else None) for b, c in sides if c]
        return [0.0 if is_same else 1.0 for is_same in found if is_same is not None]

    def values(self, measure: Callable[[Step], float | None]) -> list[tuple[float, float]]:
        """The measure on both sides of each turn; a turn without counterpart is measured against 0."""
        both = []
        for b, c in self.sides:
            before, after = (measure(b) if b else 0.0), (measure(c) if c else 0.0)
            if before is not None and after is not None:
                both.append((before, after))
        return both


def _calls_apart(b: Step | None, c: Step | None, tokens: Callable[[Step], Sequence[str]]) -> float:
    """Edit distance of the calls, divided by the longer list; an unmatched turn scores 1 if it has calls."""
    left, right = (tokens(b) if b else ()), (tokens(c) if c else ())
    return Levenshtein.normalized_distance(left, right) if left or right else 0.0


class Comparisons:
    """Compares recordings with one lexicon, each pair once: every axis reads the same alignment."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        self._known: dict[tuple[int, int], Comparison] = {}

    def __call__(self, left: Recording, right: Recording) -> Comparison:
        key = (id(left), id(right))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Comparison(left, right, self.lexicon)
        return found

    def nearest(self, group: Group) -> list[Comparison]:
        """Each candidate session with its closest baseline session, so that only unexplained differences remain."""
        return [
            min(
                (self(baseline, candidate) for baseline in group.baseline[:MOST_COMPARED]),
                key=(lambda one: sum(one.trajectory()) + sum(one.semantic())) if len(group.baseline) > 1 else id,
            )
            for candidate in group.candidate
        ]


MOST_COMPARED = 8
"""baseline sessions of one task that a candidate session is compared with"""
