"""What PyTorch cannot export is named: the operator or the branch, the module, and what helps."""

import json
import subprocess
from pathlib import Path

import pytest

import model_optimizer.workers as workers

pytestmark = pytest.mark.engine

EXPORT = """
import json, sys
sys.path.append(sys.argv[1])
from pathlib import Path
import torch
import _contract
from _onnx_export import export_graph
torch.library.define("acme::twice", "(Tensor x) -> Tensor")
torch.library.impl("acme::twice", "cpu")(lambda x: x * 2)
torch.library.register_fake("acme::twice")(torch.empty_like)
class Whole(torch.nn.Module):
    def __init__(self, odd):
        super().__init__()
        self.layer, self.odd = torch.nn.Linear(8, 8), odd
    def forward(self, x):
        return self.odd(self.layer(x))
class Branch(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x
class Eigen(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.eigh(x.T @ x)[0]
class Own(torch.nn.Module):
    def forward(self, x):
        return torch.ops.acme.twice(x)
class Broken(torch.nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
        self.weight.data[0, 0] = float("nan")
found = {}
for odd in (Branch(), Eigen(), Own(), Broken()):
    try:
        export_graph(Whole(odd).eval(), Path(sys.argv[2]) / "model.onnx", {"x": torch.randn(2, 8)},
                     {"x": {0: torch.export.Dim("batch")}}, opset=20, inputs=["x"], outputs=["y"])
    except _contract.Failure as failure:
        found[type(odd).__name__] = [failure.reference, failure.message, *failure.cause, *failure.hint]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def said(onnx_env_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    place = tmp_path_factory.mktemp("refused")
    done = subprocess.run(
        [onnx_env_python, "-P", "-c", EXPORT, Path(workers.__file__).parent, place],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert list(place.iterdir()) == []
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("name", "reference", "words"),
    [
        ("Branch", "export-failed", ["decides by the numbers", "in `odd`, <string>:", "torch.where"]),
        ("Eigen", "unsupported-operator", ["aten._linalg_eigh from odd", "linear algebra"]),
        ("Broken", "broken-artifact", ["no numbers", "1 of 64 numbers of `odd.weight`"]),
        ("Own", "unsupported-operator", ["acme.twice from odd", "an operator of your own"]),
    ],
)
def test_what_cannot_be_exported_is_named_with_its_module(
    said: dict[str, list[str]], name: str, reference: str, words: list[str]
) -> None:
    assert said[name][0] == reference
    for word in words:
        assert any(word in line for line in said[name]), said[name]
    assert not any("\x1b" in line or "step 1/3" in line for line in said[name])
