"""Drivers, releases and formats: the rules over the rows, on the rows that ship."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.core import UsageError
from model_optimizer.facts import drivers, flags, formats, releases, tensorrt, tensorrt_llm, vllm
from model_optimizer.facts.versions import covers, key


def test_versions_are_ordered_as_releases_are() -> None:
    given_order = ["0.8.5", "0.8.5.post1", "0.9.0", "0.10.0", "1.3.0rc2", "1.3.0rc15", "1.3.0", "11.4.0.106"]
    assert sorted(given_order, key=key) == given_order
    assert key("v0.20.2+cu129") == key("0.20.2")
    assert key("12") == key("12.0.0")


@pytest.mark.parametrize("text", ["", "x", "1..2", "1.2.3.4.5.6.7", "0.25.1; rm", "٣.١"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a version"):
        key(text)


def test_a_series_covers_its_updates_only() -> None:
    assert covers("11.4", None, "11.4.0.106")
    assert not covers("11.0", None, "11.4")
    assert covers("10.0", "10.4", "10.4.2")
    assert not covers("10.0", "10.4", "10.5")
    assert covers("1.3.0rc0", "1.3.0rc15", "1.3.0rc10")
    assert not covers("1.3.0rc0", "1.3.0rc15", "1.3.0")


@given(st.lists(st.from_regex(r"[0-9]\.[0-9]{1,2}\.[0-9]", fullmatch=True), min_size=1), st.data())
def test_a_known_release_is_its_own_nearest(known: list[str], data: st.DataObject) -> None:
    wanted = data.draw(st.sampled_from(known))
    assert key(releases.nearest(wanted, known) or "0") == key(wanted)


def test_drivers_follow_the_minor_version_rule() -> None:
    assert drivers.runs("525.60.13", "12.8")
    assert not drivers.runs("470.223.02", "12.0")
    assert not drivers.runs("575.57.08", "13.0.2")
    assert drivers.runs("580.95.05", "13.5")
    with pytest.raises(UsageError, match="no minimum driver for CUDA 99"):
        drivers.minimum("99")


def test_newest_cuda_is_what_the_driver_shows() -> None:
    assert (found := drivers.newest_cuda("550.54.15")) is not None
    assert found.cuda == "12.4.1"
    assert (found := drivers.newest_cuda("580.95.05")) is not None
    assert found.cuda == "13.0"
    assert drivers.newest_cuda("390.1") is None


def test_toolkits_are_found_by_minor_version() -> None:
    assert drivers.toolkit("12.8").cuda == "12.8.1"
    assert drivers.toolkit("12.8.0").cuda == "12.8.0"
    assert drivers.toolkit("12.0").cuda == "12.0.1"
    assert drivers.toolkit("13.0.2").cuda == "13.0"  # an update that is not known
    with pytest.raises(UsageError, match=r"no CUDA 9\.2"):
        drivers.toolkit("9.2")


def test_branches_are_found_by_driver() -> None:
    assert drivers.branch("580.95.05").end_of_life == "2028-06"
    assert drivers.branch("r535").kind == "long-term"
    with pytest.raises(UsageError, match="no driver branch `R1`"):
        drivers.branch("R1")
    described = drivers.describe("R535")
    assert described.cuda_majors == (11, 12)
    assert described.newest_cuda is not None
    assert described.newest_cuda.cuda == "12.2.2"
    assert drivers.describe("430.1").branch is None


def test_rules_are_found_by_id() -> None:
    assert "GeForce" in drivers.rule("forward-compatibility").not_on
    with pytest.raises(UsageError, match="no rule `law`"):
        drivers.rule("law")


def test_a_release_of_vllm() -> None:
    release = vllm.release("0.25.1")
    assert release.exact
    assert (release.torch, release.cuda, release.minimum_driver_linux) == ("2.11.0", "13.0", "580")
    assert release.minimum_compute_capability == (7, 5)
    assert release.defaults.gpu_memory_utilization == 0.92
    assert vllm.release("0.8.5").defaults.gpu_memory_utilization == 0.9
    assert release.image.name == "vllm/vllm-openai:v0.25.1"


@pytest.mark.parametrize(
    ("asked", "found"),
    [("0.25.0", "0.25.1"), ("0.10.1", "0.10.0"), ("0.26.1", "0.26.0"), ("0.99.0", vllm.versions()[-1])],
)
def test_an_unknown_release_is_the_nearest_with_a_mark(asked: str, found: str) -> None:
    release = vllm.release(asked)
    assert (release.version, release.asked, release.exact) == (found, asked, False)


def test_a_release_older_than_all_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no vLLM 0\.3\.0 in the facts") as caught:
        vllm.release("0.3.0")
    assert "0.8.5" in caught.value.hint[0]


@pytest.mark.parametrize("version", vllm.versions())
def test_each_release_of_vllm_is_complete(version: str) -> None:
    release = vllm.release(version)
    assert release.version == version
    least = [tier.minimum_memory_bytes for tier in release.batch]
    assert least == sorted(least, reverse=True)
    assert least[-1] == 0, "there must be a tier for every GPU"
    assert (key(release.minimum_driver_linux) >= key("580")) == release.cuda.startswith("13")
    assert release.image.name.endswith(version)


def test_batch_limits_depend_on_memory_and_name() -> None:
    gib = 2**30
    release = vllm.release("0.27.1")
    assert release.batch_for(memory_bytes=79 * gib, gpu="H100 SXM5 80GB").max_num_seqs == 1024
    assert release.batch_for(memory_bytes=79 * gib, gpu="A100 SXM4 80GB").max_num_seqs == 256
    assert release.batch_for(memory_bytes=24 * gib, gpu="RTX 4090").max_num_batched_tokens == 2048
    assert vllm.release("0.8.5").batch_for(memory_bytes=79 * gib, gpu="A100").max_num_seqs == 1024
    newest = vllm.release("0.33.0")
    assert newest.batch_for(memory_bytes=178 * gib, gpu="B200").max_num_batched_tokens == 16384
    assert newest.batch_for(memory_bytes=120 * gib, gpu="NVIDIA GB10").max_num_seqs == 256


def test_flags_and_metrics_have_a_history() -> None:
    swap = vllm.flag("--swap-space")
    assert swap is not None
    assert swap.until == "0.17.1"
    assert vllm.flag("--never-was") is None
    metrics = {m.metric: m for m in vllm.metrics()}
    assert metrics["vllm:kv_cache_usage_perc"].since == "0.9.2"


def test_releases_of_tensorrt() -> None:
    eleven = tensorrt.release("11.0")
    assert eleven.trtexec is not None
    assert "--fp16" in eleven.trtexec.removed
    assert tensorrt.release("10.3").last == "10.4"
    assert tensorrt.release("11.4.0.106").version == "11.4"
    assert not tensorrt.release("10.6").exact
    with pytest.raises(UsageError, match="no TensorRT 5"):
        tensorrt.release("5")


def test_releases_of_tensorrt_for_rtx_and_llm() -> None:
    rtx = tensorrt.rtx_release("1.7.1.116")
    assert rtx.exact
    assert (9, 0) not in rtx.compute_capabilities
    assert rtx.precisions["fp8"] == (8, 9)
    assert rtx.mark("precisions") == "unchecked"
    assert "tensorrt" in tensorrt_llm.release("1.2.1").backends
    assert tensorrt_llm.release("1.3.0rc25").backends == ("pytorch",)
    assert not tensorrt_llm.release("1.3.0rc18").exact


@pytest.mark.parametrize(
    ("name", "capability", "version", "support"),
    [
        ("fp8", (8, 9), None, "native"),
        ("fp8", (8, 6), None, "weight-only"),
        ("fp8", (7, 5), "0.13.0", "no"),
        ("fp8", (7, 5), "0.14.1", "weight-only"),
        ("fp8", (7, 0), None, "no"),
        ("int8", (9, 0), None, "native"),
        ("int8", (12, 0), None, "no"),
        ("bf16", (7, 5), None, "no"),
        ("awq-int4", (7, 5), None, "weight-only"),
        ("nvfp4", (8, 9), None, "weight-only"),
        ("nvfp4", (10, 0), None, "native"),
        ("nvfp4", (10, 0), "0.8.5", "unknown"),
        ("mxfp8", (12, 0), None, "weight-only"),
        ("kv_fp8", (7, 5), None, "no"),
    ],
)
def test_formats_by_gpu_and_release(
    name: str, capability: tuple[int, int], version: str | None, support: str
) -> None:
    assert formats.support(name, capability, vllm=version) == support


def test_unknown_formats_list_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no format `fp5`") as caught:
        formats.find("fp5")
    assert "fp8" in caught.value.hint[0]


@pytest.mark.parametrize("name", formats.names())
def test_each_format_file_is_named_after_its_format(name: str) -> None:
    fact = formats.find(name)
    assert fact.name == name
    since = [key(row.since) for row in fact.vllm]
    assert since == sorted(set(since))


def _present(name: str, section: flags.Section) -> dict[str, bool]:
    """Whether each release that was read has a name; counters show with `_total`, however they are called."""
    names = {name, f"{name}_total"}
    return {v: not names.isdisjoint(flags.table("vllm", v).section(section)) for v in flags.versions("vllm")}


@pytest.mark.parametrize(
    ("name", "since", "until", "section"),
    [(row.flag, row.since, row.until, "options") for row in vllm.flags()]
    + [(row.metric, row.since, row.until, "metrics") for row in vllm.metrics()],
)
def test_notes_on_options_and_metrics_agree_with_the_sources(
    name: str, since: str | None, until: str | None, section: flags.Section
) -> None:
    """`facts/flags` was made from each release's sources; notes may name no release where it differs."""
    there = _present(name, section)
    if since == until is None and not any(there.values()):
        pytest.skip("not an option that the tool reads")
    if until is not None and until.startswith("before"):
        assert not any(there.values())
        return
    for version, has in there.items():
        early = since is not None and key(version) < key(since)
        late = until is not None and key(version) > key(until)
        wanted = not (early or late)
        assert has == wanted, f"{name} in {version}: {has}, the note says {since} to {until}"
