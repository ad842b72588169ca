"""What follows and what stands beside: further updates, KL, other rows, the identity, Adam, relatives, the words."""

from __future__ import annotations

from toishi.explanation.page.blocks import Block, Column, Line, Paragraph, Section, Table
from toishi.explanation.page.markup import code
from toishi.explanation.toy.model import MAX_WORDS
from toishi.explanation.toy.story_advantages import high_bound, low_bound, token_table
from toishi.explanation.toy.story_held import about_held, held_and_free
from toishi.explanation.toy.story_pairs import pulling
from toishi.explanation.toy.story_start import NOTHING, position_table, row_title
from toishi.explanation.toy.story_step import agreed, moves_text
from toishi.explanation.toy.voice import Voice
from toishi.explanation.toy.walk import Beside, State, Update, Walk


def later(walk: Walk, voice: Voice) -> tuple[Section, ...]:
    """Each further update on the same answers."""
    pairs = zip(walk.updates, walk.updates[1:], strict=False)
    return tuple(_later(walk, voice, update, previous.step.after) for previous, update in pairs)


def kl(walk: Walk, voice: Voice) -> Section:
    """The second update with a KL term, by two estimators."""
    say, words = voice.say, walk.world.words
    plain = walk.rows[0]
    lines = [_kl_line(say("col.without"), plain.second_loss, plain.second_gradient.first, voice)]
    lines += [_kl_line(say(f"kl.{row.kl}_name"), row.loss, row.gradient.first, voice) for row in walk.kl_rows]
    columns = (*voice.columns("kl", "loss"), *(Column(code(word)) for word in words))
    means = {row.kl: voice.short(row.token_mean) for row in walk.kl_rows}
    exact = voice.short(walk.updates[0].step.after.kl_from_start[0])
    blocks: list[Block] = [
        Paragraph(say("kl.body", beta=voice.short(walk.kl_rows[0].coef))),
        Paragraph(say("kl.k3", exact=exact, **means)),
        Paragraph(say("kl.ratio", **means)),
        Table(columns, tuple(lines), say("kl.update")),
        _kl_tokens(walk, voice),
    ]
    return Section("kl", say("kl.title"), say("kl.headline"), tuple(blocks))


def rows(walk: Walk, voice: Voice) -> Section:
    """Other rows of the algorithm table, side by side."""
    say, words = voice.say, walk.world.words
    numbers = [f"#{answer.number}" for answer in walk.answers]
    advantages = [Line((row.name, *(voice.signed(value) for value in row.advantages))) for row in walk.rows]
    first = [Line((r.name, voice.number(r.loss), *(voice.signed(g) for g in r.gradient.first))) for r in walk.rows]
    blocks: list[Block] = [Paragraph(text) for row in walk.rows if (text := _row_in_words(row, len(walk.answers), voice))]
    blocks.append(Paragraph(say("rows.losses")))
    blocks += [
        Table((*voice.columns("row"), *map(Column, numbers)), tuple(advantages), say("rows.advantages")),
        voice_table(voice, ("row", "loss"), words, first, say("rows.first")),
        voice_table(voice, ("row", "held", "loss"), words, [_second(row, voice) for row in walk.rows], say("rows.second")),
        _ratios(walk, voice),
    ]
    return Section("rows", say("rows.title"), say("rows.headline"), tuple(blocks))


