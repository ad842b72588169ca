"""Tasks that are easy to read aloud, over everyday things: `describe` (in one sentence) and `json_keys` (as a JSON object)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from toishi.errors import ConfigError
from toishi.tasks.listed import ListedTask, asked, split_heldout

_ANIMALS = """
ant bat bear bee beetle bird bison butterfly camel cat cheetah chicken cow crab crocodile crow deer dog
dolphin donkey duck eagle eel elephant fish flamingo fox frog giraffe goat goose gorilla hamster hawk hedgehog
hen hippo horse jellyfish kangaroo koala ladybug leopard lion lizard lobster mole monkey moose mouse octopus
ostrich otter owl panda parrot peacock penguin pig pigeon pony rabbit raccoon rat rhino robin salmon seal
shark sheep snail snake spider squirrel starfish swan tiger toad turkey turtle walrus whale wolf worm zebra
"""
_PLANTS = """
apple banana cactus carrot cherry coconut daisy fern grape leaf lemon lily lime mango mushroom oak onion orange
palm peach pear pine plum potato pumpkin rose sunflower tomato tulip
"""
_OBJECTS = """
airplane anchor arrow ball balloon basket bell bicycle boat book boot bottle bowl box bridge brush bucket bus
button candle car chair clock coat cup desk door drum feather flag flute fork guitar hammer hat helmet house
jacket kettle key kite knife ladder lamp lantern map mirror mug needle paintbrush pen pencil piano pillow
plate ring robot rocket rope scarf shirt shoe spoon table teapot tent train truck umbrella vase violin wagon
wallet watch wheel whistle window
"""
THINGS: tuple[str, ...] = tuple((_ANIMALS + _PLANTS + _OBJECTS).split())


def with_article(thing: str) -> str:
    """
    >>> with_article("owl"), with_article("dog")
    ('an owl', 'a dog')
    """
    return f"{'an' if thing[0] in 'aeiou' else 'a'} {thing}"


@dataclass(frozen=True, kw_only=True)
class _Topics:
    heldout: Annotated[int, Field(ge=0)] = 64
    as_chat: bool = True

    def _built(self, name: str, template: str, seed: int) -> ListedTask:
        if "{thing}" not in template:
            raise ConfigError(f"task.template: {template!r} must have {{thing}} where the thing goes")
        prompts = [
            asked(
                f"{name}/{thing}",
                template.replace("{thing}", with_article(thing)),
                as_chat=self.as_chat,
                columns={"thing": thing},
            )
            for thing in THINGS
        ]
        train, heldout = split_heldout(prompts, self.heldout, seed=seed, where="task")
        return ListedTask(name=name, columns=frozenset({"thing"}), train=train, heldout=heldout, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Describe(_Topics):
    """Options of the task `describe`: "Describe a dog in one sentence.", for rewards that need no gold, such as `length`."""

    template: str = "Describe {thing} in one sentence."

    def build(self, *, seed: int) -> ListedTask:
        return self._built("describe", self.template, seed)


@dataclass(frozen=True, kw_only=True)
class JsonKeys(_Topics):
    """Options of the task `json_keys`, for the reward of the same name with the same keys."""

    keys: Annotated[tuple[str, ...], Field(min_length=1)] = ("name", "color")
    template: str = "Write a JSON object with the keys {keys} for {thing}. Answer with just the JSON."

    def build(self, *, seed: int) -> ListedTask:
        *most, last = [f'"{key}"' for key in self.keys]
        listed = f"{', '.join(most)} and {last}" if most else last
        return self._built("json_keys", self.template.replace("{keys}", listed), seed)
