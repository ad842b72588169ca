"""The words that a reader needs, each with what it is in this step."""

from __future__ import annotations

from toishi.explanation.chain.model import Chain
from toishi.explanation.chain.voice import Voice
from toishi.explanation.page.blocks import Folded, Line, Table
from toishi.explanation.page.markup import code

WORDS = ("step", "group", "number", "row", "reward", "baseline", "advantage", "push", "logprob", "greedy", "reference")


def words(chain: Chain, voice: Voice) -> Folded:
    """A glossary, closed at first."""
    scale = chain.advantage.scale
    values = {
        "updates": chain.weights.num_updates if chain.weights else 0,
        "group": chain.group,
        "prompts": chain.num_prompts,
        "size": len(chain.scores.members),
        "row": code(chain.algorithm),
        "against": voice.say(f"baseline.name_{chain.advantage.baseline}"),
        "divided": voice.say(f"words.divided_{scale}"),
    }
    names = [name for name in WORDS if name != "reference" or chain.gold]
    lines = tuple(Line((voice.say(f"words.{name}.0", **values), voice.say(f"words.{name}.1", **values))) for name in names)
    return Folded(voice.say("words.title"), (Table(voice.columns("term", "meaning"), lines),))
