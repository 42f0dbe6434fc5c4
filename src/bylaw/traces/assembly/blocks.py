"""What a model answered, as content blocks: the text in it and the calls it issued."""

from __future__ import annotations

from typing import Any, TypeAlias

CALL_BLOCKS = frozenset(("tool_use", "server_tool_use", "mcp_tool_use"))
"""a call the model issued, whoever ran it"""


_TEXT_KEYS: dict[Any, str] = {"refusal": "refusal", "output_text": "text", None: "text"}
"""blocks that are text under another name, by their type; one without a type that has text is text"""


Content: TypeAlias = tuple[list[Any] | None, str | None, list[dict[str, Any]] | None]
"""the blocks, their text joined by newlines, and those of them that are calls"""


def read_content(content: list[Any] | str | None) -> Content:
    """Recorded content, whether blocks, plain text or nothing at all. Runs once a turn."""
    if not isinstance(content, list):
        return (None, None, None) if content is None else ([{"type": "text", "text": content}], content, None)
    if len(content) == 1 and type(block := content[0]) is dict and block.get("type") == "text":
        text = block.get("text")
        if type(text) is str:
            return content, text, None
    texts: list[str] = []
    uses: list[dict[str, Any]] | None = None
    for block in content:
        if type(block) is not dict:
            if type(block) is str:
                texts.append(block)
            continue
        kind = block.get("type")
        if kind == "text":
            if type(text := block.get("text")) is str:
                texts.append(text)
        elif type(kind) is str and kind in CALL_BLOCKS:
            uses = uses or []
            uses.append(block)
        elif (kind is None or type(kind) is str) and type(text := block.get(_TEXT_KEYS.get(kind, ""))) is str:
            texts.append(text)
    return content, texts[0] if len(texts) == 1 else "\n".join(texts), uses


KNOWN = frozenset(
    (*CALL_BLOCKS, "text", "thinking", "redacted_thinking", "reasoning", "refusal", "output_text", "image", "image_url",
     "input_text", "input_audio", "audio", "document", "file", "compaction")
)  # fmt: skip
"""block types whose meaning is known; a result of a tool that the provider ran ends in `tool_result`"""


def unread_kinds(content: list[Any] | None) -> list[str]:
    """Types of blocks that nobody here knows: they may hold text or calls that rules cannot see."""
    kinds: set[str] = set()
    for block in content or ():
        kind = block.get("type") if type(block) is dict else None
        if kind is not None and (type(kind) is not str or kind not in KNOWN):
            kinds.add(str(kind))
    return sorted(kind for kind in kinds - KNOWN if not kind.endswith("tool_result")) if kinds else []
