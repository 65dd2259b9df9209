"""Lines that logs are full of and that say nothing about a failure."""

BEFORE = """\
INFO 11-30 08:11:01 [__init__.py:216] Automatically detected platform cuda.
(APIServer pid=411) INFO 11-30 08:11:09 [model.py:547] Resolved architecture: Qwen3ForCausalLM
(APIServer pid=411) INFO 11-30 08:11:09 [model.py:1510] Using max model len 8192
NCCL INFO NET/Plugin: Using internal network plugin.
[11/30/2026-08:11:11] [I] [TRT] [MemUsageChange] Init CUDA: CPU +2, GPU +0, now: CPU 31, GPU 402 (MiB)
time="2026-11-30T08:11:12Z" level=info msg="loading plugin \\"io.containerd.snapshotter.v1.overlayfs\\""
[    4.118402] nvidia-nvlink: Nvlink Core is being initialized, major device number 511
Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.12s/it]
  File "/opt/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 498, in __init__
    self.model_executor = executor_class(vllm_config)
""".splitlines()

AFTER = """\
  File "/opt/venv/lib/python3.12/multiprocessing/process.py", line 108, in run
    self._target(*self._args, **self._kwargs)
(APIServer pid=411) INFO 11-30 08:11:40 [launcher.py:99] Shutting down
INFO:     Finished server process [411]
""".splitlines()


def around(*lines: str) -> list[str]:
    """The lines as they stand in a real log."""
    return [*BEFORE, *lines, *AFTER]
