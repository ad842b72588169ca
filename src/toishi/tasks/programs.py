"""Small tasks whose answers a program judges: `functions` (write a Python function) and `implications` (write a proof)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, permutations
from typing import Annotated

from pydantic import Field

from toishi.tasks.listed import ListedTask, asked, split_heldout

_ASKED_ABOUT = (0, 1, 7, -3, 12)
_CHAIN_NAMES = "ABCDEFGH"


@dataclass(frozen=True, kw_only=True)
class Functions:
    """Options of the task `functions`: "Write a Python function f(x) that returns x plus 3. ...".

    Columns: `tests`, a list of Python assertions, for the reward `code`.
    """

    heldout: Annotated[int, Field(ge=0)] = 32
    as_chat: bool = True

    def build(self, *, seed: int) -> ListedTask:
        prompts = [
            asked(
                f"functions/{code}",
                f"Write a Python function f(x) that returns {words}. Answer with one short Python code block.",
                as_chat=self.as_chat,
                gold=f"```python\ndef f(x):\n    return {code}\n```",
                columns={"tests": [f"assert f({x}) == {function(x)}" for x in _ASKED_ABOUT]},
            )
            for words, code, function in _functions()
        ]
        train, heldout = split_heldout(prompts, self.heldout, seed=seed, where="task")
        return ListedTask(name="functions", columns=frozenset({"tests"}), train=train, heldout=heldout, seed=seed)


def _functions() -> Iterator[tuple[str, str, Callable[[int], int]]]:
    """(in words, in Python, itself)."""
    for k in range(2, 26):
        yield f"x plus {k}", f"x + {k}", k.__add__
        yield f"{k} minus x", f"{k} - x", k.__sub__
        yield f"{k} times x", f"{k} * x", k.__mul__
        yield f"x to the power of 2, plus {k}", f"x ** 2 + {k}", partial(_polynomial, 1, 0, k)
        yield f"twice x, plus {k}", f"2 * x + {k}", partial(_polynomial, 0, 2, k)


def _polynomial(a: int, b: int, c: int, x: int) -> int:
    return a * x * x + b * x + c


@dataclass(frozen=True, kw_only=True)
class Implications:
    """Options of the task `implications`: prove a letter from others by steps such as "B because A and A -> B".

    steps  how many implications lead to the goal
    Columns: `statement`, the text "given: A; A -> B" and "prove: B" on two lines, for a checker.
    """

    steps: Annotated[int, Field(ge=1, le=5)] = 2
    heldout: Annotated[int, Field(ge=0)] = 32
    as_chat: bool = True

    def build(self, *, seed: int) -> ListedTask:
        chains = list(permutations(_CHAIN_NAMES[: self.steps + 3], self.steps + 1))
        prompts = []
        for chain in chains:
            links = [f"{one} -> {other}" for one, other in pairwise(chain)]
            given = "; ".join([chain[0], *links])
            proof = "\n".join(f"{other} because {one} and {one} -> {other}" for one, other in pairwise(chain))
            question = (
                f"Given: {given}\nProve: {chain[-1]}\nWrite one step a line, in the form: Y because X and X -> Y\n"
                "Write nothing else."
            )
            columns = {"statement": f"given: {given}\nprove: {chain[-1]}"}
            prompts.append(asked(f"implications/{''.join(chain)}", question, as_chat=self.as_chat, gold=proof, columns=columns))
        train, heldout = split_heldout(prompts, self.heldout, seed=seed, where="task")
        return ListedTask(name="implications", columns=frozenset({"statement"}), train=train, heldout=heldout, seed=seed)
