"""A calibration in parts that can be gone on with: what each finished part changed lies in a folder.

llm-compressor calibrates a model in parts (a layer each) one after the other, and keeps nothing when it is
killed. Here the tensors of every finished part are written down. The next time, finished parts are put in
place, the samples only pass through them once, and calibration begins at the first part that is missing.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _contract import progress

FROM, TO = 0.05, 0.95
"""Shares of the whole job that the parts take."""


@contextmanager
def in_parts(model: Any, work: Path) -> Generator[None]:
    """While the block runs, llm-compressor's pipeline says where it is and leaves what it finished."""
    from llmcompressor.core import LifecycleCallbacks
    from llmcompressor.pipelines.sequential import pipeline

    trace, end = pipeline.trace_subgraphs, LifecycleCallbacks.sequential_epoch_end
    work.mkdir(parents=True, exist_ok=True)
    parts = _Parts(model, work, end)

    def traced(*arguments: Any, **named: Any) -> Any:
        return parts.begin(trace(*arguments, **named))

    pipeline.trace_subgraphs = traced
    LifecycleCallbacks.sequential_epoch_end = parts.end  # type: ignore[method-assign]
    try:
        yield
    finally:
        pipeline.trace_subgraphs = trace
        LifecycleCallbacks.sequential_epoch_end = end  # type: ignore[method-assign]


class _Parts:
    """`place` counts the parts whose calibration has ended; then the samples pass through once more."""

    def __init__(self, model: Any, work: Path, end: Any) -> None:
        self._model = model
        self._names: dict[Any, str] = {}
        self._work = work
        self._end = end
        self._place = 0
        self._parts: list[Any] = []

    def begin(self, parts: list[Any]) -> list[Any]:
        self._parts = parts
        self._names = {module: name for name, module in self._model.named_modules()}
        done = next((n for n in range(len(parts)) if not self._file(n).exists()), len(parts))
        if done:
            progress(f"{done} of {len(parts)} parts were finished before")
        for number in range(done):
            self._skip_calibrating(number)
        self._say()
        return parts

    def end(self, modules: list[Any], *arguments: Any, **named: Any) -> Any:
        """A part has seen all samples: finish it and write it down, or take it from the folder."""
        file, answer = self._file(self._place), None
        if file.exists():
            self._restore(file)
        else:
            answer = self._end(modules, *arguments, **named)
            self._keep(modules, file)
        self._place += 1
        self._say()
        return answer

    def _skip_calibrating(self, number: int) -> None:
        """Samples need not pass through a finished part before it is in place: nothing looks at them."""
        part, forward = self._parts[number], self._parts[number].forward

        def passing(*arguments: Any, **named: Any) -> Any:
            return forward(*arguments, **named) if self._place > number else {}

        part.forward = passing

    def _keep(self, modules: list[Any], file: Path) -> None:
        from safetensors.torch import save_file

        found = {
            f"{self._names[module]}\n{name}": tensor.detach().cpu().contiguous().clone()
            for module in modules
            if module in self._names
            for name, tensor in _own(module)
        }
        beside = file.with_name(f"{file.name}.part")
        save_file(found, beside)
        beside.replace(file)

    def _restore(self, file: Path) -> None:
        import torch
        from compressed_tensors.offload import update_offload_parameter
        from safetensors.torch import load_file

        modules = {name: module for module, name in self._names.items()}
        for key, tensor in load_file(file).items():
            path, name = key.split("\n")
            module = modules[path]
            if getattr(module, name, None) is None or getattr(module, name).shape != tensor.shape:
                module.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
            else:
                update_offload_parameter(module, name, tensor)

    def _file(self, number: int) -> Path:
        return self._work / f"part-{number:05d}.safetensors"

    def _say(self) -> None:
        count = len(self._parts)
        if self._place < count and not self._file(self._place).exists():
            share = FROM + (TO - FROM) * self._place / count
            progress(f"calibrating part {self._place + 1} of {count}", share)


def _own(module: Any) -> Iterator[tuple[str, Any]]:
    yield from module.named_parameters(recurse=False)
    yield from module.named_buffers(recurse=False)
