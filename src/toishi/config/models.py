"""The parts of a configuration that say which models there are, and what every part is made of."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from toishi.config.unions import NameOrNames

T = TypeVar("T")
Listed = Annotated[tuple[T, ...], Field(strict=False)]
Text = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """A frozen part of the configuration that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class OpenSection(BaseModel):
    """A `name` and free options, which the named thing validates when it is built."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)
    name: str = Field(description="which one")

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class LoraConfig(Section):
    """Adapters instead of all weights."""

    rank: int = Field(default=16, ge=1, description="rank of the adapter matrices")
    alpha: float = Field(default=32.0, gt=0, description="adapter scale is alpha / rank")
    target_modules: NameOrNames = Field(default="all-linear", description="module names, or 'all-linear'")


class ModelConfig(Section):
    """Which model, and how it is held."""

    name: Text = Field(default="bundled", description="'bundled', a folder, or a hub id of a causal language model")
    revision: str | None = Field(default=None, description="hub revision")
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = Field(
        default="auto", description="compute precision; masters stay fp32. 'auto' measures once which is faster here"
    )
    device: str = Field(default="auto", description="'auto', 'cpu', 'cuda', 'cuda:1', 'mps'")
    lora: LoraConfig | None = Field(default=None, description="train LoRA adapters instead of all weights")
    adapter: str | None = Field(default=None, description="folder of an existing adapter to continue from")
    chat_template: str | None = Field(default=None, description="Jinja chat template that replaces the tokenizer's")
    trust_remote_code: bool = Field(default=False, description="run Python code that comes with a hub model")


class TeacherConfig(ModelConfig):
    """Who is learned from: a model in this process, or one behind a server."""

    endpoint: Text | None = Field(
        default=None, description="address of a server that has it (http://localhost:8000/v1); `name` is then its name there"
    )
    top_logprobs: int = Field(default=20, ge=1, description="endpoint: words whose log-prob the server tells at each token")
    concurrency: int = Field(default=8, ge=1, description="endpoint: requests under way at a time")
    timeout_s: float = Field(default=120.0, gt=0, description="endpoint: seconds for a reply")
