"""ONNX Runtime on a GPU behind our own server: embedding models, rerankers and models of images."""

from model_optimizer.core import Host, Launch, ModelSpec, Plan, Scheme, Setting, Term, Workload
from model_optimizer.facts import drivers

from . import _gpu as g
from . import _litserve

TITLE = "ONNX Runtime with CUDA"
READS = {"onnx": frozenset({"fp32", "fp16"})}
"""Without INT8: the provider has no kernel for its products, which the CPU then computes, 2.5 to 41 times
as slowly (evidence/convert)."""
TASKS = frozenset({"embed", "rerank", "vision"})
DEVICES = frozenset({"gpu"})
ENVIRONMENT = "onnx_cuda"
BASELINE = False

TAKES = _litserve.ON_A_GPU
KEY = _litserve.KEY
PACKAGE = "onnxruntime-gpu"
BATCH_TOKENS = 16_384
"""Tokens of one batch, with padding: 32 texts of 512 (evidence/convert)."""
WAIT_MS = "2"
CUDA = "13.0"
"""Of the libraries in system/locks/onnx_cuda."""


def runs_on(host: Host) -> bool:
    """Whether the driver runs the CUDA that the environment holds; True where it could not be read."""
    return bool(host.gpus) and (host.driver_version is None or drivers.runs(host.driver_version, CUDA))


def memory(model: ModelSpec, scheme: Scheme, work: Workload) -> tuple[Term, ...]:
    """A lower bound: weights and what CUDA takes."""
    return g.memory(model, scheme, work)


def settings(model: ModelSpec, scheme: Scheme, work: Workload, host: Host) -> tuple[Setting, ...]:
    del scheme
    found = g.settings(model, work, host, {"context": "max_model_len", "batch": "max_batch_size"})
    tokens = Setting(
        name="max_batched_tokens",
        value=str(BATCH_TOKENS),
        because="32 texts of 512 tokens keep an H200 busy at 99 %; more waits longer for nothing",
        source="measured",
    )
    wait = Setting(
        name="batch_timeout_ms", value=WAIT_MS, because="short beside a request's own time", source="assumed"
    )
    return (*found, tokens, wait)


def launch(plan: Plan, port: int) -> Launch:
    """Our worker on 127.0.0.1."""
    return _litserve.launch(plan, port, "onnx_cuda", {})
