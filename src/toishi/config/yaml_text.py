"""YAML as a person means it, and nothing else: what the plain loader lets through silently is refused with its line.

Decisions:
1. A key that stands twice in one mapping is an error: the loader would keep the last one without a word.
2. 1e-4 is a number (YAML 1.1 asks for 1.0e-4); "1e-4" in quotes stays text.
3. 1:30 is no number (YAML 1.1 reads 90): it is refused where it stands without quotes.
4. Only true and false are booleans, as in YAML 1.2: `probe: off` is the word, where YAML 1.1 reads false without a word.
5. Anchors may be used, but not inside themselves, and not to blow a short text up to a huge value.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

MAX_NODES = 100_000
_TAG = "tag:yaml.org,2002"


class _Loader(yaml.SafeLoader):
    """The safe loader with numbers such as 1e-4, and without booleans such as off."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != f"{_TAG}:bool"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(f"{_TAG}:bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(
    f"{_TAG}:float", re.compile(r"[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


def read_yaml(text: str) -> Any:
    """The value that `text` holds. Raises ValueError that says what is wrong and where.

    >>> read_yaml("lr: 1e-4")
    {'lr': 0.0001}
    >>> read_yaml("{probe: off, tokens: false}")
    {'probe': 'off', 'tokens': False}
    >>> read_yaml("seed: 1\\nname: a\\nseed: 2")
    Traceback (most recent call last):
    ...
    ValueError: line 3: the key 'seed' stands twice in one mapping (first in line 1); remove one
    """
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check(node, (), [0])
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply to be read") from None
    finally:
        if loader is not None:
            loader.dispose()


def _check(node: yaml.Node, above: tuple[yaml.Node, ...], seen: list[int]) -> None:
    seen[0] += 1
    if seen[0] > MAX_NODES:
        raise ValueError(f"its anchors stand for more than {MAX_NODES:,} values; write out what is meant")
    if any(node is outer for outer in above):
        raise ValueError(f"the anchor of line {_line(node)} is used inside itself; write out what is meant")
    if isinstance(node, yaml.ScalarNode) and ":" in node.value and node.tag in (f"{_TAG}:int", f"{_TAG}:float"):
        raise ValueError(
            f"line {_line(node)}: {node.value} would be read as a number of base 60; put it in quotes, or write it otherwise"
        )
    if isinstance(node, yaml.MappingNode):
        _check_keys(node)
        children = [child for pair in node.value for child in pair]
    else:
        children = node.value if isinstance(node, yaml.SequenceNode) else []
    for child in children:
        _check(child, (*above, node), seen)


def _check_keys(node: yaml.MappingNode) -> None:
    first: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if key.value in first:
            raise ValueError(
                f"line {_line(key)}: the key '{key.value}' stands twice in one mapping (first in line {first[key.value]}); "
                "remove one"
            )
        first[key.value] = _line(key)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
