"""A made-up finished run, for tests of reports and screens."""

from model_optimizer.core import (
    Artifact,
    Candidate,
    Comparison,
    Cpu,
    Estimate,
    Host,
    LayerGroup,
    Lengths,
    LoadPoint,
    MadeBy,
    Measurement,
    ModelSpec,
    Percentiles,
    Plan,
    Record,
    Rejection,
    Run,
    Setting,
    Slo,
    Step,
    Term,
    Verdict,
    Workload,
)

MIB = 1 << 20


def model(name: str = "tiny-qwen3") -> ModelSpec:
    return ModelSpec(
        name=name,
        architecture="Qwen3ForCausalLM",
        model_type="qwen3",
        task="generate",
        parameters=5_800_000,
        active_parameters=5_800_000,
        embedding_parameters=1_000_000,
        dtype="float32",
        layers=6,
        hidden_size=256,
        intermediate_size=768,
        vocab_size=4096,
        heads=8,
        kv_heads=4,
        head_dim=32,
        attention="gqa",
        groups=(LayerGroup(kind="gqa", layers=6, kv_bytes_per_token_16=512),),
    )


def plan(engine: str, scheme: str, path: tuple[str, ...] = ()) -> Plan:
    return Plan(
        model="tiny-qwen3",
        checkpoint="/models/tiny-qwen3",
        workload=workload(),
        slo=Slo(ttft_ms=200),
        engine=engine,
        scheme=scheme,
        format="onnx_genai" if path else "safetensors",
        path=path,
        settings=(Setting(name="threads", value="2", because="two cores", source="derived"),),
        estimate=Estimate(
            memory=(Term(name="weights", bytes=23 * MIB, because="5.8 M x 4 bytes", source="derived"),)
        ),
    )


def workload() -> Workload:
    return Workload(concurrency=4, prompt_tokens=Lengths.fixed(64), output_tokens=Lengths.fixed(32))


def measurement(speed: float, ttft: float, memory: int) -> Measurement:
    def point(target: str, factor: float) -> LoadPoint:
        return LoadPoint(
            target=target,
            completed=40,
            failed=0,
            window_s=8.0,
            requests_per_s=speed * factor / 32,
            output_tokens_per_s=speed * factor,
            ttft_ms=Percentiles(p50=ttft, p90=ttft * 1.2, p99=ttft * 1.5, mean=ttft),
            tpot_ms=Percentiles(p50=1000 / speed, p99=1500 / speed),
            e2e_ms=Percentiles(p50=ttft + 32_000 / speed, p99=2 * ttft + 32_000 / speed),
            memory_bytes=memory,
            memory_source="PSS of the process group",
        )

    return Measurement(points=(point("concurrency 1", 1), point("concurrency 4", 1.5)))


def verdict(subject: str, outcome: str, recovery: float, wanted: float) -> Verdict:
    return Verdict(
        layer="model",
        subject=subject,
        reference="reference",
        outcome=outcome,  # pyright: ignore[reportArgumentType]
        because=f"perplexity recovery {recovery:.3f}, {wanted} was wanted",
        comparisons=(
            Comparison(
                metric="recovery",
                got=recovery,
                wanted=f">= {wanted}",
                outcome=outcome,  # pyright: ignore[reportArgumentType]
                samples=6000,
                interval=(recovery - 0.002, recovery + 0.002),
            ),
            Comparison(metric="kl", got=0.01, wanted="reported", outcome="pass", samples=6000),
        ),
    )


def artifact(scheme: str, size: int) -> Artifact:
    return Artifact(
        path=f"/runs/x/artifacts/{scheme}",
        format="onnx_genai",
        scheme=scheme,
        task="generate",
        bytes=size,
        digest="sha256:" + "0" * 64,
        made_by=MadeBy(tool="onnx_genai", version="0.18.0"),
        notes=("the embedding stays in float32",),
    )


def record() -> Record:
    """A reference, a winner, one that failed verification with text that tries to be HTML, one that broke."""
    return Record(
        run=Run(
            command=("mopt", "optimize", "examples/models/tiny-qwen3"),
            version="0.1.0",
            created="2026-11-30T14:00:00Z",
            model="tiny-qwen3",
            steps={"plan": Step(state="done", seconds=0.1)},
            winner="onnxruntime-int8_weight",
            because="4.0x the reference's throughput at 0.25x its memory, and it passed verification",
        ),
        host=Host(
            os="Linux",
            distribution="Debian GNU/Linux 12 (bookworm)",
            cpu=Cpu(name="AMD EPYC", cores=2, features=("avx2",)),
            memory_bytes=24 << 30,
            gpus=(),
        ),
        model=model(),
        workload=workload(),
        slo=Slo(ttft_ms=200),
        candidates=(
            Candidate(
                name="reference",
                plan=plan("pytorch", "fp32"),
                measurement=measurement(50, 40, 800 * MIB),
                fate="reference",
            ),
            Candidate(
                name="onnxruntime-int8_weight",
                plan=plan("onnxruntime", "int8_weight", ("onnx_genai",)),
                artifact=artifact("int8_weight", 9 * MIB),
                verdicts=(verdict("onnxruntime-int8_weight", "pass", 0.9985, 0.98),),
                measurement=measurement(200, 12, 200 * MIB),
                fate="winner",
            ),
            Candidate(
                name="onnxruntime-int4_rtn",
                plan=plan("onnxruntime", "int4_rtn", ("onnx_genai",)),
                artifact=artifact("int4_rtn", 6 * MIB),
                verdicts=(verdict("onnxruntime-int4_rtn", "fail", 0.9021, 0.94),),
                fate="not-served",
                because="recovery 0.902 is below 0.94 <script>alert(1)</script>",
            ),
            Candidate(
                name="vllm_cpu-bf16",
                plan=plan("vllm_cpu", "bf16"),
                fate="failed",
                because="the server died while starting | see log/serve.log",
            ),
        ),
        rejected=(
            Rejection(engine="onnxruntime", scheme="nvfp4", reason="no tool makes it", source="tools"),
        ),
    )
