"""A prompt → its lines, each with its role, its position and the headings it stands below.

Prompts are Markdown with parts in XML, HTML, tables, JSON and YAML. A line is a heading (`## Refunds`, `**Refunds**`,
`<refunds>`), an item (`- x`, `3. x`, `<li>x`, a row of a table, an element of a JSON list) or part of a paragraph. Code
between fences and text between tags such as `<example>` is left out: it shows something and demands nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Literal

from msgspec import Struct

from bylaw.comply.prompt.markers import Force, find_marker, imperative_at
from bylaw.comply.prompt.vocabulary import any_case, root_set, roots, word_set

MAX_PROMPT = 2_000_000
"""characters; the rest is reported as unread"""

_HEADING = re.compile(r"(?P<marks>#{1,6})\s+(?P<text>.*?)\s*#*\s*$")
_ITEM = re.compile(
    r"(?P<mark>[-*+•‣▪◦·–]|\(?\d{1,3}[.)]|\d{1,2}(?:\.\d{1,2}){1,3}[.)]?|\(?[a-zA-Z][.)])\s+(?P<text>\S.*)$"
)
_BOLD_LINE = re.compile(r"(?:\*\*|__)(?P<text>[^*_]{1,80}?):?(?:\*\*|__):?\s*$")
_CAPITALS = re.compile(r"[A-Z][A-Z&/-]+(?: [A-Z&/-]+){0,5}|\[[A-Z][\w '&/-]{1,40}\]:?")
"""`LOST AND FOUND`, `[LIVE SHOWS]`"""
_TITLE_LINE = re.compile(r"[A-Z][\w'&/-]*(?: [\w'&/()-]+){0,4}")
"""`Prank calls` on a line of its own, above others"""
_DEMANDS = re.compile(r"\b(?:NEVER|ALWAYS|NOT|NO|MUST|ONLY|FORBIDDEN|PROHIBITED|CALL|USE|AVOID)\b")
_IDENTIFIER = re.compile(r"\w_\w")
_FENCE = re.compile(r"\s*(```|~~~)")
_TAG = re.compile(
    r"<(?P<close>/?)(?P<name>[A-Za-z][\w.-]*(?: [A-Z]\w*)*)(?P<more>\s[^<>\n]{0,200})?/?>|\{[%#][^\n]{0,300}?[%#]\}"
    r"|\{\{[#/^][^\n{}]{0,200}\}\}"
)
_OPENING = re.compile(r"\s*<(?P<name>[A-Za-z][\w.-]*)>")
_CLOSING = re.compile(r"</([A-Za-z][\w.-]*(?: [A-Z]\w*)*)\s*>")
_INLINE = word_set("a b i u em strong span small code kbd mark sup sub br")
_BLOCKS = word_set("br p li ul ol div tr td th table tbody thead h1 h2 h3 h4 h5 h6 section")
_LISTED = word_set("li tool function")
"""tags around each item of a list"""
_SHOWS = any_case(
    r"(?:\w+[-_ ])*(?:examples?|samples?|demonstrations?|few[-_]?shots?|transcripts?)(?:[-_ ]\d+)?"
    r"|user|assistant|human|code|pre|schema|json|template|example[-_]\w+"
)
"""tags whose content is shown, not demanded"""
_ROW_RULE = re.compile(r"\|?(?:\s*:?-{2,}:?\s*\|)+(?:\s*:?-{2,}:?\s*)?")
_KEY = re.compile(r"\"?(?P<key>[a-z]+(?:_[a-z]+)+)\"?\s*:")
_RULE_KEY = any_case(
    r"(?:\w+[_ ])*(?:rules?|polic(?:y|ies)|constraints?|instructions?|guidelines?|guardrails?|requirements?"
    r"|restrictions?|forbidden|prohibited|banned|blocked|denied|disallowed|allowed|permitted|limits?|never|always|must"
    r"|not)(?:[_ ]\w+)*"
)
"""keys of JSON and YAML whose values are rules"""
_TOOLS_KEY = re.compile(r"(?:forbidden|prohibited|banned|blocked|denied|disallowed|allowed|permitted|never|do_not)_")
_STRING = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"(\s*:)?")
_DEMAND_IN_CODE = any_case(
    r"\b[a-z]+_\w+\W{0,3}(?:->|=>|\u2192)\W{0,3}[a-z]+_\w+"
    r"|\b(?:never|always|must|do not|don't|only|forbidden|prohibited)\b.*\b[a-z]+_[a-z]"
    r"|\b[a-z]+_[a-z].*\b(?:never|always|must|do not|don't|only|before|forbidden|prohibited)\b"
)
"""a line of code that names a tool and reads like a rule: it is listed, but not decided"""
_MOST_TAGS = 300
"""of one line that divide it"""
_LONGEST_LINE = 1_000
"""characters of it that are looked at for a scope"""
_LONGEST_JSON = 50_000
_MOST_TRIES = 20
"""lines that begin like JSON and are not"""
_SCOPES = any_case(
    r"^\W*(?:if|when(?:ever)?|while|during|in case|after|before|once|on|at|with(?:out)?|unless|until|handling"
    r"|in(?! (?:general|all|any|every|short|summary)\b)|for(?! (?:all|every|each|any)\b))\b|^\W*(?:steps?|procedures?"
    r"|process|workflow|flow|checklist) (?:for(?! (?:all|every|each|any)\b)|when|if|after|during|in case)\b|\b(?:mode"
    r"|phase|stage|scenarios?|cases?|only|optional|examples?|samples?|if|when|during|unless|except|production|staging"
    r"|development|sandbox|weekends?|holidays?|emergenc(?:y|ies)|mistakes?|went wrong|myths?|misconceptions?|deprecated"
    r"|obsolete|outdated|legacy|(?:old|former|previous) (?:rules?|polic(?:y|ies)|versions?|behaviou?r))\b|^\W*(?:bad"
    r"|wrong|incorrect)\W*$|\b(?:users?|customers?|clients?|callers?|guests?|people|they|somebody|someone"
    r"|others)\b.{0,40}\b(?:say|says|said|tell|tells|ask|asks|claim|claims|write|writes|think|believe|type|types)\b"
)
_SOME_PEOPLE = any_case(
    r"^\W*(?!(?:the |your |our )?(?:ai )?agent\W*$)(?:the )?(?:[\w-]+ ){0,3}(?:citizens?|passengers?|applicants?"
    r"|travell?ers?|residents?|owners?|players?|pupils?|learners?|candidates?|contractors?|agents?|callers?|famil(?:y"
    r"|ies)|child(?:ren)?|kids|seniors|nurses?|doctors?|vendors?|suppliers?|donors?|investors?|borrowers?|claimants?"
    r"|policyholders?|speakers?|parents?|workers?|guests?|vips?|admins?|administrators?|members?|partners?|employees?"
    r"|staff|users?|customers?|clients?|visitors?|minors?|adults?|subscribers?|managers?|testers?|developers?|tenants?"
    r"|patients?|students?|teachers?|drivers?|sellers?|buyers?|merchants?|beginners?|accounts?|plans?|tiers?)\W*$"
)
"""`English-speaking citizens`"""
_NEUTRAL = root_set(
    """rule policy limit safety security style tone format flow process procedure guideline requirement restriction tool
    usage handling management privacy output communication behaviour behavior language general hard important
    critical note instruction constraint principle boundary step task goal duty right do dont must never always
    forbidden prohibited basic key core common additional further other more how what when your our you answer
    response reply message default detail standard mandatory best practice convention interlock guardrail check term
    condition capability access operation question first things final before after every each all any time work house
    follow below above here these those this that is are it about with in on at no not can may should shall will be
    please remember agent assistant system prompt overview introduction role mission purpose background context part
    section job call use keep mind absolute act workflow golden ground matter table list non negotiable strict
    example short brief concise sentence word etc as if we i my me us they them their warning reminder caution
    attention banned disallowed off function action allowed don t run the main second third rule1 priority high
    compliance which also and or of to info apply obey"""
)
"""words of headings that limit nothing"""
_FOR_ALL = any_case(r"\W*(?:for|in|at|on) (?:all|every|each|any)\b")
_MOST_WORDS = 5
_TITLE = re.compile(r"\s*# \S[^\n]*(?=\n(?s:.*)\n## )(?!(?s:.*)\n# )")
"""the one heading of the first level, above sections: `# Harbour desk, Port Lannis` says whose prompt it is"""
_ANNOUNCES = any_case(
    r"\b(?:the following|what follows|everything below|the rest|th(?:is|e) (?:next )?(?:section|part|list)"
    r"|the rules below|these rules|rules below)\b(?: \w+){0,3}? (?:appl(?:y|ies)|holds?|concerns?|is"
    r"|are) (?:only )?(?:to|for|in|when|if)\b(?! (?:all|every|each|any|you)\b)"
)
"""says when the text below it holds: `The following only applies to guests.`"""
_CONDITIONAL_TAG = any_case(r"\b(?!id|name|class|number|n|type|priority|severity|level|title|lang|version)[\w-]+\s*=")
_ATTRIBUTE = re.compile(r"=\s*[\"']([^\"']{1,200})[\"']")
_DENIES = any_case(
    r"\W*(?:(?:things|what) (?:you (?:must|should) )?(?:not to|never|to avoid|not)\b.{0,30}|(?:please )?(?:never|do not"
    r"|don['\u2019]?t(?:['\u2019]?s)?|avoid|forbidden|prohibited|not allowed|must not|bad|wrong|incorrect"
    r"|anti-?patterns?|mistakes|pitfalls)\b(?: \w+){0,3})\W*"
)
"""headings above things that are not to be done"""


class Line(Struct):
    """A line with its role; `text` has no marks, and `start` is its position in the prompt."""

    role: Literal["heading", "item", "text", "blank"]
    text: str
    start: int
    indent: int = 0
    number: int = 0
    """the number of an item, `3. x`; 0 if it has none"""
    level: float = 0
    """of a heading: 1 to 6, 7 for a line in bold, below 1 for a tag"""
    under: str = ""
    """the heading above it that limits what it says: `When debugging`"""
    topics: tuple[str, ...] = ()
    """the headings above it that name a topic: `Payments`"""
    denied: str = ""
    """the heading above it that forbids what it lists: `Don'ts`"""
    children: list[Line] = []
    """the items below it"""
    forbidden: str = ""
    """the introduction or heading that forbids it, if it names a tool: `Forbidden tools:`"""
    listed: bool = False
    """an item that is the name of a tool and opens no section"""

    limits: bool = False
    """an introduction that says for what its list holds: `Domestic flights:`"""

    @property
    def introduces(self) -> bool:
        return self.text.rstrip("*_ ").endswith(":")


def limits_scope(heading: str) -> bool:
    """Whether a heading or an introduction says when the text below it holds: `In plan mode`, `For refunds:`."""
    return _SCOPES.search(heading) is not None or _SOME_PEOPLE.match(heading) is not None


def topic_words(heading: str) -> frozenset[str]:
    """The words of a heading that name a topic: those of `Payments`, none of `Hard rules`."""
    if _FOR_ALL.match(heading):
        return frozenset()
    words = re.sub(r"\([^()]*\)", " ", heading)[:_LONGEST_LINE]
    return frozenset(root for root in roots(words) if not root.isdigit()) - _NEUTRAL


def _names_some(heading: str, known: Collection[str]) -> bool:
    """`Domestic flights` speaks of some flights; `Leave requests` is the topic, if tools are named so (`known`)."""
    words = re.findall(r"[A-Za-z][\w'-]*", re.sub(r"\([^()]*\)", " ", heading)[:_LONGEST_LINE])
    is_plural = words[-1:] and re.search(r"[^su]s$", words[-1].lower())
    if not is_plural or not 2 <= len(words) <= _MOST_WORDS:
        return False
    each = [set(roots(word)) for word in words]
    return not any(one & _NEUTRAL for one in each) and not all(one <= set(known) for one in each)


def read_lines(prompt: str, known: Collection[str] = ()) -> Iterator[Line]:
    """The lines of a prompt in its order, with the heading that limits each of them.

    `known` are the roots of the tools' names.
    """
    above: list[tuple[float, str]] = []
    topics: list[tuple[float, str]] = []
    denial = announced = above_text = ""
    is_open = False
    """whether lines have come since the introduction"""
    title = _TITLE.match(prompt[:MAX_PROMPT])
    for line in _raw_lines(prompt[:MAX_PROMPT]):
        if line.role == "heading" or (line.role == "blank" and is_open):
            above_text, is_open = "", False
        if line.role == "heading":
            announced = ""
            denial = line.text if _DENIES.match(line.text) else "" if line.text or line.level < 1 else denial
            above = [one for one in above if one[0] < line.level]
            is_title = title is not None and line.start < title.end()
            is_limit = limits_scope(line.text) or (not is_title and _names_some(line.text, known))
            above += [(line.level, line.text)] if line.level and is_limit else []
            topics = [one for one in topics if one[0] < line.level]
            topics += [(line.level, line.text)] if not is_title and topic_words(line.text) else []
        else:
            announced = line.text if _ANNOUNCES.search(line.text[:_LONGEST_LINE]) else announced
            line.under = line.under or (above[0][1] if above else "") or announced
            line.topics = tuple(text for _, text in topics)
            if line.role == "text" and line.introduces:
                is_limit = limits_scope(line.text[:_LONGEST_LINE]) or _names_some(line.text, known)
                line.limits = is_limit
                above_text, is_open = line.text if is_limit else "", False
            elif line.role == "text":
                line.under, is_open = line.under or above_text, True
            own = find_marker(line.text[:_LONGEST_LINE]) if denial else None
            line.denied = "" if own and own.force is Force.FORBID else denial
        yield line


def _wrappers(prompt: str) -> set[int]:
    """Where the tags end that stand around the whole prompt, such as `<agent>`: they say nothing about when it holds.

    One that names a mode, forbids, or has attributes still limits what it holds.
    """
    found, at, end = set[int](), 0, len(prompt.rstrip())
    while opening := _OPENING.match(prompt, at, end):
        name = opening["name"]
        title = re.sub(r"[_-]", " ", name)
        is_shown = _SHOWS.fullmatch(name) and name.lower() != "assistant"
        if is_shown or _SCOPES.search(title) or _DENIES.match(title) or not prompt.endswith(f"</{name}>", at, end):
            break
        depth, last = 0, end - len(name) - 3
        for one in re.finditer(rf"<(/?){re.escape(name)}\b", prompt[opening.end() : last]):
            depth += -1 if one[1] else 1
            if depth < 0:  # `<rule>…</rule> <rule>…</rule>`
                return found
        found.add(opening.end())
        at, end = opening.end(), len(prompt[:last].rstrip())
    return found


def _raw_lines(prompt: str) -> Iterator[Line]:
    wrappers = _wrappers(prompt)
    closed = {name.lower() for name in _CLOSING.findall(prompt)} | _BLOCKS
    open_tags: list[str] = []
    conditions: list[str] = []
    """of a template, which are open"""
    fenced, start, resume, tries = False, 0, 0, 0
    shown = ""
    """the tag whose content is left out"""
    rows = prompt.splitlines(keepends=True)
    header = ""
    """the header of the last column, if it says what the cells are about: `Needs approval`"""
    for number, raw in enumerate(rows):
        begin, start = start, start + len(raw)
        if begin < resume:
            continue
        if _FENCE.match(raw):
            fenced = not fenced
        if fenced or _FENCE.match(raw):
            if not shown and _DEMAND_IN_CODE.search(raw[:_LONGEST_LINE]):
                text = raw.strip().lstrip("-*#/ ")
                yield Line("item", text, begin + raw.index(text), under="a block of code")
            continue
        if not shown and tries < _MOST_TRIES and raw.lstrip()[:1] in ("{", "["):
            tries += 1
            if found := _read_json(prompt, begin):
                resume, lines = found
                yield from lines
                continue
        if "<" not in raw and "{" not in raw:
            if not shown:
                above, below = (rows[at] if 0 <= at < len(rows) else "" for at in (number - 1, number + 1))
                if _ROW_RULE.fullmatch(below.strip()):
                    cells = raw.strip().strip("|").split("|")[1:]
                    header = next((cell.strip() for cell in cells if topic_words(cell)), "")
                header = header if raw.lstrip()[:1] == "|" else ""
                yield from _under(
                    [*conditions, header] if header else conditions, _plain_lines(raw, begin, below, above=above)
                )
        else:
            for tag, piece, at in _split_at_tags(raw, closed):
                name, _, more = tag.partition("\0")
                name = "" if begin + at in wrappers else name
                if name == "%":
                    _open_or_close(more, conditions)
                if shown:
                    shown = "" if name == f"/{shown}" else shown
                    continue
                if name and _SHOWS.fullmatch(name) and name not in _INLINE:
                    shown = name
                    continue
                if name:
                    values = _ATTRIBUTE.findall(more)
                    has_condition = _CONDITIONAL_TAG.search(more) and name not in _BLOCKS
                    limit = f" if {more}" if has_condition or any(map(limits_scope, values)) else ""
                    yield _tag_heading(name, begin + at, open_tags, limit)
                if piece.strip():
                    yield from _under(conditions, _plain_lines(piece, begin + at, "", is_item=name in _LISTED))


def _open_or_close(tag: str, conditions: list[str]) -> None:
    """`{% if guest %}` opens a condition, `{% endif %}` and `{{/if}}` close one."""
    words = re.findall(r"[a-z]+", tag.lower()) or [""]
    if tag.startswith("{{/") or words[0].startswith("end"):
        del conditions[-1:]
    elif tag.startswith(("{{#", "{{^")) or words[0] in ("if", "for", "unless", "case", "ifequal", "with"):
        conditions.append(tag)


def _under(conditions: list[str], lines: Iterator[Line]) -> Iterator[Line]:
    for line in lines:
        if conditions and line.role != "blank":
            line.under = line.under or conditions[0]
        yield line


def _tag_heading(name: str, start: int, open_tags: list[str], limit: str = "") -> Line:
    """A tag as a heading that ends with its closing tag: `<plan_mode>` → `plan mode`."""
    if name.removeprefix("/") in _LISTED:
        return Line("heading", "", start, level=1)
    if name.startswith("/"):
        if name[1:] in open_tags:
            del open_tags[len(open_tags) - 1 - open_tags[::-1].index(name[1:]) :]
        return Line("heading", "", start, level=(len(open_tags) + 1) / 1_000)
    if (name in _BLOCKS and not limit) or name == "%":
        return Line("heading", "", start, level=1)
    open_tags.append(name)
    return Line("heading", re.sub(r"[_-]", " ", name) + limit, start, level=len(open_tags) / 1_000)


def _split_at_tags(raw: str, closed: set[str]) -> Iterator[tuple[str, str, int]]:
    """The pieces of a line between its tags: the tag in front, the text, and its position in the line.

    `wrap it in <answer> tags` speaks of a tag: only tags at the ends of the line, behind a sentence, or next to each
    other divide it. Inline tags of HTML become blanks.
    """
    text, name, at = raw, "", 0
    for found in islice(_TAG.finditer(raw), _MOST_TAGS):
        tag = (found["name"] or "%").lower()
        if raw.count("`", 0, found.start()) % 2 or not (tag in closed or tag == "%" or tag in _INLINE):
            continue
        text = f"{text[: found.start()]}{' ' * len(found[0])}{text[found.end() :]}"
        if tag in _INLINE and tag != "br":
            continue
        before, behind = text[at : found.start()], raw[found.end() :]
        is_edge = not before.strip() or before.rstrip()[-1] in ".!?:;" or not _TAG.sub("", behind).strip()
        if not (is_edge or tag in _BLOCKS or (found["close"] and behind.lstrip()[:1] == "<")):
            text = f"{text[: found.start()]}{found[0]}{text[found.end() :]}"
            continue
        if name or before.strip():
            yield name, before, at
        name, at = (
            f"{found['close'] or ''}{tag}\0{(found['more'] or '').strip() if found['name'] else found[0]}",
            found.end(),
        )
    yield name, text[at:], at


def _is_title(text: str, above: str, below: str) -> bool:
    """Whether a plain line is a heading: a few words that demand nothing, above a line that begins anew."""
    begins = below.lstrip("-*+\u2022`\"'( 0123456789.)")[:1]
    if above.strip() or not begins.isupper() or not _TITLE_LINE.fullmatch(text):
        return False
    return not (_IDENTIFIER.search(text) or imperative_at(text) or find_marker(text))


def _plain_lines(raw: str, begin: int, below: str, *, above: str = ".", is_item: bool = False) -> Iterator[Line]:
    text = raw.strip()
    if not text or set(text) <= set("-=_*# ") or (text[:1] == "|" and _ROW_RULE.fullmatch(text)):
        yield Line("blank", "", begin)
        return
    offset = begin + raw.index(text[0])
    indent = len(raw.expandtabs(4)) - len(raw.expandtabs(4).lstrip())
    if text[:1] == "|" and text.count("|") > 1:
        yield from _read_row(text, offset, is_header=_ROW_RULE.fullmatch(below.strip()) is not None)
    elif heading := _HEADING.match(text) or _BOLD_LINE.match(text):
        level = len(heading["marks"]) if heading.re is _HEADING else 7
        yield Line("heading", heading["text"], offset + heading.start("text"), indent, level=level)
    elif below.strip() and (
        (_CAPITALS.fullmatch(text) and (text[0] == "[" or not _DEMANDS.search(text))) or _is_title(text, above, below)
    ):
        yield Line("heading", text.strip("[]:"), offset + text.startswith("["), indent, level=7)
    elif item := _ITEM.match(text):
        mark = item["mark"].strip("().")
        number = int(mark) if mark.isdecimal() else 0
        yield Line("item", _spell_out_key(item["text"]), offset + item.start("text"), indent, number)
    else:
        yield Line("item" if is_item else "text", _spell_out_key(text), offset, indent)


def _spell_out_key(text: str) -> str:
    """`forbidden_tools: [a]` → `forbidden tools: [a]`: a key of YAML is no tool."""
    found = _KEY.match(text)
    if found is None or not _TOOLS_KEY.match(found["key"]):
        return text
    return text[: found.start("key")] + found["key"].replace("_", " ") + text[found.end("key") :]


def _read_row(text: str, start: int, *, is_header: bool) -> Iterator[Line]:
    """A row of a table: `| drop_table | never |` → `drop_table : never`. The header of one column introduces it."""
    inner = text.strip("|")
    first = start + text.index(inner)
    cells = inner.count("|") + 1
    if is_header:
        if cells == 1:
            yield Line("text", f"{inner.strip()}:", first + len(inner) - len(inner.lstrip()))
        return
    body = inner.replace("|", ":", 1).replace("|", ";")
    if not body.strip(" :;"):
        return
    yield Line("item", body.strip(), first + len(body) - len(body.lstrip()), indent=1)


def _read_json(prompt: str, begin: int) -> tuple[int, list[Line]] | None:
    """The strings of a JSON value that begins here, and where it ends; None if it is not JSON.

    Strings below a key such as `rules` are rules. Others are examples or descriptions of fields more often than not,
    so what they say is listed, but not decided.
    """
    at = begin + len(prompt[begin : begin + 200]) - len(prompt[begin : begin + 200].lstrip())
    try:
        value, length = json.JSONDecoder().raw_decode(prompt[at : at + _LONGEST_JSON])
    except (ValueError, RecursionError):
        return None
    if not value or not isinstance(value, dict | list):
        return None
    lines, key = [Line("heading", "", at, level=1)], ""
    for found in _STRING.finditer(prompt, at, at + length):
        if found[2]:
            key = found[1]
            if _RULE_KEY.fullmatch(key):
                lines.append(Line("text", f"{key.replace('_', ' ')}:", found.start(1), indent=0))
        else:
            under = "" if _RULE_KEY.fullmatch(key) else f"JSON, {key or 'without a key'}"
            lines.append(Line("item", found[1], found.start(1), indent=1, under=under))
    lines.append(Line("heading", "", at + length, level=1))
    return at + length, lines
