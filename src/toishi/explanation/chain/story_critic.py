"""How a critic's surprises become advantages of tokens, spelled out for one answer."""

from __future__ import annotations

from toishi.explanation.chain.model import Chain, CriticNumbers, MemberAdvantage
from toishi.explanation.chain.voice import Voice, shown, tone
from toishi.explanation.page.blocks import Block, Folded, Formula, Line, Paragraph, Table
from toishi.explanation.surprises import TokenAdvantage

COLUMNS = ("place", "token", "token_reward", "value", "value_after", "surprise", "raw", "return", "advantage")


def surprised(chain: Chain, voice: Voice, rows: int) -> list[Block]:
    """What a value is, one token worked out from rewards and values, and all tokens of the followed answer in a table."""
    critic = chain.advantage.critic
    assert critic is not None, "the row has a critic"
    blocks: list[Block] = [Paragraph(voice.say("critic.what"))]
    found = _chosen(chain)
    if found is not None:
        blocks += _worked(chain, found, critic, voice)
        blocks.append(_table(found, voice, rows))
        if len(found.tokens) > rows:
            blocks.append(Paragraph(voice.say("critic.cut", rows=rows, all=len(found.tokens))))
    if critic.whitening is not None:
        numbers = {"mean": voice.fine(critic.whitening.mean), "std": voice.fine(critic.whitening.divisor)}
        blocks.append(Paragraph(voice.say("critic.whitened", epsilon=f"{chain.advantage.epsilon:g}", **numbers)))
    blocks.append(Paragraph(voice.say("critic.return")))
    if critic.learns_alone:
        blocks.append(Paragraph(voice.say("critic.alone")))
    return blocks


def _chosen(chain: Chain) -> MemberAdvantage | None:
    """The followed answer, or the one with the largest advantage of a token."""
    able = [found for found in chain.advantage.members if found.tokens]
    followed = [found for found in able if found.member == chain.member]
    return next(iter(followed), max(able, key=lambda one: max(abs(t.advantage) for t in one.tokens), default=None))


def _worked(chain: Chain, found: MemberAdvantage, critic: CriticNumbers, voice: Voice) -> list[Block]:
    """The token with the largest surprise, as a sum of what stands beside it in the table."""
    place = max(range(len(found.tokens)), key=lambda index: abs(found.tokens[index].surprise))
    token = found.tokens[place]
    words = {"answer": f"#{found.member}", "token": shown(found.texts[place]), "place": token.token}
    numbers = {"reward": voice.fine(token.reward), "after": voice.fine(token.after), "value": voice.fine(token.value)}
    surprise = voice.say("critic.surprise", gamma=f"{critic.gamma:g}", result=voice.fine(token.surprise), **numbers)
    blocks: list[Block] = [Paragraph(voice.say("critic.worked", **words)), Formula(surprise)]
    following = found.tokens[place + 1].raw if place + 1 < len(found.tokens) else 0.0
    parts = {"surprise": voice.fine(token.surprise), "following": voice.fine(following), "result": voice.fine(token.raw)}
    blocks.append(Formula(voice.say("critic.raw", factor=f"{critic.gamma * critic.gae_lambda:g}", **parts)))
    if critic.whitening is not None and critic.whitening.divisor:
        white = {"mean": voice.fine(critic.whitening.mean), "std": voice.fine(critic.whitening.divisor)}
        result = voice.fine(token.advantage)
        blocks.append(
            Formula(
                voice.say(
                    "critic.white", raw=voice.fine(token.raw), epsilon=f"{chain.advantage.epsilon:g}", result=result, **white
                )
            )
        )
    return blocks


def _table(found: MemberAdvantage, voice: Voice, rows: int) -> Block:
    lines = tuple(_line(token, text, voice) for token, text in list(zip(found.tokens, found.texts, strict=True))[:rows])
    table = Table(voice.columns(*COLUMNS), lines)
    return Folded(voice.say("critic.tokens", answer=f"#{found.member}"), (table,)) if len(lines) > 12 else table


def _line(token: TokenAdvantage, text: str, voice: Voice) -> Line:
    numbers = (token.reward, token.value, token.after)
    signed = (token.surprise, token.raw)
    cells = (
        str(token.token),
        shown(text),
        *(voice.number(number) for number in numbers),
        *(voice.signed(number) for number in signed),
        voice.number(token.target),
        voice.signed(token.advantage),
    )
    return Line(cells, tone(token.advantage))
