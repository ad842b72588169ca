"""Inferences told to others: what a collector receives is what was answered, and no tracer can hold an inference up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.spans.collectors import Received, listening, plain
from tests.tiny import save_tiny
from toishi.config import ModelConfig
from toishi.engines.base import Request, Sampling
from toishi.errors import EngineError, MissingExtraError
from toishi.rewards.scripted import answered
from toishi.sampler import Sampler
from toishi.spans import Telling, Told, TracedEngine
from toishi.spans.otel import CAPTURE, OtelTracer
from toishi.spans.tracers import tracers
from toishi.spans.weave import WeaveTracer
from toishi.types import Completion, Prompt

CHAT = Prompt(id="chat", messages=({"role": "user", "content": "What is 2 + 2?"},), token_ids=(5, 6, 7))
SAMPLING = Sampling(max_new_tokens=9, temperature=0.5, top_p=0.9)


class Parrot:
    """Answers with words from its request's key; says nothing of when answers end."""

    name = "parrot"

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        return [answered(" ".join(map(str, request.key)), "length" if request.key[-1] else "stop") for request in requests]


class Broken:
    name = "broken"

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        raise EngineError("NaN in the logits")


@dataclass
class Fake:
    """Keeps what it is told; raises or hangs where it should."""

    raises: str = ""
    hangs: bool = False
    release: threading.Event = field(default_factory=threading.Event)
    told: list[Told] = field(default_factory=list)
    closed: list[str | None] = field(default_factory=list)

    def start(self, name: str, facts: Mapping[str, str]) -> None:
        self._at("start")

    def send(self, told: Told) -> None:
        self._at("send")
        self.told.append(told)

    def close(self, error: str | None) -> None:
        self._at("close")
        self.closed.append(error)

    def _at(self, place: str) -> None:
        if self.raises == place:
            raise ConnectionError("no network\nand more")
        if self.hangs:
            self.release.wait(30)


def asked(count: int) -> list[Request]:
    return [Request(prompt_ids=CHAT.token_ids, key=(3, 1, member)) for member in range(count)]


def in_memory() -> Any:
    module = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

    class Keeping(module.InMemorySpanExporter):  # type: ignore[misc,name-defined]
        def shutdown(self) -> None:  # keeps its spans readable
            pass

    return Keeping()


def test_a_span_holds_what_was_asked_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expected names and values written out from OpenTelemetry's conventions for generative models."""
    monkeypatch.delenv(CAPTURE, raising=False)
    exporter, said = in_memory(), list[str]()
    before = time.time_ns()
    with Telling({"otel": lambda: OtelTracer(exporter)}, "compare", {"models": "tiny"}, said.append) as telling:
        completions = TracedEngine(Parrot(), telling, model="tiny", prompts=[CHAT]).generate(asked(2), SAMPLING)
    after = time.time_ns()
    assert said == []
    assert [completion.text for completion in completions] == ["3 1 0", "3 1 1"]
    spans = exporter.get_finished_spans()
    (whole,) = [span for span in spans if span.parent is None]
    assert (whole.name, dict(whole.attributes)) == ("toishi compare", {"toishi.models": "tiny"})
    answers = [span for span in spans if span.parent is not None]
    assert [span.name for span in answers] == ["chat tiny", "chat tiny"]
    assert dict(answers[1].attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "toishi",
        "gen_ai.request.model": "tiny",
        "gen_ai.response.model": "tiny",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.seed": 3,
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": completions[1].num_tokens,
        "gen_ai.output.type": "text",
        "toishi.prompt.id": "chat",
        "toishi.request.key": (3, 1, 1),
    }
    for span in answers:
        assert span.parent.span_id == whole.context.span_id
        assert before <= span.start_time <= span.end_time <= after


