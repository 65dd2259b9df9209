"""What CONTRIBUTING.md promises: a scheme, a check and an engine are one file each.

The files are taken from that page, dropped into the folders, and must be found, keep the contract and take
part in planning, with no other file touched.
"""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_optimizer.core import Artifact, Host, Slo, Workload, plugins
from model_optimizer.doctor import examine
from model_optimizer.planner import Question, options
from model_optimizer.testing import records
from model_optimizer.testing.contracts import check_contract, scheme_contract
from model_optimizer.testing.engine_contract import engine_contract

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
EXAMPLES = {
    Path(path): code
    for path, code in re.findall(
        r"^## [^\n]*`src/(model_optimizer/\S+\.py)`\n.*?```python\n(.*?)```", PAGE.read_text(), re.M | re.S
    )
    if "NAME" not in path
}


@pytest.fixture(params=EXAMPLES, ids=lambda p: p.stem)
def added(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The example file in its folder, as (package, name); gone again afterwards."""
    path: Path = request.param
    package = ".".join(path.parent.parts)
    module = importlib.import_module(package)
    (tmp_path / path.name).write_text(EXAMPLES[path])
    module.__path__.append(str(tmp_path))
    plugins.names.cache_clear()
    yield package, path.stem
    module.__path__.remove(str(tmp_path))
    sys.modules.pop(f"{package}.{path.stem}", None)
    plugins.names.cache_clear()
    plugins.load.cache_clear()


def test_the_page_shows_one_of_each() -> None:
    assert {path.parent.name for path in EXAMPLES} == {"checks", "schemes", "engines"}


def test_one_file_is_the_whole_registration(added: tuple[str, str]) -> None:
    package, name = added
    module = plugins.load_all(package)[name]
    if package.endswith("checks"):
        check_contract(name, module)
        found = {f.check for f in examine(Host(), plugins.load_all(package))}
        assert name in found
    elif package.endswith("schemes"):
        scheme_contract(name, module)
    else:
        engine_contract(name, module)
        assert _plans_with(name), "the planner considers it"


def _plans_with(engine: str) -> bool:
    question = Question(
        host=Host(memory_available_bytes=8 << 30),
        model=records.model(),
        checkpoint=Artifact(
            path="/m", format="safetensors", scheme="fp32", task="generate", bytes=1, digest="sha256:0"
        ),
        workload=Workload(concurrency=1),
        slo=Slo(),
        environments=frozenset({"onnx"}),
    )
    found = options(
        question,
        engines=plugins.load_all("model_optimizer.engines"),
        schemes={n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()},
        find_path=lambda scheme, form: () if (scheme, form) == ("fp32", "safetensors") else None,
    )
    return engine in {plan.engine for plan in found.plans}
