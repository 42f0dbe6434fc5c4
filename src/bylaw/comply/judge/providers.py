"""Models that judge: any endpoint that speaks as OpenAI's chat completions or as Anthropic's messages do.

`exchange` sends one request and waits no longer than it was told; `openai` and `anthropic` say what the request holds
and where the answer stands in the reply. Address and key come from the caller or from the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bylaw.errors import FeatureNotEnabledError

if TYPE_CHECKING:
    from bylaw.comply.judge.endpoint import Endpoint

SWITCH = "BYLAW_ENABLE_JUDGE"
_ON = frozenset(("1", "true", "yes"))
PROVIDERS = ("openai", "anthropic")


def require_enabled(environment: Mapping[str, str] = os.environ) -> None:
    """The judge sends text elsewhere, so it is off until the environment says otherwise."""
    if environment.get(SWITCH, "").strip().lower() not in _ON:
        raise FeatureNotEnabledError(f"the judge is off: set `{SWITCH}` to `1`, `true` or `yes` to let it be asked")


def open_judge(
    spec: str,
    *,
    url: str | None = None,
    key: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Endpoint:
    """`openai:MODEL` or `anthropic:MODEL`. Raises FeatureNotEnabledError, ValueError; sends nothing yet.

    `url` and `key` come, where not given, from `BYLAW_JUDGE_URL` and `BYLAW_JUDGE_KEY`, then from the provider's own
    (`OPENAI_BASE_URL`, `OPENAI_API_KEY`, `ANTHROPIC_BASE_URL`, `ANTHROPIC_API_KEY`).
    """
    if not isinstance(spec, str):
        raise TypeError(f"a judge is named by text such as `openai:MODEL`, not by {type(spec).__name__}")
    provider, _, model = spec.partition(":")
    if provider not in PROVIDERS or not model.strip():
        raise ValueError(f"`{spec}` names no judge: write `openai:MODEL` or `anthropic:MODEL`")
    require_enabled(environment)
    from bylaw.comply.judge.anthropic import Anthropic
    from bylaw.comply.judge.openai import OpenAI

    endpoint = OpenAI if provider == "openai" else Anthropic
    upper = provider.upper()
    return endpoint(
        model.strip(),
        url=url or environment.get("BYLAW_JUDGE_URL") or environment.get(f"{upper}_BASE_URL") or endpoint.home,
        key=key or environment.get("BYLAW_JUDGE_KEY") or environment.get(f"{upper}_API_KEY"),
    )
