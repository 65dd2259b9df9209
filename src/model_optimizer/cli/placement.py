"""Options that say what a model is served on and how, alike in every command that plans for GPUs."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from model_optimizer.cli.options import VARIABLE, BytesType, PositiveFloat, Whole, pairs, together
from model_optimizer.core import UsageError

if TYPE_CHECKING:
    from model_optimizer.core import GpuMemory


class EngineType(click.ParamType[Any]):
    """`vllm`, `vllm==0.25.1`."""

    name = "ENGINE[==VERSION]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str | None]:
        if isinstance(value, tuple):
            return cast("tuple[str, str | None]", value)
        name, _, version = str(value).partition("==")
        if not name.strip() or ("==" in value and not version.strip()):
            raise UsageError(f"`{value}` is not an engine", hint=("write for example vllm==0.25.1",))
        return name.strip(), version.strip() or None


class GpusType(click.ParamType[Any]):
    """`4`, or `4xL20`: (count, name)."""

    name = "N|NxNAME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, str | None]:
        if isinstance(value, tuple):
            return cast("tuple[int, str | None]", value)
        if "," in value or "+" in value:
            raise UsageError(
                f"`--gpus {value}` names several kinds",
                cause=("engines divide a model evenly, so all GPUs of it must be alike",),
                hint=("ask about each kind by itself",),
            )
        found = re.fullmatch(r"\s*(\d{1,6})\s*(?:[x×*]\s*(\S.*?))?\s*", value, re.IGNORECASE)
        if not found or int(found[1]) < 1:
            raise UsageError(f"`--gpus {value}` is not a number of GPUs", hint=("write 4 or 4xL20",))
        return int(found[1]), found[2]


class Pixels(click.ParamType[Any]):
    """`1280x720`."""

    name = "WxH"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return cast("tuple[int, int]", value)
        found = re.fullmatch(r"\s*(\d{1,5})\s*[x×*]\s*(\d{1,5})\s*", str(value), re.IGNORECASE)
        if not found or not int(found[1]) * int(found[2]):
            raise UsageError(f"`{value}` is not the size of an image", hint=("write for example 1280x720",))
        return int(found[1]), int(found[2])


POSITIVE = Whole(1)
DEVICES = Whole(1, 999_999)

images = together(
    click.option("--images", type=Whole(0), help="Images in each prompt, beside --prompt-tokens."),
    click.option("--image-size", type=Pixels(), help="Of --images, for example 1280x720."),
)
gpu = together(
    click.option(
        "--gpu", metavar="NAME", help="For example h100 or `4060 laptop`; this machine's if left out."
    ),
    click.option("--gpus", type=GpusType(), help="How many, or 4xNAME."),
    click.option("--vram", type=BytesType(), help="GPU memory that one process may take, for example 8GiB."),
    click.option("--reserve", type=BytesType(), help="What a display and other processes hold on each GPU."),
)

parallel = together(
    click.option("--tp", type=DEVICES, help="Tensor parallelism: GPUs that share each layer."),
    click.option("--pp", type=DEVICES, help="Pipeline parallelism: stages of layers."),
    click.option("--dp", type=DEVICES, help="Data parallelism: engines side by side."),
)

engine = together(
    click.option("--engine", type=EngineType(), help="vllm==0.25.1, llama.cpp, onnxruntime."),
    click.option("--scheme", help="Number format of the weights; that of the checkpoint by default."),
    click.option("--dtype", type=click.Choice(["auto", "bf16", "fp16", "fp32"]), default="auto"),
    click.option("--kv-cache-dtype", default="auto", show_default=True, help="auto, fp8, q8_0 (llama.cpp)."),
    click.option("--max-model-len", type=POSITIVE, help="Longest request, prompt and answer together."),
    click.option("--max-num-seqs", type=POSITIVE, help="Sequences in one step."),
    click.option("--max-num-batched-tokens", type=POSITIVE, help="Tokens in one step."),
    click.option("--gpu-memory-utilization", type=PositiveFloat(), help="Share that vLLM may fill."),
    click.option("--block-size", type=POSITIVE, help="Tokens in a block of the KV cache."),
    click.option("--enforce-eager", is_flag=True, help="No compilation and no CUDA graphs."),
    pairs("--env", "env", VARIABLE, "For the engine."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Numbers of GPUs that go together."""

    tensor: int
    pipeline: int
    data: int

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline * self.data


