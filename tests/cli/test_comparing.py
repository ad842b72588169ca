"""compare: token counts of several models from one command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Command, Finished
from tests.spans.collectors import listening, plain


def test_a_run_and_its_base_on_the_runs_prompts(finished: Finished, tiny: Path, toishi: Command) -> None:
    arguments = ("compare", tiny, finished.folder)
    ended, record = toishi(*arguments, "--texts", "1", width=100), json.loads(toishi(*arguments, "--json").out)
    assert (ended.code, len(record["prompts"])) == (0, 4)
    base, trained = [found for found in record["models"] if found["mode"] == "sampled"]
    assert [len(answers) for answers in base["answers"]] == [2, 2, 2, 2]
    counts = [[answer["tokens"] for answer in answers] for answers in trained["answers"]]
    assert trained["mean_tokens"] == pytest.approx(sum(map(sum, counts)) / 8)
    assert f"{trained['mean_tokens']:.1f}" in ended.out
    assert "too few prompts for intervals" in ended.out
    first_row = next(line for line in ended.out.splitlines() if re.match(r" *1 +\d", line))
    assert first_row.split()[-1] == f"{sum(counts[0]) / 2:.1f}"
    assert "prompt 1: What is" in ended.out
    assert "prompt 2: What is" not in ended.out


def test_models_on_prompts_of_a_file(tiny: Path, tmp_path: Path, toishi: Command) -> None:
    file = tmp_path / "asked.jsonl"
    file.write_text("".join(f'{{"prompt": "Say {n}:"}}\n' for n in range(12)), encoding="utf-8")
    ended = toishi("compare", tiny, tiny, "--data", file, "--prompts", "11", "--set", "sampling.max_new_tokens=4", width=120)
    assert ended.code == 0
    assert "prompt by prompt (11 prompts)" in ended.out
    assert re.search(r"^ *11 +10: ", ended.out, re.MULTILINE)
    assert "+0.0 [+0.0, +0.0]" in ended.out


def test_a_narrow_terminal_cuts_titles_and_no_number(finished: Finished, tiny: Path, toishi: Command) -> None:
    lines = toishi("compare", tiny, finished.folder, "--json").out
    assert json.loads(lines)["prompts"]
    shown = toishi("compare", tiny, finished.folder, width=60).out
    assert all(len(line.rstrip()) <= 60 for line in shown.splitlines())
    assert "…" not in shown.split("Mean over prompts")[1]


def test_models_alone_say_what_is_missing(tiny: Path, toishi: Command) -> None:
    ended = toishi("compare", tiny)
    assert ended.code == 1
    assert "say whose prompts to ask, with --recipe" in ended.err.replace("\n", " ")


def test_traced_answers_reach_a_collector(tiny: Path, monkeypatch: pytest.MonkeyPatch, toishi: Command) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with listening() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        ended = toishi("sample", tiny, "Hello", "-n", "3", "--max-new-tokens", "4", "--trace", "otel", "--json")
    assert ended.code == 0
    spans = [plain(span.attributes) for _, span in received.otlp_spans()]
    told = [span for span in spans if "gen_ai.operation.name" in span]
    wanted = [len(answer["token_ids"]) for answer in json.loads(ended.out)]
    assert sorted(span["gen_ai.usage.output_tokens"] for span in told) == sorted(wanted)


def test_a_dead_collector_does_not_stop_a_command(tiny: Path, monkeypatch: pytest.MonkeyPatch, toishi: Command) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    ended = toishi("sample", tiny, "Hello", "-n", "2", "--max-new-tokens", "4", "--trace", "otel")
    assert ended.code == 0
    assert "answer 2" in ended.out
    assert "3 of 3 spans were not taken" in ended.err.replace("\n", " ")


def test_an_unknown_tracer(tiny: Path, toishi: Command) -> None:
    ended = toishi("sample", tiny, "Hello", "--trace", "jaeger")
    assert ended.code == 1
    assert "there is no tracer 'jaeger'; known: otel, weave" in ended.err.replace("\n", " ")
