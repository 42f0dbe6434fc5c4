"""Words that decide: pairs of opposites, of which a text mostly uses one side, words that deny, and names.

`_PAIRS` counts wherever one of its words stands, in any form. `_PHRASES` is for words that also have meanings which
decide nothing ("you have 3 days left", "right away", "after checking your account"): they count only within a phrase.
A word that is denied ("not approved") counts for neither side, since "denied" may be another word for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# -- names -------------------------------------------------------------------------------------------------------------

# Names of people and places in a text, found by their capitals. The first word of a sentence is capitalised anyway: it
# counts if it is a common given name, or if somebody is spoken to ("Alice, it is done"). In German every noun is
# capitalised, so there a name counts only after a word that leads to one.

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n\"“(*>•|–—-])\s*[\"'“\u2018(*_#]*\s*$")
_NO_NAME = (
    "i i'm i'll i've i'd ok okay yes no the a an and or but if you your we our please thank thanks hello hi dear am pm "
    "sure great however additionally also so then well now once again first second finally next note important january "
    "february march april may june july august september october november december unfortunately currently true false "
    "none pass fail json sorry team support customer service assistant sie ihnen ihr ihre ihren ihrem ihrer ihres"
)
_NOT_NAMES = frozenset(_NO_NAME.split())
_OPENERS = (
    "perfect alright awesome excellent wonderful fantastic good right indeed done understood apologies welcome "
    "congratulations congrats super fine cool nice lovely brilliant best regards cheers today tomorrow yesterday "
    "meanwhile instead otherwise therefore thus hence besides anyway overall again here there ah oh hey noted hooray "
    "hurray yay terrific amazing splendid agreed acknowledged roger affirmative gotcha yup morning afternoon ja nein "
    "natürlich gerne gern klar genau perfekt prima danke bitte verstanden erledigt hallo schade oui non parfait "
    "entendu d'accord bien merci voilà bonjour désolé désolée sí si no claro perfecto listo vale gracias bueno hola "
    "entendido excelente hecho sì certo perfetto fatto ecco grazie ciao va sim não pronto perfeito obrigado obrigada "
    "feito goed bedankt natuurlijk oké klaar"
)
_INTERJECTIONS = frozenset(_OPENERS.split())
_GIVEN = (
    "adam ahmed aisha alan alex alexander alexandra ali alice amy ana andrea andrew anita anna anne antonio ben beth "
    "bob boris brian carla carlos carol charles charlie chen chloe chris christine claire clara daniel dave david "
    "diana diego dmitri donna dora edward elena eli elizabeth ella emily emma eric erin eva eve fatima felix fiona "
    "francis fred george greg hannah hans harry heather helen henry hiro ian igor ines irene isabel ivan "
    "jack jacob james jane janet jason jean jennifer jenny jessica jim joan joe john jonas jonathan jorge jose "
    "josé joseph juan judy julia julie karen karl kate katherine kevin kim kurt kyle laura lauren leo lena linda lisa "
    "liz louis lucas lucy luis luke magda mallory marco margaret maria marie mario marta martin mary matt matthew "
    "mei mia michael michelle miguel mike mohamed mohammed monica nancy natalia nathan nick nicole nina noah nora "
    "olga oliver olivia omar oscar pablo patricia paul paula pedro peggy peter philip pierre priya rachel raj rebecca "
    "richard rita robert rosa ryan sam samantha samuel sandra sara sarah scott sean simon sofia sonia sophia sophie "
    "stefan stephanie steve steven susan sven sybil tanya thomas tim tina tom tony trent ursula victor victoria vikram "
    "walter wei wendy william yan yuki yusuf zoe"
)
_GIVEN_NAMES = frozenset(_GIVEN.split())
_GERMAN = re.compile(
    r"\b(?:[uU]nd|[iI]st|[eE]ine?[nrm]?|wurden?|[hH]aben|[wW]ir|nicht|für|Ihnen|[iI]hre?[nmrs]?|Die(?=\s[A-ZÄÖÜ]))\b"
)
_LEADS_TO_NAME = re.compile(r"\b(?:herrn?|frau|heißt|ist|nach|aus|von)\s+$", re.I)
_GERMAN_NOUN = ("ung", "ungen", "heit", "keit", "schaft", "tion", "tät", "en", "e")


def names(text: str) -> Iterator[str]:
    """Each name in lower case."""
    is_german = _GERMAN.search(text, 0, 1_000) is not None
    for match in WORD.finditer(text):
        word = match[0]
        lower = word.lower()
        if not word[0].isupper() or len(word) == 1 or lower in _NOT_NAMES:
            continue
        before = text[max(0, match.start() - 12) : match.start()]
        if _SENTENCE_START.search(before):
            is_opener = lower in _INTERJECTIONS or lower.endswith(("ly", "ed", "ing", "mente", "ment"))
            is_name = lower in _GIVEN_NAMES or (text[match.end() : match.end() + 2] == ", " and not is_opener)
        elif is_german and lower not in _GIVEN_NAMES:
            is_name = _LEADS_TO_NAME.search(before) is not None and not word.endswith(_GERMAN_NOUN)
        else:
            is_name = True
        if is_name:
            yield lower


# -- opposites ---------------------------------------------------------------------------------------------------------


_PAIRS = (
    "buy sell", "increase/raise decrease/reduce", "rise fall", "upgrade downgrade", "credit debit", "deposit withdraw",
    "enable disable", "lock unlock", "grant revoke", "include exclude", "accept/approve/authorize/authorise "
    "deny/reject/decline/refuse/disapprove", "pass fail", "true false", "safe unsafe", "legal illegal", "allow block",
    "win/won lose/lost", "higher lower", "high low", "earlier later", "earliest latest", "minimum maximum",
    "active inactive", "positive negative", "malignant benign", "guilty innocent", "bullish bearish", "open close",
    "confirm cancel", "refund charge", "add remove", "start stop", "public private", "activate cancel", "active cancel",
    "activate deactivate", "agree disagree", "connect disconnect", "subscribe unsubscribe", "mute unmute",
    "freeze unfreeze", "install uninstall", "attach detach", "encrypt decrypt", "import export", "hire fire",
    "admit discharge", "suspend reinstate", "renew terminate", "promote demote", "extend shorten", "hide show",
    "borrow lend", "gain loss", "profit loss", "surplus deficit", "income expense", "inbound outbound",
    "incoming outgoing", "ascending descending", "horizontal vertical", "clockwise counterclockwise/anticlockwise",
    "north south", "northern southern", "east west", "eastern western", "male female", "hot cold", "warmer colder",
    "better worse", "best worst", "faster slower", "stronger weaker", "cheaper pricier", "cheapest priciest",
    "older newer", "oldest newest", "optional mandatory", "temporary/temporarily permanent/permanently",
    "manual/manually automatic/automatically", "domestic international", "paid unpaid", "complete/completed incomplete",
    "online offline", "indoor/indoors outdoor/outdoors", "internal external", "inclusive exclusive", "mild severe",
    "acute chronic", "alive dead", "major minor", "majority minority", "sender recipient", "buyer seller",
    "lender borrower", "landlord tenant", "employer employee", "plaintiff defendant", "asset liability",
    "heads tails", "begin end", "double halve", "keep delete",
    "northbound southbound", "eastbound westbound", "upstairs downstairs",
    "links rechts", "vorher nachher", "genehmigt abgelehnt", "erhöht gesenkt", "gauche droite", "avant après",
    "approuvé/approuvée refusé/refusée", "izquierda derecha", "antes después", "aprobado/aprobada rechazado/rechazada",
    "sinistra destra", "prima dopo", "approvato/approvata respinto/respinta", "esquerda direita", "antes depois",
    "front rear", "ahead behind",
)  # fmt: skip
_DATED = r"(?!\s+(?:\w+ing|i|we|you|it|they|he|she|that|this|then|all|anything|sales|hours)\b)"
_MEASURED = (
    r"(?=\s+(?:[$€£¥₹]\s?)?\d|\s+(?:the|your|our|its) (?:limit|threshold|minimum|maximum|average|budget|target)\b)"
)
_NO_GREETING = "".join(f"(?<!{word} )" for word in ("good", "nice", "great", "lovely", "wonderful", "pleasant"))
_PARTS = (
    "hand|side|turn|lane|arm|leg|eye|ear|knee|foot|shoulder|hip|lung|kidney|breast|ankle|wrist|elbow|wing|door|click|"
    "column|margin|bank|edge|corner|button"
)
_SIDE = (
    r"\b(?:(?:on|to|from|at) (?:the|your|its|his|her|my) {0}(?=\s*(?:[.,;:!?)]|$|of\b|and\b))"
    r"|(?:turn|bear|keep|swipe|veer)(?:s|ed|ing)? {0}\b(?! (?:now|away|back)\b)|{0}[- ](?:" + _PARTS + r")\b)"
)
_PHRASES = (
    (
        "before or after",
        "before prior until till later after",
        rf"\b(?:before|prior to|until|till|no later than)\b{_DATED}",
        rf"\bafter\b{_DATED}",
    ),
    (
        "at most or at least",
        "most least than up under below over above exceed",
        rf"\b(?:at (?:the )?most|(?:(?<!no )(?<!not )(?:less|fewer)|(?:no|not) more) than|up to(?= (?:[$€£]\s?)?\d)"
        rf"|(?:under|below){_MEASURED})\b",
        rf"\b(?:at (?:the )?least|(?<!no )(?<!not )more than(?! happy| welcome| glad)|(?:no|not) (?:less|fewer) than"
        rf"|(?:over|above|exceed(?:s|ed|ing)?){_MEASURED})\b",
    ),
    ("left or right", "left right", _SIDE.format("left"), _SIDE.format("right")),
    (
        "up or down",
        "up down",
        r"\b(?:go|goes|going|gone|went|is|are|was|were|moved?|moves|scroll|back) up\b(?! (?:to|for)\b)",
        r"\b(?:go|goes|going|gone|went|is|are|was|were|moved?|moves|scroll) down\b",
    ),
    (
        "on or off",
        "turn switch power on off",
        r"\b(?:turn|switch|power)(?:s|ed|ing)? (?:\w+ ){0,3}?on\b|\b(?:is|are|stays?|now|be) on(?=[.,;!?]|$)",
        r"\b(?:turn|switch|power)(?:s|ed|ing)? (?:\w+ ){0,3}?off\b|\b(?:is|are|stays?|now|be) off(?=[.,;!?]|$)",
    ),
    (
        "in or out",
        "check log sign opt clock",
        r"\b(?:check|log|sign|opt|clock)(?:s|ed|ged|ging|ing|ting|ted)?[- ]in\b",
        r"\b(?:check|log|sign|opt|clock)(?:s|ed|ged|ging|ing|ting|ted)?[- ]out\b",
    ),
    (
        "morning or evening",
        "morning evening afternoon",
        rf"{_NO_GREETING}\bmorning\b",
        rf"{_NO_GREETING}\b(?:evening|afternoon)\b",
    ),
    (
        "existing or gone",
        "exist",
        r"(?<!longer )(?<!not )(?<!n['’]t )(?<!never )\bexists?\b",
        r"\bno longer exists?\b|\b(?:does not|doesn['’]t|do not|don['’]t) exist\b",
    ),
    ("AM or PM", "am a.m pm p.m :", r"\d\s?a\.?m\b", r"\d\s?p\.?m\b|\b(?:1[3-9]|2[0-3]):[0-5]\d\b"),
)
"""a pair, words of which one occurs in each phrase (which is quick to see), and the phrases of both sides"""
_COMPILED = [
    (pair, pair.split(" or "), hints.split(), (re.compile(one), re.compile(other)))
    for pair, hints, one, other in _PHRASES
]
_DENIALS = "not never cannot no nor neither without unable nothing none hardly"
_DENYING = frozenset(_DENIALS.split())
_BETWEEN = 3
"""how many words after a denial are denied: "not yet been approved" """


def _forms(word: str) -> Iterator[str]:
    yield from (word, word + "s", word + "es", word + "ed", word + "d", word + "ing", word[:-1] + "ing")
    yield from (word + word[-1] + ending for ending in ("ed", "ing"))
    if word.endswith("y"):
        yield from (word[:-1] + "ies", word[:-1] + "ied")


def _poles() -> dict[str, list[tuple[str, str]]]:
    """Word form → the pairs it belongs to, each with its side."""
    found: dict[str, list[tuple[str, str]]] = {}
    for pair in _PAIRS:
        sides = [side.split("/") for side in pair.split()]
        name = " or ".join(side[0] for side in sides)
        for side in sides:
            for form in {form for word in side for form in _forms(word)}:
                found.setdefault(form, []).append((name, side[0]))
    return found


_POLES = _poles()


def sides_taken(text: str) -> dict[str, set[str]]:
    """For each pair of opposites that occurs in the text, the sides of it that do."""
    lowered = text.lower()
    words = WORD.findall(lowered)
    sides: dict[str, set[str]] = {}
    denied = -_BETWEEN - 1
    for place, word in enumerate(words):
        if word in _DENYING or word.endswith(("n't", "n’t")):
            denied = place
        elif word in _POLES and place - denied > _BETWEEN:
            for pair, pole in _POLES[word]:
                sides.setdefault(pair, set()).add(pole)
    for pair, poles, hints, patterns in _COMPILED:
        if any(hint in lowered for hint in hints):
            found = {pole for pole, pattern in zip(poles, patterns, strict=True) if pattern.search(lowered)}
            sides |= {pair: found} if found else {}
    for pair, pole in (*_duties(lowered), *_boxes(lowered), *_shares(lowered)):
        sides.setdefault(pair, set()).add(pole)
    return sides


_DUTY = re.compile(
    r"\b(?:(must|(?:is|are) required to)|may|(?:is|are) (?:allowed|permitted|free) to) ((?:be )?\w{2,20})\b"
)
_OTHER_VERBS = "be not have also take still vary need contact reach call reply ask visit close leave"
_NO_DUTY = frozenset(_OTHER_VERBS.split())
_BOX = re.compile(r"^[ \t>*+-]{0,12}(?:\[([ x])\]|(☐)|[☑☒]) *(\S[^\n]{0,60})$", re.MULTILINE)
_MOST_DYNAMIC = 20
"""duties, boxes and shares of a text"""


def _duties(text: str) -> Iterator[tuple[str, str]]:
    """`must pay` or `may pay`, of one verb: other verbs say nothing about this one."""
    for _, found in zip(range(_MOST_DYNAMIC), _DUTY.finditer(text), strict=False):
        if found[2] not in _NO_DUTY:
            yield f"must {found[2]} or may {found[2]}", f"{'must' if found[1] else 'may'} {found[2]}"


def _boxes(text: str) -> Iterator[tuple[str, str]]:
    """`[x] paid` or `[ ] paid`, of one label."""
    if "[" not in text and not ("☐" in text or "☑" in text or "☒" in text):
        return
    for _, found in zip(range(_MOST_DYNAMIC), _BOX.finditer(text), strict=False):
        label = re.sub(r"\d+", "#", found[3].strip()).replace(" or ", " / ")
        box = "[ ]" if found[1] == " " or found[2] else "[x]"
        yield f"[x] {label} or [ ] {label}", f"{box} {label}"


_SHARE = re.compile(
    r"(?<!not )(?<!nearly )(?<!almost )\b(all|some)(?: of)?(?: (?:the|your|my|our|its|their|these|those))?"
    r"(?: \w{1,20})? (\w{2,20}s) (?:are|were|have|can|will|must|may|do|cost)\b"
)


def _shares(text: str) -> Iterator[tuple[str, str]]:
    """`all items are` or `some items are`, of one noun."""
    for _, found in zip(range(_MOST_DYNAMIC), _SHARE.finditer(text), strict=False):
        yield f"all {found[2]} or some {found[2]}", f"{found[1]} {found[2]}"


def one_sided(sides: dict[str, set[str]]) -> tuple[tuple[str, str], ...]:
    """The pairs of which only one side occurs, each with that side."""
    return tuple(sorted((pair, *found) for pair, found in sides.items() if len(found) == 1))  # type: ignore[misc]


# -- negation ----------------------------------------------------------------------------------------------------------

# In the languages that agents mostly speak.

_NEGATION = re.compile(
    r"\b(?:not|never|cannot|no|none|nothing|neither|nor|unable|impossible|den(?:y|ied|ies)|decline[ds]?|reject(?:s|ed)?|"
    r"refuse[ds]?|fail(?:s|ed|ing|ure)?|forbidden|disallowed|prohibited|unfortunately|regret|false|without|"
    r"against (?:our|the|company|your) (?:polic(?:y|ies)|rules?|terms)|(?:outside|beyond) (?:of )?(?:our|the|your)|"
    r"(?:un(?:available|successful|safe|authori[sz]ed|lawful|supported|covered)|in(?:eligible|valid|correct|compatible|"
    r"active|sufficient)|il(?:legal|legitimate)|ir(?:regular|relevant)|dis(?:approved|qualified|honou?red)|"
    r"non-?(?:compliant|eligible|refundable))|"
    r"nicht|keine?[nmrs]?|nie|niemals|leider|abgelehnt|unmöglich|ne|jamais|aucune?|refusée?|nunca|ningun[ao]?|ningún|"
    r"tampoco|rechazad[ao]|não|nenhum[ao]?|negad[ao]|non(?!-)|nessun[ao]?|rifiutat[ao]|respint[ao]|recusad[ao]|afgewezen|odrzucon[aey]|отклон\w{1,5}|niet|geen|inte|ikke|ingen|inga|"
    r"inget|ej|nej|ei|eivät|nem|nincs|tidak|bukan|không|değil|yok|hayır|"  # noqa: RUF001
    r"\w{1,20}(?:amaz|emez)(?:s[ıi]n[ıi]z|s[ıi]n|lar|ler)?|"  # noqa: RUF001
    r"ne(?:ní|jsou|lze|můž\w{0,4}|mohu|bude\w{0,2}|byl[aoy]?|jde)|нет|не|ні|нельзя|"
    r"невозможн\w{1,3}|отказано|неможлив\w{1,2}|"
    r"δεν|όχι|αδύνατ\w{1,2}|לא|אין|لا|ليس\w{0,2}|لن|لم|غير)\b"
    r"|n['’]t\b|\bn['’](?=[aeiouyhéèêœ])|[不没無无未]|拒|ません|ない|できず|않|못|없|아니|नहीं|ไม่|❌|✗|✘|🚫|👎",
    re.IGNORECASE,
)
_NO_NEGATION = re.compile(
    r"\boh,? no\b|\bno (?:problem|worries|doubt|matter|rush|need to worry|issues?|extra|charge|fees?|(?:further|"
    r"additional|other|more) (?:actions?|steps?|questions?|information|details?)"
    r"(?: (?:is|are) (?:needed|required|necessary))?)\b|"
    r"\bnothing (?:else|more|further)\b|\bnot only\b|\bwhy not\b|\bif not\b|\bnot to worry\b|"
    r"\b(?:do not|don['’]t) (?:worry|hesitate|forget|need to do anything)\b|\bwhether or not\b|\b(?:if|should) .{0,40}?"
    r"\b(?:do not|don['’]t|doesn['’]t|does not) (?:arrive|work|help|receive)\b|"
    r"\b(?:is|are|isn['’]t|aren['’]t|do|don['’]t) (?:it|they|you) not\b|\bno\.(?=\s*\d)|"
    r"\b(?:ca|could|would|wo|do|does|did|is|are|have|has)n['’]t (?:you|we|it|they)\b|"
    r"\bno (?:more|less|fewer|later|earlier|longer|sooner|higher|lower) than\b|\bnot (?:more|less|fewer) than\b|"
    r"\bnot (?:a problem|an issue)\b|\bwithout (?:any )?(?:problems?|issues?|delay|further ado|hesitation)\b|"
    r"\bno longer exists?\b|"  # it was deleted; "it exists" is its opposite
    r"\b(?:if|in case|should) (?:you|this|that|it|something|anything) (?:(?:did|do|does|have|had|has|was|were|is|can|"
    r"could)(?: not|n['’]t)|can['’]t|cannot|not) (?:yet |already |immediately )?(?:ask|request|make|initiate|expect|"
    r"authori[sz]e|recogni[sz]e|intend|mean|see|find|receive|get|hear|remember|locate|open|log in|work|help|arrive|"
    r"received|heard|got|requested|asked|clear|right|what you|you\b)|"
    r"\b(?:falls|wenn|sollten) sie [^.,;!?]{0,60}?\b(?:nicht|keine?n?)"
    r"\b[^.,;!?]{0,20}? ?(?:angefordert|beantragt|veranlasst|erhalten|finden|bestellt|gewünscht|sehen)\b|"
    r"\bsi vous n['’]\w+ (?:pas|rien) (?:\w+ )?(?:demandé|reçu|trouv)|"
    r"\bsi (?:usted )?no (?:lo |ha |has )?(?:solicit|recib|encuentr)|"
    r"\bwithout charge\b|\bfail-?safe\b|\bnon-?stop\b|"
    r"\b(?:keine?|geen|ingen|inget|inga|nessun|no hay(?: ningún)?|non c'è|nie ma) (?:problem\w{0,3}|probleem|sorgen?|"
    r"thema|frage|sprawy|fara)\b|нет проблем|\bno te preocupes\b|\bno se preocupe\b|\bne vous inquiétez pas\b|"
    r"不客气|不用谢|不用担心|没问题|没关系|問題ありません|構いません|문제없",
    re.IGNORECASE,
)
_FIRST_WORD = re.compile(
    r"^\W*(?:(yes|yeah|yep|correct|certainly|absolutely|no|nope|y|n)\b(?!\s*(?:problem|worries))"
    r"|(ja|oui|s[iíì]|sim|tak|да|так|evet|はい|是的?|네|예|nein|non|não|nie|nee|nej|нет|ні|hayır|いいえ|不是?|아니[요오])"  # noqa: RUF001
    r"(?=\s*(?:[,.!;:、。，！]|$)))",  # noqa: RUF001
    re.IGNORECASE,
)
_NAMED = r"(?:[.!?\n]+|,(?:\s*(?!(?:yes|no|ja|nein|oui|non|s[iíì]|não|sim)\b)(?-i:[A-Z])\w{1,20}\s?[.!,]+)?)"
"""the end of a phrase, with the name of who is spoken to"""
_POLITE = (
    r"#{1,6}\s[^\n]{0,80}\n+",
    r"(?:(?:final|short|my|the) )?(?:answer|result|response|reply|verdict|decision|conclusion|summary|status|antwort|"
    r"ergebnis|réponse|respuesta|risposta)\W{0,4}[:\n]",
    r"(?:hello|hi|hey|dear|greetings|good (?:morning|afternoon|evening|day)|bonjour|bonsoir|salut|hola|hallo|ciao|olá|"
    r"buen[oa]s \w{3,6}|buongiorno|guten (?:tag|morgen|abend)|(?:great|good) question)\b[^.!?,\n]{0,30}" + _NAMED,
    r"(?:many )?(?:thanks|thank you|merci|danke|vielen dank|gracias|grazie|obrigad[oa])\b[^.!?,\n]{0,80}" + _NAMED,
    r"(?:(?:i['’]m|i am|we['’]re|we are) (?:very |so |really |terribly )?(?:sorry|afraid)|(?:(?:my|our) )?(?:sincere )?"
    r"apologies|sorry|(?:i|we) apologi[sz]e|désolée?|(?:es )?tut mir leid|lo siento|mi dispiace|desculpe)\b"
    r"[^.!?,\n]{0,60}" + _NAMED + r"(?:\s*but\b)?",
)
"""a heading, a label, a greeting, thanks, an apology"""
_LEAD = re.compile(rf"\W*(?:{'|'.join(_POLITE)})", re.IGNORECASE)
_CHECKED = re.compile(
    r"\W*(?:(?:i|we)(?:['’]ve| have)? (?:just |now )?(?:checked|looked|reviewed|searched|verified|read)|let me|"
    r"one moment|after (?:checking|reviewing|looking))\b[^.!?,\n]{0,120}[.!?,\n]+",
    re.IGNORECASE,
)
_MOST_LEADS = 4
_MOST_BEGINNING = 600
_CONTRASTS = r"\s(?:but|although|though|however|except|aber|mais|pero|però|mas|maar)\b"
_STATEMENT_END = re.compile(rf"[.!?](?=\s|$)|[\n;。！？]|{_CONTRASTS}")  # noqa: RUF001
_NOS = "no nope n nein non não nie nee nej нет ні hayır いいえ 不 不是 아니요 아니오"  # noqa: RUF001
_NO = frozenset(_NOS.split())


def is_negated(text: str) -> bool:
    """Whether the text denies something: `not possible`, `unable to`, `against our policy`; not `no problem`."""
    if _NEGATION.search(text) is None:  # most texts, and the quicker search
        return False
    return _NEGATION.search(_NO_NEGATION.sub(" ", text)) is not None


def first_word(text: str) -> str | None:
    """`yes` or `no`, where the text begins with one of them, after a heading, a greeting, thanks or an apology."""
    found = _FIRST_WORD.match(_NO_NEGATION.sub(" ", _strip_lead(text, _LEAD)[:100]))
    return None if found is None else "no" if (found[1] or found[2]).lower() in _NO else "yes"


def begins_with_no(text: str) -> bool | None:
    """None where the first statement denies in other words ("Unfortunately, it cannot be done"), which may say as much
    as "No, it cannot be done" or not; and for an empty text.
    """
    word = first_word(text)
    if word is not None or not text.strip():
        return None if word is None else word == "no"
    rest = _strip_lead(_strip_lead(text, _LEAD), _CHECKED)
    return None if is_negated(_STATEMENT_END.split(rest.lstrip(), maxsplit=1)[0]) else False


def _strip_lead(text: str, lead: re.Pattern[str]) -> str:
    """The beginning of a text without what leads to its first statement. What denies is part of the statement."""
    text = text[:_MOST_BEGINNING]
    for _ in range(_MOST_LEADS):
        found = lead.match(text)
        if found is None or is_negated(found[0]):
            break
        text = text[found.end() :]
    return text