def identity(walk: Walk, voice: Voice) -> Section:
    """The first update as a signed sum of SFT gradients."""
    found, say = walk.identity, voice.say
    lines = []
    for answer, factor, part in zip(walk.answers, found.factors, found.sft_gradients, strict=True):
        label = f"{voice.signed(factor)} × #{answer.number} {code(answer.text)}"
        lines.append(Line((label, *(voice.signed(factor * value) for value in part.first))))
    lines.append(Line((say("col.sum"), *(voice.signed(value) for value in found.total.first)), "total"))
    lines.append(Line((say("gradient.line"), *(voice.signed(value) for value in walk.updates[0].gradient.first))))
    means = [a.advantage / max(1, sum(other.takes_part for other in walk.answers)) for a in walk.answers]
    by_advantage = all(abs(mean - factor) < NOTHING for mean, factor in zip(means, found.factors, strict=True))
    key = "fails" if not found.holds else "body" if by_advantage else "body_general"
    body = say(f"identity.{key}", group=len(walk.answers))
    table = voice.by_word(say("identity.table"), "product", walk.world.words, lines)
    headline = say("identity.headline" if found.holds else "identity.headline_fails", row=row_title(walk))
    proof = [agreed(voice, "identity.checked", found.max_difference)] if found.holds else []
    return Section("identity", say("identity.title"), headline, (Paragraph(body), table, *proof))


def adam(walk: Walk, voice: Voice) -> Section:
    """Gradients of very different size, and Adam's first step for each."""
    largest = [max(map(abs, row.gradient.first)) for row in walk.rows]
    sizes = [size for size in largest if size > NOTHING]
    lines = []
    for row in walk.rows:
        lines.append(Line((row.name, voice.say("gradient.line"), *(voice.signed(value) for value in row.gradient.first))))
        lines.append(Line(("", "Adam", *(voice.signed(value) for value in row.adam_change.first)), "total"))
    columns = (*voice.columns("row"), Column("", numeric=False), *(Column(code(word)) for word in walk.world.words))
    factor = f"{max(sizes) / min(sizes):.0f}" if sizes else "1"
    lr = voice.short(_adam_lr(walk))
    body = Paragraph(voice.say("adam.body", lr=lr, factor=factor))
    table = Table(columns, tuple(lines), voice.say("adam.table"))
    return Section("adam", voice.say("adam.title"), voice.say("adam.headline"), (body, table))


def neighbours(walk: Walk, voice: Voice) -> Section:
    """A value model and GAE; a judge's expected score."""
    blocks: list[Block] = []
    if walk.value_model is not None:
        blocks += _value_model(walk, voice)
    judge = walk.judge
    chances = voice.listed(f"{s:g}: {voice.short(p)}" for s, p in zip(judge.points, judge.probabilities, strict=True))
    text = voice.say(
        "neighbours.judge",
        probabilities=chances,
        mass=voice.short(judge.mass),
        most_likely=f"{judge.most_likely:g}",
        expected=voice.short(judge.expected),
        std=voice.short(judge.std),
    )
    blocks.append(Paragraph(text))
    return Section("neighbours", voice.say("neighbours.title"), voice.say("neighbours.headline"), tuple(blocks))


def words(walk: Walk, voice: Voice) -> Section:
    """The eight terms, with what they were on this page."""
    after = walk.updates[0].step.after
    known = [answer.reward for answer in walk.answers if answer.reward is not None]
    subtracted = walk.answers[0].subtracted
    values = {
        "reward": voice.listed(voice.short(reward) for reward in known),
        "baseline": _baseline(walk, voice) if subtracted is None else voice.short(subtracted),
        "advantages": voice.listed(voice.signed(answer.advantage) for answer in walk.answers),
        "entropy": f"{voice.short(walk.before.entropy[0])} → {voice.short(after.entropy[0])}",
        "kl": voice.short(after.kl_from_start[0]),
        "group": len(walk.answers),
    }
    names = ("reward", "baseline", "advantage", "ratio", "clip", "push", "entropy", "kl")
    lines = [Line((voice.say(f"words.{name}.0"), voice.say(f"words.{name}.1", **values))) for name in names]
    table = Table(voice.columns("term", "meaning"), tuple(lines))
    return Section("words", voice.say("words.title"), voice.say("words.headline"), (table,))


def _baseline(walk: Walk, voice: Voice) -> str:
    """What stands for it where it is not one number."""
    return voice.say("words.baseline_critic" if walk.valued is not None else "words.baseline_none")


