"""The step itself: loss, gradient, update, why a word moved, and whether it was what the scores asked for."""

from __future__ import annotations

from collections.abc import Mapping

from toishi.explanation.page.blocks import Block, Formula, Line, Paragraph, Section, Table, Verdict
from toishi.explanation.page.markup import code
from toishi.explanation.toy.story_advantages import high_bound, low_bound
from toishi.explanation.toy.story_start import NOTHING, bars, position_table
from toishi.explanation.toy.voice import Voice, tone
from toishi.explanation.toy.walk import State, Walk, WordMove

AGREES = 1e-9


def loss(walk: Walk, voice: Voice) -> Section:
    """The loss and the gradient's length, and why the first says nothing about the second."""
    update = walk.updates[0]
    zero, still = abs(update.loss) < NOTHING, update.gradient_norm < NOTHING
    headline = "loss.headline_nothing" if still else "loss.headline_zero" if zero else "loss.headline"
    by_answer = [sum(token.loss for token in update.tokens if token.answer == a.number) for a in walk.answers if a.takes_part]
    total = " ".join(voice.signed(part) for part in by_answer) + f" = {voice.number(sum(by_answer))}"
    texts = [voice.say("loss.why_zero" if zero else "loss.why", sum=total)] if by_answer else []
    bounds = {"low": voice.short(low_bound(walk)), "high": voice.short(high_bound(walk))}
    formula: list[Block] = []
    if walk.row["policy_term"]:
        formula = [Formula(voice.say(f"loss.formula_{walk.row['surrogate']}", **bounds)), Paragraph(voice.say("loss.formula"))]
    if not still:
        texts.append(voice.say("loss.gradient"))
        pushed = sum(token.push for token in update.tokens)
        if abs(update.loss + pushed) < NOTHING:
            texts.append(voice.say("loss.cancel_zero" if zero else "loss.cancel", sum=voice.number(pushed)))
        texts.append(voice.say("loss.watch"))
    return Section(
        "loss",
        voice.say("loss.title_zero" if zero and not still else "loss.title"),
        voice.say(headline, loss=voice.number(update.loss), norm=voice.short(update.gradient_norm)),
        (*formula, *(Paragraph(text) for text in texts)),
    )


def agreed(voice: Voice, key: str, difference: float) -> Verdict:
    """That two roads to the same numbers agree; how closely is the detail."""
    detail = voice.say("agree.detail" if difference else "agree.equal", difference=voice.tiny(difference))
    return Verdict(difference < AGREES, voice.say(key), detail)


def gradient(walk: Walk, voice: Voice) -> Section:
    """The closed form, answer by answer, beside autograd."""
    update = walk.updates[0]
    blocks: list[Block] = [Paragraph(voice.say("gradient.rule"))]
    if update.gradient_norm > NOTHING:
        blocks.append(Paragraph(_worked(walk, voice)))
    blocks.append(_sum_table(walk, voice, first=True))
    blocks.append(_sum_table(walk, voice, first=False))
    blocks.append(agreed(voice, "gradient.checked", update.max_difference))
    return Section("gradient", voice.say("gradient.title"), voice.say("gradient.headline"), tuple(blocks))


def step(walk: Walk, voice: Voice) -> Section:
    """The optimizer's step: logits, probabilities, and the other optimizer beside."""
    update = walk.updates[0]
    blocks: list[Block] = [
        Paragraph(voice.say(f"step.{update.step.optimizer}", lr=voice.short(update.step.lr))),
        bars(walk, voice, update.step),
        position_table(walk, voice, update.gradient.first, update.step, first=True),
        position_table(walk, voice, update.gradient.second, update.step, first=False),
        _optimizers(walk, voice),
        *_optimizers_disagree(walk, voice),
    ]
    headline = voice.say("step.headline", moves=moves_text(walk, voice, walk.before, update.step.after))
    return Section("step", voice.say("step.title"), headline, tuple(blocks))


def surprise(walk: Walk, voice: Voice) -> Section:
    """A word whose probability went against its advantage, or that there is none."""
    total = voice.number(walk.moves[0].total)
    lines = [
        Line(
            (
                code(move.word),
                voice.signed(move.advantage) if move.advantage is not None else voice.say("none"),
                voice.signed(move.change),
                voice.number(move.growth),
                voice.number(move.factor),
                voice.percent(move.before),
                voice.percent(move.after),
            ),
            tone(move.after - move.before),
        )
        for move in walk.moves
    ]
    columns = voice.columns("word", "advantage", "change", "growth", "factor", "before", "after")
    table = Table(columns, tuple(lines), voice.say("surprise.table", total=total))
    odd = next((move for move in walk.moves if move.surprising), None)
    if odd is None:
        headline, blocks = voice.say("surprise.headline_none"), [table]
        return Section("surprise", voice.say("surprise.title"), headline, (*blocks, Paragraph(voice.say("surprise.lesson"))))
    return Section("surprise", voice.say("surprise.title"), _odd_headline(odd, voice), (*_why_odd(walk, odd, voice), table))


