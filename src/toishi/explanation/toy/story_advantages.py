"""From scores to advantages, and from advantages to pushes on words."""

from __future__ import annotations

from toishi.explanation.page.blocks import Block, Formula, Line, Paragraph, Section, Table
from toishi.explanation.page.markup import code
from toishi.explanation.toy.model import MAX_WORDS
from toishi.explanation.toy.story_start import NOTHING, by_credit, signed_bars
from toishi.explanation.toy.voice import Voice, tone
from toishi.explanation.toy.walk import Answer, Token, Walk


def advantages(walk: Walk, voice: Voice) -> Section:
    """Baseline, spread, and the division for each answer."""
    counting = [answer for answer in walk.answers if answer.reward is not None]
    blocks = [*_how(walk, voice), _advantage_table(walk, voice), signed_bars(walk, voice)]
    worst = min(counting, key=lambda answer: answer.advantage, default=None)
    if worst is not None and worst.advantage < -NOTHING and worst.formula_holds and worst.subtracted is not None:
        blocks.append(Paragraph(_why_negative(worst, voice)))
    return Section("advantages", voice.say("advantages.title"), _headline(counting, voice), tuple(blocks))


def weights(walk: Walk, voice: Voice) -> Section:
    """Advantage, ratio and share of each token make its push."""
    update = walk.updates[0]
    sequences = len({token.answer for token in update.tokens})
    share = voice.say(f"weights.share_{walk.row['reduction']}", tokens=len(update.tokens), sequences=sequences, limit=MAX_WORDS)
    push = voice.say("weights.push", see=voice.say("surprise.title"))
    texts = [by_credit("weights.spread", walk, voice), voice.say("weights.ratio"), share, push]
    blocks: list[Block] = [Paragraph(text) for text in texts]
    blocks.append(token_table(walk, voice, update.tokens, clips=any(token.clip != "free" for token in update.tokens)))
    ordered = sorted(update.tokens, key=lambda token: -abs(token.push))
    if not ordered or abs(ordered[0].push) < NOTHING:
        return Section("weights", voice.say("weights.title"), voice.say("weights.headline_zero"), tuple(blocks))
    others = [token for token in ordered if abs(token.push) < abs(ordered[0].push) - NOTHING]
    if others:
        reason = "weights.why_short" if ordered[0].share > others[0].share + NOTHING else "weights.why_advantage"
        blocks.append(Paragraph(f"{_why_hardest(ordered[0], others, voice)} {voice.say(reason)}"))
    blocks += [Paragraph(text) for text in _at_both_places(walk, voice)]
    most = ordered[0]
    headline = voice.say("weights.headline", word=code(most.word), answer=f"#{most.answer}", push=voice.signed(most.push))
    return Section("weights", voice.say("weights.title"), headline, tuple(blocks))


def token_table(walk: Walk, voice: Voice, tokens: tuple[Token, ...], *, clips: bool) -> Table:
    """What each token pulls with, in its factors; `clips`: whether a column says which are held."""
    places = [voice.say("first_place"), voice.say("second_place")]
    bounds = {"low": voice.short(low_bound(walk)), "high": voice.short(high_bound(walk))}
    lines = [
        Line(
            (
                f"#{token.answer}",
                code(token.word),
                places[token.position - 1],
                voice.signed(token.advantage),
                voice.number(token.ratio),
                *([voice.say(f"later.{token.clip}", **bounds)] if clips else []),
                voice.number(token.share),
                voice.signed(token.push),
            ),
            "held" if token.clip != "free" else tone(token.push),
        )
        for token in tokens
    ]
    names = ("number", "word", "place", "advantage", "ratio", *(("clip",) if clips else ()), "share", "push")
    return Table(voice.columns(*names), tuple(lines))


def low_bound(walk: Walk) -> float:
    """Ratios below it may be held."""
    return 1 - float(str(walk.row["clip_low"]))


def high_bound(walk: Walk) -> float:
    """Ratios above it may be held."""
    return 1 + float(str(walk.row["clip_high"]))


def _headline(counting: list[Answer], voice: Voice) -> str:
    best = max(counting, key=lambda answer: answer.advantage, default=None)
    worst = min(counting, key=lambda answer: answer.advantage, default=None)
    if best is None or worst is None or max(abs(best.advantage), abs(worst.advantage)) < NOTHING:
        return voice.say("advantages.headline_zero")
    return voice.say(
        "advantages.headline",
        best=f"#{best.number}",
        best_advantage=voice.signed(best.advantage),
        worst=f"#{worst.number}",
        worst_advantage=voice.signed(worst.advantage),
    )


