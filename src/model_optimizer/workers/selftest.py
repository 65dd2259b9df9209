"""Can this environment do its work: which Python, which packages, and does what it needs import?

Request: `imports` (names of modules), `echo` (anything, handed back), `lines` (progress lines to write).
Result: `python`, `executable`, `packages` {name: version}, `imports` {module: seconds}, `echo`.
"""

import importlib
import importlib.metadata
import platform
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _contract import fail, main, progress


def selftest(request: dict[str, Any]) -> dict[str, Any]:
    modules = request.get("imports", [])
    took = {}
    for number, module in enumerate(modules):
        progress(f"importing {module}", number / len(modules))
        took[module] = _import(module)
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()},
        "imports": took,
        "echo": request.get("echo"),
    }


def _import(module: str) -> float:
    begun = time.perf_counter()
    try:
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - a package may fail to import in any way
        text = str(error).strip().splitlines()
        fail(
            "import-failed",
            f"`{module}` cannot be imported",
            [f"{type(error).__name__}: {' '.join(text)[:500]}"],
        )
    return round(time.perf_counter() - begun, 3)


if __name__ == "__main__":
    main(selftest)
