"""Writes the pages of docs/ that are printed from the code, and the table in README.md: `make docs`.

    python scripts/make_docs.py          writes them
    python scripts/make_docs.py --check  says which are out of date, and ends with exit code 1 if any is

Each page has one source: notes and rows for the algorithms, `METRICS` for the metrics, the configuration models for the
recipes, the schema for the run folder, the rules for health. tests/test_docs.py holds the files equal to what this prints.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from toishi.algorithms.notes import NOTES, AlgorithmNote
from toishi.algorithms.rows import ROWS, Algorithm
from toishi.config import Config
from toishi.health.document import page as health_page
from toishi.metrics import METRICS
from toishi.pipelines.kinds import KINDS
from toishi.pipelines.sections import Measured, PipelineFile
from toishi.recipes import recipe_description, recipe_names
from toishi.record.schema import schema_markdown
from toishi.rewards import REWARDS
from toishi.tasks import TASKS

ROOT = Path(__file__).parents[1]
TABLE_BEGINS, TABLE_ENDS = "<!-- algorithms: printed by make docs -->", "<!-- end of algorithms -->"
TYPES = {str: "text", int: "whole number", float: "number", bool: "true, false", Any: "anything"}
KINDS_BEGIN, KINDS_END = "<!-- kinds: printed by make docs -->", "<!-- end of kinds -->"
CHOICES = ("baseline", "scale", "filter", "ratio_level", "surrogate", "reduction")


def pages() -> dict[Path, str]:
    """Path below the repository -> text, for every printed page."""
    docs = Path("docs")
    found = {docs / "algorithms" / f"{name}.md": algorithm_page(row, NOTES[name]) for name, row in ROWS.items()}
    return found | {
        docs / "algorithms" / "index.md": algorithms_index(),
        docs / "metrics.md": metrics_page(),
        docs / "recipes.md": recipes_page(),
        docs / "rewards.md": rewards_page(),
        docs / "health.md": health_page(),
        docs / "run-folder.md": schema_markdown(),
        docs / "pipelines.md": pipelines_page((ROOT / docs / "pipelines.md").read_text(encoding="utf-8")),
        Path("README.md"): readme((ROOT / "README.md").read_text(encoding="utf-8")),
    }


def readme(text: str) -> str:
    """README.md with a fresh table of algorithms."""
    before, rest = text.split(TABLE_BEGINS)
    _, after = rest.split(TABLE_ENDS)
    return f"{before}{TABLE_BEGINS}\n\n{algorithms_table('docs/algorithms/')}\n{TABLE_ENDS}{after}"


def pipelines_page(text: str) -> str:
    """docs/pipelines.md with fresh tables of what a pipeline file may hold."""
    before, rest = text.split(KINDS_BEGIN)
    _, after = rest.split(KINDS_END)
    parts = [
        f"### {name}\n\n{inspect.getdoc(kind.section)} Makes {', '.join(f'`{made}`' for made in kind.outputs)}.\n\n"
        f"{fields_table(kind.section)}"
        for name, kind in KINDS.items()
    ]
    parts += [f"### measure\n\n{inspect.getdoc(Measured)}\n\n{fields_table(Measured)}"]
    parts += [f"### The file\n\n{fields_table(PipelineFile)}"]
    return f"{before}{KINDS_BEGIN}\n\n{chr(10).join(parts)}\n{KINDS_END}{after}"


def algorithms_table(folder: str) -> str:
    """One line a row: the choices that make it."""
    lines = [f"| algorithm | {' | '.join(words(choice) for choice in CHOICES)} |", "|---" * (len(CHOICES) + 1) + "|"]
    for name, row in ROWS.items():
        chosen = [words(str(getattr(row, choice))) for choice in CHOICES]
        chosen[CHOICES.index("surrogate")] += _bounds(row)
        lines.append(f"| [`{name}`]({folder}{name}.md) | {' | '.join(chosen)} |")
    return "\n".join(lines) + "\n"


def algorithms_index() -> str:
    """docs/algorithms/index.md."""
    titles = "\n".join(f"- [{NOTES[name].title}]({name}.md)" for name in ROWS)
    return (
        "# Algorithms\n\n"
        "An algorithm is a row of independent choices. Name a row in the recipe, and change any choice of it:\n"
        "`algorithm: {name: grpo, scale: none}`. `toishi algorithms` prints these pages in the terminal.\n\n"
        f"{algorithms_table('')}\n{titles}\n\n"
        "Where other libraries mean something else by the same name: [differences](../differences.md). Which KL estimator: "
        "[KL](../kl.md).\n\n"
        f"## The choices\n\n{fields_table(Algorithm)}"
    )


def algorithm_page(row: Algorithm, note: AlgorithmNote) -> str:
    """docs/algorithms/NAME.md: what `toishi algorithms NAME` prints."""
    symbols = "".join(f"| {cell(symbol)} | {cell(meaning)} |\n" for symbol, meaning in note.symbols)
    changed = {name: value for name, value in row.model_dump().items() if name != "name"}
    choices = "".join(f"| `{name}` | {cell(value)} |\n" for name, value in changed.items())
    parts = [
        f"# {note.title}\n\n{note.meaning}\n",
        f"## Equation\n\n```\n{note.equation}\n```\n\n| symbol | meaning |\n|---|---|\n{symbols}",
        f"## The row\n\n```yaml\nalgorithm: {row.name}\n```\n\n| choice | value |\n|---|---|\n{choices}",
        f"## Paper\n\n{note.paper}\n",
    ]
    parts += [f"## Traps\n\n{bullets(note.traps)}"] if note.traps else []
    parts += [f"## Where others differ\n\n{bullets(note.differences)}"] if note.differences else []
    return "\n".join(parts)


def metrics_page() -> str:
    """docs/metrics.md."""
    lines = "".join(f"| `{name}` | {m.unit} | {cell(m.meaning)} | {cell(m.look_for)} |\n" for name, m in METRICS.items())
    return (
        "# Metrics\n\n"
        "Every number of a line in `metrics.jsonl`. One that could not be measured in a step is null, never 0. `<name>` is a "
        "reward's name.\n\nWatch `reward/mean` together with the held-out value. The loss says nothing about learning: see "
        "[for readers who know SFT](for-sft-readers.md).\n\n"
        f"| metric | unit | meaning | look for |\n|---|---|---|---|\n{lines}\n"
        "Besides these a line holds `step`, `time`, `num_updates`, `updates/<index>/<scalar>` (each optimizer update by "
        "itself: loss, grad_norm, lr, ...) and checksums: see [the run folder](run-folder.md).\n"
    )


def recipes_page() -> str:
    """docs/recipes.md: every key of a recipe with default and meaning."""
    sections = [_section(name, model) for name, model in _sections(Config)]
    tasks = [_options(f"task: {name}", cls) for name, cls in TASKS.items()]
    rewards = [_options(f"reward: {name}", cls) for name, cls in REWARDS.items()]
    built_in = "".join(f"| `{name}` | {recipe_description(name)} |\n" for name in recipe_names())
    return "\n".join(
        [
            "# Recipes\n\n"
            "A recipe is a YAML file that shows what it changes; everything else has its default.\n"
            "`toishi recipes NAME > mine.yaml` copies a built-in one, `--set train.steps=5` changes a key for one run, and\n"
            "`toishi check mine.yaml` looks before you train. Unknown keys are refused with the nearest name.\n\n"
            f"| built-in recipe | what it does |\n|---|---|\n{built_in}",
            f"## Top level\n\n{fields_table(Config)}",
            *sections,
            "The choices of `algorithm` are in [algorithms](algorithms/index.md).\n",
            *tasks,
            *rewards,
        ]
    )


REWARDS_INTRO = """# Rewards

