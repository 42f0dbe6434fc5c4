"""What may not stand in arguments: shell commands, SQL statements, paths of files, and the same arguments again.

`never run "rm -rf"`, `do not make DML statements`, `never edit files in "/etc"`, `never make the same call twice`. The
main part has to fit a form as a whole. A command counts where a command can begin, not in the text of another one.
"""

from __future__ import annotations

import re
from itertools import permutations

from msgspec.structs import replace

from bylaw.comply.model import Tier
from bylaw.comply.prompt.binding import Bound, sql_params
from bylaw.comply.prompt.dialogue import FORBIDDEN_BEHIND, LEAD, limit_to_requests, quoted_shape
from bylaw.comply.prompt.readings import NO_TOOL, Reading, View, atom, either, formula
from bylaw.comply.prompt.vocabulary import any_case, root_set, roots, word_set

_HABITS_CONFIDENCE = 0.8
_OTHER_WAYS = "other tools may do the same, such as a shell"


def read_command(view: View) -> Reading | None:
    """The rule that a clause states about what arguments may not hold; undecided if it has a condition."""
    reading = _read_shell(view) or _read_sql(view) or _read_path(view) or _read_repeated(view)
    return limit_to_requests(view, reading) if reading else None


def _shape(view: View) -> tuple[str, list[str]]:
    """The main part with `§` for code, quoted text and what looks like a command or a path; and these texts."""
    text, found = quoted_shape(view), [literal.text for literal in view.literals()]
    if not found and (bare := _BARE_COMMAND.search(text)):
        found.append(bare["command"])
        text = f"{text[: bare.start()]}§{text[bare.end('command') :]}"
    return re.sub(r"\s+", " ", text).strip(" .,;:!*"), found


# -- shell commands ----------------------------------------------------------------------------------------------------

