"""The rules that were given, by the hash that rows name them by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from bylaw.errors import InputError
from bylaw.guard.decide.modes import with_mode
from bylaw.guard.decide.policy import policy_hash
from bylaw.guard.decide.tree import without_repeats
from bylaw.guard.decide.versions import of_version
from bylaw.guard.guard import joined_hash
from bylaw.model.guarding import ExecutionMode, GuardPolicy


def by_hash(files: Sequence[Sequence[GuardPolicy]]) -> dict[str, list[GuardPolicy]]:
    """Each file alone, and all of them together, in every mode and version: a row does not say how its guard was put
    together, only what came of it."""
    together = [policy for file in files for policy in file]
    groups = [*files, together] if len(files) > 1 else list(files)
    found: dict[str, list[GuardPolicy]] = {}
    for group in groups:
        for policies in _variants(group):
            made = without_repeats(policies)
            found.setdefault(joined_hash([policy_hash(policy) for policy in made]), list(policies))
    return found


def _variants(policies: Sequence[GuardPolicy]) -> Iterator[list[GuardPolicy]]:
    for version in _versions(policies):
        for mode in (None, *get_args(ExecutionMode)):
            try:
                yield with_mode(of_version(policies, version), mode)
            except InputError:  # no guard was ever put together like this
                continue


def _versions(policies: Iterable[GuardPolicy]) -> list[str | None]:
    sources = [policy.source for policy in policies if isinstance(policy.source, dict)]
    return [None, *dict.fromkeys(str(source["name"]) for source in sources if "name" in source)]