What judges answers. A recipe lists them by name, each with its options and how it enters the sum:

```yaml
rewards:
  - {name: gym}
  - {name: language, language: en, weight: 0.2}
  - {name: brief, kind: soft_overlong, max_tokens: 512, ramp_tokens: 128}
```

- A wrong answer is 0. A judgement that failed is never 0: the answer leaves the baseline, and the failure is counted.
- What a reward cannot tell it abstains from: that part is left out of the sum.
- What can be known before the start is refused before the start: golds that cannot be read, missing columns and packages.
- `toishi check` tries the rewards on made-up answers and lists what it paid for.

Every option with its meaning: [recipes](recipes.md). How several become one number: [composition](rewards-composition.md).
How answers are read and compared: [answers](answers.md). Programs: [sandbox](sandbox.md). Models that judge: [judge](judge.md).
A function of your own: [own reward](own-reward.md).

"""
PAYS = "| reward | what it pays | options | traps |\n|---|---|---|---|\n"


def rewards_page() -> str:
    """docs/rewards.md: one line a reward."""
    return REWARDS_INTRO + PAYS + "".join(_reward_line(name, cls) for name, cls in REWARDS.items())


def _reward_line(name: str, cls: Any) -> str:
    paragraphs = (inspect.getdoc(cls) or "").split(">>>")[0].split("\n\n")
    traps = next((text.removeprefix("Traps: ") for text in paragraphs if text.startswith("Traps: ")), "")
    options = ", ".join(f"`{field.name}`" for field in dataclasses.fields(cls) if field.init and field.name != "name")
    return f"| `{name}` | {_one_line(paragraphs[0])} | {options or '–'} | {_one_line(traps[:1].upper() + traps[1:]) or '–'} |\n"


def _one_line(text: str) -> str:
    """A paragraph for a cell of a table."""
    return " ".join(text.replace("<", "&lt;").replace("|", "\\|").split())


def fields_table(model: type[BaseModel]) -> str:
    """Key, type, default and meaning of a section; sections inside it have tables of their own."""
    lines = []
    for name, field in model.model_fields.items():
        default = "see below" if inspect.isclass(field.annotation) and _model_of(field.annotation) else _default(field)
        default = "grpo" if field.annotation is Algorithm else default
        lines.append(f"| `{name}` | {cell(type_name(field.annotation))} | {default} | {cell(_meaning(field))} |\n")
    return f"| key | type | default | meaning |\n|---|---|---|---|\n{''.join(lines)}"


def _meaning(field: FieldInfo) -> str:
    section = _model_of(field.annotation)
    return field.description or (inspect.getdoc(section) or "").split("\n")[0] if section else field.description or ""


def _sections(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        section = _model_of(field.annotation)
        if section is not None and section is not Algorithm:
            yield f"{above}{name}", section
            yield from _sections(section, f"{above}{name}.")


def _section(name: str, model: type[BaseModel]) -> str:
    return f"## {name}\n\n{inspect.getdoc(model)}\n\n{fields_table(model)}"


def _options(title: str, cls: Any) -> str:
    """A task's or reward's docstring (without its examples) and the options that its fields are."""
    text = (inspect.getdoc(cls) or "").split(">>>")[0].rstrip()
    first, _, rest = text.partition("\n\n")
    lines = []
    types = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if field.init and field.name != "name":
            lines.append(f"| `{field.name}` | {cell(type_name(types[field.name]))} | {_field_default(field)} |\n")
    details = f"\n```\n{rest}\n```\n" if rest else ""
    return f"## {title}\n\n{' '.join(first.split())}\n{details}\n| option | type | default |\n|---|---|---|\n{''.join(lines)}"


def _field_default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return cell(field.default)
    return cell(field.default_factory()) if field.default_factory is not dataclasses.MISSING else "required"


def _model_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_of(part))), None)


def type_name(annotation: Any) -> str:
    """A type as people write it: int, text, 'a' or 'b', list of ..., or null."""
    arguments = get_args(annotation)
    origin = str(get_origin(annotation) or "")
    if get_origin(annotation) is Annotated:
        return type_name(arguments[0])
    if "Literal" in origin:
        return ", ".join(str(choice) for choice in arguments)
    if "tuple" in origin:
        inner = [type_name(part) for part in arguments if part is not Ellipsis]
        return f"list of {inner[0]}" if Ellipsis in arguments else f"[{', '.join(inner)}]"
    if "Mapping" in origin:
        return f"{{{type_name(arguments[0])}: {type_name(arguments[1])}}}"
    if "Union" in origin:
        return " or ".join(type_name(part) for part in arguments)
    if annotation is type(None):
        return "null"
    if _model_of(annotation):
        return "section"
    if callable(annotation) and origin:
        return "function"
    return TYPES.get(annotation, f"a {annotation.__name__}")


def _default(field: FieldInfo) -> str:
    return "required" if field.is_required() else cell(field.get_default(call_default_factory=True))


def cell(value: Any) -> str:
    """A value or text for a table: YAML's words, and no bar that would end the cell."""
    if isinstance(value, BaseModel):
        return f"`{getattr(value, 'name', '')}`"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return f"[{', '.join(cell(item) for item in value)}]"
    if isinstance(value, Mapping):
        return "{}" if not value else str(dict(value))
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).replace("|", "\\|") if value != "" else "–"


def words(choice: str) -> str:
    """A choice as people read it; what is left out is a dash."""
    return "–" if choice == "none" else choice.replace("_", " ")


def bullets(lines: tuple[str, ...]) -> str:
    """A list."""
    return "".join(f"- {line}\n" for line in lines)


def _bounds(row: Algorithm) -> str:
    if row.surrogate not in ("clipped", "dual_clip", "stop_gradient"):
        return ""
    return f" [{1 - row.clip_low:g}, {1 + row.clip_high:g}]"


def main() -> int:
    """Writes what differs, or only says so with --check."""
    check = "--check" in sys.argv[1:]
    stale = {
        path: text for path, text in pages().items() if not (ROOT / path).is_file() or (ROOT / path).read_text("utf-8") != text
    }
    for path, text in stale.items():
        print(f"{'out of date' if check else 'written'}: {path}")
        if not check:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(text, encoding="utf-8")
    print(f"{len(stale)} of {len(pages())} printed pages {'are out of date' if check else 'written anew'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
