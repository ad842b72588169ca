"""What a recipe says about its judge: where it runs, and how it may be asked.

Decisions:
1. With `base_url` the judge is a server; without, it is a model in this process. An option of the other kind is an error: it
   would have no effect.
2. A key is never an option. The recipe names the environment variable that holds it, so no record or cache can contain it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from toishi.errors import ConfigError
from toishi.options import from_options

Continues = Literal["no", "last_message", "vllm"]
Price = Annotated[float, Field(ge=0)]
_SERVER_ONLY = (
    *("key_env", "concurrency", "requests_per_minute", "tokens_per_minute", "retries", "timeout_s", "total_timeout_s"),
    *("probabilities", "continues", "prices"),
)
_MODEL_ONLY = ("device", "dtype", "revision", "batch_rows")


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """The options under `judge:` of a reward.

    model                the model's name at the server; without a server 'bundled', a folder or a hub id
    base_url             address of an OpenAI-style server, up to and with /v1; null = a model in this process
    key_env              name of the environment variable that holds the server's key; null = the server wants none
    concurrency          requests under way at the same time
    requests_per_minute, tokens_per_minute  limits in any 60 seconds; null = none
    retries              further tries after a 429, 5xx, time-out, cut or empty reply, with growing pauses
    timeout_s            seconds that one try may take
    total_timeout_s      seconds that all tries of one call and the pauses between them may take
    probabilities        true: the server gives log-probs in chats (vLLM, llama.cpp), so the score tokens' probabilities can be
                         used; 'systemone': it gives probabilities at /systemone (`transformers serve`); false: it gives none
    continues            how the server is told to go on with a begun reply: 'last_message' (llama.cpp, Ollama: it continues a
                         last assistant turn by itself), 'vllm' (it needs two flags), 'no' (it is asked in words to begin like
                         that)
    prices               money per million prompt tokens and per million reply tokens, such as [0.15, 0.6]; null = not counted
    cache                true = keep replies in the cache folder, false (or off) = ask every time, a path = keep them in that
                         file
    seed                 decides sampled replies of the judge, where it samples
    device, dtype, revision  as in the recipe's `model` section, for a model in this process
    batch_rows           replies that a model in this process writes at the same time

    Raises ConfigError for what cannot be.

    >>> JudgeOptions(model="bundled").is_server
    False
    >>> JudgeOptions(model="m", base_url="http://127.0.0.1:8000/v1/").base_url
    'http://127.0.0.1:8000/v1'
    """

    model: Annotated[str, Field(min_length=1)]
    base_url: str | None = None
    key_env: str | None = None
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 8
    requests_per_minute: Annotated[int, Field(ge=1)] | None = None
    tokens_per_minute: Annotated[int, Field(ge=1)] | None = None
    retries: Annotated[int, Field(ge=0, le=100)] = 4
    timeout_s: Annotated[float, Field(gt=0)] = 60.0
    total_timeout_s: Annotated[float, Field(gt=0)] = 300.0
    probabilities: bool | Literal["systemone"] = False
    continues: Continues = "no"
    prices: tuple[Price, Price] | None = None
    cache: bool | str = True
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    revision: str | None = None
    batch_rows: Annotated[int, Field(ge=1)] = 16

    def __post_init__(self) -> None:
        foreign = _MODEL_ONLY if self.is_server else _SERVER_ONLY
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in foreign:
            if getattr(self, name) != defaults[name]:
                kind = "only for a model in this process, and base_url is given" if self.is_server else "only for a server"
                raise ConfigError(f"judge.{name}: {kind}; remove it{'' if self.is_server else ', or give judge.base_url'}")
        if self.cache == "":
            raise ConfigError("judge.cache: an empty path; expected true, false or the path of a file")
        if not self.model.isprintable():
            raise ConfigError(f"judge.model: {self.model!r} holds a line break or another character that no name has")
        if self.base_url is not None:
            _check_address(self.base_url)
            object.__setattr__(self, "base_url", self.base_url.rstrip("/"))

    @property
    def is_server(self) -> bool:
        """Whether calls go to a server."""
        return self.base_url is not None


def judge_options(options: Mapping[str, Any], *, where: str) -> JudgeOptions:
    """The options under `where`, such as "reward 'helpful'.judge". Raises ConfigError, naming the nearest for a misspelt one.

    >>> judge_options({"modle": "bundled"}, where="reward 'kind'.judge")
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: reward 'kind'.judge.modle: unknown option; did you mean 'model'?
    """
    return from_options(JudgeOptions, options, where=where)


def _check_address(base_url: str) -> None:
    if any(sign in base_url for sign in "@?#"):  # checked first, and not shown: it may be a password
        raise ConfigError(
            "judge.base_url: it holds a name, a password, a query or a fragment (one of @ ? #), which would be written into "
            "the record; put the key into an environment variable and name that as judge.key_env"
        )
    if not base_url.isprintable() or " " in base_url:
        raise ConfigError(f"judge.base_url: {base_url!r} holds a blank, a line break or another character that no address has")
    try:
        parts = urlsplit(base_url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"judge.base_url: {base_url!r} is no address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"judge.base_url: expected something like http://127.0.0.1:8000/v1, got {base_url!r}")
