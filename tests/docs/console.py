"""Runs the console blocks of a page as a reader would: from top to bottom, in one folder.

A line that starts with `$ ` is a command; the lines below it are its output, stdout and stderr together. A line `...`
in the output stands for any number of lines. The commands `bylaw` (with `< FILE` and `> FILE`), `cat`, `cd` and
`echo $?` are run. Commands that set up a machine, such as `pip`, are not run and show no output. Ids and times may
differ from the page; an id that a page shows stands for the id that was printed in its place, in later commands too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.pages import Block
from tests.support.command import run_bylaw

SET_UP = ("git", "make", "pip", "pipx", "python3", "source", "uv", ".")
_ID = re.compile(r"\breview-[0-9a-f]{16}\b|\b[0-9a-f]{12}-[0-9]+\b")
_LATENCY = re.compile(r'"latency_us": [0-9.]+')


@dataclass(frozen=True)
class Command:
    text: str
    wanted: str
    """the output that the page shows"""

    def shown_with(self, printed: str | None) -> str:
        """The command as a page shows it, with the printed output if the output on the page does not match."""
        output = self.wanted if printed is None or fits(printed, self.wanted) else printed
        return f"$ {self.text}\n{output}"


@dataclass
class Shell:
    folder: Path
    code: int = 0
    """of the last command that was run"""
    ids: dict[str, str] = field(default_factory=dict)
    """id on the page → id that was printed"""

    def play(self, block: Block) -> Iterator[tuple[Command, str | None]]:
        """Run each command of a block; yield it with its output, or None if it is not run."""
        for command in commands(block.text):
            is_run = command.text.split()[0] not in SET_UP
            yield command, self._run_command(command) if is_run else None

    def run(self, block: Block) -> None:
        """Run a block, and compare the output with the page."""
        for command, printed in self.play(block):
            where = f"{block.where}: `{command.text}`"
            if printed is None:
                assert not command.wanted, f"{where} is not run, so leave its output out"
            else:
                assert fits(printed, command.wanted), f"{where} printed\n{printed}\nwanted\n{command.wanted}"

    def _run_command(self, command: Command) -> str:
        printed = tidy(self.output(_ID.sub(lambda found: self.ids.get(found[0], found[0]), command.text)))
        self.ids |= zip(_ID.findall(command.wanted), _ID.findall(printed), strict=False)
        shown = {real: id for id, real in self.ids.items()}
        return _ID.sub(lambda found: shown.get(found[0], found[0]), printed)

    def output(self, command: str) -> str:
        name, *arguments = shlex.split(command, comments=True)
        if command == "echo $?":
            return f"{self.code}\n"
        if name == "cd":
            self.folder = self.folder / arguments[0]
            return ""
        if name == "cat":
            return "".join((self.folder / file).read_text("utf-8") for file in arguments)
        assert name == "bylaw", f"`{name}` is not a command that pages may use"
        return self._bylaw(arguments)

    def _bylaw(self, arguments: list[str]) -> str:
        """Run a separate process, so that the exit code and the order of the two streams are real."""
        target, given = None, b""
        if ">" in arguments:
            *arguments, _, target = arguments
        if "<" in arguments:
            *arguments, _, source = arguments
            given = (self.folder / source).read_bytes()
        done = run_bylaw(arguments, cwd=self.folder, stdin=given, merge_streams=target is None)
        self.code = done.returncode
        if target is None:
            return done.stdout
        (self.folder / target).write_text(done.stdout, "utf-8")
        return done.stderr


def commands(text: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield Command(command.strip(), output)


def fits(printed: str, wanted: str) -> bool:
    parts = re.split(r"^\.\.\.\n", _constant(wanted), flags=re.MULTILINE)
    pattern = r"(?:.*\n)*?".join(re.escape(part) for part in parts)
    return re.fullmatch(pattern, _constant(printed)) is not None


def _constant(text: str) -> str:
    return _LATENCY.sub('"latency_us": 0', tidy(text))


def tidy(text: str) -> str:
    """The text without blank space that Markdown or an editor would remove."""
    lines = text.strip("\n").split("\n") if text.strip("\n") else []
    return "".join(f"{line.rstrip()}\n" for line in lines)
