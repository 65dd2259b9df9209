"""What CONTRIBUTING.md promises: one file is the whole registration of a failure."""

import re
from pathlib import Path

import pytest

from model_optimizer.diagnose import of_text, signature

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def test_the_example_of_the_page_is_found_once_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert text is not None
    (tmp_path / "flux-capacitor.toml").write_text(text[1])
    monkeypatch.setattr(signature, "folders", lambda: [signature.FOLDER, tmp_path])
    signature.load.cache_clear()
    try:
        found = of_text(["RuntimeError: the Flux capacitor is empty (0.0 GW)", "Failed to infer device type"])
    finally:
        signature.load.cache_clear()
    assert found.primary is not None
    assert found.primary.id == "flux-capacitor"
    assert found.primary.cause.endswith("0.0 GW are left.")
    assert [c.id for c in found.consequences] == ["vllm-device-type"]


def test_a_broken_file_names_itself(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text(
        'layer = "vllm"\nkind = "rot"\nfragments = ["abcd"]\n\ncause = ""\n'
    )
    with pytest.raises(ValueError, match=r"broken\.toml"):
        signature.load((tmp_path,))
