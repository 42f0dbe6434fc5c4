"""Random temporal formulas, as text, and random traces that meet them: few tools, few values, few words.

They are drawn from any `random.Random`: a seeded one where speed counts, one of Hypothesis where a failure should be
made small.
"""

from __future__ import annotations

from random import Random
from typing import Any

TOOLS = ["a", "b", "c"]
CLOSED_TESTS = [
    "args.k = 1", "args.k = x", "args.k != 2", "args.k in [1, x]", "args.k not in [1]", "args.k present",
    "args.k missing", "args.n >= 5", "args.n < 2", "args.n = 5", "args.s contains a", "args.s matches /^a/",
    "args.s contains 1", "args.s.* = 1", "args.s.0 = 1", "args.k.x = 1", "args.s.* != 1", "args.k = null",
    'args.d < "2025-03-10"', 'args.d >= "2025-03-10"', 'args.d = "2025-03-10"',
]  # fmt: skip
RESULT_TESTS = [
    "result.ok = true", "result.n > 1", "result.n.x = 1", "result contains er", "error = true", "error != true",
    "result = ok", "result.* = 5", "result.missing missing", "result.1 = 2",
]  # fmt: skip
WINDOWS = ["[<=0]", "[<=2]", "[<=5e]", "[<=0t]", "[<=1t]", "[<=3t]", "[<=0s]", "[<=10s]", "[<=1m]"]
COMPUTED = ["$n", "$n", "$n + 1", "$n - 2", "2 * $n", "$n / 2", "0.5 * $n"]
DATES = ["2025-03-09", "2025-03-10", "2025-03-10T08:00:00", "2025-03-11", "March 10, 2025", "10/03/2025", "soon", 5]
COMPARISONS = ["=", "!=", ">", ">=", "<", "<="]