_PROGRAMS = word_set(
    """rm git sudo su curl wget chmod chown kill pkill killall dd mkfs shutdown reboot npm npx pip pip3 yarn pnpm
    docker kubectl terraform psql mysql apt apt-get brew mv cp cat head tail less more sed awk find ls cd echo
    python python3 node make ssh scp rsync systemctl eval exec nohup crontab iptables nc telnet cargo go mvn
    gradle helm aws gcloud az gh vim vi nano tee touch mkdir rmdir ln tar unzip bash sh zsh powershell grep rg
    tree watch top"""
)
_BARE_COMMAND = re.compile(
    r"(?<![\w`-])(?P<command>(?:rm|sudo|git|npm|pip|docker|kubectl|curl|chmod"
    r"|terraform) (?:[a-z-]+ )?--?[A-Za-z][\w-]*|sudo|git (?:push|commit"
    r"|reset|rebase|stash|clean|checkout|merge)(?= *[.,;!]? *$)|rm(?= *[.,;!]? *$))(?P<end>[\s.,;!)]|$)"
)
_COMMANDS = (
    r"(?:(?:the|any|a|an|shell|bash|terminal|command|destructive|dangerous|interactive|commands?|such as|like|flags?"
    r"|options?) )*"
)
_RUN_COMMAND = any_case(
    rf"{LEAD}(?:(?:no|run|execut|us|issu|invok|call|perform|do)(?:e|ing|ning)? )?{_COMMANDS}§(?:(?: ?, ?| ?/ ?"
    rf"| )(?:(?:or|and|nor) )?§)*(?: commands?)?(?: or (?:any )?(?:similar|other such|equivalent) commands?)?(?: (?:in"
    rf"|on|from) (?:the |a |your )?(?:shell|terminal|command line|bash))?{FORBIDDEN_BEHIND}"
)
_SAYS_COMMAND = any_case(r"\b(?:run|running|execut\w*|commands?|shell|terminal|bash)\b")
_HABITS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (any_case(rf"{LEAD}force[- ]?push(?:ing)?(?: (?:any )?(?:changes|commits|branches))?"), ("git push --force",)),
    (
        any_case(
            rf"{LEAD}(?:push(?:ing)?(?: (?:any |the |your )?(?:changes|code|commits))?(?: to (?:the |a "
            rf"|any )?(?:remote|origin)(?: repositor(?:y|ies)| branch(?:es)?)?)?)"
        ),
        ("git push",),
    ),
    (
        any_case(
            rf"{LEAD}(?:commit(?:ting)?(?: (?:any |the |your )?(?:changes|code))?|(?:create|make|creating"
            rf"|making) (?:any |a |git )*commits?)"
        ),
        ("git commit",),
    ),
    (any_case(rf"{LEAD}amend(?:ing)?(?: (?:any |a |the |an |existing |previous )*commits?)?"), ("git commit --amend",)),
)
_LONG = {"r": "recursive", "R": "recursive", "f": "force", "a": "all", "i": "interactive", "v": "verbose", "y": "yes"}
_SHORT = {"recursive": "r", "force": "f", "all": "a", "interactive": "i", "verbose": "v", "yes": "y"}
_MOST_FLAGS = 3
"""that are looked for in any order"""
_TOKEN = r"(?:'[^']*'|\"[^\"]*\"|[^\s;&|'\"])+"
_WRAPPERS = (
    r"(?:(?:\w+=\S*|(?:sudo|env|nohup|time|timeout|nice|exec|command|builtin|xargs|then|do|else|watch)"
    r"(?:\s+(?:-\S+|\w+=\S*|\d+[smh]?))*)\s+)*"
)
"""what may stand before a command: `env X=1`, `sudo -u root`, `nohup`"""
_QUOTED_SHELL = (
    r"(?:(?:(?:[\w.~-]*\/)*(?:ba|z|da|k)?sh\s+(?:-\S+\s+)*?-\w*c\s+['\"]|eval\s+['\"]?)(?:[^'\"]*[;&|(\n])?\s*)?"
)
_BEGIN = (
    r"(?:^(?:(?:[^'\"\x5c]|\x5c.|'[^']*'|\"[^\"]*\")*(?:[;&|(\n{]|\s-exec(?:dir)?\s))?\s*"
    r"|^(?:[^']|'[^']*')*(?:\$\(|`)\s*)"
    rf"{_WRAPPERS}{_QUOTED_SHELL}{_WRAPPERS}(?:[\w.~-]*\/)*"
)
"""where a command begins: not in the text that another one quotes"""
_UNSEEN = (
    rf"{_BEGIN}(?:(?:ba|z|da|k)?sh\s+(?:-[abd-zA-Z]+\s+)*(?:[^-\s'\"]|-c\s+['\"]?\$)|(?:source|\.)\s+\S|eval\s+['\"]?[$`]"
    r"|\.\/\S+\.sh)|\|\s*(?:sudo\s+)?(?:[\w.~-]*\/)*(?:ba|z|da|k)?sh\s*(?:[;&|]|-s|$)"
)
"""commands that run others which the trace does not show: a script, a pipe into a shell"""
_LIKE = any_case(r"\b(?:such as|like|similar|equivalent|other such)\b")
_LIKE_THESE = "it also forbids other commands of this kind"
_FILLED_IN = re.compile(r"[<{\[].*[>}\]]|\.\.\.|…")
_SHELL_WORDS = root_set("command cmd commands script shell bash")


def _read_shell(view: View) -> Reading | None:
    """`never run "rm -rf"`, `do not use git push --force`, `never force push`."""
    shape, texts = _shape(view)
    if view.marker.force == "only":
        shape = re.sub(r"\bonly\b ?", "", shape, flags=re.IGNORECASE)
        texts = []
        if not view.clause.parts:
            return None
    habit = next((commands for pattern, commands in _HABITS if pattern.fullmatch(shape)), None)
    if habit:
        reading = _forbid_commands(view, habit, habit[0], ceiling=_HABITS_CONFIDENCE)
        return replace(reading, asked_by="|".join(re.findall(r"commit|push|amend", habit[0])))
    if not texts or not _RUN_COMMAND.fullmatch(shape) or not all(_is_command(text, shape, view) for text in texts):
        return None
    if any(_FILLED_IN.search(text) for text in texts):
        return Reading(name=f"never {texts[0]}", undecided="the command has a part that is filled in")
    return _forbid_commands(view, tuple(texts), ", ".join(texts))


def _is_command(text: str, shape: str, view: View) -> bool:
    words = text.split()
    if not words or words[0] not in _PROGRAMS or text in view.sentence.tools.specs:
        return False
    return len(words) > 1 or words[0] == "sudo" or _SAYS_COMMAND.search(shape) is not None


