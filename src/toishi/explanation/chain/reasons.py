"""Why an answer went against its score: what it shares with others, against what is its own.

Decision: only what follows from the record is given as a reason. A net push on a shared beginning is exact arithmetic of this
group. For the rest the contrast's trial steps say whose pushes have the sign for it, where there are any; otherwise the
possible places are listed and none is chosen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from toishi.explanation.chain.advantages import as_number
from toishi.explanation.chain.cause import cause
from toishi.explanation.chain.model import AnswerEffect, Chain
from toishi.explanation.chain.net import starts_of
from toishi.explanation.chain.voice import NOTHING, Voice, shown, visible
from toishi.explanation.page.markup import code

MAX_TEXT = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The part of an answer that others share.

    length  in tokens, of `total`
    others  the answers that share at least its first token
    own, net  mean push on a token of it, by the answer alone and by all who share the token
    moved, rest  change of log-prob there, and of the tokens after it; None where it was not measured
    rose, fell  how many of those after it became likelier, and less likely
    most    of those the token that moved most in the answer's own direction: its text, its place, its change
    """

    length: int
    total: int
    text: str
    others: tuple[int, ...]
    own: float
    net: float
    moved: float | None
    rest: float | None
    rose: int
    fell: int
    most: tuple[str, int, float]


def beginning(chain: Chain, member: int) -> Beginning | None:
    """What an answer shares with others of its group; None when its first token is its own."""
    path = starts_of(chain, member)
    shared = [start for start in path if len(start.members) > 1]
    if not shared or chain.weights is None:
        return None
    found = next(item for item in chain.weights.members if item.member == member)
    length = sum(len(start.texts) for start in shared)
    net = math.fsum(push for start in shared for push in start.pushes) / length
    own = math.fsum(-token.weight for token in found.tokens[:length]) / length
    tokens = next((answer.tokens for answer in _effects(chain) if answer.member == member), ())
    changes = [(token.text, place, token.after - token.before) for place, token in enumerate(tokens)]
    side = math.fsum(change for *_, change in changes)
    return Beginning(
        length=length,
        total=sum(len(start.texts) for start in path),
        text="".join(text for start in shared for text in start.texts),
        others=tuple(other for other in shared[0].members if other != member),
        own=own,
        net=net,
        moved=math.fsum(change for *_, change in changes[:length]) if changes else None,
        rest=math.fsum(change for *_, change in changes[length:]) if changes else None,
        rose=sum(change > 0 for *_, change in changes[length:]),
        fell=sum(change < 0 for *_, change in changes[length:]),
        most=max(changes[length:], key=lambda item: item[2] * side, default=("", 0, 0.0)),
    )


def reason(chain: Chain, member: int, voice: Voice) -> str:
    """A sentence on an answer that went against its score."""
    found = beginning(chain, member)
    if found is None:
        return f"{voice.say('reason.alone', answer=f'#{member}')} {_cause(chain, member, voice)}"
    values = {
        "answer": f"#{member}",
        "count": found.length,
        "all": found.total,
        "text": code(short(visible(found.text))),
        "others": voice.members(found.others),
        "own": voice.signed(found.own),
        "net": voice.signed(found.net),
        "direction": voice.direction(found.net),
    }
    text = voice.say("reason.same_side" if found.own * found.net >= 0 else "reason.shared", **values)
    if found.moved is None or found.rest is None:
        return text
    parts = {
        "moved": voice.times(found.moved),
        "rest": voice.times(found.rest),
        "left": found.total - found.length,
        "rose": found.rose,
        "fell": found.fell,
        "token": shown(found.most[0]),
        "place": found.most[1],
        "most": voice.times(found.most[2]),
    }
    if found.length == found.total:
        return f"{text} {voice.say('reason.all_shared', **parts)}"
    mostly = abs(found.rest) > abs(found.moved) or found.own * found.net >= 0
    if not mostly:
        return f"{text} {voice.say('reason.mostly_shared', **parts)}"
    return f"{text} {voice.say('reason.mostly_own', **parts)} {_cause(chain, member, voice)}"


def _cause(chain: Chain, member: int, voice: Voice) -> str:
    """What the trial steps of the contrast say of the move, or the places that it can have come from."""
    change = next((answer.change for answer in _effects(chain) if answer.member == member), 0.0)
    found = cause(chain, member, change)
    if found is None:
        return voice.say("reason.cause_unknown")
    signs = {item.member: as_number(item.recorded) for item in chain.advantage.members if item.member != member}
    return voice.say(
        f"reason.cause_{found.side}",
        answer=f"#{member}",
        alone=voice.times(found.alone),
        negative=voice.times(found.negative),
        above=voice.members(other for other, advantage in signs.items() if advantage > NOTHING),
        below=voice.members(other for other, advantage in signs.items() if advantage < -NOTHING),
    )


def _effects(chain: Chain) -> tuple[AnswerEffect, ...]:
    return tuple(answer for answer in chain.effect.answers if answer.kind == "rollout") if chain.effect else ()


def short(text: str) -> str:
    """A beginning as it stands in a sentence."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
