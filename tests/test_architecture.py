"""The shape of the code: layers, sizes, documented names. ARCHITECTURE.md explains what is held here."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "toishi"
MAX_MODULE_LINES = 300
MAX_FUNCTION_LINES = 60

LAYERS: dict[int, tuple[str, ...]] = {
    0: ("types", "errors", "options", "stopping"),
    1: ("ops", "isolation", "quiet"),
    2: ("algorithms", "config", "answers"),
    3: ("policy", "engines", "tasks", "rewards", "judging", "packages", "record"),
    4: (
        "rollout",
        "scoring",
        "packing",
        "passes",
        "valuing",
        "update",
        "observing",
        "metrics",
        "track",
        "spans",
        "explanation",
    ),
    5: (
        *("loop", "session", "sources", "written", "gap", "given", "preflight", "evaluate", "checkpoints", "health"),
        *("heldout", "ranking", "matching", "comparison"),
        *("forecast", "memory", "machine", "disk", "golds", "sampler", "tracked"),
        *("provenance", "recorded", "resuming", "rejudging", "collecting"),
        *("check", "rendering", "consoles", "counting", "display", "display_tables", "replay", "tracing", "counterfactual"),
    ),
    6: ("recipes", "api", "callbacks", "interop", "pipelines"),
    7: ("cli", "__main__"),
}
LAYER_OF = {part: layer for layer, parts in LAYERS.items() for part in parts}

# Inside a layer only these may look at one another: an engine asks the policy's capability table how to build a mask, and
# an update packs its own micro-batches, runs passes over them and teaches values. Layer 5 is the loop and its measurements,
# which belong together.
PEERS = {
    ("engines", "policy"),
    ("rewards", "judging"),
    ("rewards", "policy"),
    ("judging", "policy"),
    ("judging", "engines"),
    ("update", "packing"),
    ("update", "passes"),
    ("update", "valuing"),
    ("valuing", "passes"),
    ("valuing", "packing"),
    ("passes", "packing"),
    ("update", "observing"),
    ("observing", "packing"),
    ("config", "algorithms"),
    ("options", "errors"),
}
FREE_LAYERS = {5, 6, 7}

# Parts that see less than their height would allow.
ONLY: dict[str, frozenset[str]] = {
    "record": frozenset({"types", "errors"}),
    "explanation": frozenset({"types", "errors", "ops", "algorithms", "record"}),
    "track": frozenset({"types", "errors", "record"}),
    "spans": frozenset({"types", "errors", "engines"}),
    "isolation": frozenset({"errors"}),
    "answers": frozenset({"errors", "isolation"}),
    "ops": frozenset(),
    "types": frozenset(),
    "errors": frozenset(),
}
NO_TORCH = ("types", "errors", "config", "record", "algorithms.rows", "algorithms.notes", "metrics", "recipes")


def modules() -> dict[str, Path]:
    """Dotted name below toishi -> file; the package itself is ''."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def imports_of(tree: ast.AST, *, type_checking: bool = True) -> Iterator[str]:
    """Full names of everything imported in a tree, inside functions too; `from a import b` gives a.b."""
    for node in ast.iter_child_nodes(tree):
        if not type_checking and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from imports_of(node, type_checking=type_checking)


def toishi_modules(name: str, *, type_checking: bool = True) -> set[str]:
    """The modules of toishi that a module imports."""
    found = set()
    for imported in imports_of(TREES[name], type_checking=type_checking):
        if imported.split(".")[0] != "toishi":
            continue
        dotted = imported.removeprefix("toishi").removeprefix(".")
        while dotted not in MODULES:
            dotted = dotted.rpartition(".")[0]
        found.add(dotted)
    return found - {name}


def part_of(module: str) -> str:
    return module.split(".")[0]


def crossings() -> Iterator[tuple[str, str]]:
    """(importing module, imported module) between different parts. The front page `toishi` itself may name everything."""
    for module in MODULES:
        for imported in toishi_modules(module):
            if module and imported and part_of(module) != part_of(imported):
                yield module, imported


def test_every_module_has_a_layer() -> None:
    assert {part_of(name) for name in MODULES if name} == set(LAYER_OF)


def test_imports_go_down_only() -> None:
    wrong = []
    for module, imported in crossings():
        above, below = LAYER_OF[part_of(module)], LAYER_OF[part_of(imported)]
        sideways = above == below and (above in FREE_LAYERS or (part_of(module), part_of(imported)) in PEERS)
        if below >= above and not sideways:
            wrong.append(f"{module} (layer {above}) imports {imported} (layer {below})")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", ONLY)
def test_a_part_sees_only_what_it_may(part: str) -> None:
    wrong = [f"{a} imports {b}" for a, b in crossings() if part_of(a) == part and part_of(b) not in ONLY[part]]
    assert not wrong, "\n".join(wrong)


def test_there_are_no_import_cycles() -> None:
    """Between modules, imports inside functions included; imports for the type checker do not run and do not count."""
    graph = {name: toishi_modules(name, type_checking=False) for name in MODULES if name}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for imported in sorted(graph.get(name, ())):
                visit(imported, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("part", NO_TORCH)
def test_plain_parts_do_not_import_torch(part: str) -> None:
    for name, tree in TREES.items():
        if name == part or name.startswith(f"{part}."):
            assert not [found for found in imports_of(tree) if found.split(".")[0] in ("torch", "transformers")], name


@pytest.mark.parametrize("name", MODULES)
def test_modules_stay_readable(name: str) -> None:
    lines = MODULES[name].read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_MODULE_LINES, f"{name} has {len(lines)} lines"


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring, which may be long."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        lines -= (first.end_lineno or 0) - first.lineno + 1
    return lines


@pytest.mark.parametrize("name", MODULES)
def test_functions_stay_readable(name: str) -> None:
    long = [f"{name}.{f.name}: {code_lines(f)} lines" for f in functions(TREES[name]) if code_lines(f) > MAX_FUNCTION_LINES]
    assert not long, "\n".join(long)


def public_names(name: str, tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Functions and classes of a module that a reader may use."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield f"{name}.{node.name}", node


@pytest.mark.parametrize("name", [name for name in MODULES if MODULES[name].read_text(encoding="utf-8").strip()])
def test_public_names_are_documented(name: str) -> None:
    missing = [] if ast.get_docstring(TREES[name]) else [f"{name} (module)"]
    missing += [public for public, node in public_names(name, TREES[name]) if not ast.get_docstring(node)]
    assert not missing, "\n".join(missing)


def test_python_version_is_what_the_package_asks_for() -> None:
    assert sys.version_info >= (3, 11)
