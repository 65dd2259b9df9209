"""The nouns of the product: frozen, typed, free of side effects. Import them from here.

A name is loaded when it is first asked for, so that a command pays only for the nouns that it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .artifact import Artifact, MadeBy
    from .errors import HostError, MoptError, NoFeasiblePlan, ToolError, UsageError
    from .finding import Finding, Status
    from .fit import Fit, FitQuestion, GgufModel, GpuMemory, Lora, ReadModel
    from .host import Cpu, Gpu, Host
    from .lengths import Lengths
    from .measurement import ClientHealth, LoadPoint, Measurement, Percentiles
    from .model import AttentionKind, Experts, LayerGroup, ModelSpec, Quantization, Task, Weight
    from .plan import (
        Cost,
        Crossover,
        Derivation,
        Estimate,
        Link,
        Nearest,
        Plan,
        Rejection,
        Setting,
        Source,
        Spread,
        Term,
    )
    from .protocols import Check, Engine, Launch, Needs, Progress, RunWorker, Tool, lacking
    from .record import Candidate, Fate, Record
    from .run import Narrowed, Run, Step
    from .scheme import Gate, Scheme
    from .verdict import Comparison, Verdict, worst
    from .workload import Slo, Workload

_HOME = {
    "artifact": "Artifact MadeBy",
    "errors": "HostError MoptError NoFeasiblePlan ToolError UsageError",
    "finding": "Finding Status",
    "fit": "Fit FitQuestion GgufModel GpuMemory Lora ReadModel",
    "host": "Cpu Gpu Host",
    "lengths": "Lengths",
    "measurement": "ClientHealth LoadPoint Measurement Percentiles",
    "model": "AttentionKind Experts LayerGroup ModelSpec Quantization Task Weight",
    "plan": "Cost Crossover Derivation Estimate Link Nearest Plan Rejection Setting Source Spread Term",
    "protocols": "Check Engine Launch Needs Progress RunWorker Tool lacking",
    "record": "Candidate Fate Record",
    "run": "Narrowed Run Step",
    "scheme": "Gate Scheme",
    "verdict": "Comparison Verdict worst",
    "workload": "Slo Workload",
}
_FILE_OF = {name: file for file, names in _HOME.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _FILE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f".{_FILE_OF[name]}", __name__), name)
    globals()[name] = found
    return found


__all__ = [
    "Artifact", "AttentionKind", "Candidate", "Check", "ClientHealth", "Comparison", "Cost", "Cpu",
    "Crossover", "Derivation", "Engine", "Estimate", "Experts", "Fate", "Finding", "Fit", "FitQuestion",
    "Gate", "GgufModel", "Gpu", "GpuMemory", "Host", "HostError", "Launch", "LayerGroup", "Lengths",
    "Link", "LoadPoint", "Lora", "MadeBy", "Measurement", "ModelSpec", "MoptError", "Narrowed", "Nearest",
    "Needs", "NoFeasiblePlan", "Percentiles", "Plan", "Progress", "Quantization", "ReadModel", "Record",
    "Rejection", "Run", "RunWorker", "Scheme", "Setting", "Slo", "Source", "Spread", "Status", "Step",
    "Task", "Term", "Tool", "ToolError", "UsageError", "Verdict", "Weight", "Workload", "lacking", "worst",
]  # fmt: skip
