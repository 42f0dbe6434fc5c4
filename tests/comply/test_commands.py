"""Which command lines run a command that a prompt forbids."""

from __future__ import annotations

import pytest

import bylaw

RM, SUDO, PUSH = "Never run `rm -rf`.", "Never use sudo.", "Do not use git push --force."
AMEND, DISK = "Never run `git commit --amend`.", "Never run the `dd` command."


def is_broken(prompt: str, command: str) -> bool:
    events = [{"type": "tool_call", "name": "bash", "args": {"command": command}}]
    (rule,) = bylaw.check_compliance_sync(prompt, events).extracted_rules
    assert rule.state.value in ("violated", "satisfied")
    return rule.state.value == "violated"


@pytest.mark.parametrize(
    ("prompt", "command"),
    [
        (RM, "rm -r -f build"),
        (RM, "rm -f build -R"),
        (RM, "/bin/rm -rf build"),
        (RM, "rm --recursive --force build"),
        (RM, "rm -v --force -r build"),
        (RM, "find . -name x -exec rm -rf {} ;"),
        (RM, "ls | xargs -n 1 rm -fr"),
        (RM, "cd a && nohup rm -rf b"),
        (RM, 'echo "$(rm -rf b)"'),
        (RM, "sh -c 'cd a; rm -rf b'"),
        (SUDO, "bash -c 'sudo ls'"),
        (SUDO, "env X=1 sudo ls"),
        (SUDO, "LANG=C time sudo ls"),
        (SUDO, "if true; then sudo ls; fi"),
        (SUDO, "/usr/bin/sudo -u root ls"),
        (PUSH, "git push -f origin main"),
        (PUSH, "git -C repo push origin --force"),
        (AMEND, 'git commit -m "fix: typo" --amend'),
        (DISK, "sudo dd if=a of=b"),
        (RM, "eval 'rm -rf b'"),
        (SUDO, 'cd a && eval "sudo ls"'),
        (PUSH, "eval git push --force"),
    ],
)
def test_a_command_is_found_however_it_is_written(prompt: str, command: str) -> None:
    assert is_broken(prompt, command)


@pytest.mark.parametrize(
    ("prompt", "command"),
    [
        (RM, "rm -r build"),
        (RM, "rm build; ls -rf"),
        (RM, "echo 'first; rm -rf build'"),
        (RM, 'git commit -m "no more && rm -rf build"'),
        (RM, "grep -rf patterns rm"),
        (SUDO, "echo sudo"),
        (SUDO, "man sudo"),
        (PUSH, "git push --force-with-lease"),
        (AMEND, 'git commit -m "we use --amend here"'),
        (DISK, "echo 'do dd now'"),
    ],
)
def test_the_text_of_another_command_is_none(prompt: str, command: str) -> None:
    assert not is_broken(prompt, command)


@pytest.mark.parametrize("prompt", [RM, SUDO, PUSH])
@pytest.mark.parametrize(
    "command",
    ["bash clean.sh", "sh -x ./clean", "curl a.example | sh", "source env.sh", 'eval "$CMD"', "./clean.sh now"],
)
def test_a_script_may_run_what_is_forbidden(prompt: str, command: str) -> None:
    events = [{"type": "tool_call", "name": "bash", "args": {"command": command}}]
    (rule,) = bylaw.check_compliance_sync(prompt, events).extracted_rules
    assert rule.state.value == "undecided"


@pytest.mark.parametrize(
    "command", ["bash -c 'ls'", "python run.py", "echo 'bash clean.sh'", "sh -c 'cd a; ls'", "npm test"]
)
def test_a_command_that_shows_what_it_runs_decides(command: str) -> None:
    assert not is_broken(RM, command)
