"""GPUs by name: forgiving, never a guess."""

import contextlib
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_optimizer.core import UsageError
from model_optimizer.facts import gpus
from model_optimizer.facts.gpus.names import words

ALL = gpus.load_all()


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        # DESIGN's examples
        ("h200", "H200 SXM 141GB"),
        ("h100", "H100 SXM5 80GB"),
        ("H100-SXM", "H100 SXM5 80GB"),
        ("rtx 3090", "GeForce RTX 3090"),
        ("rtx 4060 laptop", "GeForce RTX 4060 Laptop GPU"),
        ("4060 laptop", "GeForce RTX 4060 Laptop GPU"),
        # what the driver calls them
        ("NVIDIA GeForce RTX 4060 Laptop GPU", "GeForce RTX 4060 Laptop GPU"),
        ("NVIDIA GeForce RTX 4060", "GeForce RTX 4060"),
        ("NVIDIA GeForce RTX 3060", "GeForce RTX 3060 12GB"),
        ("NVIDIA H200", "H200 SXM 141GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"),
        ("NVIDIA H100 PCIe", "H100 PCIe 80GB"),
        ("NVIDIA H100 NVL", "H100 NVL 94GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 PCIe 40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA B300 SXM6 AC", "B300 SXM"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("NVIDIA GB10", "DGX Spark GB10"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell Workstation"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla V100-SXM2-32GB", "Tesla V100 SXM2 32GB"),
        ("Tesla T4", "Tesla T4"),
        # what people type
        ("rtx4060 laptop", "GeForce RTX 4060 Laptop GPU"),
        ("rtx4060laptop", "GeForce RTX 4060 Laptop GPU"),
        ("RTX 4060M", "GeForce RTX 4060 Laptop GPU"),
        ("rtx 4060 mobile", "GeForce RTX 4060 Laptop GPU"),
        ("RTX_4090", "GeForce RTX 4090"),
        ("4090 24 gb", "GeForce RTX 4090"),
        ("h100sxm5", "H100 SXM5 80GB"),
        ("h100 94gb", "H100 NVL 94GB"),
        ("h100-nvl", "H100 NVL 94GB"),
        ("a10", "A10"),
        ("l40", "L40"),
        ("rtx pro 6000", "RTX PRO 6000 Blackwell Workstation"),
        ("mi50", "AMD Instinct MI50"),
    ],
)
def test_names_that_people_and_drivers_use(asked: str, name: str) -> None:
    assert gpus.find(asked).name == name


def test_a_family_resolves_to_its_common_part_and_says_so() -> None:
    match = gpus.match("h100")
    assert match.fact.name == "H100 SXM5 80GB"
    assert match.because == "`h100` names a family; H100 SXM5 80GB is the part meant unless another is named"
    assert match.others == ("H100 NVL 94GB", "H100 PCIe 80GB")
    assert gpus.match("H100-SXM").because is None


@pytest.mark.parametrize(
    ("asked", "candidates"),
    [
        ("4060", ("GeForce RTX 4060", "GeForce RTX 4060 Laptop GPU")),
        ("a100", ("A100 PCIe 40GB", "A100 PCIe 80GB", "A100 SXM4 40GB", "A100 SXM4 80GB")),
        ("a100 80gb", ("A100 PCIe 80GB", "A100 SXM4 80GB")),
        ("a100 sxm", ("A100 SXM4 40GB", "A100 SXM4 80GB")),
        ("orin", ("Jetson AGX Orin 64GB", "Jetson Orin Nano 8GB Super")),
    ],
)
def test_an_ambiguous_name_lists_the_candidates(asked: str, candidates: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=f"`{asked}` fits {len(candidates)} GPUs") as caught:
        gpus.find(asked)
    assert caught.value.cause == candidates
    assert caught.value.hint


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("4070 ti", "GeForce RTX 4070"),  # another chip: never taken for the 4070
        ("rtx 6000", "RTX PRO 6000 Blackwell Workstation"),  # the RTX 6000 is another product
        ("rtx 3060 8gb", "GeForce RTX 3060 12GB"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "A100 SXM4 80GB"),  # a slice is not the GPU
        ("gtx 1070x", "GeForce GTX 1070"),
        ("h101", "H100 SXM5 80GB"),  # a slip in the number
        ("rtx 4061", "GeForce RTX 4060"),
    ],
)
def test_an_unknown_name_shows_the_nearest(asked: str, near: str) -> None:
    with pytest.raises(UsageError, match="there is no GPU") as caught:
        gpus.find(asked)
    assert near in caught.value.hint[0]


@pytest.mark.parametrize("asked", ["", "   ", "nvidia", "xyz", "\x1b[31m"])
def test_nothing_is_not_a_gpu(asked: str) -> None:
    with pytest.raises(UsageError, match="there is no GPU"):
        gpus.find(asked)


@pytest.mark.parametrize("fact", ALL, ids=lambda f: f.name)
def test_each_gpu_is_found_by_its_own_names(fact: gpus.GpuFact) -> None:
    for name in (fact.name, *fact.aliases, *fact.default_for):
        assert gpus.find(name) == fact


@pytest.mark.parametrize("fact", ALL, ids=lambda f: f.name)
def test_figures_agree_with_each_other(fact: gpus.GpuFact) -> None:
    assert fact.memory_bytes >= 2**32
    assert fact.visible_memory_bytes is None or 0.85 < fact.visible_memory_bytes / fact.memory_bytes <= 1
    assert 50e9 < fact.bandwidth_bytes_per_s < 30e12
    assert fact.pcie is None or fact.pcie[0] in "3456"
    peak = fact.dense_tflops
    if peak.bf16 and peak.fp8:
        assert 1.9 < peak.fp8 / peak.bf16 < 2.1
    if peak.fp16_accumulate_16 and peak.bf16:
        assert 1.9 < peak.fp16_accumulate_16 / peak.bf16 < 2.1
    if fact.compute_capability is not None:
        assert ("fp8" in fact.hardware_formats) == (fact.compute_capability >= (8, 9))
        assert ("fp4" in fact.hardware_formats) == (fact.compute_capability >= (10, 0))
        assert ("bf16" in fact.hardware_formats) == (fact.compute_capability >= (8, 0))
        assert fact.sm_count
    else:
        assert fact.unsupported
    assert fact.vendor == "NVIDIA" or fact.unsupported


def test_peaks_are_operations_a_second() -> None:
    fact = gpus.find("h100")
    assert fact.peak_per_s("bf16") == 989e12
    assert fact.peak_per_s("fp8") == 1979e12
    assert fact.peak_per_s("fp4") is None


@settings(deadline=None)
@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = words(text)
    assert words(" ".join(once)) == once


@settings(deadline=None)
@given(st.text(alphabet=string.ascii_letters + string.digits + " -_()", max_size=40))
def test_any_text_is_found_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):  # and nothing else
        assert gpus.match(text).fact in ALL


@settings(deadline=None)
@given(
    st.sampled_from([f.name for f in ALL]),
    st.sampled_from([" ", "-", "_", "  "]),
    st.sampled_from([str.upper, str.lower, str.title]),
)
def test_case_and_separators_do_not_matter(name: str, separator: str, case: type[str]) -> None:
    spelled = case(name.replace(" ", separator))  # type: ignore[operator]
    assert gpus.find(spelled).name == name
    assert gpus.find(f"NVIDIA {spelled}").name == name