def divide(gpus: tuple[int, str | None] | None, tp: int | None, pp: int | None, dp: int | None) -> Parallel:
    """GPUs that nothing is said about share the layers. UsageError when the numbers contradict each other."""
    said = (tp or 1) * (pp or 1) * (dp or 1)
    if gpus is None:
        return Parallel(tensor=tp or 1, pipeline=pp or 1, data=dp or 1)
    count = gpus[0]
    if count % said:
        raise UsageError(
            f"--tp, --pp and --dp take {said} GPUs, --gpus says {count}",
            hint=("leave --gpus out, or make the products equal",),
        )
    if tp is None:
        return Parallel(tensor=count // said, pipeline=pp or 1, data=dp or 1)
    if dp is None:
        return Parallel(tensor=tp, pipeline=pp or 1, data=count // said)
    if count != said:
        raise UsageError(f"--tp, --pp and --dp take {said} GPUs, --gpus says {count}")
    return Parallel(tensor=tp, pipeline=pp or 1, data=dp)


def gpu_name(gpu: str | None, gpus: tuple[int, str | None] | None) -> str | None:
    """The name under --gpu, or behind --gpus. UsageError when both name one."""
    inner = gpus[1] if gpus else None
    if gpu and inner and gpu.strip().lower() != inner.strip().lower():
        raise UsageError(f"--gpu says `{gpu}`, --gpus says `{inner}`", hint=("name it once",))
    return gpu or inner


Dtype = Literal["bf16", "fp16", "fp32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the options of `gpu`, `parallel` and `engine` say together. None: it was not said.

    `gpus` is (count, name), `engine` (name, version); `vram` and `reserve` are bytes.
    """

    gpu: str | None
    gpus: tuple[int, str | None] | None
    vram: int | None
    reserve: int | None
    tp: int | None
    pp: int | None
    dp: int | None
    engine: tuple[str, str | None] | None
    scheme: str | None
    dtype: Dtype | None
    kv_cache_dtype: str
    max_model_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    gpu_memory_utilization: float | None
    block_size: int | None
    enforce_eager: bool
    env: Mapping[str, str]

    @property
    def gpu_name(self) -> str | None:
        return gpu_name(self.gpu, self.gpus)


def asked(command: Callable[..., None]) -> Callable[..., None]:
    """All options of a placement, handed to the command as one `Asked`. UsageError for impossible numbers."""
    names = [field.name for field in fields(Asked)]

    @functools.wraps(command)
    def collected(**values: Any) -> None:
        given = {name: values.pop(name) for name in names}
        given["dtype"] = None if given["dtype"] == "auto" else given["dtype"]
        found = Asked(**given)
        _possible(found)
        command(asked=found, **values)

    return together(gpu, parallel, engine)(collected)


def _possible(found: Asked) -> None:
    share, budget, block = found.gpu_memory_utilization, found.vram, found.block_size
    if share is not None and budget is not None:
        raise UsageError(
            "--vram and --gpu-memory-utilization both set the budget", hint=("leave one of them out",)
        )
    if share is not None and share > 1:
        raise UsageError(f"--gpu-memory-utilization is a share up to 1, not {share:g}")
    if budget == 0:
        raise UsageError("--vram must be above zero", hint=("for example --vram 8GiB",))
    if block is not None and block not in (1, 8) and block % 16:
        raise UsageError(
            f"--block-size {block} is taken by no attention backend",
            hint=("pass a multiple of 16; by default the engine chooses",),
        )


def within(memory: "GpuMemory", found: Asked) -> "tuple[GpuMemory, int | None]":
    """(the GPU or the MIG instance of it, the budget). UsageError when more is asked for than it has."""
    from model_optimizer.planner.memory import card

    have = f"it has {memory.total_bytes / 2**30:.2f} GiB"
    if found.vram is not None and found.vram > memory.total_bytes:
        raise UsageError(f"--vram is more than the memory of {memory.name}", cause=(have,))
    if found.reserve is not None and found.reserve >= memory.total_bytes:
        raise UsageError(f"--reserve leaves nothing of {memory.name}", cause=(have,))
    return card.instance(memory, found.vram)
