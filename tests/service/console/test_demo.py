"""The demo: its rules are clean, its traffic is what the console has pages for, and its audit holds."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from bylaw.guard.commands.serve import serve
from bylaw.guard.service import demo
from bylaw.rules import load_guard
from tests.service.console.site import Site


def test_the_rules_have_no_errors() -> None:
    folder = Path(demo.__file__).parent
    assert all(load_guard(folder / name).ok for name in demo.RULE_FILES)


def test_every_page_has_something_to_show(site: Site) -> None:
    operations = site.operations
    assert {one.tool for one in operations.reviews.list(status="pending")} == {"issue_refund", "send_email"}
    assert {one.status for one in operations.reviews.list()} >= {"pending", "used"}
    assert {one.status for one in operations.incidents.list()} == {"unresolved", "acknowledged", "solved"}
    assert operations.incidents.counts().alerts == 1
    assert {one.status for one in operations.sessions.list()} == {"open", "ended", "terminated"}
    assert [one.in_force for one in operations.rules.versions()] == [True, False, False]
    assert [one.agent for one in operations.agents.switches()] == ["crawler"]
    assert operations.rules.shadow_report(rule="refund-without-reason").rules


def test_the_audit_of_the_demo_holds(site: Site) -> None:
    report = site.operations.audit.verify()
    assert report.findings == [] and report.recomputed == report.decisions > 50


def test_the_demo_has_rules_and_a_store_of_its_own() -> None:
    for more in (["--policy", "guard.yaml"], ["--store", "guard.db"]):
        done = CliRunner().invoke(serve, ["--demo", *more])
        assert done.exit_code == 2 and "--demo has rules and a store of its own" in done.output
    assert "Missing option '--policy'" in CliRunner().invoke(serve, []).output
