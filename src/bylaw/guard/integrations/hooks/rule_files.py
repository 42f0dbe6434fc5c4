"""Which rule files a hook uses: those of the project and of the folders above it. The strictest rule decides.

No file replaces another one: an agent can create files below its project, and other users can create files above it.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from bylaw.guard.integrations.hooks.connection import PROJECT

RULES = "bylaw.yaml"
STORE = ".bylaw/guard.db"
_log = logging.getLogger("bylaw")


class NoRules(Exception):
    """The message is for the model, and for the person who reads along."""


class RuleFiles(Struct, frozen=True):
    files: Sequence[Path]
    store: Path
    """where the store is, unless another one is named"""


def find_rules(
    here: Path, *, root: str | None, policy: str | None, folders: Sequence[str], environment: Mapping[str, str]
) -> RuleFiles:
    """`here`: where the hook runs. `root`: the project, as the command line names it. `folders`: where the agent works,
    as the payload says; that is believed only together with `here`. Raises NoRules."""
    if root is not None:
        if not root or not (here / root).is_dir():
            raise NoRules(f"`--root {root}` is no folder; run `bylaw hook install` again")
        here = here / root
    if policy:
        if _is_there(here / policy):
            _check_file(here / policy)
        return RuleFiles([here / policy], (here / policy).parent / STORE)
    named = str(here) if root else next((environment[name] for name in PROJECT if environment.get(name)), None)
    places = [here / named] if named else [here, *(here / folder for folder in folders)]
    ways = [found for place in places if (found := _on_the_way_up(Path(os.path.abspath(place))))]
    if not ways:
        asked = " or ".join(dict.fromkeys(f"`{place}`" for place in places))
        raise NoRules(f"there is no `{RULES}` in {asked} or above; write one, or pass --policy FILE")
    # an agent that works in a folder below must not move the counters by a file that it puts there
    first = ways[0][0] if named else ways[0][-1]
    return RuleFiles(list(dict.fromkeys(file for way in ways for file in way)), first.parent / STORE)


def _on_the_way_up(start: Path) -> list[Path]:
    """The nearest first. A file in the folder itself counts, whoever has written it; above it, only a trusted one.
    Raises NoRules if one that counts is no file: its rules would be left out without a word."""
    found = [folder / RULES for folder in (start, *start.parents) if _is_there(folder / RULES)]
    accepted = [file for file in found if file.parent == start or is_trusted(file)]
    for file in found:
        if file not in accepted:
            _log.warning("`%s` is not used: others than you and root can write it or its folder", file)
    for file in accepted:
        _check_file(file)
    return accepted


def _check_file(file: Path) -> None:
    if not file.is_file():
        raise NoRules(f"`{file}` is there, but it is no file that can be read; mend or remove it")


def _is_there(file: Path) -> bool:
    """Also if it is a link that leads nowhere. Raises NoRules if that cannot be found out."""
    try:
        file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as problem:
        raise NoRules(f"`{file}` cannot be looked for: {problem.strerror}") from None
    return True


def is_trusted(file: Path) -> bool:
    """Whether nobody but this user and root can have put it there."""
    if not hasattr(os, "getuid"):
        return True
    try:
        leads_somewhere = file.exists()  # and to itself does not count
        real = file.resolve() if leads_somewhere else file.parent.resolve() / file.name
        found = real.stat() if leads_somewhere else real.lstat()
        folders = [folder.stat() for folder in real.parents]
    except OSError:
        return False
    return not any(map(_is_open, (found, *folders))) and all(map(_is_ours, (found, *folders)))


def _is_open(found: os.stat_result) -> bool:
    """Whether others can write there. The mode of a link says nothing."""
    return bool(found.st_mode & stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX and not stat.S_ISLNK(found.st_mode)


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid in (os.getuid(), 0)
