"""Which argument values are commands, queries or code, so that their words decide.

Other texts of several words are not read word by word, as another wording is no other decision. What a value is made of
says more than the name of its argument: `git push` is a command in `input` too. A command without any sign of one
(`deploy web`) is known by its tool or its argument, and then only if it does not read like a sentence.
"""

from __future__ import annotations

import re

from bylaw.text.decisions import is_code

_OF_PEOPLE = re.compile(r"\b(?:the|your?|please|our|we|has|been|was|are|this|that|will)\b", re.IGNORECASE)
"""words of texts for people, which may have a sign of code in them, and hardly of commands and queries"""
_OF_SENTENCES = re.compile(r"\b(?:an?|my|who|what|how)\b", re.IGNORECASE)
"""further ones, which may be names in code"""
_PROGRAM_NAMES = (
    "apt apt-get aws awk az bash brew cargo cd chmod chown cp crontab curl dd docker docker-compose dotnet egrep gcc "
    "gcloud gh git grep gunzip gzip helm iptables journalctl jq kubectl ls mkdir mkfs mongosh mv mvn mysql nc nmap npm "
    "npx pip pip3 pkill pnpm podman psql pwsh pytest python3 rclone redis-cli rm rmdir rsync scp sed sh sqlite3 ssh "
    "sudo svn systemctl tar terraform tmux umount unzip useradd uv vault wget xargs yarn yum zsh"
)
"""programs that are no words of a language, so that a text that begins with one is a command"""
_PROGRAMS = frozenset(_PROGRAM_NAMES.split())
_QUERY = re.compile(
    r"\s*(?:select\s[^.?!]{1,200}?\sfrom\s|insert\s+into\s|update\s+\S+\s+set\s|delete\s+from\s"
    r"|(?:drop|alter|create|truncate)\s+(?:table|database|schema|view|index|user|role)\s|(?:grant|revoke)\s+\w+\s+on\s)",
    re.IGNORECASE,
)
_OF_SHELLS = frozenset(("bash", "cmd", "command", "commands", "cmdline", "powershell", "shell", "sql", "terminal"))
_OF_ARGUMENTS = _OF_SHELLS | {"code", "script", "statement"}
_OF_TOOLS = _OF_SHELLS | {"exec", "git", "interpreter", "kubectl", "psql", "python", "repl", "sh", "subprocess"}
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def is_shell(tool: str) -> bool:
    """Whether a tool runs commands, by its name."""
    return not _OF_TOOLS.isdisjoint(_pieces(tool))


def is_command(text: str, *, argument: str, is_of_shell: bool) -> bool:
    """Whether a text of several words is a command, a query or code. `is_of_shell`: it is the one text of a shell."""
    begins = text.split(maxsplit=2)[0].rpartition("/")[2]
    if begins in _PROGRAMS:
        return True
    is_named = argument.lower() in _OF_ARGUMENTS or not _OF_SHELLS.isdisjoint(_pieces(argument))
    if is_code(text):
        return is_named or _OF_PEOPLE.search(text) is None
    if _OF_PEOPLE.search(text) or _OF_SENTENCES.search(text):
        return False
    return is_named or is_of_shell or _QUERY.match(text) is not None


def _pieces(name: str) -> list[str]:
    """`run_shell` and `runShell` as `run` and `shell`."""
    return [piece.lower() for piece in _PIECE.findall(name[:200])]
