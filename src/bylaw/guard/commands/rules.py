"""The rules that a command follows a store with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from bylaw.model.guarding import GuardPolicy

POLICY = click.option("--policy", "-p", "policies", multiple=True, required=True, metavar="FILE", help="Guard rules.")
VERSION = click.option("--version", metavar="NAME", help="Of an agent manifest with several versions.")


def loaded(policies: Sequence[str], version: str | None) -> list[GuardPolicy]:
    """Raises InputError."""
    from bylaw.guard.decide.versions import of_version
    from bylaw.rules import load_guard

    return of_version([policy for path in policies for policy in load_guard(path).policies], version)