def test_our_names_are_those_of_the_conventions() -> None:
    known = pytest.importorskip("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    fake = Fake()
    with Telling({"fake": lambda: fake}, "x", {}, print) as telling:
        sampling = Sampling(max_new_tokens=9, top_k=4, stop=("\n",))
        TracedEngine(Parrot(), telling, model="m", prompts=[CHAT]).generate(asked(1), sampling)
    names = {name for name in fake.told[0].attributes(with_content=True) if name.startswith("gen_ai.")}
    assert names <= {value for name, value in vars(known).items() if name.startswith("GEN_AI_")}
    assert fake.told[0].operation in {each.value for each in known.GenAiOperationNameValues}


@pytest.mark.parametrize("wanted", ["true", "", "no_content"])
def test_texts_are_sent_only_where_someone_wants_them(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setenv(CAPTURE, wanted)
    exporter = in_memory()
    with Telling({"otel": lambda: OtelTracer(exporter)}, "sample", {}, print) as telling:
        TracedEngine(Parrot(), telling, model="tiny", prompts=[CHAT]).generate(asked(1), SAMPLING)
    attributes = exporter.get_finished_spans()[0].attributes
    if wanted != "true":
        assert not [name for name in attributes if name.endswith("messages")]
        return
    assert json.loads(attributes["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "What is 2 + 2?"}]}
    ]
    assert json.loads(attributes["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "3 1 0"}], "finish_reason": "stop"}
    ]


@pytest.fixture
def otlp(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    return monkeypatch


def test_a_collector_receives_the_spans_of_a_real_model(tmp_path: Path, otlp: pytest.MonkeyPatch) -> None:
    """By OTLP over HTTP on loopback, chosen by the usual variable; answers of a batch that ended at different times."""
    sampler = Sampler.open(ModelConfig(name=str(save_tiny(tmp_path / "llama", "llama")), dtype="float32"), seed=0)
    prompts = [sampler.renderer.render(Prompt(id=str(n), text="What is the sum " * n)) for n in (1, 2)]
    requests = [Request(prompt_ids=prompt.token_ids, key=(0, n)) for n, prompt in enumerate(prompts * 3)]
    sampling, said = Sampling(max_new_tokens=12), list[str]()
    plainly = sampler.engine.generate(requests, sampling)
    with listening() as received:
        otlp.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        with Telling(tracers(["otel"]), "compare", {}, said.append) as telling:
            engine = TracedEngine(sampler.engine, telling, model="tiny", prompts=prompts)
            assert engine.generate(requests, sampling) == plainly
    assert said == []
    spans = received.otlp_spans()
    assert {resource["service.name"] for resource, _ in spans} == {"toishi"}
    found = {tuple(attributes["toishi.request.key"]): attributes for _, span in spans
             if "gen_ai.operation.name" in (attributes := plain(span.attributes))}  # fmt: skip
    assert {key: attributes["gen_ai.usage.output_tokens"] for key, attributes in found.items()} == {
        (0, number): completion.num_tokens for number, completion in enumerate(plainly)
    }
    assert [found[0, n]["gen_ai.usage.input_tokens"] for n in (0, 1)] == [len(prompt.token_ids) for prompt in prompts]
    assert {attributes["gen_ai.operation.name"] for attributes in found.values()} == {"text_completion"}


@pytest.mark.parametrize("variable", ["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"])
def test_a_service_that_has_a_name_keeps_it(otlp: pytest.MonkeyPatch, variable: str) -> None:
    otlp.setenv(variable, "mine" if variable == "OTEL_SERVICE_NAME" else "service.name=mine")
    exporter = in_memory()
    with Telling({"otel": lambda: OtelTracer(exporter)}, "x", {}, print):
        pass
    assert exporter.get_finished_spans()[0].resource.attributes["service.name"] == "mine"


def test_an_inference_that_fails_is_told_and_still_fails() -> None:
    exporter = in_memory()
    with (
        pytest.raises(EngineError, match="NaN"),
        Telling({"otel": lambda: OtelTracer(exporter)}, "sample", {}, print) as telling,
    ):
        TracedEngine(Broken(), telling, model="tiny", prompts=[CHAT]).generate(asked(1), SAMPLING)
    (whole,) = exporter.get_finished_spans()
    assert (whole.status.status_code.name, whole.attributes["error.type"]) == ("ERROR", "EngineError")
    assert whole.status.description == "EngineError: NaN in the logits"


@pytest.mark.parametrize("place", ["start", "send", "close"])
def test_a_tracer_that_raises_stops_nothing(place: str) -> None:
    said, good = list[str](), Fake()
    with Telling({"bad": lambda: Fake(raises=place), "good": lambda: good}, "x", {}, said.append) as telling:
        completions = TracedEngine(Parrot(), telling, model="m", prompts=[]).generate(asked(3), SAMPLING)
    assert len(completions) == 3
    assert said == ["tracer 'bad' failed: ConnectionError: no network. The answers are not affected"]
    assert ([told.key for told in good.told], good.closed) == ([(3, 1, 0), (3, 1, 1), (3, 1, 2)], [None])


def test_a_tracer_that_hangs_holds_nothing_up() -> None:
    said, fake, began = list[str](), Fake(hangs=True), time.monotonic()
    with Telling({"fake": lambda: fake}, "x", {}, said.append, finish_s=0.2) as telling:
        TracedEngine(Parrot(), telling, model="m", prompts=[]).generate(asked(3), SAMPLING)
    assert time.monotonic() - began < 10
    assert len(said) == 1
    assert "tracer 'fake' did not finish within 0.2 s" in said[0]
    fake.release.set()


@pytest.mark.parametrize("status", [400, 401])
def test_a_collector_that_refuses_is_said_once(otlp: pytest.MonkeyPatch, status: int) -> None:
    said = list[str]()
    with listening(status=status) as received:
        otlp.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        with Telling(tracers(["otel"]), "x", {}, said.append) as telling:
            TracedEngine(Parrot(), telling, model="m", prompts=[]).generate(asked(3), SAMPLING)
    assert len(said) == 1
    assert "tracer 'otel' failed: ConnectionError: 4 of 4 spans were not taken" in said[0]


def test_a_collector_that_is_not_there_is_said_once(otlp: pytest.MonkeyPatch) -> None:
    otlp.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    otlp.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    said = list[str]()
    with Telling(tracers(["otel"]), "x", {}, said.append) as telling:
        completions = TracedEngine(Parrot(), telling, model="m", prompts=[]).generate(asked(3), SAMPLING)
    assert len(completions) == 3
    assert len(said) == 1
    assert "4 of 4 spans were not taken" in said[0]


@pytest.mark.parametrize(("name", "package"), [("weave", "weave"), ("otel", "opentelemetry.sdk")])
def test_a_tracer_that_is_not_installed_is_refused_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.setattr("toishi.spans.tracers._is_there", lambda asked: asked != package)
    with pytest.raises(MissingExtraError, match=rf"--trace {name} needs the package '{package}'.*toishi\[{name}\]"):
        tracers([name])


class StandIn(types.ModuleType):
    """Stands in for the package weave at the import: keeps what its client is given."""

    def __init__(self) -> None:
        super().__init__("weave")
        self.calls: list[dict[str, Any]] = []
        self.finished = 0

    def init(self, project: str, *, settings: Mapping[str, Any]) -> StandIn:
        self.project = project
        return self

    def op(self, function: Any) -> Any:
        return function

    def create_call(self, op: Any, inputs: Mapping[str, Any], parent: Any = None, **rest: Any) -> Any:
        call = types.SimpleNamespace(op=op, inputs=inputs, parent=parent, summary=None, **rest)
        self.calls.append({"call": call})
        return call

    def finish_call(self, call: Any, output: Any, exception: Any = None, **rest: Any) -> None:
        next(each for each in self.calls if each["call"] is call).update(output=output, exception=exception, **rest)

    def finish(self) -> None:
        self.finished += 1


def test_weave_is_given_calls_of_one_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a stand-in for the package, which is checked against the real one below where that is installed."""
    weave, said = StandIn(), list[str]()
    monkeypatch.setitem(sys.modules, "weave", weave)
    monkeypatch.setenv("WEAVE_PROJECT", "me/lengths")
    with Telling({"weave": WeaveTracer}, "compare", {"models": "a, b"}, said.append) as telling:
        TracedEngine(Parrot(), telling, model="tiny", prompts=[CHAT]).generate(asked(2), SAMPLING)
    assert said == []
    whole, *calls = weave.calls
    assert (weave.project, weave.finished, whole["call"].op, whole["call"].inputs) == (
        "me/lengths", 1, "toishi_compare", {"models": "a, b"},
    )  # fmt: skip
    assert [call["call"].op.__name__ for call in calls] == ["answer", "answer"]
    assert [call["output"]["text"] for call in calls] == ["3 1 0", "3 1 1"]
    assert calls[0]["call"].inputs["prompt"] == [{"role": "user", "content": "What is 2 + 2?"}]
    assert calls[0]["call"].parent is whole["call"]
    assert calls[0]["call"].started_at <= calls[0]["ended_at"]


REAL = """
import sys
from tests.spans.test_spans import CHAT, SAMPLING, Parrot, asked
from toishi.spans import Telling, TracedEngine
from toishi.spans.tracers import tracers
with Telling(tracers(["weave"]), "compare", {"models": "tiny"}, sys.exit, finish_s=60) as telling:
    TracedEngine(Parrot(), telling, model="tiny", prompts=[CHAT]).generate(asked(2), SAMPLING)
"""


def test_the_real_weave_sends_the_calls() -> None:
    """The real package, in a process of its own, to a server on loopback that speaks as much as its client asks."""
    pytest.importorskip("weave")
    with listening() as received:
        surroundings = {"WF_TRACE_SERVER_URL": received.url, "WANDB_BASE_URL": received.url, "WANDB_API_KEY": "a" * 40,
                        "WEAVE_PROJECT": "me/toishi", "WANDB_ERROR_REPORTING": "false"}  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", REAL], env=os.environ | surroundings, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
    calls = [call for body in received.bodies("/calls/complete") for call in body["batch"]]
    texts = _of_answers(calls, received)
    assert sorted(texts) == ["3 1 0", "3 1 1"]


def _of_answers(calls: list[dict[str, Any]], received: Received) -> list[str]:
    assert received.url
    answers = [call for call in calls if "op/answer" in call["op_name"]]
    for call in answers:
        assert call["inputs"]["model"] == "tiny"
        assert call["summary"]["usage"]["tiny"]["input_tokens"] == 3
        assert call["parent_id"]
    return [call["output"]["text"] for call in answers]
