"""In an environment with torch: numbers of FP4 and FP8 as they come back, and a checkpoint made by hand.

python check_modelopt.py WORKERS
"""

import sys

import torch

sys.path.append(sys.argv[1])
import _fp4
import _quality_modelopt as room

# Every code of E2M1, the lower half of a byte first, under a block scale of 2 and a whole scale of 0.5.
codes = torch.tensor([[low + 16 * (low + 1) for low in range(0, 16, 2)]], dtype=torch.uint8)
scale = torch.tensor([[2.0]]).to(torch.float8_e4m3fn)
found = _fp4.unpacked(codes, scale, torch.tensor(0.5))
sizes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
assert found.tolist() == [[*sizes, *(-size for size in sizes)]], found

# Blocks have scales of their own, and ties go to the number whose last bit is 0.
row = [6.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -5.0, -0.75, 0.74, 0.0, 0.26, 5.1, -6.0, 1.3]
want = [6.0, 0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, -4.0, -1.0, 0.5, 0.0, 0.5, 6.0, -6.0, 1.5]
both = torch.tensor([[*row, *(8 * value for value in row)]])
found = _fp4.rounded(both, torch.tensor(1.0))
assert found.tolist() == [[*want, *(8 * value for value in want)]], found
assert _fp4.rounded(torch.zeros(1, 16), torch.tensor(1.0)).tolist() == [[0.0] * 16]

# FP8: a calibrated scale cuts what is larger; without one, each token has its own.
values = torch.tensor([[448.0, 1.0, 17.0], [4480.0, 10.0, 170.0]])
static = room._fp8(torch.tensor(1.0))(values)
assert static.tolist() == [[448.0, 1.0, 16.0], [448.0, 10.0, 176.0]], static
by_token = room._fp8(None)(values)
assert torch.allclose(by_token[1], 10 * by_token[0]), by_token

tensors = {
    "a.weight": torch.tensor([[2.0, 4.0], [2.0, 4.0]]).to(torch.float8_e4m3fn),
    "a.weight_scale": torch.tensor([0.5, 2.0]),
    "b.weight": codes,
    "b.weight_scale": scale,
    "b.weight_scale_2": torch.tensor(0.5),
    "b.input_scale": torch.tensor(1.0),
}
assert room._expand("a", tensors).__name__ == "fp8"
assert room._expand("b", tensors)(both).tolist() == [[*want, *(8 * value for value in want)]]
assert tensors["a.weight"].tolist() == [[1.0, 2.0], [4.0, 8.0]]
assert set(tensors) == {"a.weight", "b.weight"}