class Formulas:
    """`over="turns"` leaves out what needs positions that are events."""

    def __init__(self, rng: Random, over: str = "events") -> None:
        self.rng = rng
        self.over = over

    # Closed formulas: every operator over every atom

    def closed(self, depth: int = 3) -> str:
        """Half of them are judged at every position."""
        shape = self.rng.choice(
            ["{p}", "{p}", "G ({p})", "G ({p} -> {q})", "!F ({p})", "G ({p}) & {q}", "!({p} | F {q})"]
        )
        return shape.format(p=self.formula(depth - 1), q=self.formula(depth - 1))

    def formula(self, depth: int, *, ahead: bool = True) -> str:
        if depth <= 0 or self.rng.random() < 0.15:
            return self.atom()
        make = self.rng.choice([self._connective, self._back, self._ahead if ahead else self._back])
        return make(depth, ahead)

    def _connective(self, depth: int, ahead: bool) -> str:
        p, q = self.formula(depth - 1, ahead=ahead), self.formula(depth - 1, ahead=ahead)
        return self.rng.choice(["!{p}", "({p} & {q})", "({p} | {q})", "({p} -> {q})", "({p} <-> {q})"]).format(p=p, q=q)

    def _ahead(self, depth: int, ahead: bool) -> str:
        p, q, w = self.formula(depth - 1), self.formula(depth - 1), self.window()
        shapes = ["X {p}", "N {p}", "F{w} {p}", "G{w} {p}", "({p} U{w} {q})", "({p} W{w} {q})", "({p} R{w} {q})"]
        return self.rng.choice(shapes).format(p=p, q=q, w=w)

    def _back(self, depth: int, ahead: bool) -> str:
        w = self.window()
        # what a window or a count remembers has to be decided when it happens
        p, q = (self.formula(depth - 1, ahead=ahead and not w) for _ in "pq")
        counted = self.formula(depth - 1, ahead=False)
        shapes = ["Y {p}", "O{w} {p}", "H{w} {p}", "({p} S{w} {q})", "count{w}({c}) {op} {n}"]
        shapes += ["seen{w}({r})"] if self.over == "events" else []
        return self.rng.choice(shapes).format(
            p=p, q=q, w=w, c=counted, op=self.rng.choice(COMPARISONS), n=self.rng.randrange(4), r=self._called("result")
        )

    def window(self) -> str:
        return self.rng.choice(WINDOWS) if self.rng.random() < 0.4 else ""

    def atom(self) -> str:
        plain = ["tool(a)", "tool(b)", "tool(c)", "tool(a | c)", "tool(*)", "result(a)", "result(b)", "result(?)"]
        if self.rng.random() < 0.5:
            return self.rng.choice(plain)
        others = ["stop_reason(end_turn)", 'text("no")', "text(/N[oe]/)", "text(/NO/i)", 'user("yes")', "user(/^y/)"]
        others += ["agent(x)", "agent(x | z*)", "true", "false"]
        called = [f"tool({self._called('tool')})", f"result({self._called('result')})"]
        return self.rng.choice([self.rng.choice(others), *called])

    def _called(self, sort: str) -> str:
        tests = CLOSED_TESTS + (RESULT_TESTS * 2 if sort == "result" else [])
        return ", ".join([self.rng.choice([*TOOLS, "*"]), *self.rng.sample(tests, self.rng.choice([0, 1, 1, 2]))])

    # Formulas with variables, of the shapes that need no more memory than one place per value

    def with_variables(self) -> str:
        make = self.rng.choice(
            [self._one_variable, self._one_variable, self._two_variables, self._ordered, self._judged_once]
        )
        return make()

    def _one_variable(self) -> str:
        trigger = self.rng.choice([self.fixed("$k"), f"({self.fixed('$k')} | {self.fixed('$k')})"])
        if self.rng.random() < 0.2:
            trigger = f"{trigger} & {self.formula(1)}"
        return self.rng.choice(["G ({t} -> {r})", "G ({t} -> {r})", "!F ({t} & {r})"]).format(
            t=trigger, r=self.about("$k")
        )

    def about(self, names: str, depth: int = 2) -> str:
        """A formula about variables that have a value."""
        if depth > 0 and self.rng.random() < 0.3:
            p, q = self.about(names, depth - 1), self.rng.choice([self.about(names, depth - 1), self.formula(1)])
            return self.rng.choice(["!{p}", "({p} & {q})", "({p} | {q})", "({q} -> {p})"]).format(p=p, q=q)
        p, q, w = self.fixed(names), self.fixed(names), self.window()
        shapes = [
            "O{w} {p}", "Y O {p}", "H{w} !{p}", "((!{p}) S{w} {q})", "O ({p} & Y O {q})", "count{w}({p}) {op} {n}",
            "seen{w}({r})", "F{w} {p}", "X {p}", "N !{p}", "G{w} !{p}", "((!{p}) U{w} {q})", "((!{p}) W{w} {q})",
            "({p} R{w} !{q})", "X F{w} {p}", "{p}",
        ]  # fmt: skip
        seen = self.fixed(names, sort="result").removeprefix("result(").removesuffix(")")
        op, n = self.rng.choice(COMPARISONS), self.rng.randrange(4)
        return self.rng.choice(shapes).format(p=p, q=q, w=w, r=seen, op=op, n=n)

    def fixed(self, names: str, sort: str = "") -> str:
        """An atom that compares with every one of the variables by `=`."""
        keys = {"$k": "args.k = $k", "$n": "args.n = $n"}
        tests = [keys[name] for name in names.split()]
        sort = sort or self.rng.choice(["tool", "tool", "result"])
        if self.rng.random() < 0.15:
            tests.insert(self.rng.randrange(len(tests) + 1), self.rng.choice(CLOSED_TESTS))
        if sort == "result" and self.rng.random() < 0.3:
            tests.append(self.rng.choice(RESULT_TESTS))
        return f"{sort}({', '.join([self.rng.choice([*TOOLS, 'a | b']), *tests])})"

    def _two_variables(self) -> str:
        return f"G ({self.fixed('$k $n')} -> {self.about('$k $n', 1)})"

    def _ordered(self) -> str:
        """`result.n >= $n` asks for more than the latest event."""
        w, op, tool = self.window(), self.rng.choice([">", ">=", "<", "<=", "!="]), self.rng.choice(TOOLS)
        path = self.rng.choice(["args.n", "result.n"])
        is_order = op != "!="
        asked = f"{tool}, args.k = $k, {path} {op} {self.rng.choice(COMPUTED if is_order else COMPUTED[:1])}"
        if self.rng.random() < 0.25:
            asked = f"{tool}, args.k = $k, args.d {op} $d" + self.rng.choice(
                ["", " + 1d", " - 2d"] if is_order else [""]
            )
            return f"G (tool({self.rng.choice(TOOLS)}, args.k = $k, args.d = $d) -> O{w} result({asked}))"
        shapes = [f"O{w} result({asked})", f"!O{w} result({asked})", f"seen{w}({asked})", f"F{w} result({asked})"]
        return f"G (tool({self.rng.choice(TOOLS)}, args.k = $k, args.n = $n) -> {self.rng.choice(shapes)})"

    def _judged_once(self) -> str:
        p, q = self.fixed("$k"), self.fixed("$k")
        return self.rng.choice([f"F ({p} & X F {q})", f"F ({p} & Y O {q})", f"O ({p} & Y O {q}) -> F {self.atom()}"])


