"""What our scheduler needs of vLLM's, read from its source: `python tests/vllm_plugins/signatures.py SITE`.

SITE is a folder that holds `vllm`. Nothing of it is imported. What releases have is in signatures.json.
"""

import ast
import json
import sys
from pathlib import Path

Signatures = dict[str, dict[str, list[str]]]

PLACES = {
    "Scheduler": "vllm/v1/core/sched/scheduler.py",
    "AsyncScheduler": "vllm/v1/core/sched/async_scheduler.py",
    "SchedulerOutput": "vllm/v1/core/sched/output.py",
    "Request": "vllm/v1/request.py",
    "SchedulerConfig": "vllm/config/scheduler.py",
}
METHODS = ("__init__", "schedule", "update_from_output", "add_request")
ATTRIBUTES = {
    "Scheduler": ("max_num_scheduled_tokens", "running", "waiting", "num_spec_tokens"),
    "AsyncScheduler": (),
    "SchedulerOutput": ("total_num_scheduled_tokens",),
    "Request": ("num_prompt_tokens", "num_computed_tokens", "arrival_time"),
    "SchedulerConfig": ("async_scheduling", "scheduler_cls"),
}


def of(site: Path) -> Signatures:
    """By class: `bases`, those of METHODS with their parameters, and those of ATTRIBUTES that are set."""
    return {name: _of_class(_find(site / place, name), ATTRIBUTES[name]) for name, place in PLACES.items()}


def _find(path: Path, name: str) -> ast.ClassDef:
    tree = ast.parse(path.read_text())
    return next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)


def _of_class(found: ast.ClassDef, attributes: tuple[str, ...]) -> dict[str, list[str]]:
    made = {"bases": [ast.unparse(base) for base in found.bases]}
    for method in found.body:
        if isinstance(method, ast.FunctionDef) and method.name in METHODS:
            words = method.args
            made[method.name] = [a.arg for a in (*words.posonlyargs, *words.args, *words.kwonlyargs)]
    targets = [
        node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        for node in ast.walk(found)
        if isinstance(node, ast.Assign | ast.AnnAssign)
    ]
    known = {ast.unparse(target).removeprefix("self.") for target in targets}
    made["attributes"] = [name for name in attributes if name in known]
    return made


if __name__ == "__main__":
    print(json.dumps(of(Path(sys.argv[1])), indent=1))  # noqa: T201 - a small tool
