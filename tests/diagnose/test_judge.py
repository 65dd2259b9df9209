"""Which of several messages is the cause, how sure that is, and what speaks against it."""

import pytest

from model_optimizer.core import Gpu, Host
from model_optimizer.core.diagnosis import Diagnosis, Recognized
from model_optimizer.diagnose import correlate, of_text

NVML = "Failed to initialize NVML: Driver/library version mismatch"
NO_GPU = "RuntimeError: No CUDA GPUs are available"
DEVICE = "RuntimeError: Failed to infer device type"
INIT = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
PORT = "OSError: [Errno 98] Address already in use"
SHM = "RuntimeError: DataLoader worker (pid 371) is killed by signal: Bus error."
PLAN = "[E] 6: The engine plan file is not compatible with this version of TensorRT, expecting library version {} got {}, please rebuild."
HEALTHY = Host(
    os="Linux",
    distribution="Rocky Linux 9.5",
    wsl=False,
    driver_version="580.95.05",
    driver_cuda=(13, 0),
    gpus=(Gpu(name="NVIDIA H100 80GB HBM3", compute_capability=(9, 0)),),
)
BARE = Host(os="Linux", distribution="Ubuntu 24.04", wsl=False, gpus=())


def cause(found: Diagnosis) -> Recognized:
    assert found.primary is not None
    return found.primary


def test_the_lower_layer_explains_the_higher_ones_whatever_the_order() -> None:
    for lines in ([NVML, NO_GPU, DEVICE, INIT], [DEVICE, INIT, NO_GPU, NVML]):
        found = of_text(lines)
        assert cause(found).id == "drv-nvml-mismatch"
        assert cause(found).confidence == "high"
        assert {c.id for c in found.consequences} == {"cuda-no-device", "vllm-device-type"}
        assert [w.id for w in found.wrappers] == ["vllm-engine-init"]


def test_a_wrapper_is_never_the_diagnosis() -> None:
    found = of_text([INIT, "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."])
    assert found.primary is None
    assert "line 1 only says that something failed" in found.needed[0]


def test_a_symptom_is_never_the_diagnosis_but_is_shown() -> None:
    found = of_text(["RuntimeError: CUDA error: an illegal memory access was encountered"])
    assert found.primary is None
    assert [o.id for o in found.others] == ["cuda-illegal-access"]
    assert found.others[0].because == ("many causes share this message",)
    assert found.needed


def test_two_causes_that_are_equally_good_make_it_less_sure() -> None:
    found = of_text([PORT, SHM])
    assert (cause(found).id, cause(found).confidence) == ("vllm-port", "medium")
    assert [o.id for o in found.others] == ["dkr-shm-bus"]


def test_an_error_outdoes_a_warning_and_a_remark() -> None:
    for level in ("WARNING", "INFO"):
        found = of_text([f"{level} 11-30 [x.py:1] address already in use, trying the next one", SHM])
        assert cause(found).id == "dkr-shm-bus"


def test_an_earlier_error_that_nobody_knows_keeps_it_from_being_sure() -> None:
    found = of_text(["ValueError: the frobnicator is upside down", "at", "at", "at", PORT])
    assert cause(found).confidence == "medium"
    assert "line 1 is an earlier error" in cause(found).because[0]


def test_what_was_overcome_is_less_likely_the_cause() -> None:
    found = of_text([PORT, "INFO:     Application startup complete."])
    assert cause(found).confidence == "medium"


def test_nothing_known_asks_for_the_errors_that_are_not() -> None:
    found = of_text(["Traceback (most recent call last):", "ValueError: the frobnicator is upside down"])
    assert found.primary is None
    assert [e.line for e in found.unexplained] == [2]
    assert "line 2" in found.needed[0]


def test_a_start_that_worked_asks_for_the_failure_itself() -> None:
    assert "line 1 says that the program is ready" in of_text([READY, ANSWERED]).needed[0]


def test_a_phrase_that_a_cause_waits_for_is_no_doubt_about_it() -> None:
    arch = "error loading model: unknown model architecture: 'mllama'"
    found = cause(of_text(["no available upgrade found, changed nothing", arch]))
    assert (found.id, found.confidence) == ("llama-arch-dropped", "medium")


def test_an_empty_log_says_where_to_look() -> None:
    found = of_text([])
    assert found.primary is None and "the log is empty" in found.needed[0]


def test_what_was_tried_counts_against_the_usual_answer() -> None:
    usual, tried = of_text([SHM]), of_text(["docker run --ipc=host --gpus all image", SHM])
    assert cause(usual).confidence == "high"
    assert cause(tried).confidence == "low"
    assert "line 1 (`--ipc=host`)" in cause(tried).because[0]
    assert cause(tried).fix[0] not in cause(usual).fix


def test_a_kind_of_answer_that_was_tried_is_never_sure_and_says_what_is_left() -> None:
    unknown = "unknown model architecture: 'qwen99'"
    assert cause(of_text([unknown])).confidence == "high"
    found = cause(of_text(["upgrading changed nothing, it is on the newest release", unknown]))
    assert found.confidence == "low" or found.id == "llama-arch-dropped"
    found = cause(of_text(["# rebooted twice", NVML]))
    assert (found.id, found.confidence) == ("drv-nvml-mismatch", "low")
    assert "two driver versions are installed" in found.fix[0]
    assert "line 1 says that the usual answer was tried" in found.because[0]