def voice_table(voice: Voice, names: tuple[str, ...], words: tuple[str, ...], lines: list[Line], caption: str) -> Table:
    """Named columns, then one for each word."""
    return Table((*voice.columns(*names), *(Column(code(word)) for word in words)), tuple(lines), caption)


def _later(walk: Walk, voice: Voice, update: Update, before: State) -> Section:
    surrogate, say = walk.row["surrogate"], voice.say
    body = {"score_function": "plain", "stop_gradient": "cap"}.get(str(surrogate), "")
    if not body and walk.row["ratio_level"] != "token":
        body = "sequence"
    low, high = low_bound(walk), high_bound(walk)
    bounds = {"low": voice.short(low), "high": voice.short(high)}
    bounds |= {"down": voice.short(1 - low), "up": voice.short(high - 1)}
    after = update.step.after
    pair = next((pair for pair in walk.pairs if pair.index == update.index), None)
    if pair is not None:
        body = "pairs"
    rewards = {"before": voice.short(before.expected_reward), "after": voice.short(after.expected_reward)}
    blocks: list[Block] = [
        Paragraph(say(f"later.body_{body}" if body else "later.body", **bounds)),
        *(pulling(walk, pair, voice) if pair is not None else []),
        token_table(walk, voice, update.tokens, clips=pair is None),
        *(Paragraph(text) for text in held_and_free(walk, update, voice)),
        *([Paragraph(_later_loss(walk, update, voice))] if pair is None else []),
        position_table(walk, voice, update.gradient.first, update.step, first=True, start=before.probabilities),
        position_table(walk, voice, update.gradient.second, update.step, first=False, start=before.probabilities),
        Paragraph(say("later.after", moves=moves_text(walk, voice, before, after))),
        *(Paragraph(text) for text in about_held(walk, update, before, voice)),
        *([Paragraph(why)] if (why := _why_fell(walk, update, before, voice)) else []),
        Paragraph(say("later.reward" if pair is None else "later.reward_pairs", **rewards)),
        agreed(voice, "later.checked", update.max_difference),
    ]
    if pair is not None:
        headline = say("later.headline_pairs", loss=voice.number(pair.loss), weight=voice.short(pair.weight))
        return Section(f"update_{update.index}", say("later.title_pairs", index=update.index), headline, tuple(blocks))
    return Section(
        f"update_{update.index}", say("later.title", index=update.index), _later_headline(update, voice), tuple(blocks)
    )


def _later_loss(walk: Walk, update: Update, voice: Voice) -> str:
    """The loss as the sum of what each answer adds; alone where a KL or entropy term is in it as well."""
    parts = [sum(token.loss for token in update.tokens if token.answer == a.number) for a in walk.answers if a.takes_part]
    loss = voice.short(update.loss)
    if not parts or abs(sum(parts) - update.loss) > NOTHING:
        return voice.say("later.loss", loss=loss)
    return voice.say("later.loss_sum", loss=loss, sum=" ".join(voice.signed(part) for part in parts))


def _why_fell(walk: Walk, update: Update, before: State, voice: Voice) -> str:
    """Why the expected reward fell: a better word is held and lost what a worse one, still pulled, gained."""
    after, rewards = update.step.after, walk.world.rewards
    if before.expected_reward is None or after.expected_reward is None or after.expected_reward >= before.expected_reward:
        return ""
    pairs = zip(after.probabilities.first, before.probabilities.first, strict=True)
    moves = [new - old for new, old in pairs]
    lost, won = moves.index(min(moves)), moves.index(max(moves))
    firsts = [token for token in update.tokens if token.position == 1]
    held = [token.clip != "free" for token in firsts if token.word == walk.world.words[lost]]
    pulled = any(token.push > NOTHING for token in firsts if token.word == walk.world.words[won])
    worse, better = rewards[won], rewards[lost]
    if not (held and all(held) and pulled) or worse is None or better is None or worse >= better:
        return ""
    names = {"lost": code(walk.world.words[lost]), "won": code(walk.world.words[won])}
    return voice.say("later.why_fell", better=voice.short(better), worse=voice.short(worse), **names)


