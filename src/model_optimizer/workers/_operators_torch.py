"""The truth of a comparison of operators: the checkpoint in PyTorch in float32, looked into.

Hooks take what goes into and comes out of modules, a few at a time; the rest is never kept.
"""

import sys
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parent))
from _checkpoint import read_config
from _contract import fail

Feed = Mapping[str, Any]


class Place(NamedTuple):
    """A cut point in PyTorch: what goes `in` or comes `out` of a module; `part` of several tensors."""

    module: str
    side: str
    part: int = 0


class Truth:
    """A model under the name `model`, as exporters wrap it, so that its modules have the same names."""

    def __init__(self, folder: Path, task: str) -> None:
        import torch

        torch.set_num_threads(1)
        self.root, self.call = _open(folder, task)
        self.wrapped = type(self.root).__name__ in ("Root", "Classifier")
        self.modules = {name: module for name, module in self.root.named_modules() if name}

    def named(self, module: str) -> str:
        """A module as the checkpoint calls it, without the wrapper around it."""
        if not self.wrapped:
            return module
        return "" if module == "model" else module.removeprefix("model.")

    def run(self, feed: Feed, places: Collection[Place] = ()) -> tuple[list[Any], dict[Place, Any]]:
        """The answers, and the asked places as float32 arrays (those that the model went through)."""
        import torch

        with torch.inference_mode(), self._hooked(places) as found:
            answers = self.call(self.root, {name: torch.from_numpy(array) for name, array in feed.items()})
        return [answer.float().numpy() for answer in answers], found

    def all_places(self, feed: Feed) -> dict[Place, Any]:
        """Every place of a small input."""
        sides = [
            Place(name, side, part) for name in self.modules for side in ("in", "out") for part in (0, 1)
        ]
        return self.run(feed, sides)[1]

    def matched(self, feed: Feed, values: Mapping[str, Any], tolerance: float) -> set[str]:
        """Which of some arrays PyTorch also computes, in any operation of its own. None is kept."""
        import numpy
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        left = {name: numpy.asarray(array) for name, array in values.items()}
        shapes = {array.shape for array in left.values()}
        found: set[str] = set()

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                out = func(*args, **(kwargs or {}))
                for tensor in _tensors(out):
                    if tuple(tensor.shape) not in shapes:
                        continue
                    array = tensor.detach().numpy()
                    same = [
                        n for n, a in left.items() if a.shape == array.shape and _equal(a, array, tolerance)
                    ]
                    found.update(same)
                    for name in same:
                        del left[name]
                return out

        with torch.no_grad(), Watch():
            self.call(self.root, {name: torch.from_numpy(array) for name, array in feed.items()})
        return found

    def times(self, feed: Feed, wanted: Any, tolerance: float) -> int:
        """How often PyTorch computes an array; a view of what was counted is not counted again."""
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        found: list[Any] = []

        class Count(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                out = func(*args, **(kwargs or {}))
                for tensor in _tensors(out):
                    if tuple(tensor.shape) != wanted.shape:
                        continue
                    new = all(tensor.data_ptr() != other.data_ptr() for other in found)
                    if new and _equal(wanted, tensor.detach().numpy(), tolerance):
                        found.append(tensor)  # kept, so that its memory is not another's
                return out

        with torch.no_grad(), Count():
            self.call(self.root, {name: torch.from_numpy(array) for name, array in feed.items()})
        return len(found)

    @contextmanager
    def _hooked(self, places: Collection[Place]) -> Generator[dict[Place, Any]]:
        found: dict[Place, Any] = {}
        handles = []
        by_module: dict[str, set[Place]] = {}
        for place in places:
            by_module.setdefault(place.module, set()).add(place)

        def keep(wanted: set[Place], side: str, tensors: list[Any]) -> None:
            for place in wanted:
                # A module that runs twice is judged where it runs first.
                if place.side == side and place.part < len(tensors) and place not in found:
                    found[place] = tensors[place.part].detach().float().numpy().copy()

        for name, wanted in by_module.items():
            module = self.modules[name]
            if any(place.side == "in" for place in wanted):
                handles.append(
                    module.register_forward_pre_hook(
                        lambda _m, args, kwargs, w=wanted: keep(w, "in", _floats([*args, *kwargs.values()])),
                        with_kwargs=True,
                    )
                )
            handles.append(
                module.register_forward_hook(lambda _m, _a, out, w=wanted: keep(w, "out", _floats(out)))
            )
        try:
            yield found
        finally:
            for handle in handles:
                handle.remove()


def _equal(a: Any, b: Any, tolerance: float) -> bool:
    import numpy

    if b.dtype.kind != "f" or a.dtype.kind != "f":
        return a.dtype.kind == b.dtype.kind and bool(numpy.array_equal(a, b))
    # Lowest numbers that stand for minus infinity must not drown what is left and right of them.
    small = numpy.abs(b) < 1e30
    if not numpy.array_equal(small, numpy.abs(a) < 1e30):
        return False
    scale = float(numpy.abs(b[small]).max(initial=0.0))
    return bool((numpy.abs(a[small] - b[small]) <= tolerance * scale).all())


def _floats(value: Any) -> list[Any]:
    return [tensor for tensor in _tensors(value) if tensor.is_floating_point()]


def _tensors(value: Any) -> list[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for part in value for tensor in _tensors(part)]
    if isinstance(value, dict):
        return [tensor for part in value.values() for tensor in _tensors(part)]
    return []


def _open(folder: Path, task: str) -> tuple[Any, Any]:
    import torch

    config = read_config(folder)

    class Root(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

    if task == "vision":
        from onnx_vision import load_classifier, load_yolo

        if config.get("model_type") == "yolo_seg":
            # Its graph has no wrapper: its own modules are called model.0, model.1, ...
            return load_yolo(folder, config)[0], lambda root, feed: list(root(feed["pixel_values"]))
        found = load_classifier(folder, config)[0]
        return found, lambda root, feed: [root(feed["pixel_values"])]
    import outputs_torch

    pooling = outputs_torch.pooling_of(folder, config) if task == "embed" else ""
    model = outputs_torch.load(folder, task, pooling)
    if task == "generate":
        return Root(model), _logits
    if task == "rerank":
        return Root(model), lambda root, feed: [root.model(**_taken(root.model, feed)).logits]
    if task != "embed":
        fail("task", f"operators of a model for `{task}` cannot be compared")
    normalize = _normalizes(folder)
    if hasattr(model, "pooler"):
        model.pooler = None  # it has no part in the vector, and its first token would clear a wrong pooling
    return Root(model), lambda root, feed: [_pooled(root, feed, pooling, normalize)]


def _logits(root: Any, feed: Mapping[str, Any]) -> list[Any]:
    return [root.model(**_taken(root.model, feed), use_cache=False).logits]


def _taken(model: Any, feed: Mapping[str, Any]) -> dict[str, Any]:
    import inspect

    accepted = inspect.signature(model.forward).parameters
    return {name: tensor for name, tensor in feed.items() if name in accepted}


def _pooled(root: Any, feed: Mapping[str, Any], pooling: str, normalize: bool) -> Any:
    """Row by row, over what is not padding: other code than that which is exported."""
    import torch

    hidden = root.model(**_taken(root.model, feed)).last_hidden_state
    ways = {
        "cls": lambda row: row[0], "last": lambda row: row[-1],
        "mean": lambda row: row.mean(0), "max": lambda row: row.max(0).values,
    }  # fmt: skip
    if pooling not in ways:
        fail("pooling", f"pooling `{pooling}` is not known", hint=[f"known: {', '.join(ways)}"])
    rows = [ways[pooling](row[mask.bool()]) for row, mask in zip(hidden, feed["attention_mask"], strict=True)]
    found = torch.stack(rows)
    return found / found.norm(dim=-1, keepdim=True) if normalize else found


def _normalizes(folder: Path) -> bool:
    from _checkpoint import read_json

    listed = folder / "modules.json"
    return listed.is_file() and any(str(m["type"]).endswith("Normalize") for m in read_json(listed))