def _forbid_commands(view: View, commands: tuple[str, ...], words: str, *, ceiling: float = 1.0) -> Reading:
    known = {param for spec in view.sentence.tools.specs.values() for param in spec.params}
    params = {param for param in known if _SHELL_WORDS & set(roots(param)) and re.fullmatch(r"\w+", param)}
    params |= {"command", "cmd"}  # of tools that no schema lists
    pattern = rf"{_BEGIN}(?:{'|'.join(map(_command_pattern, commands))})(?:[\s;&|)'\"`]|$)"
    atoms = [f"tool(*, args.{param} matches /{pattern}/)" for param in sorted(params)]
    # Text cannot be compared with a number: the rule is unknown where a script is run, which may do anything.
    atoms += [f"tool(*, args.{param} matches /{_UNSEEN}/, args.{param} < 0)" for param in sorted(params)]
    return Reading(
        name=f"never {words}",
        drafts=(formula(f"G !{either(atoms)}", "argument", f"its command is forbidden: {words}"),),
        forbidden=f"run: {words}",
        undecided=_LIKE_THESE if _LIKE.search(view.main) else None,
        ceiling=_HABITS_CONFIDENCE if _LIKE.search(view.main) else ceiling,
    )


def _command_pattern(command: str) -> str:
    """The words of a command in their order, with other arguments before a flag and other flags before an argument.

    Flags stand in any order, together or apart, short or long.
    """
    first, *rest = command.split()
    pattern, flags = _escape_word(first), list[str]()
    for word in (*rest, ""):
        if word.startswith("-"):
            flags += _flags_of(word)
            continue
        if flags:
            pattern += _in_any_order(flags)
            flags = []
        if word:
            pattern += rf"(?:\s+-[^\s;&|]+(?:\s+\w[^\s;&|]*)?)*?\s+{_escape_word(word)}"
    return pattern


def _escape_word(word: str) -> str:
    return re.escape(word).replace("/", r"\/").replace(r"\-", "-")


def _flags_of(word: str) -> list[str]:
    """`-rf` → `r`, `f`; `--force` → `f`; another long flag, or a short one with a value, as it is."""
    if word.startswith("--"):
        return [_SHORT.get(word[2:], word)]
    return list(word[1:]) if word[1:].isalpha() and len(word) <= _MOST_FLAGS + 1 else [word]


def _in_any_order(flags: list[str]) -> str:
    before = rf"(?:\s+{_TOKEN})*?\s+"
    alone = {flag: _one_flag(flag) for flag in dict.fromkeys(flags)}
    orders = list(permutations(alone)) if len(alone) <= _MOST_FLAGS else [tuple(alone)]
    apart = [before.join(alone[flag] for flag in order) for order in orders]
    together = [
        "-[a-zA-Z]*" + "[a-zA-Z]*".join(map(_flag_pattern, order)) + "[a-zA-Z]*"
        for order in orders
        if len(order) > 1 and all(len(flag) == 1 for flag in order)
    ]
    return f"{before}(?:{'|'.join((*together, *apart))})"


def _one_flag(flag: str) -> str:
    if len(flag) > 1:
        return _escape_word(flag)
    long = f"|--{_LONG[flag]}" if flag in _LONG else ""
    return f"(?:-[a-zA-Z]*{_flag_pattern(flag)}[a-zA-Z]*{long})"


def _flag_pattern(flag: str) -> str:
    return "[rR]" if flag in "rR" else flag


# -- SQL ---------------------------------------------------------------------------------------------------------------

_STATEMENTS = {
    "insert": r"insert\s+into", "update": r"update\s+\S+\s+set", "delete": r"delete\s+from",
    "drop": r"drop\s+(?:table|database|schema|index|view|column|user)", "truncate": r"truncate\s+\S+",
    "alter": r"alter\s+(?:table|database|schema|user)",
    "create": r"create\s+(?:\w+\s+)?(?:table|database|schema|index|view|user)",
    "grant": r"grant\s+\S+", "revoke": r"revoke\s+\S+", "merge": r"merge\s+into",
}  # fmt: skip
_KINDS = {
    "dml": ("insert", "update", "delete", "merge"),
    "ddl": ("create", "alter", "drop", "truncate"),
    "write": ("insert", "update", "delete", "merge", "drop", "truncate", "alter", "create"),
}
_KEYWORD = "|".join((*_STATEMENTS, "dml", "ddl"))
_SQL_LIST = rf"(?:{_KEYWORD})(?:(?:,? (?:or|and|nor) |, | ?/ ?)(?:{_KEYWORD}))*"
_NO_SQL = any_case(
    rf"{LEAD}(?:(?:no|run|execut|us|issu|mak|writ|perform|generat)(?:e|ing|ning)? )?(?:(?:any|the|a|sql"
    rf"|raw) )*(?P<list>{_SQL_LIST})(?: sql)?(?: (?:statements?|queries|query|commands?"
    rf"|operations?))(?: ?\((?:e\.g\.,? )?(?P<more>{_SQL_LIST}),?(?: ?etc\.?)?\))?(?: (?:to|on|against|in) (?:the |any "
    rf"|a )?(?:databases?|db|tables?))?{FORBIDDEN_BEHIND}"
)
_ONLY_SELECT = any_case(
    rf"{LEAD}(?:only )?(?:run|execute|use|issue|write"
    rf"|make)?(?: only)?(?: read-only)? ?select(?: sql)?(?: (?:statements?|queries|query|commands?))?"
    r"(?: (?:on|against) (?:the )?(?:database|db))?(?: (?:are|is) allowed)?"
)


