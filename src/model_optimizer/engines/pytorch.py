"""Plain PyTorch with transformers: what a model does before anything was optimised, behind the same server.

One request at a time, as a script around `model.generate` would answer.
"""

from model_optimizer.core import Host, Launch, ModelSpec, Plan, Scheme, Setting, Term, Workload

from . import _arithmetic as a
from . import _litserve

TITLE = "PyTorch"
READS = {"safetensors": frozenset({"fp32", "bf16", "fp16"})}
TASKS = frozenset({"generate", "embed"})
DEVICES = frozenset({"cpu"})
ENVIRONMENT = "onnx"
BASELINE = True

TAKES = _litserve.TAKES
KEY = _litserve.KEY
PACKAGE = "torch"


def memory(model: ModelSpec, scheme: Scheme, work: Workload) -> tuple[Term, ...]:
    """Bytes of the server's processes under this workload."""
    runtime = a.process("pytorch", work.task)
    weights = a.float_weights(model, scheme)
    length = a.longest(model, work)
    width = 8 * model.hidden_size + 2 * model.intermediate_size
    activations = Term(
        name="activations",
        bytes=a.FLOAT_BYTES * length * width,
        because=f"{length} tokens x {width} numbers of one layer",
        source="derived",
    )
    if work.task != "generate":
        return (weights, activations, runtime)
    return (weights, a.kv_cache(model, work, scheme.weight_bits, 1), activations, runtime)


def settings(model: ModelSpec, scheme: Scheme, work: Workload, host: Host) -> tuple[Setting, ...]:
    del scheme
    one = Setting(
        name="max_batch_size",
        value="1",
        because="the plain baseline answers one request after the other",
        source="derived",
    )
    return (*a.threads(host), a.context(model, work), one)


def launch(plan: Plan, port: int) -> Launch:
    """Our worker on 127.0.0.1."""
    threads = plan.setting("threads")
    # Without it, threads that wait for each other keep their cores busy: 5 training steps in 30 s on a
    # busy 2-core machine, 154 with it.
    env = {"OMP_WAIT_POLICY": "PASSIVE", **({"OMP_NUM_THREADS": threads} if threads else {})}
    return _litserve.launch(plan, port, "torch", env)
