"""Free options against a dataclass: unknown, missing, wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from toishi.errors import ConfigError
from toishi.options import from_options


@dataclass(frozen=True, kw_only=True)
class Thing:
    name: str
    size: Annotated[int, Field(ge=1)]
    share: float = 0.5
    kind: Literal["a", "b"] = "a"
    words: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    flag: bool = False
    either: bool | Literal["x"] = False
    fixed: int = field(init=False, default=7)


def test_options_become_fields() -> None:
    options = {"size": 2, "share": 1, "kind": "b", "words": ["x", "y"], "more": {"k": [1]}}
    thing = from_options(Thing, options, where="task", name="t")
    assert thing == Thing(name="t", size=2, share=1.0, kind="b", words=("x", "y"), more={"k": [1]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"^task\.size: this option is required$"),
        ({"size": 1, "shrae": 1}, r"^task\.shrae: unknown option; did you mean 'share'\?$"),
        ({"size": 1, "either": "y"}, r"^task\.either: Input should be a valid boolean or 'x', got 'y'; write true or false$"),
        ({"size": 1, "name": "x"}, r"^task\.name: unknown option"),
        ({"size": 1, "fixed": 8}, r"^task\.fixed: unknown option"),
        ({"size": 0}, r"^task\.size: .*greater than or equal to 1, got 0$"),
        ({"size": "2"}, r"^task\.size: .*valid integer, got '2'$"),
        ({"size": True}, r"^task\.size: .*valid integer, got True$"),
        ({"size": 2.0}, r"^task\.size: .*valid integer, got 2\.0$"),
        ({"size": None}, r"^task\.size: .*valid integer, got None$"),
        ({"size": 1, "share": "half"}, r"^task\.share: .*valid number, got 'half'$"),
        ({"size": 1, "kind": "c"}, r"^task\.kind: .*'a' or 'b', got 'c'$"),
        ({"size": 1, "words": "x"}, r"^task\.words: .*valid tuple, got 'x'$"),
        ({"size": 1, "words": [1]}, r"^task\.words: .*valid string, got \[1\]$"),
        ({"size": 1, "more": [1]}, r"^task\.more: .*"),
        ({"size": 1, "flag": "no"}, r"^task\.flag: .*valid boolean, got 'no'; write true or false$"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_options(Thing, options, where="task", name="t")


def test_a_mistyped_key_may_be_one_that_stands_beside_the_options() -> None:
    with pytest.raises(ConfigError, match=r"^task\.gates: unknown option; did you mean 'gate'\?$"):
        from_options(Thing, {"size": 1, "gates": 1}, where="task", beside=("weight", "gate"), name="t")
