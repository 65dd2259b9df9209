"""The nouns of the product: frozen, typed, free of side effects. Import them from here."""

from .artifact import Artifact, MadeBy
from .errors import HostError, MoptError, NoFeasiblePlan, ToolError, UsageError
from .finding import Finding, Status
from .host import Cpu, Gpu, Host
from .lengths import Lengths
from .measurement import ClientHealth, LoadPoint, Measurement, Percentiles
from .model import AttentionKind, Experts, LayerGroup, ModelSpec, Quantization, Task, Weight
from .plan import Estimate, Plan, Rejection, Setting, Source, Spread, Term
from .protocols import Check, Engine, Launch, Needs, Progress, RunWorker, Tool
from .record import Candidate, Fate, Record
from .run import Run, Step
from .scheme import Gate, Scheme
from .verdict import Comparison, Verdict, worst
from .workload import Slo, Workload

__all__ = [
    "Artifact", "AttentionKind", "Candidate", "Check", "ClientHealth", "Comparison", "Cpu", "Engine",
    "Estimate", "Experts", "Fate", "Finding", "Gate", "Gpu", "Host", "HostError", "Launch", "LayerGroup",
    "Lengths", "LoadPoint", "MadeBy", "Measurement", "ModelSpec", "MoptError", "Needs", "NoFeasiblePlan",
    "Percentiles", "Plan", "Progress", "Quantization", "Record", "Rejection", "Run", "RunWorker", "Scheme",
    "Setting", "Slo", "Source", "Spread", "Status", "Step", "Task", "Term", "Tool", "ToolError",
    "UsageError", "Verdict", "Weight", "Workload", "worst",
]  # fmt: skip
