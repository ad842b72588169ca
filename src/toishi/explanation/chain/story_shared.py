"""What answers share, as a table of beginnings and as charts of the places where they part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from toishi.explanation.chain.headlines import alike, effect_of, weights_of
from toishi.explanation.chain.model import Chain, SharedStart
from toishi.explanation.chain.net import Place, places, rivals, starts_of
from toishi.explanation.chain.story_parts import answer_cell
from toishi.explanation.chain.voice import NOTHING, Voice, shown, tone, visible
from toishi.explanation.page.blocks import Bars, Block, Line, Paragraph, Table, Tone
from toishi.explanation.page.markup import code

MAX_STARTS, MAX_TEXT, MAX_PARTINGS, MAX_BRANCHES, MAX_NAMED, LABEL, MAX_TURNED = 30, 36, 4, 8, 2, 14, 3


def tree(chain: Chain, voice: Voice) -> list[Block]:
    """The beginnings that answers share, each with its net push and what became of it; nothing when none is shared."""
    starts = chain.weights.starts if chain.weights else ()
    shared = [start for start in starts if len(start.members) > 1]
    if not shared:
        return []
    rows = starts if len(starts) <= MAX_STARTS else tuple(shared[:MAX_STARTS])
    measured = chain.effect is not None
    lines = []
    for start in rows:
        change = start_change(chain, start)
        cells = [
            "· " * start.depth + code(_text(start)),
            voice.members(start.members),
            str(len(start.texts)),
            each(start.pushes, voice.signed, voice),
        ]
        tone_of = _tone(start, change)
        if measured:
            cells.append(
                voice.say("shared.against", moved=voice.times(change)) if tone_of == "against" else voice.times(change)
            )
        lines.append(Line(tuple(cells), tone_of))
    names = ("start", "members", "tokens", "net_push", *(("moved",) if measured else ()))
    table = Table(voice.columns(*names), tuple(lines), voice.say("shared.table"))
    longest = max(shared, key=lambda start: (len(start.members), -start.begin))
    words = {
        "text": code(_text(longest)),
        "members": voice.members(longest.members),
        "sum": _sum(chain, longest, voice),
        "net": voice.signed(longest.pushes[0]),
    }
    blocks: list[Block] = [Paragraph(voice.say("shared.what", **words)), table]
    if len(rows) < len(starts):
        blocks.append(Paragraph(voice.say("shared.cut", shown=len(rows), all=len(starts))))
    return blocks


def turned(chain: Chain, voice: Voice) -> list[str]:
    """Sentences on first tokens of stretches that moved against their net push, with what stands in the same place.

    Nothing on stretches of answers that went against their score as a whole: those have their own reason.
    """
    told, noise = [], chain.effect.noise if chain.effect else 0.0
    for start in _starts(chain):
        place = next(places(chain, (start,)), None)
        effects = [effect_of(chain, member) for member in start.members]
        if (
            place is None
            or place.push * place.change >= 0
            or abs(place.change) <= noise
            or any(found and found.agreed is False for found in effects)
        ):
            continue
        gained = [other for other in rivals(chain, start) if other.change * place.change < 0 and other.before is not None]
        values = {
            "token": shown(place.text),
            "members": voice.members(place.members),
            "direction": voice.direction(place.push),
            "before": voice.probability(place.before or 0.0),
            "after": voice.probability(place.after or 0.0),
        }
        text = voice.say("shared.turned", **values)
        if gained:
            text += " " + voice.say(
                "shared.rivals", others=voice.say("list_joiner").join(_rival(other, voice) for other in gained)
            )
        told.append(text)
    return told[:MAX_TURNED]


def _rival(place: Place, voice: Voice) -> str:
    before, after = voice.probability(place.before or 0.0), voice.probability(place.after or 0.0)
    names = {"token": shown(place.text), "members": voice.members(place.members), "push": voice.signed(place.push)}
    return voice.say("shared.rival", before=before, after=after, **names)


def each(values: Sequence[float], write: Callable[[float], str], voice: Voice) -> str:
    """A number for each token: one number when they are alike, else the least and the most."""
    if not values:
        return "–"
    least, most = min(values), max(values)
    if least * most >= 0 and alike(least, most):
        return write(most)
    return voice.say("shared.range", least=write(least), most=write(most))


def start_change(chain: Chain, start: SharedStart) -> float | None:
    """Change of the stretch's log-prob, measured; None without a trace."""
    found = effect_of(chain, start.members[0])
    tokens = found.tokens[start.begin : start.begin + len(start.texts)] if found else ()
    return math.fsum(token.after - token.before for token in tokens) if len(tokens) == len(start.texts) else None


def partings(chain: Chain, voice: Voice) -> list[Bars]:
    """Where answers part: what each of them wrote there, and how likely it was before and after the step.

    With a followed answer those on its way; the ones that most answers reach come first.
    """
    places: dict[tuple[int, ...], list[SharedStart]] = {}
    everyone = tuple(sorted({member for start in _starts(chain) for member in start.members}))
    for start in _starts(chain):
        places.setdefault(_parent(chain, start) or everyone, []).append(start)
    found = [(members, starts) for members, starts in places.items() if chain.member in (None, *members) and len(starts) > 1]
    found.sort(key=lambda pair: -len(pair[0]))
    charts = [_chart(chain, starts, voice) for _, starts in found[:MAX_PARTINGS]]
    return [chart for chart in charts if len(chart.items) > 1]


def _starts(chain: Chain) -> tuple[SharedStart, ...]:
    return chain.weights.starts if chain.weights else ()


def _parent(chain: Chain, start: SharedStart) -> tuple[int, ...]:
    """The members of the stretch before; nobody for a first one."""
    end = start.begin
    before = (other for other in starts_of(chain, start.members[0]) if other.begin + len(other.texts) == end)
    return next((other.members for other in before), ())


def _chart(chain: Chain, starts: list[SharedStart], voice: Voice) -> Bars:
    items = []
    for start in starts:
        found, weights = effect_of(chain, start.members[0]), weights_of(chain, start.members[0])
        given = weights is not None and weights.computed and not weights.tokens[start.begin].has_loss
        if found is None or start.begin >= len(found.tokens) or given:
            continue
        token = found.tokens[start.begin]
        items.append((_label(token.text, start.members, voice), math.exp(token.before), math.exp(token.after)))
    items.sort(key=lambda item: -item[1])
    before = "".join(
        text for other in starts_of(chain, starts[0].members[0]) if other.begin < starts[0].begin for text in other.texts
    )
    key = "shared.parting" if before else "shared.parting_first"
    return Bars(voice.say(key, text=answer_cell(visible(before), MAX_TEXT)), tuple(items[:MAX_BRANCHES]))


def _label(token: str, members: Sequence[int], voice: Voice) -> str:
    more = f" +{len(members) - MAX_NAMED}" if len(members) > MAX_NAMED else ""
    names = f"{voice.members(members[:MAX_NAMED])}{more}"
    return f"{visible(token)[: max(4, LABEL - len(names))]}  {names}"


def _text(start: SharedStart) -> str:
    text = visible("".join(start.texts))
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _sum(chain: Chain, start: SharedStart, voice: Voice) -> str:
    """The pushes of all its members on its first token, added up."""
    found = (weights_of(chain, member) for member in start.members)
    own = [-item.tokens[start.begin].weight for item in found if item is not None and item.computed]
    return " ".join(voice.signed(push) for push in own)


def _tone(start: SharedStart, change: float | None) -> Tone:
    net = math.fsum(start.pushes)
    if change is None or abs(change) < NOTHING:
        return ""
    return "against" if net * change < 0 else tone(change)
