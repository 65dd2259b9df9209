"""The memory of a GPU through its driver alone, and the numbers that engines of TensorRT hold in it."""

import ctypes
from typing import Any

from _contract import fail

NUMBERS = {
    "FLOAT": "float32", "HALF": "float16", "INT32": "int32", "INT64": "int64", "BOOL": "bool",
    "INT8": "int8", "UINT8": "uint8",
}  # fmt: skip


class Driver:
    """The memory of the first GPU. Raises Failure where there is none."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError:
            fail(
                "no-gpu",
                "there is no GPU here that could run an engine",
                ["libcuda.so.1 is not there"],
                ["run it where the GPU is, or take the ONNX graph that it was built from"],
            )
        device, context, stream = ctypes.c_int(0), ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._cuda.cuInit(0), "cuInit")
        self._check(self._cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
        self._check(self._cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "context")
        self._check(self._cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        self._check(self._cuda.cuStreamCreate(ctypes.byref(stream), 1), "cuStreamCreate")
        self.stream = int(stream.value or 0)

    def take(self, size: int) -> int:
        """The address of so many bytes."""
        address = ctypes.c_uint64(0)
        self._check(
            self._cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(size, 1))), "cuMemAlloc"
        )
        return int(address.value)

    def free(self, address: int) -> None:
        self._check(self._cuda.cuMemFree_v2(ctypes.c_uint64(address)), "cuMemFree")

    def put(self, address: int, array: Any) -> None:
        size = ctypes.c_size_t(array.nbytes)
        # In the stream's order: a copy outside of it may still be under way when the engine begins to read.
        status = self._cuda.cuMemcpyHtoDAsync_v2(
            ctypes.c_uint64(address), ctypes.c_void_p(array.ctypes.data), size, ctypes.c_void_p(self.stream)
        )
        self._check(status, "copying to the GPU")

    def get(self, address: int, array: Any) -> None:
        size = ctypes.c_size_t(array.nbytes)
        status = self._cuda.cuMemcpyDtoH_v2(
            ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64(address), size
        )
        self._check(status, "copying from the GPU")

    def wait(self) -> None:
        self._check(self._cuda.cuStreamSynchronize(ctypes.c_void_p(self.stream)), "cuStreamSynchronize")

    @staticmethod
    def _check(status: int, what: str) -> None:
        if status:
            fail("cuda-failed", f"{what} failed with CUDA error {status}", hint=["`mopt doctor` looks at it"])


def numbers_of(engine: Any, name: str) -> Any:
    """numpy's type of a tensor of an engine. Raises Failure for one that cannot be read."""
    kind = str(engine.get_tensor_dtype(name)).rpartition(".")[2]
    if kind == "BF16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    if kind not in NUMBERS:
        fail("type-unknown", f"`{name}` is of type {kind}, which cannot be read")
    return NUMBERS[kind]


def plain(array: Any) -> Any:
    """The same in a type that numpy knows itself."""
    return array.astype("float32") if array.dtype.name == "bfloat16" else array
