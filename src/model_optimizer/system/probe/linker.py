"""What a program that is started here gets: the libraries that the dynamic linker finds, and variables."""

import re
from pathlib import Path

from model_optimizer.core.host import Linker

from .world import World, attempt

_LIBRARY = re.compile(r"lib(?:cuda|nvidia-ml|cudart|cudnn|nvinfer|nccl|cublas)\.so\.\d+|libcuda\.so\.1")
_LISTED = re.compile(r"\s*(\S+) \(([^)]*)\) => (\S+)")
_VARIABLE = re.compile(
    r"CUDA_(?:VISIBLE_DEVICES|DEVICE_ORDER|LAUNCH_BLOCKING|HOME|MODULE_LOADING)|NVIDIA_(?:VISIBLE_DEVICES|DRIVER_CAPABILITIES"
    r"|REQUIRE_CUDA|DISABLE_REQUIRE)|NCCL_\w+|VLLM_\w+|HF_(?:HUB_OFFLINE|HOME)|LD_LIBRARY_PATH|PYTORCH_(?:CUDA_)?ALLOC_CONF"
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_WSL = "/usr/lib/wsl/lib"


def read(world: World) -> Linker:
    return Linker(
        libraries=_libraries(world) if world.system == "Linux" else None,
        toolkits=_toolkits(world) if world.system == "Linux" else None,
        variables={
            name: value[:200]
            for name, value in sorted(world.environ.items())
            if _VARIABLE.fullmatch(name) and not _SECRET.search(name)
        },
    )


def _libraries(world: World) -> dict[str, str] | None:
    """The first file of each name: LD_LIBRARY_PATH comes before the linker's own list, as for the linker."""
    found: dict[str, str] = {}
    for folder in (world.environ.get("LD_LIBRARY_PATH") or "").split(":"):
        for name in world.names(folder) or () if folder.startswith("/") else ():
            if _LIBRARY.fullmatch(name):
                found.setdefault(name, _real(world, f"{folder.rstrip('/')}/{name}"))
    listed = world.ask(["ldconfig", "-p"], 2.0) or world.ask(["/sbin/ldconfig", "-p"], 2.0)
    for line in (listed or "").splitlines():
        row = _LISTED.match(line)
        if row and _LIBRARY.fullmatch(row[1]) and ("64" in row[2] or "aarch64" in row[2]):
            found.setdefault(row[1], _real(world, row[3]))
    if world.exists(f"{_WSL}/libcuda.so.1"):
        found.setdefault("libcuda.so.1", f"{_WSL}/libcuda.so.1")
    return None if listed is None and not found else dict(sorted(found.items()))


def _real(world: World, path: str) -> str:
    """The file behind links, so that its name tells its version; the path itself where that fails."""

    def follow() -> str:
        place = Path(path)
        for _ in range(8):
            here = world.at(str(place))
            if not here.is_symlink():
                break
            place = place.parent / here.readlink()
        return str(place)

    return attempt(follow) or path


def _toolkits(world: World) -> tuple[str, ...] | None:
    names = world.names("/usr/local")
    if names is None:
        return None
    return tuple(n.removeprefix("cuda-") for n in names if re.fullmatch(r"cuda-\d+\.\d+", n))
