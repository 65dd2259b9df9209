"""What every engine must keep, whoever wrote it. A broken contract is an AssertionError."""

from collections.abc import Mapping
from typing import Any

from model_optimizer.core import (
    Cpu,
    Gate,
    Host,
    Launch,
    Lengths,
    ModelSpec,
    Plan,
    Scheme,
    Setting,
    Slo,
    Term,
    UsageError,
    Workload,
)
from model_optimizer.core.model import LayerGroup

PORT = 12_345
SOURCES = {"user", "measured", "derived", "table", "assumed"}
HOSTS = (Host(), Host(cpu=Cpu(cores=4), memory_bytes=2**34, memory_available_bytes=2**33))


def engine_contract(name: str, engine: Any, schemes: Mapping[str, Scheme] | None = None) -> None:
    """An engine says what it reads, what it needs and why, and turns every plan of its own into a start.

    A task that it cannot do from one of its formats is refused with a UsageError.
    `schemes` are those of the product; without them, made-up ones of the right size stand in.
    """
    assert engine.TITLE and engine.ENVIRONMENT, f"{name}: TITLE and ENVIRONMENT are given"
    assert engine.READS, f"{name}: READS maps formats to schemes"
    assert {"generate", "embed", "rerank", "vision"} >= engine.TASKS and engine.TASKS, f"{name}: TASKS"
    assert {"cpu", "gpu"} >= engine.DEVICES and engine.DEVICES, f"{name}: DEVICES"
    started = 0
    for format_name, computes in engine.READS.items():
        assert computes, f"{name}: {format_name} is read in no scheme"
        for scheme_name in sorted(computes):
            assert schemes is None or scheme_name in schemes, f"{name}: there is no scheme {scheme_name}"
            scheme = schemes[scheme_name] if schemes else _made_up(scheme_name)
            for task in sorted(engine.TASKS):
                started += _one(name, engine, format_name, scheme, task)
    assert started, f"{name}: nothing that it reads can be started"


def _one(name: str, engine: Any, format_name: str, scheme: Scheme, task: Any) -> int:
    """One format, scheme and task; 0 when the engine refuses to start this task from this format."""
    where = f"{name}, {format_name}, {scheme.name}, {task}"
    model = sample_model(task)
    small, large = (workload(task, concurrency) for concurrency in (1, 8))
    memory = engine.memory(model, scheme, small)
    _check_terms(where, memory)
    more = engine.memory(model, scheme, large)
    assert _total(more) >= _total(memory), f"{where}: more requests never need less memory"
    for host in HOSTS:
        settings = engine.settings(model, scheme, large, host)
        _check_settings(where, settings)
    plan = Plan(
        model="somebody/a-model",
        checkpoint="/models/a-model",
        workload=large,
        slo=Slo(),
        engine=name,
        environment=engine.ENVIRONMENT,
        scheme=scheme.name,
        format=format_name,
        settings=engine.settings(model, scheme, large, HOSTS[1]),
    )
    try:
        found = engine.launch(plan, PORT)
    except UsageError:
        return 0
    _check_launch(where, engine, plan, found)
    return 1


def _check_terms(where: str, terms: tuple[Term, ...]) -> None:
    assert terms and all(isinstance(t, Term) for t in terms), f"{where}: memory() is a tuple of Terms"
    names = [t.name for t in terms]
    assert len(set(names)) == len(names), f"{where}: each term has a name of its own"
    assert {"weights", "runtime"} <= set(names), f"{where}: weights and runtime are among the terms"
    for term in terms:
        assert isinstance(term.bytes, int) and term.bytes > 0, f"{where}: {term.name} is a number of bytes"
        assert term.because and term.source in SOURCES, f"{where}: {term.name} says why"


def _check_settings(where: str, settings: tuple[Setting, ...]) -> None:
    names = [s.name for s in settings]
    assert len(set(names)) == len(names), f"{where}: each setting is decided once"
    for setting in settings:
        assert setting.value and setting.because, f"{where}: {setting.name} has a value and a reason"
        assert setting.source in SOURCES, f"{where}: {setting.name} has a source"


def _check_launch(where: str, engine: Any, plan: Plan, found: Launch) -> None:
    assert found.environment == engine.ENVIRONMENT, f"{where}: it starts in the engine's environment"
    assert bool(found.job) != bool(found.arguments), f"{where}: either a job or arguments"
    assert found.served_name and found.ready_path.startswith("/"), f"{where}: name and ready path"
    words = [str(v) for v in (found.request.values() if found.job else found.arguments)]
    assert str(PORT) in words, f"{where}: it listens on the port it was given"
    assert "127.0.0.1" in words, f"{where}: it listens on this machine alone"
    assert plan.checkpoint in words, f"{where}: it loads the plan's checkpoint"
    secrets = [key for key in found.env if "KEY" in key or "TOKEN" in key]
    assert not secrets, f"{where}: a plan holds no secrets"


def _total(terms: tuple[Term, ...]) -> int:
    return sum(term.bytes for term in terms)


def workload(task: Any, concurrency: int) -> Workload:
    return Workload(
        task=task,
        concurrency=concurrency,
        prompt_tokens=Lengths.fixed(128),
        output_tokens=Lengths.fixed(32),
    )


def sample_model(task: Any) -> ModelSpec:
    """A small model with grouped attention and tied embeddings; an encoder where nothing is generated."""
    decoder = task == "generate"
    per_token = 2 * 2 * 32 * 2 if decoder else 0
    return ModelSpec(
        name="a-model",
        architecture="Qwen3ForCausalLM" if decoder else "BertModel",
        model_type="qwen3" if decoder else "bert",
        task=task,
        parameters=5_000_000,
        active_parameters=5_000_000,
        embedding_parameters=1_000_000,
        layers=4,
        hidden_size=256,
        intermediate_size=1024,
        vocab_size=4096,
        heads=8,
        kv_heads=2 if decoder else 8,
        head_dim=32,
        attention="gqa" if decoder else "mha",
        groups=(LayerGroup(kind="gqa" if decoder else "mha", layers=4, kv_bytes_per_token_16=per_token),),
        tied_embeddings=decoder,
        max_position=2048,
        pooling=None if decoder else "mean",
    )


def _made_up(name: str) -> Scheme:
    bits = {"fp32": 32, "int8": 8, "int8_weight": 8, "int4_rtn": 4, "nvfp4": 4, "fp8": 8}.get(name, 16)
    return Scheme(
        name=name,
        title=name,
        weight_bits=bits,
        weight_number="float" if bits >= 16 else "int",
        activation_bits=max(bits, 16),
        activation_number="float",
        group_size=0 if bits >= 16 else 32,
        gate=Gate(recovery=0.9, top1=0.9, cosine=0.9, rank=0.9, source="made up"),
        source="made up",
    )
