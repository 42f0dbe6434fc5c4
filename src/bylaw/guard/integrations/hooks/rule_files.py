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
    """The nearest first. A file in the folder itself counts, whoever has written it; above it, only a trusted one."""
    found = [folder / RULES for folder in (start, *start.parents) if (folder / RULES).is_file()]
    accepted = [file for file in found if file.parent == start or is_trusted(file)]
    for file in found:
        if file not in accepted:
            _log.warning("`%s` is not used: others than you and root can write it or its folder", file)
    return accepted


def is_trusted(file: Path) -> bool:
    """Whether nobody but this user and root can have put it there."""
    if not hasattr(os, "getuid"):
        return True
    try:
        found = file.stat()
        folders = [folder.stat() for folder in file.resolve().parents]
    except OSError:
        return False
    is_open = any(one.st_mode & stat.S_IWOTH and not one.st_mode & stat.S_ISVTX for one in (found, *folders))
    return not is_open and all(map(_is_ours, (found, *folders)))


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid in (os.getuid(), 0)
