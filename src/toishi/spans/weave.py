"""`weave`: every answer as a call of the op `answer` in Weave, the project named by WEAVE_PROJECT (default toishi)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from toishi.spans.told import Told


class WeaveTracer:
    """Calls of one op, with the true times of the answers, below one call for the whole command."""

    def __init__(self) -> None:
        self._client: Any = None
        self._op: Any = None
        self._whole: Any = None

    def start(self, name: str, facts: Mapping[str, str]) -> None:
        """Raises what weave raises, such as for a missing key."""
        import weave

        self._client = weave.init(
            os.environ.get("WEAVE_PROJECT", "toishi"),
            settings={
                "print_call_link": False,
                "implicitly_patch_integrations": False,
                "capture_code": False,
                "log_level": "WARNING",
            },
        )
        self._op = weave.op(answer)
        self._whole = self._client.create_call(f"toishi_{name}", dict(facts), use_stack=False)

    def send(self, told: Told) -> None:
        """A call whose inputs are the prompt and how it was drawn, and whose output is the answer with its length."""
        given = told.attributes()
        call = self._client.create_call(
            self._op,
            {"model": told.model, "prompt": list(told.messages) or told.text, "temperature": told.temperature,
             "max_new_tokens": told.max_tokens, "seed": told.key[0]},
            parent=self._whole, attributes=given, use_stack=False, started_at=_time(told.started_ns),
        )  # fmt: skip
        usage = {"requests": 1, "input_tokens": told.input_tokens, "output_tokens": told.output_tokens}
        call.summary = {"usage": {told.model: usage}}
        output = {"text": told.answer, "num_tokens": told.output_tokens, "finish_reason": told.finish_reason}
        self._client.finish_call(call, output, op=self._op, ended_at=_time(told.ended_ns))

    def close(self, error: str | None) -> None:
        """Sends what is left."""
        self._client.finish_call(self._whole, None, RuntimeError(error) if error is not None else None)
        self._client.finish()


def answer(model: str, prompt: Any, temperature: float, max_new_tokens: int, seed: int) -> dict[str, Any]:
    """What Weave shows as the op; its calls are recorded with answers that were sampled in a batch.

    Raises RuntimeError when it is called: only its name and its parameters are used.
    """
    raise RuntimeError("this op is recorded, not called; ask the model with `toishi sample`")


def _time(unix_ns: int) -> datetime:
    return datetime.fromtimestamp(unix_ns / 1e9, tz=UTC)
