"""Calls that a model wrote as text: they are reported, and rules that they may decide are inconclusive."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from bylaw.traces import load_trace
from bylaw.traces.assembly.content import is_written_call
from bylaw.traces.formats.body_text import is_unreadable
from tests.importers.support import calls, export, lines, read, span

USER = {"role": "user", "content": "refund 7"}
JSON = '{"name": "refund", "arguments": {"order": 7}}'
WRITTEN = {
    "Hermes": f"<tool_call>\n{JSON}\n</tool_call>",
    "Llama 3.1": f"<function=refund>{JSON}</function>",
    "python tag": '<|python_tag|>refund.call(order="7")',
    "Llama JSON": '{"name": "refund", "parameters": {"order": 7}}',
    "Llama JSON, several": f"{JSON}; {JSON}",
    "a type": '{"type": "function", "name": "refund", "parameters": {}}',
    "a function": json.dumps({"type": "function", "function": json.loads(JSON)}),
    "pythonic": "[refund(order=7), notify()]",
    "a list": f"[{JSON}]",
    "a fence": f"```json\n{JSON}\n```",
    "Mistral": f"[TOOL_CALLS][{JSON}]",
    "DeepSeek": "<\uff5ctool\u2581calls\u2581begin\uff5c>refund",
    "MiniMax": f"<minimax:tool_call>{JSON}</minimax:tool_call>",
    "Claude": '<function_calls>\n<invoke name="refund">\n</invoke>\n</function_calls>',
    "Cline": "<use_mcp_tool>\n<tool_name>refund</tool_name>\n</use_mcp_tool>",
    "Command R": f"<|START_ACTION|>[{JSON}]<|END_ACTION|>",
    "Phi": f"functools[{JSON}]",
    "harmony": f"<|channel|>commentary to=functions.refund <|constrain|>json<|message|>{JSON}<|call|>",
    "harmony without tags": 'analysisI refund it.assistantcommentary to=functions.refund json{"order": 7}',
    "Gemma": "```tool_code\nrefund(order=7)\n```",
    "Gemini": "```python\nprint(default_api.refund(order=7))\n```",
    "ReAct": "Thought: I refund it.\nAction: refund\nAction Input: 7",
    "ReAct, bold": '**Action:** refund\n**Action Input:** {"order": 7}',
    "ReAct, JSON": f"Thought: so be it\nAction:\n{JSON}\nObservation:",
    "structured chat": 'Action:\n```\n{"action": "refund", "action_input": {"order": 7}}\n```',
    "AutoGPT": '{"thoughts": {"text": "so be it"}, "command": {"name": "refund", "args": {"order": 7}}}',
    "Nemotron": f"<TOOLCALL>[{JSON}]</TOOLCALL>",
    "Qwen": '\u273fFUNCTION\u273f: refund\n\u273fARGS\u273f: {"order": 7}',
    "Qwen, cut off": "I refund it. \u273fFUNCTION\u273f: refund",
    "XML agent": "I look.\n<tool>refund</tool><tool_input>7",
    "XML agent, without input": "<tool>refund</tool>\n",
    "GLM": "<tool_call>refund\n<arg_key>order</arg_key>\n<arg_value>7</arg_value>\n</tool_call>",
    "Qwen Coder": "<tool_call>\n<function=refund>\n<parameter=order>\n7\n</parameter>\n</function>\n</tool_call>",
    "Hermes, on one line": f"Sure. <tool_call> {JSON} </tool_call>",
    "Mistral, by name": "[TOOL_CALLS]refund[ARGS]{}",
    "Mistral, spaced": f"[TOOL_CALLS] [{JSON}]",
    "Kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.refund:0<|tool_call_argument_begin|>{}",
    "Gemma 3": "<start_function_call>call:refund{order:7}<end_function_call>",
    "DeepSeek, whole": "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>function"
    "<\uff5ctool\u2581sep\uff5c>refund\n```json\n{}\n```",
    "harmony, to a function": "to=functions.refund <|constrain|>json<|message|>{}",
    "harmony, cut off": "I refund it. to=functions.refund",
    "a tag, cut off": "I refund it. <tool_call>",
    "an invocation, cut off": '<invoke name="refu',
    "ReAct after a step without action": "Action: None\nAction Input: None\nAction: refund\nAction Input: 7",
    "ReAct, on the next line": "Action:\nrefund\nAction Input:\n7",
    "a mention before a call": f"I write <tool_call> and mean it: <tool_call>{JSON}</tool_call>",
    "tool calls": f'{{"tool_calls": [{JSON}]}}',
}
PROSE = {
    "a tag in backticks": "Hermes models write `<tool_call>` around calls, Mistral's `[TOOL_CALLS]` before them.",
    "a tag": "The tag <tool_call> is used by Qwen.",
    "tags": "Put it between <tool_call> and </tool_call>, or use a <tool_use> tag.",
    "tags with names": 'Write <function=foo> in Llama, <invoke name="x"> in XML (see <function_calls>).',
    "a quoted tag": 'The answer began with "<tool_call>", then "[TOOL_CALLS]", then **<|python_tag|>**.',
    "a token": "[TOOL_CALLS] is a token of Mistral; <|tool_call|> is one of Granite.",
    "a recipient": "to=functions.foo is the harmony syntax. Write to=functions.x to call.",
    "a fence": "In Python: ```tool_code``` is a fence that Gemini uses.",
    "a step without action": "Thought: I now know.\nAction: None\nAction Input: None\nFinal Answer: 45",
    "a step without action, decorated": "**Action:** `N/A`\n**Action Input:** None\n**Final Answer:** 45",
    "a tool of a workshop": "<tool>hammer</tool> and <function>sin</function> are elements.",
    "a module": "Use functools[0] or functools.cache.",
    "a fact": "The order was refunded. Action: none needed. See [1] and <b>bold</b>.",
    "a plan": "Action items:\n- Action: call the customer\n- Owner: Bob",
    "an action alone": "**Action:** I have refunded your order.",
    "an answer of an agent": "Thought: I know.\nFinal Answer: It is refunded.",
    "a final answer": 'Action:\n```\n{"action": "Final Answer", "action_input": "It is refunded."}\n```',
    "an object": '{"name": "Bob", "age": 7}',
    "a definition": '{"name": "refund", "description": "gives money back", "parameters": {"type": "object"}}',
    "a list of names": '[{"name": "Bob"}, {"name": "Eve"}]',
    "an address": "Open https://a.example/?from=a&to=b, or write to=you.",
    "code": "```python\nprint([f(x) for x in y])\n```",
    "a citation": "[Smith(2020)]",
    "a link": "[refund](https://a.example/refund?order=7)",
    "a comparison": "if a < b and tool_call > 3",
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_calls_that_are_written_as_text_are_reported(text: str) -> None:
    trace = load_trace(lines(USER, {"role": "assistant", "content": text}))
    assert [problem.code for problem in trace.problems] == ["unread-content"]
    assert trace.turns[0].response.unread == ("*",)


@pytest.mark.parametrize("text", PROSE.values(), ids=PROSE)
def test_ordinary_text_is_no_call(text: str) -> None:
    trace = load_trace(lines(USER, {"role": "assistant", "content": text}))
    assert (trace.problems, trace.turns[0].response.unread) == ((), ())


def shown(text: str) -> dict[str, Any]:
    output = [{"role": "assistant", "parts": [{"type": "text", "content": text}]}]
    values = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(output)}
    return span("chat", 0, 1, values)


FORMATS = {
    "pairs": {"request": {"messages": [USER]}, "response": {"choices": [{"message": {"role": "assistant",
        "content": WRITTEN["ReAct"]}, "finish_reason": "stop"}]}},
    "anthropic": [USER, {"role": "assistant", "content": [{"type": "text", "text": WRITTEN["ReAct"]}]}],
    "otlp": export(shown(WRITTEN["ReAct"])),
    "responses": {"id": "r1", "object": "response", "output": [{"type": "message", "role": "assistant",
        "content": [{"type": "output_text", "text": WRITTEN["ReAct"]}]}]},
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_every_reader_tells_them(name: str) -> None:
    trace = read(FORMATS[name])
    assert [turn.response.unread for turn in trace.turns] == [("*",)]


def test_a_call_whose_tool_was_recorded_is_read() -> None:
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "refund"}
    trace = read(export(shown(WRITTEN["ReAct"]), span("tool", 2, 3, tool)))
    assert ([call.name for call in calls(trace)], trace.problems, trace.turns[0].response.unread) == (
        ["refund"],
        (),
        (),
    )


@pytest.mark.parametrize(
    "unit",
    [
        "<tool>a</tool>",
        "<function=",
        "<tool_call> a",
        "to=functions.a ",
        "\n",
        "<a",
        "assistant ",
        "Action:\n",
        " Action",
        "``` ",
        "[",
        "[f(a=",
        '{"a":',
        "A\n",
        "output",
    ],
)
def test_the_time_grows_with_the_length_of_hostile_text(unit: str) -> None:
    def taken(count: int) -> float:
        text = unit * count + "!"
        began = time.process_time()
        is_written_call(text)
        is_unreadable(text)
        read(export(span("a", 0, 1, {"gen_ai.operation.name": "chat", f"{text}call": "x"})))
        return time.process_time() - began

    short = min(taken(2_000) for _ in range(3))
    assert taken(32_000) < 64 * max(short, 0.001)  # 16 times as long, which takes 256 times as long if it is squared
