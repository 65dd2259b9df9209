from model_optimizer.serve.cause import raised

VLLM = """\
(EngineCore pid=31719) ERROR 11-30 14:35:43 [core.py:1510] Traceback (most recent call last):
(EngineCore pid=31719) ERROR 11-30 14:35:43 [core.py:1510]     raise ValueError(
(EngineCore pid=31719) ERROR 11-30 14:35:43 [core.py:1510] ValueError: To serve at least one request, more is needed
(APIServer pid=31682)     raise RuntimeError(
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
warnings.warn('resource_tracker: There appear to be %d '
""".splitlines()


def test_the_cause_is_the_error_that_others_point_at() -> None:
    assert raised(VLLM) == ("ValueError: To serve at least one request, more is needed",)


def test_the_same_error_is_said_once_and_the_last_ones_count() -> None:
    lines = [f"{name}Error: no" for name in ("A", "B", "B", "C", "D")]
    assert raised(lines) == ("BError: no", "CError: no", "DError: no")


def test_a_log_without_errors_has_no_cause() -> None:
    assert raised(["INFO all is well", "Error handling is on"]) == ()