class Traces:
    """`known=True` leaves nothing out that an atom may ask for, `ordered=True` only no order of calls and results."""

    def __init__(self, rng: Random, *, known: bool = False, ordered: bool = False, most: int = 10) -> None:
        self.rng = rng
        self.known = known
        self.ordered = known or ordered
        self.most = most
        self.untimed = 0.0 if known else rng.choice([0.0, 0.0, 0.1, 1.0])
        self.now = 1000
        self.late: list[tuple[str, str]] = []
        """calls of open sessions that nothing has answered yet"""

    def trace(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        turns = self.rng.randint(1, self.most)
        for number in range(turns):
            items.append(self._turn(number))
            items += self._between(items[-1]["session"])
        return items

    def _turn(self, number: int) -> dict[str, Any]:
        session = "2" if self.rng.random() < 0.25 else "1"
        calls = [self._call() for _ in range(self.rng.choice([0, 1, 1, 2, 3]))]
        answered = [i for i in range(len(calls)) if self._chance(0.6)]
        if self._chance(0.4):
            self._spread(calls, answered)
        self.late += [(session, f"t{number}.{i}") for i in range(len(calls)) if i not in answered]
        turn: dict[str, Any] = {"session": session, "at": self._time(), "calls": calls}
        turn["results"] = [self._result(i) for i in answered]
        turn["text"] = self.rng.choice(["no", "yes", "", "No Ne"] if self.known else ["no", "yes", "", None])
        turn |= {"run": self.rng.choice(["r1", "r2"])} if session == "2" else {}
        turn |= {"agent": self.rng.choice(["x", "y"])} if self.known or self._chance(0.5) else {}
        turn |= {"stop": self.rng.choice(["end_turn", "tool_use"])} if self.known or self._chance(0.6) else {}
        turn |= {"request": self._request(session)} if self.known or self._chance(0.6) else {}
        return turn

    def _spread(self, calls: list[dict[str, Any]], answered: list[int]) -> None:
        """Let calls follow results of earlier calls of their turn; seldom, nobody knows whether they do."""
        for i, call in enumerate(calls):
            call["after"] = self.rng.randint(0, sum(j < i for j in answered))
            if not self.ordered and self._chance(0.05):
                call["unordered"] = [self.rng.choice([*TOOLS, "*"])]

    def _call(self) -> dict[str, Any]:
        call = {"name": self.rng.choice(TOOLS), "args": self._arguments(), "at": self._time()}
        if not self.known and self._chance(0.05):
            call |= self.rng.choice([{"args": None, "raw": "{broken"}, {"args": [1]}, {"args": None}])
        return call

    def _arguments(self) -> dict[str, Any]:
        pools = {
            "k": [1, 1, 2, "x", 1.0, None, "1", [1]],
            "n": [1, 2, 5, 7, "5", "1,5", True],
            "s": ["a", "ba", [1, 2], [], {"q": 1}, 3],
            "d": DATES,
        }
        likely = {"k": 4 if self._chance(0.8) else 8, "n": 4 if self._chance(0.8) else 7, "s": 6}
        likely["d"] = 5 if self._chance(0.8) else 8
        return {key: self.rng.choice(pool[: likely[key]]) for key, pool in pools.items() if self._chance(0.85)}

    def _result(self, of: Any) -> dict[str, Any]:
        contents: list[Any] = [
            {"ok": True, "n": 5}, '{"ok": false, "n": 2}', {"n": self.rng.randrange(8)}, "ok", "err", "[1, 2]", None,
            [_block('{"n": 7, "ok": true}')], [_block("er"), _block("r")], [1, 5], {"n": "1,5"}, {"n": "5"},
        ]  # fmt: skip
        result = {"of": of, "content": self.rng.choice(contents), "at": self._time()}
        return result | ({"error": self._chance(0.4)} if self._chance(0.7) else {})

    def _request(self, session: str) -> dict[str, Any]:
        if not self.known and self._chance(0.2):
            return {"model": "m"}
        messages: list[Any] = [{"role": "user", "content": self.rng.choice(["yes", "hey", "no"])}]
        if self._chance(0.4):
            messages.append({"role": "assistant", "content": "yes"})
        if self._chance(0.5):
            messages.append({"role": "user", "content": [{"type": "text", "text": self.rng.choice(["yes", "oh"])}]})
        if not self.known and self._chance(0.3):
            ids = [f"t{self.rng.randrange(4)}.{self.rng.randrange(2)}" for _ in range(3)]
            messages += [{"role": "tool", "tool_call_id": ids[0], "content": "yes"}]
            blocks = [{"type": "tool_result", "tool_use_id": one, "content": "yes"} for one in ids[1:]]
            messages += [{"role": "user", "content": blocks}]
        return {"messages": messages}

    def _between(self, session: str) -> list[dict[str, Any]]:
        """What may stand after a turn of this session."""
        items: list[dict[str, Any]] = []
        if self.late and self._chance(0.3):
            asked, call_id = self.late.pop(self.rng.randrange(len(self.late)))
            items.append({"session": asked, "result": self._result(call_id)})
        if not self.known and self._chance(0.04):
            items.append({"session": session, "result": self._result("?") | self.rng.choice([{}, {"name": "a"}])})
        if self._chance(0.1):
            items.append({"session": self.rng.choice("12"), "message": {"content": self.rng.choice(["yes", "oh"])}})
        if not self.known and self._chance(0.05):
            items.append({"end": session, "complete": self._chance(0.7)})
            self.late = [(open_session, call_id) for open_session, call_id in self.late if open_session != session]
        return items

    def _time(self) -> int | None:
        self.now += self.rng.choice([0, 0, 1, 5, 30, -3])
        return None if self._chance(self.untimed) else self.now

    def _chance(self, share: float) -> bool:
        return self.rng.random() < share


def _block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
