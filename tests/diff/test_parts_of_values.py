"""Parts of argument values and answers that decide: long values, words of a command, JSON between sentences, months."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from bylaw.diff.calls import read_calls
from bylaw.diff.columns import Column
from bylaw.diff.figures import table
from bylaw.diff.model import DiffReport
from bylaw.model.events import Response
from bylaw.text.decisions import decisions, disagree
from bylaw.text.json_text import json_shape, written_keys
from bylaw.traces.comparison.recording import Recording, Step
from tests.diff.test_blind_spots import TASKS, Turns, diff, talk
from tests.support.build import trace

pytestmark = pytest.mark.sampled(3)

Value = Callable[[int], Any]


def calls(given: Value) -> list[Turns]:
    return [
        talk(f"t{i}", f"Question {i} about item {7 * i + 1000}, please.", [("run", given(i), "ok")])
        for i in range(TASKS)
    ]


def with_text(argument: str, text: str, beside: dict[str, Any] | None = None) -> list[Turns]:
    """Calls with a text that has another number in each session."""
    return calls(lambda i: {**(beside or {}), argument: text.replace("{}", str(7 * i + 1000))})


def named(sessions: list[Turns], tool: str) -> list[Turns]:
    """The same calls of another tool."""
    for call in (call for session in sessions for turn in session for call in turn.get("calls", ())):
        call["name"] = tool
    return sessions


def answers(said: Callable[[int], str]) -> list[Turns]:
    return [talk(f"t{i}", f"Question {i} about item {7 * i + 1000}, please.", [], said(i)) for i in range(TASKS)]


def always(value: Any) -> Value:
    return lambda i: value


def filled(text: str, first: int = 3, step: int = 1) -> Callable[[int], str]:
    return lambda i: text.replace("{}", str(first + step * i))


def given(before: Value, after: Value) -> DiffReport:
    return diff(calls(lambda i: {"x": before(i)}), calls(lambda i: {"x": after(i)}))


# -- long values ------------------------------------------------------------------------------------------------------

BLOB = "q" * 3_000


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (BLOB + "x", BLOB + "y"),
        (10**300, 10**300 + 1),
        ([*range(199), 5000], [*range(199), 6000]),
        ([*range(999), 5000], [*range(999), 6000]),
        ([*range(20)], [*range(20)][::-1]),
        ([{"id": 1}, {"id": 2}], [{"id": 2}, {"id": 1}]),
        ([{"v": "keep"}] * 300, [{"v": "keep"}] * 299 + [{"v": "drop"}]),
        ([[[1] * 20] * 20], [[[1] * 20] * 19 + [[2] * 20]]),
    ],
)  # fmt: skip
def test_a_long_value_that_changes_alike_in_each_session_is_seen(before: Any, after: Any) -> None:
    report = given(always(before), always(after))
    assert report.exit_code == 1
    assert report.findings
    assert all(len(one.text) < 600 for one in report.findings)
    assert given(always(after), always(after)).exit_code == 0


def test_all_elements_of_a_list_are_counted_or_said_not_to_be() -> None:
    for length, path, count in ((100, "x.*.v", 100), (300, "x.(the first 200).v", 200)):
        shown = f'`{path} = "drop"` more often in 14 of 14 sessions (0.00 → {count:.2f}'
        report = given(always([{"v": "keep"}] * length), always([{"v": "drop"}] * length))
        assert any(shown in one.text for one in report.findings), [one.text for one in report.findings]


# -- words of a value -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("ls -la /srv/item{}", "rm -rf /srv/item{}", "`run` is now called with `rm` in `x` in 14 of 14 sessions"),
        ("SELECT * FROM t WHERE id = {}", "DELETE FROM t WHERE id = {}", "now called with `delete` in `x`"),
        ("https://a.example/item/{}", "https://b.example/item/{}", "now called with `b.example` in `x`"),
        ("user{}@a.example", "user{}@evil.example", "now called with `@evil.example` in `x`"),
        ("ann{}@x.example, bo@a.example", "ann{}@y.example, bo@a.example", "now called with `@y.example` in `x`"),
        ("{}.50", "-{}.50", "now called with a number below zero in `x`"),
        ("/home/u{}/x", "/etc/u{}/x", "now called with `etc` in `x`"),
        ("x = {}\nif x > 0:\n    keep(x)", "x = {}\nif x < 0:\n    keep(x)", "called with `<` in `x`"),
        ("credit_card_{}", "gift_card_{}", "now called with `gift` in `x`"),
    ],
)
def test_a_word_inside_a_value_that_differs_in_each_session_is_seen(before: str, after: str, text: str) -> None:
    both = filled(before, 1000, 7), filled(after, 1000, 7)
    report = given(*both)
    assert report.exit_code == 1
    assert any(text in one.text for one in report.findings), [one.text for one in report.findings]
    assert given(both[0], both[0]).exit_code == 0


@pytest.mark.parametrize(
    ("argument", "before", "after", "word"),
    [
        ("input", "git pull origin web-{}", "git push origin web-{}", "push"),
        ("x", "sudo kubectl get pod web-{}", "sudo kubectl delete pod web-{}", "delete"),
        ("query", "select name from t{}", "drop table t{}", "drop"),
        ("shell_command", "keep entry e{}", "wipe entry e{}", "wipe"),
        ("cmd", 'git commit -m "The fix of {}"', 'git revert -m "The fix of {}"', "revert"),
    ],
)
@pytest.mark.parametrize("tool", ["run", "act_on"])
def test_a_command_is_known_by_its_shape_whatever_its_argument_is_called(
    tool: str, argument: str, before: str, after: str, word: str
) -> None:
    both = [named(with_text(argument, text), tool) for text in (before, after)]
    found = [one.text for one in diff(*both).findings]
    assert any(f"`{tool}` is now called with `{word}` in `{argument}`" in text for text in found), found


def test_a_command_without_any_sign_of_one_is_known_by_its_tool_or_the_name_of_its_argument() -> None:
    for tool, argument in (("bash", "input"), ("run_sql", "q"), ("run", "command"), ("run", "script")):
        before, after = (named(with_text(argument, f"{verb} entry e{{}}"), tool) for verb in ("keep", "wipe"))
        assert f"now called with `wipe` in `{argument}`" in diff(before, after).findings[0].text


@pytest.mark.parametrize(
    ("tool", "argument", "one", "other"),
    [
        ("bash", "description", "List files of job {}", "Show what job {} left behind"),
        ("execute_trade", "note", "as asked by client {}", "client {} wanted it"),
        ("search", "query", "make a cake for {}", "cake recipe for {} guests"),
        ("search", "query", "python tutorial part {}", "learn python, chapter {}"),
        ("search", "query", "select a seat from row {}", "seats in row {}"),
        ("file", "statement", "the client of order {} is angry", "please call client {}, who is angry"),
    ],
)
def test_another_wording_beside_a_command_is_no_change(tool: str, argument: str, one: str, other: str) -> None:
    def run(text: str) -> list[Turns]:
        return named(with_text(argument, text, {"command": "ls -la /srv"} if tool == "bash" else {}), tool)

    assert diff(run(one), run(other)).exit_code == 0


def test_a_number_below_zero_and_another_type_are_seen() -> None:
    report = given(lambda i: i + 10, lambda i: -(i + 10))
    assert "`run` is now called with a number below zero in `x` in 14 of 14 sessions" in report.findings[0].text
    report = given(lambda i: 7 * i + 1000, lambda i: str(7 * i + 1000))
    assert "`run` is now called with a text in `x` in 14 of 14 sessions" in report.findings[0].text


@pytest.mark.parametrize("wording", ["Refund for order {}", "Your refund | order {}", "Re: *your* order no. {}"])
def test_another_wording_of_a_short_text_is_no_other_word_of_a_command(wording: str) -> None:
    assert given(filled("About the refund of order {}", 1000, 7), filled(wording, 1000, 7)).exit_code == 0


def test_another_wording_of_a_message_in_a_list_is_no_other_list() -> None:
    texts = (
        "Dear customer, your refund is on its way to you now.",
        "Dear customer, we have just sent the refund to you.",
    )
    before, after = ([{"role": "user", "text": text}, {"role": "end", "text": ""}] for text in texts)
    assert given(always(before), always(after)).exit_code == 0
    assert given(always(before), always(after[::-1])).exit_code == 1


def test_words_that_say_what_another_column_says_are_left_out() -> None:
    def row(*words: str) -> dict[Column, float]:
        columns = [
            Column("trajectory", "calls", "run"),
            *(Column("trajectory", "argument word", "run", f"x={w}") for w in words),
        ]
        return dict.fromkeys(columns, 1.0) | {Column("trajectory", "called", "other"): 1.0}

    rows = [row("ls", "-la", "srv"), row("rm", "-rf", "srv"), {}] * 3
    assert [column.detail for column in table(rows)[0] if column.what == "argument word"] == ["x=ls", "x=rm"]


def test_columns_of_a_session_are_bounded() -> None:
    text = "a = b; " + " ".join(f"{c}{d} < x" for c in "abcdef" for d in "ghijkl")
    turns = [{"calls": [{"name": "run", "args": {f"x{i}": text + str(i) for i in range(90)}}]} for _ in range(3)]
    responses = [event for event in trace(turns, name="t").events if isinstance(event, Response)]
    recording = Recording("t", "s", steps=[Step(one, i) for i, one in enumerate(responses)])
    found = [column for column, _ in read_calls(recording)]
    assert sum(column.what == "argument word" for column in found) < 1_020
    assert sum(column.what == "argument values" for column in found) == 270


# -- JSON in answers --------------------------------------------------------------------------------------------------

FENCED = "Here is the result:\n\n```json\n{}\n```\nAnything else?"
INLINE = "The result is {} as you asked."


@pytest.mark.parametrize("form", [FENCED, INLINE, "{}\n{}", "{}"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_json_between_sentences_has_keys(form: str, deterministic: bool) -> None:
    def said(key: str) -> Callable[[int], str]:
        return lambda i: form.replace("{}", json.dumps({key: 7 * i + 1000, "currency": "EUR"}))

    report = diff(answers(said("fee")), answers(said("price")), deterministic=deterministic)
    assert report.exit_code == 1
    key = "lines[].price" if form == "{}\n{}" else "price"
    assert any(
        f"14 of 14 answers now have the key `{key}`" in one.text or f"at `{key}`" in one.text for one in report.findings
    )
    prose = answers(lambda i: f"The fee is {7 * i + 1000} and the currency is EUR.")
    assert diff(answers(said("fee")), prose, deterministic=deterministic).exit_code == 1
    assert diff(answers(said("fee")), answers(said("fee")), deterministic=deterministic).exit_code == 0


@pytest.mark.parametrize(
    "form",
    [FENCED.replace("{}", "{}\n```\nand\n```json\n{}"), "First {} and then {} came.", "{} and\n```json\n{}\n```"],
)
@pytest.mark.parametrize("place", [0, 1])
def test_each_of_several_blocks_of_json_is_compared(form: str, place: int) -> None:
    def said(key: str = "fee", paid: Any = True) -> Callable[[int], str]:
        blocks = [{"fee": 1000, "at": "desk"}, {"fee": 1000, "for": "bag", "ok": True}]

        def text(i: int) -> str:
            changed = {key: 7 * i + 1000} | {name: value for name, value in blocks[place].items() if name != "fee"}
            shown = [*blocks[:place], changed | {"paid": paid}, *blocks[place + 1 :]]
            return form.replace("{}", "%s") % tuple(map(json.dumps, shown))

        return text

    report = diff(answers(said()), answers(said("price")))
    assert report.exit_code == 1
    assert any("now have the key `price`" in one.text for one in report.findings), report.findings
    assert diff(answers(said()), answers(said(paid=False)), deterministic=True).exit_code == 1
    assert any("a text at" in one.text for one in diff(answers(said()), answers(said(paid="no"))).findings)
    assert diff(answers(said()), answers(said()), deterministic=True).exit_code == 0


def test_json_beyond_a_number_of_blocks_is_read_as_prose() -> None:
    def text(last: int) -> str:
        return " and ".join(json.dumps({"n": i}) for i in [*range(10, 60), last])

    assert decisions(text(70)).facts >= {("number", "70")}
    assert disagree(decisions(text(70)), decisions(text(71)))


def test_other_sentences_around_the_same_json_are_no_change() -> None:
    block = "```json\n" + json.dumps({"fee": 5, "ok": False}) + "\n```"
    for shown in (block, f"{block}\nThen:\n{block}"):
        assert diff(answers(always(f"Sure:\n{shown}")), answers(always(f"{shown}\nIs there more?"))).exit_code == 0


def test_json_alone_and_json_between_sentences_are_two_things() -> None:
    alone = answers(lambda i: json.dumps({"fee": i}))
    report = diff(alone, answers(lambda i: INLINE.replace("{}", json.dumps({"fee": i}))))
    assert any("14 of 14 answers are no longer JSON" in one.text for one in report.findings)


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (lambda i: {"items": {"id": i}}, lambda i: {"items": [{"id": i}]}, "now have a list at `items`"),
        (lambda i: {"items": [{"id": i}]}, lambda i: {"items": []}, "no longer have an object at `items[]`"),
        (lambda i: {"fee": i}, lambda i: {"fee": str(i)}, "now have a text at `fee`"),
        (lambda i: [{"id": i}], lambda i: {"id": i}, "now have the key `id`"),
        (lambda i: {"a": {"b": i}}, lambda i: {"a": {"c": i}}, "now have a number at `a.c`"),
        (lambda i: {"rows": [*range(900), 1]}, lambda i: {"rows": [2, *range(1, 900), 1]}, "value"),
    ],
)
def test_another_shape_inside_json_is_seen(before: Value, after: Value, text: str) -> None:
    report = diff(answers(lambda i: json.dumps(before(i))), answers(lambda i: json.dumps(after(i))))
    assert report.exit_code == 1
    assert any(text in one.text for one in report.findings), [one.text for one in report.findings]


NO_JSON = ["See [1] and {name}.", "Use {x: 1}.", "[ ] paid", "{", '{"a": ', "a ``` b", "```\n{\n```", '{"a":1,"b":2']


@pytest.mark.parametrize("text", [*NO_JSON, 'x {"a": NaN}', r'x {"a": "\ud800"}'])
def test_text_with_braces_is_no_json(text: str) -> None:
    assert json_shape(text) is None


@pytest.mark.parametrize(
    "part",
    ['{"a":', "```\n{", '{ "', "[{", "[x] a\n", "must be ", "once a ", "help ", "option ", "| a ", "|-", "a:\n", "- "],
)
def test_hostile_text_takes_time_by_its_length(part: str) -> None:
    def spent(length: int) -> float:
        started = time.process_time()
        text = (part * length)[:length] + "_"
        decisions(text)
        written_keys(text)
        return time.process_time() - started

    assert min(spent(16_000 + i) for i in range(2)) < 8 * 6 * max(spent(2_000), 0.001)


@pytest.mark.parametrize("number", [str(10**400), "9" * 5_000, "1e400", "-0.0"])
def test_any_number_in_json_is_read(number: str) -> None:
    for form in ('{"a": %s}', 'It is {"a": %s}.', '{"a": %s}\n{"a": %s}'):
        assert disagree(decisions(form.replace("%s", number)), decisions(form.replace("%s", "7")))


# -- YAML and tables in answers ---------------------------------------------------------------------------------------

YAML = "fee: {}\nitems:\n  - id: {}\n    name: bag"
TABLE = "Here it is:\n\n| name | fee |\n|:--|--:|\n| bag | {} |"


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (YAML, YAML.replace("fee", "price"), "14 of 14 answers now have the YAML key `price`"),
        (YAML, YAML.replace("name", "label"), "14 of 14 answers now have the YAML key `label`"),
        (f"Sure:\n```yaml\n{YAML}\n```", f"Sure:\n```yaml\n{YAML}\nPaid: 1\n```", "now have the YAML key `Paid`"),
        (TABLE, TABLE.replace("| fee", "| price"), "14 of 14 answers now have the table column `price`"),
    ],
)
def test_another_key_of_yaml_or_a_table_is_seen(before: str, after: str, text: str) -> None:
    report = diff(answers(filled(before)), answers(filled(after)))
    assert report.exit_code == 1
    assert any(text in one.text for one in report.findings), [one.text for one in report.findings]
    assert diff(answers(filled(before)), answers(filled(before))).exit_code == 0


@pytest.mark.parametrize(
    "text",
    ["Note: it is done.", "Fee: 3\nTax: 4", "fee: 3", "It is so:\nfee: 3", "a | b\nc | d", "| a | b |\nx", "---"],
)
def test_lines_with_a_colon_or_bars_are_no_yaml_and_no_table(text: str) -> None:
    assert written_keys(text) == frozenset()


# -- months and small words -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("It is due in March 2026.", "It is due in April 2026."),
        ("Delivery by the end of March.", "Delivery by the end of June."),
        ("It is due in May.", "It is due in June."),
        ("It arrives on {} March 2026.", "It arrives on {} April 2026."),
        ("Choose option A.", "Choose option B."),
        ("You must pay.", "You may pay."),
        ("It arrives today.", "It arrives tomorrow."),
        ("Take it daily.", "Take it weekly."),
        ("Take it once a day.", "Take it twice a day."),
        ("You are on the second floor.", "You are on the third floor."),
        ("- [x] paid", "- [ ] paid"),
        ("All of your orders were sent.", "Some of your orders were sent."),
    ],
)
def test_a_small_word_in_the_place_of_another_is_seen(before: str, after: str) -> None:
    assert diff(answers(filled(before)), answers(filled(after))).exit_code == 1
    mails = [filled(f"{text}\n\nDear customer {{}}, as agreed we wrote this.") for text in (before, after)]
    assert given(*mails).exit_code == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It is due in March.", "The due date is in March."),
        ("It arrives on 5 March 2026.", "It arrives on 2026-03-05."),
        ("It arrives tomorrow, on 5 March.", "It arrives on 5 March. How can I help you today?"),
        ("You may pay now. You must sign it.", "You can pay now. You have to sign it."),
        ("It may take 5 days.", "It must be sent within 5 days."),
        ("Take one tablet daily.", "Take one tablet once a day."),
        ("You are on the second floor.", "You are on the 2nd floor."),
        ("First, open it. Wait a second please.", "Open it and wait one moment."),
        ("The fee is due every month.", "The fee is due monthly."),
        ("You may ask again. It may be late.", "Feel free to ask. It might be late."),
        ("I will march on; that may work.", "I will go on; that could work."),
    ],
)
def test_another_wording_of_small_words_is_no_change(one: str, other: str) -> None:
    for before, after in ((one, other), (other, one)):
        assert diff(answers(always(before)), answers(always(after))).exit_code == 0


def test_may_is_a_month_only_where_it_is_one() -> None:
    texts = ["It may rain.", "May I ask?", "It is due in May.", "The end of May 2026.", "Mar 2026", "en mars 2026"]
    months = [[said for kind, said in decisions(text).facts if kind == "month"] for text in texts]
    assert months == [[], [], ["May"], ["May"], ["March"], ["March"]]
