"""Following a chain so that it can be followed again: every artefact carries its links and a script.

Each folder that is made gets `chain.json`, the links from the checkpoint to it with digests, versions and
requests, and `reproduce.py`, which makes it once more from its source.
"""

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from model_optimizer.core import Artifact, Progress, RunWorker, digest
from model_optimizer.core.paths import Chain, Hop
from model_optimizer.system import files
from model_optimizer.system.making import Bench

CHAIN = "chain.json"
SCRIPT = "reproduce.py"
PLACES = ("source", "out")
UNLIKE = (CHAIN, SCRIPT, "build.log.gz")
"""Files that are not compared with a second making: they hold links, and times."""
TIMED = "tensorrt_engine"
BY_TIMING = (
    "TensorRT chooses kernels by timing them on the GPU: model.engine may be another file each time it is "
    "built, and computes the same within its precision"
)
"""TensorRT for RTX chooses when the engine is first run, so that its files are the same again."""


def follow(
    chain: Chain,
    source: Artifact,
    out: Path,
    bench: Bench,
    progress: Progress,
    *,
    steps: Path | None = None,
) -> Artifact:
    """Make `out` by a chain of tools. With `steps`, what lies between is kept there, one folder a link.

    Raises what the tools raise; nothing half-made stays behind.
    """
    out = out.absolute()
    with files.between(out) as between:
        made = source
        for place, hop in enumerate(chain):
            last = place == len(chain) - 1
            target = out if last else between / f"{place + 1}-{hop.tool}-{hop.scheme}"
            made = _step(hop, made, target, bench, _part(progress, place, len(chain)))
            if steps is not None and not last:
                with files.building(steps / target.name) as kept:
                    shutil.copytree(target, kept, dirs_exist_ok=True)
    return made


def links(folder: Path) -> list[dict[str, Any]]:
    """The links that led to an artefact, the first first; none for one that was not made here."""
    try:
        found: Any = json.loads((folder / CHAIN).read_text(encoding="utf-8"))
        return list(cast("list[dict[str, Any]]", found["links"]))
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _step(hop: Hop, source: Artifact, target: Path, bench: Bench, progress: Progress) -> Artifact:
    noted = _noting(bench.run, hop, source)
    return bench.tools[hop.tool].make(source, bench.schemes[hop.scheme], target, run=noted, progress=progress)


def _noting(run: RunWorker, hop: Hop, source: Artifact) -> RunWorker:
    """The worker's caller that also leaves the link and the script in the folder the worker filled."""

    def noted(
        environment: str, job: str, request: Mapping[str, Any], progress: Progress
    ) -> Mapping[str, Any]:
        answer = run(environment, job, request, progress)
        folder = Path(str(request["out"]))
        kept = {key: value for key, value in request.items() if key not in PLACES}
        link: dict[str, Any] = {
            "tool": hop.tool,
            "job": job,
            "environment": environment,
            "scheme": hop.scheme,
            "format": hop.format,
            "made_from": source.digest,
            "source_format": source.format,
            "source_scheme": source.scheme,
            "versions": answer.get("versions", {}),
            "notes": answer.get("notes", []),
        }
        for key in ("parity", "distance", "quantized", "engine"):
            if key in answer:
                link[key] = answer[key]
        chain = {"schema": "chain/1", "links": [*links(Path(source.path)), link]}
        made = {
            path.relative_to(folder).as_posix(): digest.of_path(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name not in UNLIKE
        }
        (folder / CHAIN).write_text(json.dumps(chain, indent=2) + "\n", encoding="utf-8")
        (folder / SCRIPT).write_text(_script(link, kept, source, made), encoding="utf-8")
        return answer

    return noted


def _script(
    link: Mapping[str, Any], request: Mapping[str, Any], source: Artifact, made: Mapping[str, str]
) -> str:
    timed = link["format"] == TIMED
    return (
        Path(__file__)
        .with_name("reproduce.py.txt")
        .read_text(encoding="utf-8")
        .format(
            job=link["job"],
            environment=link["environment"],
            shown=str(link["environment"]).replace("_", "-"),
            date=time.strftime("%Y-%m-%d", time.gmtime()),
            source=f"{source.format} in {source.scheme}, {source.digest or 'of unknown content'}",
            versions=", ".join(f"{name} {version}" for name, version in link["versions"].items())
            or "unknown",
            request=json.dumps(request),
            digest=source.digest,
            used=json.dumps(dict(link["versions"])),
            timed=BY_TIMING if timed else "",
            remark=f"\n{BY_TIMING[0].upper()}{BY_TIMING[1:]}." if timed else "",
            files=json.dumps(made),
        )
    )


def _part(progress: Progress, place: int, of: int) -> Progress:
    def report(text: str, share: float | None) -> None:
        progress(text, None if share is None else (place + share) / of)

    return report