def test_the_next_candidate_comes_first_when_the_usual_one_was_tried() -> None:
    held = "nvidia-driver : Depends: nvidia-kernel-dkms (= 570)\nE: Unmet dependencies. you have held broken packages"
    assert cause(of_text([NVML, *held.splitlines()])).id == "drv-nvml-mismatch"
    found = of_text(["the message is the same after each boot", NVML, *held.splitlines()])
    assert cause(found).id == "drv-packages-held" and cause(found).confidence != "high"
    assert [o.id for o in found.others] == ["drv-nvml-mismatch"]


@pytest.mark.parametrize(
    "words", ["we tried 3 nodes, same result", "a larger machine changed nothing", "it worked until Monday"]
)
def test_any_vain_attempt_makes_every_answer_less_sure(words: str) -> None:
    assert cause(of_text([SHM])).confidence == "high"
    found = cause(of_text([words, SHM]))
    assert found.confidence == "medium" and "line 1" in found.because[0]


READY = "INFO:     Application startup complete."
ANSWERED = 'INFO:     10.3.0.14:41822 - "POST /v1/chat/completions HTTP/1.1" 200 OK'


def test_what_came_before_a_start_that_serves_is_not_the_cause() -> None:
    found = of_text([PORT, READY, ANSWERED])
    assert found.primary is None
    assert "line 3 shows that the program started afterwards" in found.others[0].because[0]
    assert cause(of_text([READY, PORT, ANSWERED])).confidence == "high", "it came while it served"
    assert cause(of_text([READY, ANSWERED, PORT])).id == "vllm-port"
    assert cause(of_text([PORT, READY, ANSWERED, SHM])).id == "dkr-shm-bus", "the other one was not overcome"


def test_a_request_is_looked_for_after_each_error_and_not_after_each_request() -> None:
    many = [READY, *[ANSWERED] * 1000]
    found = of_text([PORT, *many])
    assert found.primary is None and "line 1002 " not in found.others[0].because[0]


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB."
GRAPHS = "Capturing CUDA graph shapes:  34%|### | 12/35"


def test_a_symptom_of_memory_yields_to_what_ran_beside_it() -> None:
    assert cause(of_text([OOM])).id == "cuda-oom" and cause(of_text([OOM])).confidence == "medium"
    assert cause(of_text([GRAPHS, *["x"] * 39, OOM])).id == "vllm-graph-oom"
    assert cause(of_text([GRAPHS, *["x"] * 41, OOM])).id == "cuda-oom", "too far away"


def test_one_line_that_is_no_error_does_not_make_it_sure() -> None:
    found = cause(of_text(["INFO 11-30 [x.py:1] address already in use, trying the next one"]))
    assert found.confidence == "medium" and "no error" in found.because[0]


def test_equal_versions_speak_against_another_version() -> None:
    assert cause(of_text([PLAN.format("8.6.1", "8.5.3")])).confidence == "high"
    same = cause(of_text([PLAN.format("8.6.1", "8.6.1")]))
    assert same.confidence == "low"
    assert "both values are 8.6.1" in same.because[0]
    assert cause(of_text([PLAN.format("8.6.1", "0.0.0")])).id == "trt-plan-damaged"


def test_a_host_speaks_for_or_against() -> None:
    assert cause(of_text([NO_GPU])).confidence == "medium"
    assert cause(of_text([NO_GPU], host=BARE)).confidence == "high"
    need = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.9, please update your driver"
    found = of_text([need], host=HEALTHY)
    assert found.primary is None
    assert "already runs this CUDA" in found.others[0].because[0]


def test_steps_are_those_of_the_platform() -> None:
    missing = "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0-51-generic"
    every = " ".join(cause(of_text([missing])).fix)
    assert "Ubuntu: " in every and "RHEL, Rocky: " in every
    on_rocky = " ".join(cause(of_text([missing], host=HEALTHY)).fix)
    assert "dnf install" in on_rocky and "apt" not in on_rocky
    on_ubuntu = " ".join(cause(of_text([missing], host=BARE)).fix)
    assert "apt install" in on_ubuntu and "dnf" not in on_ubuntu
    by_log = " ".join(
        cause(
            of_text(
                [
                    "Linux version 5.15.167.4-microsoft-standard-WSL2",
                    "nvidia-smi: command not found",
                    "libcuda.so.1: cannot open shared object file",
                ]
            )
        ).fix
    )
    assert "Windows driver" in by_log


@pytest.mark.parametrize(
    ("host", "place"),
    [
        (HEALTHY, "rhel"),
        (BARE, "ubuntu"),
        (Host(distribution="Debian GNU/Linux 13"), "debian"),
        (Host(distribution="Ubuntu 24.04", wsl=True), "wsl2"),
        (Host(os="Windows"), "windows"),
        (Host(), None),
        (None, None),
    ],
)
def test_the_platform_of_a_host(host: Host | None, place: str | None) -> None:
    assert correlate.platform(host) == place


def test_what_a_host_does_not_tell_speaks_for_nothing() -> None:
    assert correlate.ask(tuple(correlate.FACTS), Host(), {"need": "12.9"}) == ()
    assert correlate.ask(tuple(correlate.FACTS), None, {}) == ()


def test_every_fact_can_be_true() -> None:
    hosts = [
        HEALTHY,
        BARE,
        Host(wsl=True),
        Host(
            driver_version="535.1",
            driver_cuda=(12, 2),
            gpus=(Gpu(name="Tesla T4", compute_capability=(7, 5)),) * 2,
        ),
        Host(driver_version="580.1", gpus=(Gpu(name="NVIDIA GeForce RTX 5090", compute_capability=(12, 0)),)),
    ]
    general = {text for name, (_, text) in correlate.FACTS.items() if name not in correlate.MACHINE_FACTS}
    said = {text for host in hosts for text in correlate.ask(tuple(correlate.FACTS), host, {"need": "12.8"})}
    assert general <= said
