"""The differ on real recordings: pairs whose story is known, and two halves of one agent's runs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import bylaw
from bylaw.diff.api import compare_versions
from bylaw.diff.model import Change, DiffReport
from bylaw.model.events import Event, Response, ToolCall, Trace

pytestmark = pytest.mark.corpus
LOOK_UPS = ("get_", "search_", "list_")


def test_the_dropped_confirmation(data: Path) -> None:
    folder = data / "formats" / "agentlog" / "refund"
    report = bylaw.diff(
        folder / "baseline_traces", folder / "candidate_traces", folder / "policy.yaml", deterministic=True
    )
    assert report.exit_code == 1
    assert [change.rule for change in report.policy.regressions] == ["confirm-before-refund"] * 3
    assert report.divergences
    assert all("confirm_refund_amount" in one.what for one in report.divergences)


def test_the_renamed_argument_and_the_extra_refund(data: Path) -> None:
    folder = data / "formats" / "agentlog" / "customer-support"
    report = bylaw.diff(folder / "baseline.agentlog", folder / "candidate.agentlog", deterministic=True)
    whats = [one.what for one in report.divergences]
    assert report.exit_code == 1
    assert any("refund_order is called" in what for what in whats)
    assert any("include_shipping" in what for what in whats)


def test_a_trace_compared_with_itself(data: Path) -> None:
    paths = sorted((data / "formats" / "agentlog").rglob("*.agentlog"))
    assert len(paths) > 3
    for path in paths:
        report = bylaw.diff(path, path)
        assert report.worst is Change.NONE
        assert report.divergence_count == 0


class Airline:
    """tau-airline's sessions by task and trial, to be split into two sides at random."""

    def __init__(self, data: Path) -> None:
        whole = bylaw.load_trace(data / "tau-airline" / "gpt-4o-airline.json.gz")
        self.sessions: dict[str, dict[str, list[Event]]] = {}
        for event in whole.events:
            task, _, trial = event.origin.session.rpartition(" trial ")
            self.sessions.setdefault(task, {}).setdefault(trial, []).append(event)

    def split(self, seed: int, mutated: float = 0.0, tasks: int = 40) -> DiffReport:
        """So many tasks, two trials a side; in the candidate, this share of the sessions loses one look-up."""
        rng = random.Random(seed)
        sides: tuple[list[Event], list[Event]] = ([], [])
        for task in rng.sample(sorted(self.sessions), tasks):
            trials = rng.sample(sorted(self.sessions[task]), 4)
            for i, trial in enumerate(trials):
                events = self.sessions[task][trial]
                sides[i // 2].extend(without_look_up(events) if i > 1 and rng.random() < mutated else events)
        baseline, candidate = (Trace(name=name, events=tuple(e)) for name, e in zip("bc", sides, strict=True))
        return compare_versions([baseline], [candidate], fail_on=Change.MODERATE)


def without_look_up(events: list[Event]) -> list[Event]:
    lost = next((e.call_id for e in events if isinstance(e, ToolCall) and e.name.startswith(LOOK_UPS)), None)
    return [_without(event, lost) for event in events if getattr(event, "call_id", None) != lost or lost is None]


def _without(event: Event, lost: str | None) -> Any:
    if not isinstance(event, Response) or lost is None:
        return event
    return replace(event, tool_calls=tuple(call for call in event.tool_calls if call.call_id != lost))


@pytest.fixture(scope="module")
def airline(data: Path) -> Airline:
    return Airline(data)


def test_run_to_run_noise_rarely_trips(airline: Airline) -> None:
    assert not airline.split(0, tasks=16).tripped


def test_a_dropped_look_up_is_caught(airline: Airline) -> None:
    assert airline.split(1_000, mutated=1.0, tasks=16).tripped


@pytest.mark.proof
def test_noise_and_power_at_length(airline: Airline) -> None:
    alarms = sum(airline.split(seed).tripped for seed in range(200)) / 200
    print(f"\ntau-airline, 40 tasks, two trials a side: the gate trips on noise in {alarms:.1%} of 200 choices")
    curve = {share: sum(airline.split(5_000 + s, share).tripped for s in range(40)) / 40 for share in POWER}
    print("caught, by share of sessions that lost a look-up:", ", ".join(f"{s:.0%}: {p:.0%}" for s, p in curve.items()))
    assert alarms <= 0.05
    assert curve[1.0] >= 0.9


POWER = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
