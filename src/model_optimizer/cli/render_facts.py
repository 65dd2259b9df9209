"""The screens of `mopt facts`: one row in full with its sources, or a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model_optimizer.cli.render import printable, table
from model_optimizer.core import units

if TYPE_CHECKING:  # a screen needs one subject: importing all of them would slow the start
    from collections.abc import Iterable, Mapping, Sequence

    from model_optimizer.facts.architectures import Architectures, Served
    from model_optimizer.facts.drivers import (
        CudaToolkit,
        Driver,
        DriverBranch,
        DriverRule,
        MinimumDriver,
    )
    from model_optimizer.facts.fact import Fact
    from model_optimizer.facts.formats import FormatFact, Support
    from model_optimizer.facts.gpus import GpuFact, GpuMatch
    from model_optimizer.facts.models import ModelFact
    from model_optimizer.facts.tensorrt import TensorrtRelease, TensorrtRtxRelease
    from model_optimizer.facts.tensorrt_llm import TensorrtLlmRelease
    from model_optimizer.facts.vllm import FlagFact, MetricFact, NoteFact, VllmRelease

Capability = tuple[int, int]
Row = tuple[str, str | None, str]  # label, value (None leaves the row out), mark

UNCHECKED = "unchecked: remembered or assumed, not found in a source"
NUMBERS = (
    ("bf16", "16-bit, 32-bit accumulation", "TFLOPS"),
    ("fp16_accumulate_16", "16-bit, 16-bit accumulation", "TFLOPS"),
    ("fp8", "FP8, 32-bit accumulation", "TFLOPS"),
    ("fp8_accumulate_16", "FP8, 16-bit accumulation", "TFLOPS"),
    ("int8", "INT8", "TOPS"),
    ("fp4", "FP4", "TFLOPS"),
)


def screen(title: str, rows: Iterable[Row], fact: Fact | None = None, *, after: Sequence[str] = ()) -> str:
    """A title, aligned rows, extra lines, and for a fact its notes and sources."""
    shown = [(label, value, mark) for label, value, mark in rows if value is not None]
    width = max((len(label) for label, _, _ in shown), default=0)
    lines = [title]
    lines += [f"  {label:<{width}}  {value}{f'  ({mark})' if mark else ''}" for label, value, mark in shown]
    lines += after
    if fact is not None:
        lines += ["", *footer(fact)]
    return printable("\n".join(lines)) + "\n"


def footer(fact: Fact) -> list[str]:
    """Notes, sources, and what the marks mean."""
    lines = [f"note: {note}" for note in fact.notes]
    lines += [f"source: {source}" for source in fact.source]
    if fact.confidence != "high":
        lines.append(f"confidence: {fact.confidence}")
    if not fact.checked:
        lines.append("the whole row is unchecked: remembered, assumed or not compared with the original")
    elif fact.unchecked:
        lines.append(UNCHECKED)
    return lines


def gpu(match: GpuMatch) -> str:
    fact = match.fact
    peaks: Mapping[str, float | None] = {name: getattr(fact.dense_tflops, name) for name, _, _ in NUMBERS}
    memory = f"{units.show_bytes(fact.memory_bytes)} {fact.memory_kind}"
    if fact.shared_memory:
        memory += ", shared with the CPU"
    if fact.visible_memory_bytes is not None:
        memory += f"; CUDA shows {fact.visible_memory_bytes / 2**30:.2f} GiB"
    nvlink = fact.nvlink_bytes_per_s
    power = None if fact.tdp_w is None else f"{fact.tdp_w} W"
    if power and fact.tdp_range_w:
        power += f", set by the maker from {fact.tdp_range_w[0]} to {fact.tdp_range_w[1]} W"
    rows: list[Row] = [
        ("architecture", f"{fact.vendor} {fact.architecture}", ""),
        ("compute capability", capability(fact.compute_capability), ""),
        ("multiprocessors", _number(fact.sm_count), fact.mark("sm_count")),
        ("memory", memory, fact.mark("memory_bytes")),
        ("bandwidth", f"{fact.bandwidth_bytes_per_s / 1e9:.0f} GB/s", fact.mark("bandwidth_bytes_per_s")),
        ("L2 cache", units.show_bytes(fact.l2_bytes) if fact.l2_bytes else None, fact.mark("l2_bytes")),
        ("tensor cores take", ", ".join(("fp16", *fact.hardware_formats)) if _tensor(fact) else None, ""),
        *(
            (label, f"{value:g} {unit} dense", fact.mark("dense_tflops"))
            for name, label, unit in NUMBERS
            if (value := peaks[name]) is not None
        ),
        ("power", power, fact.mark("tdp_w")),
        ("NVLink", _nvlink(nvlink), fact.mark("nvlink_bytes_per_s")),
        ("PCIe", fact.pcie, fact.mark("pcie")),
        ("not supported", fact.unsupported, ""),
    ]
    after = [f"{match.because} (others: {', '.join(match.others)})"] if match.because else []
    return screen(fact.name, rows, fact, after=["", *after] if after else [])


def gpus(facts: Iterable[GpuFact]) -> str:
    rows = [["GPU", "capability", "memory", "bandwidth", "BF16 TFLOPS", "", ""]]
    for fact in facts:
        bf16 = fact.dense_tflops.bf16
        rows.append([
            fact.name,
            capability(fact.compute_capability) or "-",
            units.show_bytes(fact.memory_bytes),
            f"{fact.bandwidth_bytes_per_s / 1e9:.0f} GB/s",
            f"{bf16:g}" if bf16 is not None else "-",
            fact.mark("dense_tflops") if bf16 is not None else "",
            "not supported" if fact.unsupported else "",
        ])  # fmt: skip
    return table(rows, right=frozenset({2, 3, 4}))


def model(fact: ModelFact) -> str:
    rows: list[Row] = [(key, _plain(value), "") for key, value in fact.config.items()]
    rows.append(("shape of", fact.like, ""))
    rows.append(("provenance", fact.provenance, ""))
    return screen(fact.id, rows, fact)


def models(facts: Iterable[ModelFact], aliases: int) -> str:
    rows = [["model", "architecture", "layers", "hidden", ""]]
    for fact in facts:
        rows.append([
            fact.id,
            _plain(fact.config.get("architectures")),
            _plain(fact.config.get("num_hidden_layers")),
            _plain(fact.config.get("hidden_size")),
            "" if fact.checked else "unchecked",
        ])  # fmt: skip
    return table(rows, right=frozenset({2, 3})) + f"and {aliases} other names of the same shapes\n"


def driver(fact: Driver) -> str:
    branch = fact.branch
    rows: list[Row] = [
        ("runs CUDA", ", ".join(f"{major}.x" for major in fact.cuda_majors) or "none that is known", ""),
        ("newest CUDA of its age", fact.newest_cuda.cuda if fact.newest_cuda else None, ""),
        ("branch", f"{branch.branch}, {branch.kind}" if branch else "not known", ""),
        ("end of life", branch.end_of_life if branch else None, ""),
    ]
    return screen(f"driver {fact.version}", rows, branch or fact.newest_cuda)


def drivers(
    minimums: Iterable[MinimumDriver], branches: Iterable[DriverBranch], rules: Iterable[DriverRule]
) -> str:
    oldest = [["CUDA", "oldest Linux driver", "oldest Windows driver"]]
    oldest += [[f"{m.cuda_major}.x", m.driver_linux, m.driver_windows or "-"] for m in minimums]
    kinds = [["branch", "kind", "end of life", "CUDA"]]
    kinds += [[b.branch, b.kind, b.end_of_life, f"{b.cuda_major}.x"] for b in branches]
    words = [f"{r.id}: {r.rule}" for r in rules]
    return "\n".join([table(oldest), table(kinds), *words]) + "\n"


def rule(fact: DriverRule) -> str:
    rows: list[Row] = [
        ("applies to", ", ".join(fact.applies_to) or None, ""),
        ("not on", ", ".join(fact.not_on) or None, ""),
    ]
    return screen(f"{fact.id}: {fact.rule}", rows, fact)


def cuda(fact: CudaToolkit, minimum: MinimumDriver) -> str:
    rows: list[Row] = [
        ("shipped with Linux driver", fact.driver_linux or "not found", fact.mark("driver_linux")),
        ("shipped with Windows driver", fact.driver_windows or "not found", fact.mark("driver_windows")),
        ("oldest Linux driver it runs on", minimum.driver_linux, minimum.mark("driver_linux")),
    ]
    return screen(f"CUDA {fact.cuda}", rows, fact)


def cudas(facts: Iterable[CudaToolkit]) -> str:
    rows = [["CUDA", "Linux driver", "Windows driver", ""]]
    rows += [[t.cuda, t.driver_linux or "-", t.driver_windows or "-", t.mark("driver_linux")] for t in facts]
    return table(rows) + "These drivers shipped with the toolkit; older ones run it too: mopt facts driver\n"


def vllm(fact: VllmRelease, registry: Architectures | None, hints: Sequence[NoteFact] = ()) -> str:
    image, defaults = fact.image, fact.defaults
    have = image.compute_capabilities
    codes = ", ".join(capability(c) or "" for c in have) if have else None
    rows: list[Row] = [
        ("released", fact.date, fact.mark("date")),
        ("Python", fact.python, fact.mark("python")),
        ("torch", fact.torch, fact.mark("torch")),
        ("transformers", fact.transformers, fact.mark("transformers")),
        ("FlashInfer", fact.flashinfer, fact.mark("flashinfer")),
        ("CUDA of the wheel", f"{fact.cuda} ({fact.cuda_library})", fact.mark("cuda")),
        ("oldest Linux driver", fact.minimum_driver_linux, fact.mark("minimum_driver_linux")),
        ("oldest GPU", f"compute capability {capability(fact.minimum_compute_capability)}", ""),
        ("image", image.name, ""),
        ("image is built for", f"{codes}{' and newer (PTX)' if image.ptx else ''}" if codes else None, ""),
        ("image CUDA, Ubuntu", f"{image.cuda}, {image.ubuntu}" if image.cuda else None, ""),
        ("--gpu-memory-utilization", f"{defaults.gpu_memory_utilization:g} by default", ""),
        ("--block-size", f"{defaults.block_size} by default", ""),
        ("--async-scheduling", _on(defaults.async_scheduling), ""),
        *(
            (
                f"batch, {_tier(tier.minimum_memory_bytes)}",
                f"{tier.max_num_batched_tokens} tokens, {tier.max_num_seqs} requests"
                + (f"; not on {', '.join(tier.not_for)}" if tier.not_for else ""),
                "",
            )
            for tier in fact.batch
        ),
        ("architectures", _count(registry), ""),
    ]
    title = _title("vLLM", fact.version, fact.asked, exact=fact.exact)
    return screen(title, rows, fact, after=[*_changes(fact), *_notes(hints)])


def vllms(facts: Iterable[VllmRelease], hints: Sequence[NoteFact] = ()) -> str:
    rows = [["vLLM", "released", "torch", "CUDA", "driver", "oldest GPU"]]
    for r in facts:
        oldest = capability(r.minimum_compute_capability) or "-"
        rows.append([r.version, r.date, r.torch, r.cuda, f">= {r.minimum_driver_linux}", oldest])
    return table(rows) + "\n".join([*_notes(hints), ""])


def flag(fact: FlagFact) -> str:
    rows: list[Row] = [
        ("since", fact.since or "0.8.5 or earlier", fact.mark("since")),
        ("last seen in", fact.until or "current", fact.mark("until")),
        ("default", fact.default, fact.mark("default")),
        ("use instead", fact.use_instead, fact.mark("use_instead")),
    ]
    return screen(fact.flag, rows, fact)


def metric(fact: MetricFact) -> str:
    rows: list[Row] = [
        ("means", fact.means, ""),
        ("since", fact.since or "0.8.5 or earlier", fact.mark("since")),
        ("last seen in", fact.until or "current", fact.mark("until")),
    ]
    return screen(fact.metric, rows, fact)


def tensorrt(fact: TensorrtRelease) -> str:
    low, high = fact.minimum_compute_capability, fact.maximum_compute_capability
    listed = fact.compute_capabilities
    top = fact.onnx_opset_to
    opsets = f"{fact.onnx_opset_from or '?'} to {top}" if top else None
    lost = fact.trtexec
    rows: list[Row] = [
        ("released", fact.date, fact.mark("date")),
        ("CUDA", ", ".join(fact.cuda) if fact.cuda else "not found", fact.mark("cuda")),
        ("oldest GPU", capability(low) or "not found", fact.mark("minimum_compute_capability")),
        ("newest GPU", capability(high) or "not found", fact.mark("maximum_compute_capability")),
        ("built for", ", ".join(capability(c) or "" for c in listed) if listed else None, ""),
        ("ONNX opset", opsets, fact.mark("onnx_opset_to")),
        ("Python package", fact.python_package, fact.mark("python_package")),
        ("trtexec lost", ", ".join(lost.removed) if lost else None, ""),
        ("trtexec ignores", ", ".join(lost.ignored) if lost and lost.ignored else None, ""),
        ("use instead", lost.use_instead if lost else None, ""),
    ]
    name = fact.version if not fact.last else f"{fact.version} to {fact.last}"
    return screen(_title("TensorRT", name, fact.asked, exact=fact.exact), rows, fact)


def tensorrt_rtx(fact: TensorrtRtxRelease) -> str:
    rows: list[Row] = [
        ("GPUs", ", ".join(capability(c) or "" for c in fact.compute_capabilities), ""),
        ("platforms", ", ".join(fact.platforms), fact.mark("platforms")),
        *(
            (f"{number} from", capability(least), fact.mark("precisions"))
            for number, least in fact.precisions.items()
        ),
    ]
    name = fact.version if not fact.last else f"{fact.version} to {fact.last}"
    return screen(_title("TensorRT for RTX", name, fact.asked, exact=fact.exact), rows, fact)


def tensorrt_llm(fact: TensorrtLlmRelease) -> str:
    rows: list[Row] = [
        ("released", fact.date, fact.mark("date")),
        ("backends", ", ".join(fact.backends), fact.mark("backends")),
        ("torch", fact.torch or "not found", fact.mark("torch")),
        ("CUDA", fact.cuda or "not found", fact.mark("cuda")),
        ("TensorRT", fact.tensorrt or "not found", fact.mark("tensorrt")),
        ("GPUs", fact.gpus, fact.mark("gpus")),
    ]
    name = fact.version if not fact.last else f"{fact.version} to {fact.last}"
    return screen(_title("TensorRT-LLM", name, fact.asked, exact=fact.exact), rows, fact)


def releases(facts: Iterable[TensorrtRelease | TensorrtRtxRelease | TensorrtLlmRelease]) -> str:
    rows = [["release", "to", ""]]
    for fact in facts:
        mark = "" if fact.checked and not fact.unchecked else "partly unchecked"
        rows.append([fact.version, fact.last or "", mark])
    return table(rows)


def number_format(fact: FormatFact, supports: Sequence[tuple[Capability, Support]]) -> str:
    last = fact.in_vllm()
    rows: list[Row] = [
        ("kind", fact.kind, ""),
        ("tensor cores from", capability(fact.hardware_from) or "none, or not found", ""),
        ("but not on", ", ".join(capability(c) or "" for c in fact.hardware_not_on) or None, ""),
        ("plugin", last.plugin if last else None, ""),
        *(
            (f"in vLLM on {capability(c)}", support, "" if last and last.checked else "unchecked")
            for c, support in supports
        ),
    ]
    rules = [f"since vLLM {r.since}: {n}" for r in fact.vllm for n in r.notes]
    return screen(f"{fact.name}: {fact.title}", rows, fact, after=["", *rules] if rules else [])


def formats(rows: Sequence[tuple[FormatFact, Sequence[Support]]], capabilities: Sequence[Capability]) -> str:
    head = ["format", *(capability(c) or "" for c in capabilities), "plugin", ""]
    body: list[list[str]] = []
    for fact, supports in rows:
        last = fact.in_vllm()
        checked = fact.checked and (last is None or last.checked)
        plugin = last.plugin if last and last.plugin else ""
        body.append([fact.name, *supports, plugin, "" if checked else "unchecked"])
    return table([head, *body]) + "how the newest vLLM runs it, by compute capability\n"


def architecture(name: str, served: Mapping[str, Sequence[Served]]) -> str:
    rows: list[Row] = []
    for engine, releases_ in served.items():
        if not releases_:
            rows.append((engine, "in no release that was read", ""))
            continue
        first, last = releases_[0], releases_[-1]
        general = ", through its Transformers backend" if last.general else ""
        span = f"{first.version} to {last.version} of those that were read ({len(releases_)})"
        rows.append((engine, f"{span}; {', '.join(last.tasks)}{general}", ""))
    return screen(name, rows)


def architectures(registries: Iterable[Architectures]) -> str:
    rows = [["engine", "release", "architectures", "generate", "multimodal", "embed", "rerank", "read from"]]
    for r in registries:
        counts = [str(len(r.tasks.get(t, ()))) for t in ("generate", "multimodal", "embed", "rerank")]
        total = str(len({n for names in r.tasks.values() for n in names}))
        rows.append([r.engine, r.version, total, *counts, f"{r.package} {r.package_version}"])
    return table(rows, right=frozenset({2, 3, 4, 5, 6}))


def capability(value: Capability | None) -> str | None:
    return None if value is None else f"{value[0]}.{value[1]}"


def _title(engine: str, version: str, asked: str | None, *, exact: bool) -> str:
    if exact or asked is None:
        return f"{engine} {version}"
    return f"{engine} {version} ({asked} is not known; this is the nearest release)"


def _changes(fact: VllmRelease) -> list[str]:
    return ["", *(f"change: {text}" for text in fact.changes)] if fact.changes else []


def _notes(facts: Sequence[NoteFact]) -> list[str]:
    return ["", *(f"note: {f.note}{'' if f.checked else ' (unchecked)'}" for f in facts)] if facts else []


def _count(registry: Architectures | None) -> str | None:
    if registry is None:
        return None
    total = len({name for names in registry.tasks.values() for name in names})
    return f"{total}, read from {registry.package} {registry.package_version}"


def _tier(least: int) -> str:
    return f"GPUs from {units.show_bytes(least)}" if least else "other GPUs"


def _tensor(fact: GpuFact) -> bool:
    """Tensor cores exist from Volta on."""
    return fact.compute_capability is not None and fact.compute_capability >= (7, 0)


def _nvlink(value: int | None) -> str | None:
    if value is None:
        return None
    return f"{value / 1e9:g} GB/s, both directions together" if value else "none"


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def _on(value: bool | None) -> str | None:
    return None if value is None else ("on where supported" if value else "off by default")


def _plain(value: object) -> str:
    if isinstance(value, list):
        items: list[object] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        return ", ".join(_runs([str(i) for i in items]))
    if isinstance(value, dict):
        pairs: dict[str, object] = value  # pyright: ignore[reportUnknownVariableType]
        return ", ".join(f"{k}={_plain(v)}" for k, v in pairs.items())
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value is None else str(value)


def _runs(items: list[str]) -> list[str]:
    """Long lists of layer types as counts: `sliding_attention x25`."""
    if len(items) <= 4:
        return items
    return [f"{name} x{items.count(name)}" for name in dict.fromkeys(items)]
