"""Rules: their text, what each does and has done, versions, and what a change would have changed."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from bylaw.guard.service.console import Visit
from bylaw.guard.service.console.plots import ACTIONS, NOTICED, Bucket, activity_plot, small_plot
from bylaw.guard.service.console.render import DiffLine, base_name, diff_lines, path_part, rule_lines
from bylaw.guard.service.errors import BadRequest
from bylaw.guard.service.operations.rules import RuleSetView
from bylaw.guard.service.rule_versions import RuleView

_DAY = 86_400.0
_HITS = 24
_MOST_FLIPS = 5


def rules(visit: Visit) -> Response:
    view = visit.operations.rules.active()
    hits = visit.operations.rules.hits(buckets=_HITS)
    rows = [(one, sum(found), small_plot(found, label=f"Matches of {one.id} in 24 hours", action=one.then))
            for one in view.rules for found in [_hits_of(one, hits)]]  # fmt: skip
    return visit.render("rules.html", current="rules", tab="rules", view=view, rows=rows)


def _hits_of(rule: RuleView, hits: dict[str, list[int]]) -> list[int]:
    """A rule of an ancestor is recorded as `agent/id`."""
    found = [hits[name] for name in {rule.id, f"{rule.agent}/{rule.id}"} if name in hits]
    return [sum(counts) for counts in zip(*found, strict=True)] if found else [0] * _HITS


def source(visit: Visit) -> Response:
    view = visit.operations.rules.active()
    starts = {(one.file, one.line): one for one in view.rules}
    return visit.render("source.html", current="rules", tab="source", view=view, starts=starts)


def rule(visit: Visit) -> Response:
    name = visit.name()
    view = visit.operations.rules.active()
    found = _find(view, name)
    series = visit.operations.decisions.series(since=visit.now - _DAY, buckets=48, rule=name)
    noticed = visit.operations.rules.noticed(name, since=series.since, until=series.until, buckets=len(series.buckets))
    buckets = [
        Bucket(one.start, {action: getattr(one, action) for action in ACTIONS} | {NOTICED: found})
        for one, found in zip(series.buckets, noticed, strict=True)
    ]
    shadow = visit.operations.rules.shadow_report(rule=name).rules.get(name)
    return visit.render(
        "rule.html",
        current="rules",
        name=name,
        rule=found,
        lines=lines_of(view, found),
        plot=activity_plot(buckets, label="Matches in 24 hours", zone=visit.zone),
        hits=sum(bucket.total for bucket in buckets) - sum(noticed),
        noticed=sum(noticed),
        shadow=shadow,
        recent=visit.operations.decisions.recent(rule=name, limit=10).decisions,
        incidents=visit.operations.incidents.list(rule=name, limit=5),
    )


def _find(view: RuleSetView, name: str) -> RuleView | None:
    """None for a rule that is no longer in force, and for what decides in place of a rule, such as `allowlist`."""
    agent, _, id = name.rpartition("/")
    exact = [one for one in view.rules if one.id == name]
    return next(iter([*exact, *(one for one in view.rules if (one.agent, one.id) == (agent, id))]), None)


def lines_of(view: RuleSetView, rule: RuleView | None) -> list[tuple[int, str]]:
    if rule is None or rule.line is None:
        return []
    return rule_lines(view.version.files.get(str(rule.file), ""), rule.line, rule.end_line)


def promote(visit: Visit) -> Response:
    visit.need("admin")
    name = visit.name()
    visit.operations.rules.promote(name, by=visit.by, note=visit.text("note"))
    return visit.redirect(f"rule?name={path_part(name)}", "promoted")


def shadow(visit: Visit) -> Response:
    view = visit.operations.rules.active()
    report = visit.operations.rules.shadow_report()
    quiet = [one for one in view.rules if one.shadow and one.id not in report.rules]
    return visit.render("shadow.html", current="rules", tab="shadow", view=view, report=report, quiet=quiet)


# -- versions ---------------------------------------------------------------------------------------------------------


def versions(visit: Visit) -> Response:
    found = visit.operations.rules.versions()
    active = visit.operations.versions.active()
    earlier = visit.operations.versions.earlier(active)
    return visit.render(
        "versions.html", current="rules", tab="versions", versions=found, active=active.id, earlier=earlier
    )


def version(visit: Visit) -> Response:
    view = visit.operations.rules.version(visit.id())
    before = view.version.before
    active = visit.operations.rules.active().version
    diffs: list[tuple[str, list[DiffLine]]] = []
    if before is not None:
        old, new = visit.operations.rules.version(before).version.files, view.version.files
        found = [(base_name(name), diff_lines(old.get(name, ""), new.get(name, ""))) for name in sorted({*old, *new})]
        diffs = [(name, lines) for name, lines in found if lines]
    return visit.render(
        "version.html", current="rules", view=view, version=view.version, before=before, diffs=diffs, active=active.id
    )


def compare_version(visit: Visit) -> Response:
    """What would have changed, as a piece of the page of a version: it may take a while."""
    report = visit.operations.rules.compare(version=visit.id())
    return visit.render("comparison.html", report=report, flips=_flips(report))


def release(visit: Visit) -> Response:
    visit.need("admin")
    id = visit.id()
    expected = visit.text("expected") or None
    visit.operations.rules.release(id, by=visit.by, note=visit.text("note"), expected=expected)
    return visit.redirect("rules/versions", "activated")


def rollback(visit: Visit) -> Response:
    visit.need("admin")
    visit.operations.rules.rollback(by=visit.by, note=visit.text("note"), expected=visit.text("expected"))
    return visit.redirect("rules/versions", "rolled-back")


# -- edit -------------------------------------------------------------------------------------------------------------


def edit(visit: Visit) -> Response:
    visit.need("admin")
    view = visit.operations.rules.active()
    files = dict(_sent(visit)) or view.version.files
    return visit.render("edit.html", current="rules", tab="edit", view=view, files=list(files.items()))


def check(visit: Visit) -> Response:
    """Validate the text without storing it, or compare its decisions with those that were made."""
    visit.need("admin")
    return show_checked(visit, dict(_sent(visit)), compare=visit.text("then") == "compare")


def show_checked(visit: Visit, files: dict[str, str], *, compare: bool) -> Response:
    checked = visit.operations.rules.validate(files)
    report = visit.operations.rules.compare(files) if checked.ok and compare else None
    return visit.render("checked.html", checked=checked, report=report, flips=_flips(report))


def activate(visit: Visit) -> Response:
    visit.need("admin")
    files, testing = dict(_sent(visit)), visit.text("then") == "testing"
    visit.operations.rules.activate(
        files, by=visit.by, note=visit.text("note"), expected=visit.text("expected") or None, testing=testing
    )
    return visit.redirect("rules/versions", "stored" if testing else "activated")


def _sent(visit: Visit) -> list[tuple[str, str]]:
    """The files of the form: `name-1` and `text-1`, `name-2` and `text-2`, …"""
    found = []
    for number in range(1, 21):
        name = visit.form.get(f"name-{number}")
        if name is None:
            break
        found.append((name, visit.form.get(f"text-{number}", "").replace("\r\n", "\n")))
    return found


def _flips(report: Any) -> list[tuple[str, int, Any]]:
    if report is None:
        return []
    return [(flip, tally.count, tally.examples[:_MOST_FLIPS]) for flip, tally in report.flips.items()]


# -- proposals --------------------------------------------------------------------------------------------------------

_PROPOSALS = {"open": "Open", "accepted": "Accepted", "dismissed": "Dismissed"}


def proposals(visit: Visit) -> Response:
    status: Any = visit.choice("status", _PROPOSALS, "open")
    found = visit.operations.proposals.list(status=status)
    return visit.render("proposals.html", current="proposals", status=status, statuses=_PROPOSALS, proposals=found)


def mine(visit: Visit) -> Response:
    visit.need("admin")
    visit.operations.proposals.mine(by=visit.by, agent=visit.text("agent") or None)
    return visit.redirect("proposals", "mined")


def proposal(visit: Visit) -> Response:
    found = visit.operations.proposals.get(visit.id())
    about = found.proposal
    held_out = about.get("held_out_calls") or 0
    precision = None if not held_out else 1 - about.get("false_stops", 0) / held_out
    return visit.render(
        "proposal.html", current="proposals", stored=found, about=about, rule=about["rule"], precision=precision
    )


def try_out(visit: Visit) -> Response:
    id = visit.id()
    report = visit.operations.proposals.try_out(id)
    rule_id = visit.operations.proposals.get(id).proposal["rule"]["id"]
    tally = next((one for key, one in report.rules.items() if key.rpartition("/")[2] == rule_id), None)
    return visit.render("tried.html", report=report, tally=tally)


def decide_proposal(visit: Visit) -> Response:
    visit.need("admin")
    id, chosen, note = visit.id(), visit.text("answer"), visit.text("note") or None
    if chosen == "dismiss":
        visit.operations.proposals.dismiss(id, by=visit.by, note=note)
        return visit.redirect("proposals", "dismissed")
    if chosen not in ("shadow", "testing"):
        raise BadRequest("choose to accept it into shadow, into a testing version, or to dismiss it")
    visit.operations.proposals.accept(id, by=visit.by, note=note, testing=chosen == "testing")
    return visit.redirect(f"proposals/{path_part(id)}", "accepted" if chosen == "shadow" else "accepted-testing")