def _how(walk: Walk, voice: Voice) -> list[Block]:
    row = walk.row
    if not row["policy_term"]:
        return [Paragraph(voice.say("advantages.unused"))]
    if row["filter"] == "keep_best":
        return [Paragraph(voice.say("advantages.keep_best"))]
    mean = voice.short(walk.mean)
    blocks: list[Block] = [Formula(voice.say("advantages.formula", expression=_expression(walk, voice)))]
    earned = [voice.short(answer.reward) for answer in walk.answers if answer.reward is not None]
    total = f"({' + '.join(earned)}) / {len(earned)}"
    blocks.append(Paragraph(voice.say(f"advantages.baseline_{row['baseline']}", mean=mean, sum=total)))
    true = walk.before.expected_reward
    if row["baseline"] == "group_mean" and true is not None:
        counts = {"group": len(walk.answers), "mean": mean, "true": voice.short(true)}
        blocks.append(Paragraph(voice.say("advantages.baseline_true", **counts)))
    spread = {"mean": mean, "std": voice.short(walk.std), "square": _square(walk, voice)}
    blocks.append(Paragraph(voice.say(f"advantages.scale_{row['scale']}", **spread)))
    if row["filter"] == "keep_positive":
        blocks.append(Paragraph(voice.say("advantages.keep_positive")))
    return blocks


def _expression(walk: Walk, voice: Voice) -> str:
    row = walk.row
    earned = voice.say("advantages.plus_minus" if row["reward_map"] == "plus_minus" else "advantages.earned")
    minus, by = voice.say(f"advantages.minus_{row['baseline']}"), voice.say(f"advantages.by_{row['scale']}")
    difference = f"{earned} − {minus}" if minus else earned
    if not by:
        return difference
    epsilon = f"{row['std_epsilon']:g}" if row["std_epsilon"] else ""
    return f"({difference}) / " + (f"({by} + {epsilon})" if epsilon else by)


def _square(walk: Walk, voice: Voice) -> str:
    """(0.3² + 0.1² + ...) / count, as the spread is made."""
    earned = [answer for answer in walk.answers if answer.reward is not None]
    if walk.mean is None or not earned:
        return ""
    terms = " + ".join(f"{voice.short(abs(float(answer.reward or 0.0) - walk.mean))}²" for answer in earned)
    return f"({terms}) / {max(1, len(earned) - int(str(walk.row['std_ddof'])))}"


def _advantage_table(walk: Walk, voice: Voice) -> Table:
    shown = walk.row["baseline"] != "none", walk.row["scale"] != "none"
    names = ["number", "answer", "reward", *["baseline", "distance"] * shown[0], *["divisor"] * shown[1], "advantage"]
    lines = []
    for answer in walk.answers:
        cells = [f"#{answer.number}", code(answer.text), voice.short(answer.reward)]
        if shown[0]:
            known = answer.reward is not None and answer.subtracted is not None and answer.formula_holds
            distance = (answer.reward or 0.0) - (answer.subtracted or 0.0)
            cells += [voice.number(answer.subtracted), voice.signed(distance)] if known else ["", ""]
        if shown[1]:
            cells.append(voice.number(answer.divisor) if answer.formula_holds else "")
        lines.append(Line((*cells, voice.signed(answer.advantage)), tone(answer.advantage)))
    return Table(voice.columns(*names), tuple(lines))


def _why_negative(worst: Answer, voice: Voice) -> str:
    reward, baseline = float(worst.reward or 0.0), float(worst.subtracted or 0.0)
    return voice.say(
        "advantages.negative",
        answer=f"#{worst.number}",
        reward=voice.short(reward),
        distance=voice.short(baseline - reward),
        baseline=voice.short(baseline),
    )


def _why_hardest(most: Token, others: list[Token], voice: Voice) -> str:
    following = others[0]
    ties = [token for token in others if abs(token.push - following.push) < NOTHING]
    return voice.say(
        "weights.why" if len(ties) == 1 else "weights.why_tied",
        word=code(most.word),
        answer=f"#{most.answer}",
        advantage=voice.signed(most.advantage),
        share=voice.short(most.share),
        push=voice.signed(most.push),
        next=voice.listed(voice.say("weights.of", word=code(token.word), answer=f"#{token.answer}") for token in ties),
        next_advantage=voice.signed(following.advantage),
        next_share=voice.short(following.share),
        next_push=voice.signed(following.push),
    )


def _at_both_places(walk: Walk, voice: Voice) -> list[str]:
    """Words that were written in both places: their pushes there have nothing to do with one another."""
    tokens = [token for token in walk.updates[0].tokens if abs(token.push) > NOTHING]
    told = []
    for word in dict.fromkeys(token.word for token in tokens):
        first, second = ([t for t in tokens if t.word == word and t.position == place] for place in (1, 2))
        if first and second:
            sums = {"first_sum": sum(t.push for t in first), "second_sum": sum(t.push for t in second)}
            said = {name: voice.signed(value) for name, value in sums.items()}
            told.append(
                voice.say("weights.both", word=code(word), first=_pushers(first, voice), second=_pushers(second, voice), **said)
            )
    return told


def _pushers(tokens: list[Token], voice: Voice) -> str:
    """Up by some answers, down by others."""
    sides = []
    for key, some in (("up", [t for t in tokens if t.push > 0]), ("down", [t for t in tokens if t.push < 0])):
        if some:
            sides.append(voice.say(f"weights.{key}_by", answers=voice.listed(f"#{token.answer}" for token in some)))
    return voice.listed(sides)
