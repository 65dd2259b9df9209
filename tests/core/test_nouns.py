"""Names of core are loaded when asked for; this holds that each is there and is where the list says."""

import subprocess
import sys

import pytest

from model_optimizer import core


@pytest.mark.parametrize("name", core.__all__)
def test_every_name_can_be_imported(name: str) -> None:
    assert getattr(core, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nonsense"):
        core.Nonsense  # noqa: B018


def test_one_noun_does_not_load_the_others() -> None:
    code = "import sys; from model_optimizer.core import UsageError; print('model_optimizer.core.model' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
