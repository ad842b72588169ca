"""Answers that prose marks: "the answer is ...", a last line in bold; and whether the writer takes them back.

Decisions:
1. A sentence that denies or doubts ("I do not think the answer is 5", "suppose", "it is wrong that") states no answer.
2. Neither does one that names a condition or an alternative ("5 if x > 0", "5, but it could be 6"), nor one that a later
   sentence takes back ("Wait, ...", "No, it is 6", "or D").
3. ", not (B)" after an answer is no doubt, as long as B is not that answer.
"""

from __future__ import annotations

import re

MAX_CHARS = 1_000

_VERB = r"(?:is|was|must be|should be|would be|will be|equals|comes out to be)\b"
STATED = re.compile(
    r"\b(?:answer|correct (?:option|choice)|right (?:option|choice))\b(?:[ ](?:to|for)\b[^.\n:=]{0,80}?)?"
    rf"(?:,[ ](?:then|therefore|thus|so),)?[ ]?(?:\*\*|__)?[ ]?(?:\b{_VERB}|[:：=])"
    r"(?:[ ]?(?:equal to\b|therefore\b|thus\b|then\b|simply\b|indeed\b|[:：]|\*\*))*\s*(?=\S)"
    r"|^[#* ]*final answer[:* ]*\n\s*(?=\S)",
    re.IGNORECASE | re.MULTILINE,
)
BOLD = re.compile(r"\*\*([^*\n]+)\*\*[.!]?$")
_BOUNDARY = re.compile(r"[.!?;,](?=\s)|\n[ \t]*\n|\b(?:so|thus|hence|therefore)\b", re.IGNORECASE)
_FULL_STOP = re.compile(r"[.!?](?=\s)|\n[ \t]*\n")
_NOT_BELIEVED = re.compile(
    r"\b(?:i|we|you|he|she|they|nobody|no one)\b[^,]{0,30}(?:\bnot\b|\bnever\b|n['’]t\b|\bdoubt)[^,]{0,20}"
    r"(?:\b(?:think|believe|say|claim|agree|know|see)\b)|\b(?:false|untrue|not true|wrong)\b[^,]{0,20},? (?:to say |that )",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"\b(?:not|never|no|none|nobody|nothing|neither|nor|false|wrong|incorrect|suppose|supposing|assume|assuming|if|whether"
    r"|unless|doubt|maybe|perhaps|possibly|might|could|cannot|unclear|unlikely|guess|imagine|pretend|hardly|untrue)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)
_CUT = re.compile(
    r"[.!?](?:\s+[A-Z\"(]|\s*$)|,?\s+(?P<why>because|since|as|so|which|where)(?=[\s.…])"
    r"|,?\s+(?P<condition>if|although|though|unless|otherwise|else|provided|assuming|but|however|in case"
    r"|when(?! (?:rounded|simplified|expressed|reduced|written))|after(?! (?:rounding|simplifying|reducing|all\b))"
    r"|for(?= (?:odd|even|all|every|any|each|some|positive|negative|[a-z]\b|[$\\])))\b"
    r"|,?\s+(?:when|for|after|in(?= (?:total|all\b)))(?=\s)|\s(?P<aside>\()|,\s*(?P<contrast>and not|not)\s|;\s"
)
_REASON_RETRACTED = re.compile(r"\bor\s+(?:[-\d\\$]|[A-Z]\b)|\bno\s*[:,]|[?]|\bas\s+long\s+as\b|\bi\s+guess\b", re.IGNORECASE)
_ALTERNATIVE = re.compile(r"\b(?:but|or|otherwise|else|unless|if|maybe|perhaps|possibly|could|might|wrong|false)\b", re.I)
_RETRACTED = re.compile(
    r"(?:^|[.!?;:,\n]\s*)(?:(?:oh|hm+),?\s+)?"
    r"(?:no(?=[,.:;!]|\s+(?:it|the answer|wait|that))|wait|actually|correction|or|oops|sorry)\b"
    r"|\b(?:i was wrong|i made (?:a|an) (?:mistake|error)|that(?:['’]s| is) (?:wrong|not right|incorrect)|scratch that|kidding"
    r"|i mean|i meant|my bad|on second thought|let me (?:correct|redo|recheck|recompute)"
    r"|it(?:['’]s| is| was) (?:really |in fact |rather )?(?:[-$\\\d]|\*\*)"
    r"|is also possible|could also be|might also be|it must be|it should be(?! noted))\b",
    re.IGNORECASE,
)


def stated(text: str) -> str | None:
    """The answer that the last "the answer is ..." states, "" when it states none after all, None when there is no such words.

    >>> stated("So the answer must be 5."), stated("I do not think the answer is 5."), stated("5")
    ('5', '', None)
    >>> stated("The answer is (C), not (B)."), stated("The answer is 5, but it could be 6.")
    ('(C)', '')
    """
    found = None
    for found in STATED.finditer(text):  # noqa: B007 (the last one)
        pass
    if found is None:
        return None
    if denied(text[: found.start()]):
        return ""
    line, _, later = text[found.end() :].partition("\n")
    return "" if _RETRACTED.search(f"\n{later[:MAX_CHARS]}") else _first(line[: 2 * MAX_CHARS].strip())


def denied(before: str) -> bool:
    """Whether the sentence that stands before an answer denies or doubts it."""
    before = before[-300:]
    begin = max((match.end() for match in _BOUNDARY.finditer(before)), default=0)
    if _NOT_BELIEVED.search(before[max((match.end() for match in _FULL_STOP.finditer(before)), default=0) :]):
        return True
    sentence = re.sub(r"^\s*no\s*[:,]", "", before[begin:], flags=re.IGNORECASE)  # it denies what was said before
    return _DENIED.search(sentence) is not None


def in_bold(text: str) -> str | None:
    """What the last line says in bold at its end, "" when that is denied or one of several, None when nothing is in bold.

    >>> in_bold("So we get\\n**5**."), in_bold("Not **5**"), in_bold("**6** or **5**"), in_bold("5")
    ('5', '', '', None)
    """
    text = text.rstrip()
    found = BOLD.search(text, max(0, len(text) - 2 * MAX_CHARS))
    if found is None:
        return None
    before = text[: found.start()]
    last_line = before.rpartition("\n")[2]
    alternative = re.search(r"\b(?:or|and)\s*$", last_line, re.IGNORECASE)
    return "" if denied(before) or alternative else found[1]


def _first(rest: str) -> str:
    """The answer at the beginning of the rest of a line; "" where what follows it is a condition, a doubt or another answer."""
    formula = re.match(r"(\$[^$]+\$)(?=[.,;!]|\s*$|\s)", rest)
    begin = formula.end() if formula is not None else 0
    cut = _CUT.search(rest, begin)
    answer, after = (rest[: cut.start()], rest[cut.start() :]) if cut else (rest, "")
    answer = answer.strip().strip("*_").rstrip("*_ ")
    return answer if not after or _stands(answer, after, cut) else ""


def _stands(answer: str, after: str, cut: re.Match[str] | None) -> bool:
    assert cut is not None
    if cut["condition"] is not None:
        return False
    if cut["why"] is not None:
        sentence, _, later = after.partition(". ")
        return not (_REASON_RETRACTED.search(sentence) or _RETRACTED.search(f"\n{later}"))
    if cut["aside"] is not None:
        return not _ALTERNATIVE.search(after) and not _DENIED.search(after)
    if cut["contrast"] is not None:
        other = after[cut.end() - cut.start() :].strip().rstrip(".!")
        return other != answer and not _ALTERNATIVE.search(other)
    if cut[0].startswith(";"):
        return re.match(r";\s+[a-z]{3,}", after) is not None and not _ALTERNATIVE.search(after) and not _DENIED.search(after)
    return not after.startswith("?") and not _RETRACTED.search(f"\n{after[1:].strip()}")
