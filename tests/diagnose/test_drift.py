"""Wordings of other versions and programs: lines as public threads show them, read after the signatures were
written. Of the first 45, 29 were recognised at once, 15 not, and 1 was taken for something else."""

import pytest

from model_optimizer.diagnose import of_text

LINES = [
    ("drv-exec-format", "could not insert 'nvidia': Exec format error"),
    (
        "drv-exec-format",
        "nvidia: version magic '5.4.18-100.fc30.x86_64 SMP mod_unload ' should be '5.4.18-200.fc31.x86_64 SMP mod_unload '",
    ),
    (
        "trtllm-world",
        "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: mpiSize == tp * pp (/opt/optimum-nvidia/worldConfig.cpp:89)",
    ),
    (
        "trtllm-world",
        "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: MPI size 1 != TP size 2 * PP size 1",
    ),
    ("trtllm-world", "AssertionError: Engine world size (2 * 1) != Runtime world size (1)"),
    (
        "trtllm-world",
        "[TensorRT-LLM][ERROR] Assertion failed: With communicationMode kLEADER, MPI worldSize is expected to be equal to tp*pp when participantIds are not specified",
    ),
    ("py-nccl-symbol", "ImportError: /x/libtorch_cuda.so: undefined symbol: ncclCommResume"),
    (
        "py-nccl-symbol",
        "ImportError: /home/runner/.local/lib/python3.10/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: ncclMemFree",
    ),
    (
        "cuda-visible-uuid",
        "ValueError: invalid literal for int() with base 10: 'GPU-64b90baa-0cf1-11f1-857b-fd56668b7053'",
    ),
    (
        "triton-batch-limit",
        "tritonclient.utils.InferenceServerException: [400] [request id: <id_unknown>] inference request batch-size must be <= 1 for 'detectron'",
    ),
    (
        "xid-nvlink5",
        "NVRM: Xid (PCI:0000:00:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000)",
    ),
    ("drv-bar-invalid", "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:"),
    (
        "nccl-no-interface",
        "ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)",
    ),
    (
        "drv-installer-loaded",
        "WARNING: An NVIDIA kernel module 'nvidia-drm' appears to be already loaded in your kernel.",
    ),
    (
        "vllm-swap-space",
        "ValueError: Too large swap space. 4.00 GiB out of the 4.30 GiB total CPU memory is allocated for the swap space.",
    ),
    (
        "k8s-runtimeclass",
        'Failed to create pod sandbox: rpc error: code = Unknown desc = unable to get OCI runtime for sandbox "187": no runtime for "nvidia" is configured',
    ),
    (
        "k8s-insufficient-gpu",
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod..",
    ),
    ("py-config-attr", "AttributeError: 'Qwen2_5OmniConfig' object has no attribute 'num_attention_heads'"),
    (
        "gguf-corrupt",
        "llama_model_load: error loading model: tensor 'blk.2.ffn_down.weight' data is not within the file bounds, model is corrupted or incomplete",
    ),
    (
        "dkr-hook-missing",
        "ERROR: inject NVIDIA hook: stat /usr/bin/nvidia-container-runtime-hook: no such file or directory",
    ),
    (
        "dkr-hook-missing",
        'docker: Error response from daemon: OCI runtime create failed: exec: "nvidia-container-runtime-hook": executable file not found in $PATH: unknown.',
    ),
    (
        "dkr-smi-absent",
        'unable to start container process: exec: "nvidia-smi": executable file not found in $PATH: unknown.',
    ),
    ("cuda-ptxas-arch", "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"),
    ("cuda-ptxas-arch", "nvcc fatal : Value 'sm_80' is not defined for option 'gpu-architecture'"),
    (
        "nvcc-glibc",
        '/usr/include/bits/mathcalls.h(79): error: exception specification is incompatible with that of previous function "cospi" (declared at line 2601 of',
    ),
    (
        "host-oom-kill",
        "Memory cgroup out of memory: Killed process 6154 (python) total-vm:18109076kB, anon-rss:14095848kB",
    ),
    ("build-oom", "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"),
    ("py-module-missing", "ModuleNotFoundError: No module named 'vllm.vllm_flash_attn.layers'"),
    ("dkr-manifest", "[400] manifest for nvidia/cuda:latest not found: manifest unknown: manifest unknown"),
    (
        "dkr-manifest",
        "Error: reading manifest 10.2-cudnn7-devel-ubuntu18.04 in docker.io/nvidia/cuda: manifest unknown: manifest unknown",
    ),
    ("dkr-glibc", "libnuma.so.1: version `GLIBC_2.38' not found"),
    ("dkr-glibc", "libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by ./server)"),
    ("nccl-no-interface", "Bootstrap : no socket interface found"),
    (
        "dkr-arch",
        '{"msg":"exec container process `/usr/local/bin/python`: Exec format error","level":"error"}',
    ),
    ("xid-nvlink5", "NVRM: Xid (PCI:0000:01:00): 144, SAW_MVB Nonfatal XC0 i0 Link 0"),
    ("vllm-python-h", "fatal error C1083: Cannot open include file: 'Python.h': No such file or directory"),
    ("k8s-probe-killed", "Startup probe failed: HTTP probe failed with statuscode: 503"),
    (
        "vllm-swap-space",
        "RuntimeError: Aborted due to the lack of CPU swap space. Please increase the swap space to avoid this error.",
    ),
]


@pytest.mark.parametrize(("wanted", "line"), LINES, ids=[f"{n}-{i}" for n, (i, _) in enumerate(LINES)])
def test_a_wording_that_was_met_later_is_recognised(wanted: str, line: str) -> None:
    primary = of_text([line]).primary
    assert primary is not None and primary.id == wanted