def _later_headline(update: Update, voice: Voice) -> str:
    held = sum(token.clip != "free" for token in update.tokens)
    if held == 0:
        return voice.say("later.headline_free")
    counts = {"held": held, "all": len(update.tokens)}
    if update.gradient_norm < NOTHING:
        return voice.say("later.headline_all", **counts)
    pulling = dict.fromkeys(code(t.word) for t in update.tokens if t.position == 1 and abs(t.push) > NOTHING)
    if not pulling:
        return voice.say("later.headline_no_first", **counts)
    key = "later.headline_some" if len(pulling) == 1 else "later.headline_some_many"
    return voice.say(key, **counts, free=voice.listed(pulling))


def _kl_line(name: str, loss: float, gradient: tuple[float, ...], voice: Voice) -> Line:
    return Line((name, voice.number(loss), *(voice.signed(value) for value in gradient)))


def _kl_tokens(walk: Walk, voice: Voice) -> Table:
    tokens = walk.updates[0].tokens
    columns = (*voice.columns("kl"), *(Column(f"#{token.answer} {code(token.word)}") for token in tokens))
    lines = [Line((voice.say(f"kl.{row.kl}_name"), *(voice.number(value) for value in row.per_token))) for row in walk.kl_rows]
    return Table(columns, tuple(lines), voice.say("kl.tokens"))


def _row_in_words(row: Beside, group: int, voice: Voice) -> str:
    if row.name.endswith("*"):
        return voice.say("rows.changed", name=row.name)
    key = f"rows.{row.name}"
    return voice.say(key, group=group, limit=MAX_WORDS) if voice.say.maybe(key) else ""


def _second(row: Beside, voice: Voice) -> Line:
    held = sum(clip != "free" for clip in row.second_clips)
    shares = (f"{held}/{len(row.second_clips)}", voice.number(row.second_loss))
    return Line((row.name, *shares, *(voice.signed(value) for value in row.second_gradient.first)))


def _ratios(walk: Walk, voice: Voice) -> Table:
    tokens = walk.updates[0].tokens
    columns = (*voice.columns("row"), *(Column(f"#{token.answer} {code(token.word)}") for token in tokens))
    lines = [Line((row.name, *_marked_ratios(row, voice))) for row in walk.rows if len(row.second_ratios) == len(tokens)]
    return Table(columns, tuple(lines), voice.say("rows.ratios"))


def _marked_ratios(row: Beside, voice: Voice) -> list[str]:
    pairs = zip(row.second_ratios, row.second_clips, strict=True)
    return [voice.number(ratio) + ("" if clip == "free" else "*") for ratio, clip in pairs]


def _adam_lr(walk: Walk) -> float:
    steps = [walk.updates[0].step, walk.beside_step]
    return next(step.lr for step in steps if step.optimizer == "adam")


def _value_model(walk: Walk, voice: Voice) -> list[Block]:
    found = walk.value_model
    assert found is not None, "neighbours() has looked"
    answer = walk.answers[found.answer - 1]
    tokens = [walk.world.words[token] for token in answer.tokens]

    def several(values: tuple[float, ...]) -> str:
        return voice.listed(voice.short(value) for value in values)

    lines = [
        Line((code(word), voice.short(value), voice.signed(delta), voice.signed(advantage), voice.number(target)))
        for word, value, delta, advantage, target in zip(
            tokens, found.values, found.delta, found.advantages, found.returns, strict=True
        )
    ]
    lam = voice.short(found.lam)
    ends = {"lam_0": several(found.advantages_lam_0), "lam_1": several(found.advantages_lam_1)}
    return [
        Paragraph(voice.say("neighbours.gae", answer=code(answer.text), values=several(found.values), lam=lam)),
        Table(voice.columns("word", "value", "surprise", "advantage", "returns"), tuple(lines)),
        Paragraph(voice.say("neighbours.gae_ends", lam=lam, **ends)),
    ]