def _read_sql(view: View) -> Reading | None:
    """`do not make any DML statements (INSERT, UPDATE …)`, `only run SELECT queries`."""
    shape = re.sub(r"\s+", " ", view.main).strip(" .,;:!*").lower()
    if view.marker.force == "only":
        keywords = list(_KINDS["write"]) if _ONLY_SELECT.fullmatch(shape) else []
    else:
        found = _NO_SQL.fullmatch(shape)
        keywords = re.findall(_KEYWORD, f"{found['list']} {found['more'] or ''}") if found else []
    statements = dict.fromkeys(word for keyword in keywords for word in _KINDS.get(keyword, (keyword,)))
    if not statements:
        return None
    pattern = rf"(?:^|;)\s*(?:{'|'.join(_STATEMENTS[one] for one in statements)})\b"
    params = {param for _, param in sql_params(view.sentence.tools)} | {"sql", "query", "statement"}
    atoms = [f"tool(*, args.{param} matches /{pattern}/i)" for param in sorted(params) if re.fullmatch(r"\w+", param)]
    listed = ", ".join(statements)
    draft = formula(f"G !{either(atoms)}", "argument", f"its statement is forbidden: {listed}")
    return Reading(name=f"no {' '.join(statements)}", drafts=(draft,), forbidden=f"run: {listed}")


# -- files -------------------------------------------------------------------------------------------------------------

_PATH = re.compile(r"(?:[\w.~*-]*/)+[\w.*-]*|\.[A-Za-z][\w.-]*|\*\.\w+|[\w-]+(?:\.[\w-]+)*\.[A-Za-z]\w{0,5}")
_FILES = (
    r"(?:(?:the|any|a|an|existing|of|in|to|under|inside|within|files?|contents?|directory|folder|directories|folders"
    r"|anything) )*"
)
_TOUCH_FILES = any_case(
    rf"{LEAD}(?:(?P<change>(?:edit|modify|writ|chang|overwrit|creat|delet|updat|touch|alter|mov|renam|remov)(?:e"
    rf"|ing)?(?: (?:or|and|,) (?:edit|modify|write|change|delete|create|update|move|rename|remove|overwrite))*)"
    rf"|(?P<read>read(?:ing)?|open(?:ing)?|access(?:ing)?)) {_FILES}§(?:(?: ?, ?| )(?:(?:or|and"
    rf"|nor) )?{_FILES}§)*(?: (?:files?|director(?:y|ies)|folders?))?(?: directly| manually| by hand)?"
)
_CHANGES = root_set(
    "write edit create update modify delete remove move rename patch apply replace insert append save overwrite str"
)
_READS = root_set("read open view cat show get load")
_PATH_PARAMS = root_set("path file filename filepath uri")


def _read_path(view: View) -> Reading | None:
    """`never edit files in "/etc"`, `do not modify "package-lock.json"`: tools whose names say that they do so."""
    shape, texts = _shape(view)
    found = _TOUCH_FILES.fullmatch(shape) if texts else None
    if found is None or not all(_PATH.fullmatch(text) for text in texts):
        return None
    tools, verbs = view.sentence.tools, _CHANGES if found["change"] else _READS
    targets = [
        (name, param)
        for name, spec in tools.specs.items()
        for param in spec.params
        if verbs & set(tools.roots[name]) and _PATH_PARAMS & set(roots(param)) and re.fullmatch(r"\w+", param)
    ]
    name = f"never touch {' '.join(texts)}"
    if not targets:
        return Reading(name=name, undecided=NO_TOOL)
    pattern = "|".join(_path_pattern(text) for text in texts).replace("/", r"\/")
    atoms = [f"{atom((tool,))[:-1]}, args.{param} matches /{pattern}/)" for tool, param in targets]
    return Reading(
        name=name,
        drafts=(formula(f"G !{either(atoms)}", "argument", f"its path is forbidden: {', '.join(texts)}"),),
        forbidden=f"change: {', '.join(texts)}" if found["change"] else f"read: {', '.join(texts)}",
        bounds=(Bound(tuple(tool for tool, _ in targets), Tier.LIKELY, _HABITS_CONFIDENCE),),
        undecided=_OTHER_WAYS,
    )


