"""One architecture in several number formats behind vLLM servers that stand side by side, loaded in turn.

    python3 tools/measure_formats.py SERVERS.jsonl --out RESULTS.json [--seconds 500] [--rounds 3] [--loads 1:4,32:96,128:256]

Runs on a GPU machine with vLLM and `mopt` on its path. A line of SERVERS holds

    {"id": "int8", "config": {...config.json...}, "flags": ["--kv-cache-memory-bytes", "8G"], "vocab_size": 100000}

Weights are dummies (`--load-format dummy`) unless `folder` names a checkpoint. All servers start at once; then `mopt bench`
loads one after the other while the others wait, round by round in another order, with prompts of random token ids. A load is
concurrency:requests. What a format is worth is the ratio to the first server within one round; a round that would not
end in time is not begun. RESULTS holds the measurements and, for each server and load, the median ratio with the least and
the most. A server with `verify` (a list of options) is asked by `mopt verify URL --layer service` at the end, and not loaded.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from measure_vllm_starts import ENVIRONMENT, KEPT, numbers, stop

PROMPT_TOKENS, OUTPUT_TOKENS = 512, 128
FIRST_PORT = 8130
MOPT = [sys.executable, "-m", "model_optimizer"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("servers", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--start-seconds", type=float, default=280)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loads", default="1:4,32:96,128:256")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    loads = [tuple(map(int, load.split(":"))) for load in arguments.loads.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        asked = [json.loads(line) for line in arguments.servers.read_text().splitlines()]
        servers = [Server(one, Path(folder), FIRST_PORT + n) for n, one in enumerate(asked)]
        try:
            wait(servers, min(end, time.monotonic() + arguments.start_seconds))
            for server in servers:
                print(server.id, "ready" if server.ready else "not ready", server.seconds, flush=True)
            ready = [server for server in servers if server.ready]
            keep(arguments.out, servers, [])
            loaded = [server for server in ready if "verify" not in server.asked]
            rounds = measure(loaded, loads, arguments, end, servers)
            for server in ready:
                server.verify(end)
            keep(arguments.out, servers, rounds)
        finally:
            for server in servers:
                stop(server.process)
    for row in table(rounds):
        print(json.dumps(row), flush=True)


class Server:
    """One vLLM process and what is known of it."""

    def __init__(self, asked: dict, folder: Path, port: int) -> None:
        self.id, self.asked, self.port = asked["id"], asked, port
        self.began, self.seconds, self.ready = time.monotonic(), 0.0, False
        self.verdict: dict | None = None
        self.log = folder / f"{self.id}.log"
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", *self._model(folder)]
        command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "m"]
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [*command, *asked.get("flags", [])],
                stdout=out,
                stderr=out,
                env=ENVIRONMENT | asked.get("env", {}),
                start_new_session=True,
            )

    def _model(self, folder: Path) -> list[str]:
        if "folder" in self.asked:
            return [self.asked["folder"]]
        made = folder / self.id
        made.mkdir()
        (made / "config.json").write_text(json.dumps(self.asked["config"]))
        return [str(made), "--load-format", "dummy", "--skip-tokenizer-init"]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def healthy(self) -> bool:
        try:
            return urllib.request.urlopen(f"{self.url}/health", timeout=1).status == 200
        except OSError:
            return False

    def bench(self, concurrency: int, requests: int, end: float) -> dict:
        words = [*MOPT, "bench", self.url, "--model", "m", "--api", "completions", "--json", "--no-calibrate"]
        words += ["--concurrency", str(concurrency), "--requests", str(requests), "--warmup", "1"]
        words += ["--prompt-tokens", str(PROMPT_TOKENS), "--output-tokens", str(OUTPUT_TOKENS)]
        words += ["--vocab-size", str(self.asked.get("vocab_size", 100_000))]
        return self._said(words, end)

    def verify(self, end: float) -> None:
        if "verify" in self.asked:
            words = [*MOPT, "verify", self.url, "--layer", "service", "--json", *self.asked["verify"]]
            self.verdict = self._said(words, end)

    def _said(self, words: list[str], end: float) -> dict:
        try:
            left = max(5.0, end - time.monotonic())
            done = subprocess.run(words, capture_output=True, text=True, timeout=left, check=False)
            return json.loads(done.stdout)
        except (subprocess.TimeoutExpired, json.JSONDecodeError) as error:
            return {"error": f"{type(error).__name__}: {error}"[:300]}

    def described(self) -> dict:
        text = self.log.read_text(errors="replace")
        lines = [line[-300:] for line in text.splitlines()]
        found = {
            "id": self.id,
            "flags": self.asked.get("flags", []),
            "ready": self.ready,
            "seconds": self.seconds,
        }
        found |= {"numbers": numbers(text), "lines": [line for line in lines if KEPT.search(line)][:60]}
        found |= {"verdict": self.verdict} if self.verdict else {}
        return found if self.ready else {**found, "log_end": lines[-25:]}


def wait(servers: list[Server], end: float) -> None:
    waiting = list(servers)
    while waiting and time.monotonic() < end:
        for server in list(waiting):
            server.ready = server.healthy()
            server.seconds = round(time.monotonic() - server.began, 1)
            if server.ready or server.process.poll() is not None:
                waiting.remove(server)
        time.sleep(0.3)


def measure(
    ready: list[Server], loads: list, arguments: argparse.Namespace, end: float, servers: list[Server]
) -> list[dict]:
    """One row for each round: server -> concurrency -> what `mopt bench` said. The first round warms up too."""
    rounds: list[dict] = []
    longest = 0.0
    for number in range(arguments.rounds + 1):
        if time.monotonic() + longest * 1.1 > end:
            print(f"round {number}: no time left", flush=True)
            break
        began, turned = time.monotonic(), ready[number % len(ready) :] + ready[: number % len(ready)]
        said = {s.id: {str(c): s.bench(c, n, end) for c, n in loads} for s in turned}
        row = {s.id: said[s.id] for s in ready}
        longest = max(longest, time.monotonic() - began)
        if number:  # the first one compiles what is left to compile
            rounds.append(row)
            keep(arguments.out, servers, rounds)
        print(f"round {number}: {time.monotonic() - began:.0f} s", flush=True)
    return rounds


def keep(out: Path, servers: list[Server], rounds: list[dict]) -> None:
    found = {"servers": [server.described() for server in servers], "table": table(rounds), "rounds": rounds}
    out.with_suffix(".part").write_text(json.dumps(found))
    out.with_suffix(".part").replace(out)


def table(rounds: list[dict]) -> list[dict]:
    """Tokens a second beside the first server of the file, load by load."""
    if not rounds:
        return []
    first, rows = next(iter(rounds[0])), []
    for name in rounds[0]:
        for load in rounds[0][name]:
            pairs = [(tokens(row[name][load]), tokens(row[first][load])) for row in rounds]
            ratios = [one / other for one, other in pairs if one and other]
            if ratios:
                spread = [round(x, 3) for x in (statistics.median(ratios), min(ratios), max(ratios))]
                speed = statistics.median(one for one, _ in pairs if one)
                rows.append(
                    {
                        "server": name,
                        "concurrency": int(load),
                        "tokens_per_s": round(speed, 1),
                        "ratio": spread,
                    }
                )
    return rows


def tokens(said: dict) -> float | None:
    """Output tokens a second from the first request to the last answer, of a measurement with one load."""
    points = said.get("points") or []
    return points[0]["vllm_bench"]["output_throughput"] if points else None


if __name__ == "__main__":
    main()
