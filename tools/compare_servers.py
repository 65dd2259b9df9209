"""Ask a server of `mopt serve` the same as another one before, and say how far the answers are apart.

    python3 tools/compare_servers.py URL ANSWERS.json

Without the file the answers are kept in it; with it they are compared: the least cosine of vectors, the
largest difference of scores and of what images become, in parts of the largest number. Only the standard
library is needed. What the server does (vectors, scores, images) is found by asking.
"""

import json
import math
import random
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TEXTS = 64
SIZES = ((64, 64), (64, 96), (128, 64), (160, 160))


def main() -> None:
    url, path = sys.argv[1].rstrip("/"), Path(sys.argv[2])
    got = {name: list(flat(numbers)) for name, numbers in answers(url)}
    if not path.is_file():
        path.write_text(json.dumps(got))
        print(f"{len(got)} answers kept")
        return
    wanted: dict[str, list[float]] = json.loads(path.read_text())
    assert wanted.keys() == got.keys(), "other questions"
    cosines = [cosine(wanted[name], got[name]) for name in wanted]
    apart = [difference(wanted[name], got[name]) for name in wanted]
    found = {"answers": len(got), "least_cosine": round(min(cosines), 7), "largest_difference": max(apart)}
    print(json.dumps(found))


def answers(url: str) -> Iterator[tuple[str, Any]]:
    """What was asked, and the numbers of its answer."""
    model = ask(url, "/v1/models")["data"][0]["id"]
    dice = random.Random(0)
    words = ["rain", "model", "quick", "server", "energy", "stone", "a", "the", "of", "memory", "42"]
    texts = [" ".join(dice.choice(words) for _ in range(dice.randrange(1, 12))) for _ in range(TEXTS)]
    kinds = {
        "/v1/embeddings": {"input": texts},
        "/v1/rerank": {"query": "rain", "documents": texts},
    }
    for path, body in kinds.items():
        found = tried(url, path, {"model": model, **body})
        for row in (found or {}).get("data", []):
            yield f"{path} {row['index']}", row["embedding"]
        for row in (found or {}).get("results", []):
            yield f"{path} {row['index']}", row["relevance_score"]
        if found is not None:
            return
    for height, width in SIZES:
        data = [round(dice.random(), 4) for _ in range(3 * height * width)]
        shape = [1, 3, height, width]
        tensor = {"name": "pixel_values", "shape": shape, "datatype": "FP32", "data": data}
        found = tried(url, f"/v2/models/{model}/infer", {"inputs": [tensor]})
        for output in (found or {}).get("outputs", []):
            yield f"{height} x {width} {output['name']}", output["data"]


def tried(url: str, path: str, body: Any) -> Any:
    """None where the server does not do this."""
    try:
        return ask(url, path, body)
    except urllib.error.HTTPError as error:
        if error.code in (404, 405):
            return None
        raise


def ask(url: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def flat(value: Any) -> Iterator[float]:
    if isinstance(value, list):
        for one in value:
            yield from flat(one)
    else:
        yield float(value)


def cosine(a: list[float], b: list[float]) -> float:
    lengths = math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 1.0


def difference(a: list[float], b: list[float]) -> float:
    largest = max(map(abs, a), default=0.0) or 1.0
    return round(max((abs(x - y) for x, y in zip(a, b, strict=True)), default=0.0) / largest, 7)


if __name__ == "__main__":
    main()