def _path_pattern(path: str) -> str:
    text = (
        re.escape(path.removeprefix("./").removeprefix("*").rstrip("/"))
        .replace(r"\*", r"[^/]*")
        .replace(r"\-", "-")
        .replace("\\/", "/")
    )
    if path.startswith("*."):
        return f"{text}$"
    start = "^" if path.startswith(("/", "~")) else "(?:^|/)"
    return f"{start}{text}(?:/|$)"


_ABSOLUTE = any_case(
    rf"{LEAD}(?:us(?:e|ing)|provid(?:e|ing)|pass(?:ing)?|giv(?:e"
    rf"|ing)) (?:only )?(?:an )?absolute (?:file )?paths?(?: (?:in|for|as|to) (?:the )?(?P<param>§"
    rf"|\w+)(?: (?:parameters?|arguments?))?)?"
    rf"|(?:the )?(?P<held>§|\w+)(?: (?:parameters?|arguments?))? {LEAD}(?:be )?(?:an )?absolute(?: (?:file )?paths?)?"
)


def read_absolute_paths(view: View) -> Reading | None:
    """`the "path" parameter must be absolute`; of a parameter that a known tool takes."""
    shape, texts = _shape(view)
    found = _ABSOLUTE.fullmatch(shape)
    name = (found["param"] or found["held"] or "") if found else ""
    param = texts[0] if name == "§" else name
    takers = view.sentence.tools.params.get(param)
    if found is None or not takers or view.clause.parts or not re.fullmatch(r"\w+", param):
        return None
    draft = formula(
        rf"G ({atom(takers, [(param, 'present', None)])} -> tool(*, args.{param} matches /^(?:\/|~|[A-Za-z]:)/))",
        "argument",
        f"its `{param}` is not an absolute path",
    )
    return Reading(
        name=f"absolute {param}",
        drafts=(draft,),
        trigger=f"call_tool: {', '.join(takers)}",
        required=f"argument: absolute {param}",
    )


# -- the same call again -----------------------------------------------------------------------------------------------

_SAME_CALL = any_case(
    rf"{LEAD}(?:(?:mak|repeat|issu|retry|call|us|invok|run|perform)(?:e|ing)? )+(?:the "
    rf"|an? )?(?:exact(?:ly)? )?(?:same|identical) (?:tool|function|call|tool call"
    r"|function call|action)s?(?: (?:twice|again|more than once|a second time|multiple times))?(?: (?:with|using"
    r"|on) (?:the )?(?:exact(?:ly)? )?(?:same|identical)"
    r" (?:arguments?|parameters?|inputs?|args))?(?: (?:twice|again|more than once|a second time|multiple times))?"
)
_MOST_TOOLS = 100
_SAME_INPUT = any_case(
    r"\b(?:same|identical) (?:arguments?|parameters?|inputs?|args|call|tool call|function call|action)s?\b"
)


def _read_repeated(view: View) -> Reading | None:
    """`never make the same tool call twice`: the same tool with the same arguments."""
    shape = re.sub(r"\s+", " ", view.main).strip(" .,;:!*")
    if not _SAME_CALL.fullmatch(shape) or not _SAME_INPUT.search(shape):
        return None
    tools = tuple(view.sentence.tools.specs)
    if not 0 < len(tools) <= _MOST_TOOLS:
        return Reading(name="no call twice", undecided="there are too many tools" if tools else NO_TOOL)
    calls = [f"{atom((tool,))[:-1]}, args = $arguments)" for tool in tools]
    drafts = tuple(formula(f"G ({call} -> count({call}) <= 1)", "count", "the same call came before") for call in calls)
    return Reading(name="no call twice", drafts=drafts, forbidden="call_tool: the same again")