def effect(walk: Walk, voice: Voice) -> Section:
    """Expected reward, entropy and KL, of this step and of SFT's."""
    before, after, sft = walk.before, walk.updates[0].step.after, walk.sft.step.after
    numbers = [
        ("reward", before.expected_reward, after.expected_reward, sft.expected_reward),
        ("entropy", before.entropy[0], after.entropy[0], sft.entropy[0]),
        ("kl", before.kl_from_start[0], after.kl_from_start[0], sft.kl_from_start[0]),
    ]
    lines = [Line((voice.say(f"effect.{name}"), *(voice.number(value) for value in values))) for name, *values in numbers]
    blocks: list[Block] = [Table(voice.columns("quantity", "start", "grpo", "sft"), tuple(lines))]
    asked = [move for move in walk.moves if move.advantage is not None and abs(move.advantage) > NOTHING]
    odd = [code(move.word) for move in asked if move.surprising]
    counts = {"right": len(asked) - len(odd), "all": len(asked), "odd": voice.listed(odd)}
    texts = [_expected(walk, voice), voice.say("effect.directions", **counts)]
    texts += [*_sft_instead(walk, voice), voice.say("effect.others")]
    blocks += [Paragraph(text) for text in texts if text]
    return Section("effect", voice.say("effect.title"), _verdict(before, after, counts, voice), tuple(blocks))


def _sft_instead(walk: Walk, voice: Voice) -> list[str]:
    """What the SFT step would have done, and why its expected reward is higher where it is."""
    before, after, sft = walk.before, walk.updates[0].step.after, walk.sft.step.after
    if sft.expected_reward is None or after.expected_reward is None:
        return []
    values = {"answer": code(walk.sft.answer), "sft": voice.short(sft.expected_reward), "group": len(walk.answers)}
    texts = [voice.say("effect.sft", moves=moves_text(walk, voice, before, sft), **values)]
    if sft.expected_reward <= after.expected_reward + NOTHING:
        return texts
    mine, theirs = after.kl_from_start[0], sft.kl_from_start[0]
    if theirs > mine > NOTHING:
        far = {"times": f"{theirs / mine:.1f}", "mine": voice.number(mine), "theirs": voice.number(theirs)}
        texts.append(voice.say("effect.sft_far", **far))
    cut = _cut(walk)
    if cut is not None:
        word, reward, p, q = cut
        numbers = {"reward": voice.short(reward), "before": voice.percent(p), "after": voice.percent(q)}
        texts.append(voice.say("effect.sft_cut", word=code(word), **numbers))
    return [" ".join(texts)]


def _cut(walk: Walk) -> tuple[str, float, float, float] | None:
    """The word whose loss cost SFT the most reward among those that earn more than the average before the step."""
    after = walk.sft.step.after.probabilities.first
    mean = walk.before.expected_reward
    found = [
        (word, reward, p, q)
        for word, reward, p, q in zip(walk.world.words, walk.world.rewards, walk.world.first, after, strict=True)
        if mean is not None and reward is not None and reward > mean and q < p
    ]
    return max(found, key=lambda item: item[1] * (item[2] - item[3]), default=None)


def moves_text(walk: Walk, voice: Voice, before: State, after: State) -> str:
    """`good` 40.0% → 51.4%, ..."""
    pairs = zip(walk.world.words, before.probabilities.first, after.probabilities.first, strict=True)
    return voice.listed(
        voice.say("step.move", word=code(word), before=voice.percent(p), after=voice.percent(q)) for word, p, q in pairs
    )


def _worked(walk: Walk, voice: Voice) -> str:
    """The sum for the word that was pushed most at the first position, by hand."""
    update = walk.updates[0]
    firsts = [token for token in update.tokens if token.position == 1]
    word = max(range(len(walk.world.words)), key=lambda index: abs(update.gradient.first[index]))
    p, name = walk.world.first[word], walk.world.words[word]
    factors = [f"({voice.short(p)} − 1)" if token.word == name else voice.short(p) for token in firsts]
    terms = " + ".join(f"({voice.signed(t.push)}) × {factor}" for t, factor in zip(firsts, factors, strict=True))
    return voice.say("gradient.worked", word=code(name), terms=terms, result=voice.signed(update.gradient.first[word]))


def _sum_table(walk: Walk, voice: Voice, *, first: bool) -> Table:
    update = walk.updates[0]

    def numbers(table: object) -> tuple[str, ...]:
        values = getattr(table, "first" if first else "second")
        return tuple(voice.signed(value) for value in values)

    lines = [
        Line((f"#{answer.number} {code(answer.text)}", *numbers(part)))
        for answer, part in zip(walk.answers, update.by_answer, strict=True)
    ]
    if any(update.entropy_part.first):
        lines.append(Line((voice.say("gradient.entropy"), *numbers(update.entropy_part))))
    lines.append(Line((voice.say("gradient.line"), *numbers(update.gradient)), "total"))
    lines.append(Line((voice.say("col.autograd"), *numbers(update.autograd))))
    return voice.by_word(voice.say("gradient.first" if first else "gradient.second"), "answer", walk.world.words, lines)


