"""What commands print on a terminal of 80 columns fits it; where the output is not a terminal, a row is one line."""

from __future__ import annotations

import io
import json
import shlex
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

import bylaw
from bylaw.cli import cli, main
from bylaw.demo import STEPS
from bylaw.guard.integrations.hooks import answer_event
from bylaw.guard.integrations.mcp.pins import PinFolder, ToolCheck
from bylaw.record.commands import _announce
from bylaw.report.output import print_line
from bylaw.report.text import width

SESSION = "ticket-1043-of-the-support-desk-in-the-north"
WHY = "the customer has to confirm the amount first, and a person has to look at every refund over 500"
RULES = f"""\
guard:
  mode: hitl
  rules:
    - id: many-refunds-in-a-short-time
      when: {{call_count_in_window_gt: {{tool: issue_refund, value: 1, windowSeconds: 60}}}}
      then: pause
      reason: {WHY}
    - id: refund-without-an-order
      when: {{tool_name_in: [issue_refund], arg_missing: {{path: order}}}}
      then: pause
      reason: {WHY}
    - id: deletes-what-others-need
      when: {{tool_name_in: [delete]}}
      then: block
      reason: {WHY}
    - id: not-switched-on-yet
      mode: shadow
      when: {{tool_name_in: [look_up]}}
      then: block
      reason: {WHY}
"""
NOT_RUN = {
    "guard audit export": "prints JSON",
    "guard audit head": "prints a hash",
    "guard decide": "prints JSON",
    "guard export": "prints a rule file",
    "guard mcp run": "takes the standard streams of the process; its warning is that of `guard mcp wrap`",
    "guard serve": "runs until it is stopped",
    "hook serve": "runs until it is stopped",
    "receive": "runs until it is stopped",
    "schema": "prints JSON",
}


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    def printed(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return click.unstyle(self.buffer.getvalue().decode())


def too_long(text: str) -> list[str]:
    """Lines of more than 80 columns that hold more than one word; a word, such as a path, is not broken."""
    lines = [part for line in text.split("\n") for part in line.split("\r")]
    return [line for line in lines if width(line) > 80 and len(line.split()) > 1]


Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `bylaw` with these arguments in a folder that has the example, and returns what it prints on a terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BYLAW_WEBHOOK_SECRET", "whsec_" + "MDEyMzQ1Njc4OTAxMjM0NTY3ODkw")

    def run(arguments: str, *more: str, is_wrong: bool = False) -> str:
        with monkeypatch.context() as patch:
            out, err = Terminal(), Terminal()
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
            with pytest.raises(SystemExit) as left:
                main([*shlex.split(arguments), *more])
            assert "Traceback" not in err.printed(), arguments
            assert (left.value.code == 2) is is_wrong, (arguments, err.printed())
            return out.printed() + err.printed()

    return run


def _make_store() -> None:
    Path("rules.yaml").write_text(RULES)
    with bylaw.Guard("rules.yaml", store=Path("guard.db")) as guard:
        for number in range(3):
            given = {"amount": 900 + number, "note": WHY, "to": ["the account of the customer", "and a voucher"]}
            guard.decide(bylaw.Attempt(tool="issue_refund", arguments=given, session=SESSION))
        for tool in ("delete", "look_up"):
            guard.decide(bylaw.Attempt(tool=tool, arguments={"what": WHY}, session=SESSION))


def _ids(run: Run, command: str) -> list[str]:
    found = run(f"{command} --json --store guard.db")
    return [json.loads(line)["id"] for line in found.splitlines() if line.startswith("{")]


def _print_everything(run: Run) -> Iterator[tuple[str, str]]:
    """Each command line, and what it prints. The order matters: some write what others show."""

    def on(arguments: str, *more: str, is_wrong: bool = False) -> tuple[str, str]:
        return arguments, run(arguments, *more, is_wrong=is_wrong)

    yield on("demo .")
    for step in STEPS:
        if not step.stdin:
            yield on(step.arguments, is_wrong=step.exit_code == 2)
    yield on("comply rules --prompt prompt.md")
    yield on("comply diff prompt.md prompt.md")
    yield on("contract score -c contract.yaml")
    yield on("contract validate -c contract.yaml")
    Path("flakestorm.yaml").write_text(f"version: '1.0'\nagent: {{endpoint: x}}\ngolden_prompts: [hello]\n{WHY}: 1\n")
    yield on("contract import flakestorm.yaml -o imported.yaml", is_wrong=True)
    yield on("ci contract.yaml")
    yield on("convert v1.jsonl converted.jsonl")
    yield on("lint bylaw.yaml")
    yield on("explain")
    yield on("pull langfuse", is_wrong=True)
    yield on("record -o recorded.jsonl -- true")
    yield on("guard backtest guard.yaml v1.jsonl v2.jsonl")
    yield on("guard propose v1.jsonl --out proposed.yaml")

    _make_store()
    yield on("guard reviews --store guard.db")
    review, other, *_ = _ids(run, "guard reviews")
    yield on(f"guard approve {review} --store guard.db --by 'somebody who may do that' --note", WHY)
    yield on(f"guard reject {other} --store guard.db --by 'somebody who may do that' --note", WHY)
    yield on("guard replay -p rules.yaml --store guard.db")
    webhook = "--webhook http://127.0.0.1:9/"  # nobody listens there
    yield on(f"guard follow --once -p rules.yaml --store guard.db {webhook}")
    yield on("guard incidents list --store guard.db")
    yield on("guard incidents alerts --store guard.db")
    yield on("guard incidents outbox --store guard.db")
    notification = _ids(run, "guard incidents outbox")[0]
    yield on(f"guard incidents resend {notification} --store guard.db", is_wrong=True)
    (first, incident), (alert,) = _ids(run, "guard incidents list"), _ids(run, "guard incidents alerts")
    yield on(f"guard incidents show {alert} --store guard.db")
    changing = "--store guard.db --by 'somebody who may do that' --note"
    yield on(f"guard incidents ack {alert} {changing}", WHY)
    yield on(f"guard incidents ack {incident} {changing}", WHY)
    yield on(f"guard incidents assign {incident} 'the people of the support desk' {changing}", WHY)
    yield on(f"guard incidents note {incident} --store guard.db --by 'somebody who may do that'", WHY)
    for one in (first, incident):
        yield on(f"guard incidents show {one} --store guard.db")
    yield on(f"guard incidents solve {incident} {changing}", WHY)
    yield on("guard audit show --store guard.db")
    yield on("guard audit verify --store guard.db")
    yield on(f"guard audit verify --store guard.db --head 2:{'0' * 64}")
    with sqlite3.connect("guard.db") as database:
        database.execute("UPDATE audit SET data = replace(data, '900', '90')")
    database.close()
    yield on("guard audit verify --store guard.db")
    yield on("guard shadow --store guard.db")
    yield on("guard promote not-switched-on-yet -p rules.yaml --store guard.db --yes")
    yield on("guard kill --store guard.db --agent 'the agent that refunds' --why", WHY)
    yield on("guard switches --store guard.db")
    yield on("guard revive --store guard.db --agent 'the agent that refunds'")
    yield on(f"guard terminate {SESSION} --store guard.db --by 'somebody who may do that' --why", WHY)
    yield on(
        "guard keys create 'the program that runs the agents of the support desk' --store guard.db --scope agent"
        " --agent 'the agent that refunds' --expires 30d"
    )
    yield on("guard keys list --store guard.db")
    yield on(f"guard keys revoke {_ids(run, 'guard keys list')[0]} --store guard.db")
    yield on("guard prune --store guard.db --older-than 0")

    Path("mcp.json").write_text(json.dumps({"mcpServers": {"the shop and its orders": {"command": "false"}}}))
    yield on("guard mcp wrap mcp.json -p rules.yaml")
    yield on("guard mcp unwrap mcp.json")
    pins = PinFolder(Path("pins"))
    for about in ("Refund an order.", WHY):
        ToolCheck(pins, lambda tool: ("shop", tool)).listed([{"name": "refund", "description": about}])
    yield on("guard mcp approve --lock pins")
    Path(".git").mkdir()
    yield on("hook install claude-code -p nowhere.yaml")
    yield on("hook status claude-code")
    yield on("hook uninstall claude-code")


def _leaves(command: click.Command, path: str = "", parent: click.Context | None = None) -> Iterator[str]:
    context = click.Context(command, info_name=path, parent=parent)
    if not isinstance(command, click.Group):
        yield path
        return
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert child is not None
        yield from _leaves(child, f"{path} {name}".strip(), context)


def test_every_command_fits_a_terminal_of_80_columns(run: Run) -> None:
    printed = list(_print_everything(run))
    not_run = {leaf for leaf in _leaves(cli) if not any(line.startswith(leaf) for line, _ in printed)}
    assert not_run == set(NOT_RUN), "a new command is run above, or it is said why it is not"
    assert [line for line, text in printed if not text.strip()] == [], "each prints something"
    assert [(line, row) for line, text in printed for row in too_long(text)] == []


@pytest.mark.parametrize("arguments", ["pull", "hook status", "guard keys create x --store guard.db"])
def test_the_choices_of_a_missing_argument_are_indented(arguments: str, run: Run) -> None:
    shown = run(arguments, is_wrong=True)
    assert "Choose" in shown and "\\t" not in shown and "\t" not in shown
    assert all(line.startswith("  ") for line in shown.split("from:\n")[1].splitlines())
    assert too_long(shown) == []


def test_rows_are_one_line_where_the_output_is_not_a_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _make_store()
    rows = len(_ids(run, "guard reviews"))
    with pytest.raises(SystemExit):
        main(["guard", "reviews", "--store", "guard.db"])
    assert len(capsys.readouterr().out.splitlines()) == rows == 3
    assert len(run("guard reviews --store guard.db").splitlines()) > 2 * rows
    print_line("one\x1b[31m\ntwo")
    assert capsys.readouterr().out == "one\\x1b[31m\\ntwo\n", "text from an agent does not steer the terminal"


def test_json_is_one_line_on_a_terminal_too(run: Run) -> None:
    _make_store()
    shown = run("guard reviews --json --store guard.db")
    assert [json.loads(line)["session"] for line in shown.splitlines()] == [SESSION] * 3


def test_messages_of_commands_that_wait_fit_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert answer_event({}) == 2
    assert "a coding agent runs this" in terminal.printed()
    _announce("http://0.0.0.0:4318", "0.0.0.0", "what-the-agents-have-sent.jsonl")
    assert "receiving OTLP" in terminal.printed() and "warning" in terminal.printed()
    assert too_long(terminal.printed()) == []
