"""Plays the server of an engine: prints what it would, then answers, dies, hangs or refuses.

played_engine.py ENGINE ARGUMENTS... What it does is the first line of the file PLAYED that is not yet used; the
last line is used for ever. Each start adds its arguments to PLAYED.starts.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

LOGS = {
    # Words of the wheel of sglang 0.5.23; numbers made up.
    "sglang": """\
[2026-11-30 10:00:00] server_args=ServerArgs(model_path='/m', tokenizer_path='/m')
[2026-11-30 10:00:04] Init torch distributed begin.
[2026-11-30 10:00:05] Load weight begin. avail mem=78.50 GB
[2026-11-30 10:00:09] Load weight end. elapsed=3.20 s, type=Qwen3ForCausalLM, avail mem=63.40 GB
[2026-11-30 10:00:09] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 443110, K size: 27.05 GB, V size: 27.05 GB
[2026-11-30 10:00:09] Memory pool end. avail mem=9.20 GB
[2026-11-30 10:00:09] Capture decode CUDA graph begin. backend=full, avail mem=8.65 GB
[2026-11-30 10:00:20] Capture decode CUDA graph end. elapsed=10.30 s, avail mem=7.9 GB
[2026-11-30 10:00:20] max_total_num_tokens=443110, chunked_prefill_size=8192, max_running_requests=2770, context_len=4096
INFO:     Application startup complete.
""",
    # As public logs of TensorRT-LLM 1.x have it.
    "tensorrt_llm": """\
[TensorRT-LLM] TensorRT LLM version: 1.2.0
Loading safetensors weights in parallel: 100%|##########| 4/4 [00:02<00:00,  1.52it/s]
Loading weights: 100%|##########| 617/617 [00:05<00:00, 120.0it/s]
[TRT-LLM] [I] [Autotuner] Autotuning process ends
[TRT-LLM] [I] [MemUsageChange] Allocated 59.40 GiB for max tokens in paged KV cache (432512).
[TRT-LLM] [I] Run generation only CUDA graph warmup for batch size=64, draft_len=0
INFO:     Application startup complete.
""",
    "vllm": """\
(APIServer pid=1) INFO 11-30 14:02:40 [config/model.py:533] Resolved architecture: Qwen3ForCausalLM
(EngineCore pid=2) INFO 11-30 14:03:08 [v1/worker/gpu/model_runner.py:280] Starting to load model /m...
(EngineCore pid=2) INFO 11-30 14:03:11 [v1/worker/gpu/model_runner.py:302] Model loading took 15.27 GiB and 3.7 s
(EngineCore pid=2) INFO 11-30 14:03:44 [v1/worker/gpu_worker.py:538] Available KV cache memory: 111.84 GiB
(EngineCore pid=2) INFO 11-30 14:03:44 [v1/core/kv_cache_utils.py:2146] GPU KV cache size: 814,368 tokens
(EngineCore pid=2) INFO 11-30 14:03:44 [v1/core/kv_cache_utils.py:2151] Maximum concurrency for 8,192 tokens per request: 99.41x
(APIServer pid=1) INFO:     Application startup complete.
""",
    "llama_cpp": """\
llama_model_loader: loaded meta data with 25 key-value pairs and 272 tensors from /m.gguf
load_tensors:   CPU_Mapped model buffer size =    97.40 MiB
llama_context: constructing llama_context
llama_context: n_ctx                 = 16384
srv    load_model: model loaded
""",
}
FAILURES = {
    "kv-too-small": (
        "(EngineCore pid=2) ValueError: To serve at least one request with the model's max seq len (40960), "
        "(5.63 GiB KV cache is needed, which is larger than the available KV cache memory (2.81 GiB). Based on "
        "the available memory, the estimated maximum model length is 20464. Try increasing "
        "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.\n"
    ),
    "oom": (
        "(EngineCore pid=2) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a "
        "total capacity of 23.65 GiB of which 1.12 GiB is free.\n"
    ),
    "no-model": "OSError: /m does not appear to have a file named config.json.\n",
    "unknown": "The flux capacitor is empty.\n",
    "port-taken": "OSError: [Errno 98] Address already in use\n",
}
ENGINE, WORDS = sys.argv[1], sys.argv[2:]
PLAYED = Path(os.environ["PLAYED"])


def behaviour() -> str:
    log = PLAYED.with_suffix(".starts")
    before = log.read_text().count("\n") if log.is_file() else 0
    with log.open("a") as stream:
        stream.write(json.dumps(WORDS) + "\n")
    lines = PLAYED.read_text().split()
    return lines[min(before, len(lines) - 1)]


if "-c" in WORDS:  # asked what is installed, as any interpreter
    sys.stdout.write(
        json.dumps({"python": "3.12.0", "executable": sys.executable, "packages": {ENGINE: "9.9"}})
    )
    sys.exit(0)
DOES = behaviour()
sys.stderr.write(FAILURES.get(DOES, LOGS[ENGINE]))
sys.stderr.flush()
if DOES in FAILURES:
    sys.exit(1)
if DOES == "hangs":
    time.sleep(600)
if DOES == "deaf":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
if DOES == "dies-soon":
    threading.Timer(1.0, os._exit, (3,)).start()
if DOES == "chatty":
    for number in range(40_000):
        sys.stderr.write(f"request {number:06d} " + "x" * 80 + "\n")
    sys.stderr.flush()
port = WORDS[WORDS.index("--port") + 1]
sys.argv = ["stub_server.py", port, DOES if DOES in ("bangs", "broken") else "good"]
exec(compile(Path(__file__).with_name("stub_server.py").read_text(), "stub_server.py", "exec"))