def _optimizers(walk: Walk, voice: Voice) -> Table:
    own, other = walk.updates[0].step, walk.beside_step
    sgd, adam = (other, own) if own.optimizer == "adam" else (own, other)
    columns = zip(
        walk.world.words,
        walk.world.first,
        sgd.change.first,
        sgd.after.probabilities.first,
        adam.change.first,
        adam.after.probabilities.first,
        strict=True,
    )
    lines = [
        Line((code(word), voice.number(p), voice.signed(a), voice.number(b), voice.signed(c), voice.number(d)))
        for word, p, a, b, c, d in columns
    ]
    names = ("word", "before", "sgd_change", "sgd_after", "adam_change", "adam_after")
    rates = {"sgd": voice.short(sgd.lr), "adam": voice.short(adam.lr)}
    return Table(voice.columns(*names), tuple(lines), voice.say("step.beside", **rates))


def _optimizers_disagree(walk: Walk, voice: Voice) -> list[Paragraph]:
    """Words that one optimizer raises and the other lowers."""
    own, other = walk.updates[0].step, walk.beside_step
    pairs = zip(own.after.probabilities.first, other.after.probabilities.first, walk.world.first, strict=True)
    apart = [(one - p) * (two - p) < -(NOTHING**2) for one, two, p in pairs]
    words = voice.listed(code(word) for word, differs in zip(walk.world.words, apart, strict=True) if differs)
    return [Paragraph(voice.say("step.disagree", words=words, see=voice.say("surprise.title")))] if words else []


def _odd_headline(odd: WordMove, voice: Voice) -> str:
    key = "surprise.headline" if (odd.advantage or 0.0) > 0 else "surprise.headline_down"
    return voice.say(key, word=code(odd.word), before=voice.percent(odd.before), after=voice.percent(odd.after))


def _why_odd(walk: Walk, odd: WordMove, voice: Voice) -> tuple[Paragraph, ...]:
    leader = max(walk.moves, key=lambda move: abs(move.before * (move.growth - 1)))
    values = {
        "word": code(odd.word),
        "change": voice.signed(odd.change),
        "growth": voice.number(odd.growth),
        "total": voice.number(odd.total),
        "factor": voice.number(odd.factor),
        "leader": code(leader.word),
        "leader_growth": voice.number(leader.growth),
    }
    texts = [voice.say(f"surprise.{key}", **values) for key in ("own", "normalised", "lesson")]
    return tuple(Paragraph(text) for text in (*texts, _turn(walk, odd, voice), _whole(walk, odd, voice)) if text)


def _turn(walk: Walk, odd: WordMove, voice: Voice) -> str:
    """At which learning rate the word would have moved the other way, if at any."""
    lr, names = walk.updates[0].step.lr, {"word": code(odd.word)}
    if odd.turns_at is not None:
        return voice.say("surprise.turn", rate=voice.short(odd.turns_at), lr=voice.short(lr), **names)
    return voice.say("surprise.turn_never_up" if odd.after < odd.before else "surprise.turn_never_down", **names)


def _whole(walk: Walk, odd: WordMove, voice: Voice) -> str:
    """What became of the whole answer that begins with the word; nothing when no answer of two words does, or
    when its second word stayed as it was."""
    answer = next((a for a in walk.answers if len(a.tokens) > 1 and walk.world.words[a.tokens[0]] == odd.word), None)
    if answer is None:
        return ""
    second = answer.tokens[1]
    before, after = walk.world.second[second], walk.updates[0].step.after.probabilities.second[second]
    if abs(after - before) < NOTHING:
        return ""
    factors = {"first_before": odd.before, "first_after": odd.after, "second_before": before, "second_after": after}
    whole = {"before": voice.number(odd.before * before), "after": voice.number(odd.after * after)}
    numbers = {name: voice.short(value) for name, value in factors.items()}
    return voice.say("surprise.whole", answer=code(answer.text), word=code(odd.word), **whole, **numbers)


def _expected(walk: Walk, voice: Voice) -> str:
    after = walk.updates[0].step.after
    if after.expected_reward is None:
        return ""
    terms = [
        f"{voice.short(p)} × {voice.short(reward)}"
        for p, reward in zip(after.probabilities.first, walk.world.rewards, strict=True)
    ]
    return voice.say("effect.expected", sum=" + ".join(terms), after=voice.short(after.expected_reward))


def _verdict(before: State, after: State, counts: Mapping[str, object], voice: Voice) -> str:
    """Yes or no by the expected reward; where a word went against its advantage, that comes first."""
    numbers = {"before": voice.short(before.expected_reward), "after": voice.short(after.expected_reward)}
    if before.expected_reward is None or after.expected_reward is None:
        key = "unknown"
    else:
        change = after.expected_reward - before.expected_reward
        key = "same" if abs(change) < NOTHING else "up" if change > 0 else "down"
    if not counts["odd"]:
        return voice.say(f"effect.headline_{key}", **numbers)
    mostly = 2 * int(str(counts["right"])) > int(str(counts["all"]))
    told = voice.say("effect.headline_mostly" if mostly else "effect.headline_partly", **counts)
    return f"{told} {voice.say(f'effect.reward_{key}', **numbers)}"
