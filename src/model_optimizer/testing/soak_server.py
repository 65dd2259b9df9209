"""A small model server that leaks, slows down or is sound, as it is told: for soaks that must notice.

    python -m model_optimizer.testing.soak_server --port 8000 --leak-bytes 1000000
    python -m model_optimizer.testing.soak_server --slower-ms 0.5

It answers `/v1/models`, streams `/v1/completions`, and has a Prometheus page with the names that vLLM uses.
"""

import argparse
import json
import os
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_STARTED = time.time()


class State:
    """What has been leaked so far, and how many requests there were."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.lock = threading.Lock()
        self.requests = 0
        self.running = 0
        self.memory: list[bytes] = []
        self.files: list[int] = []

    def begin(self) -> int:
        with self.lock:
            self.requests += 1
            self.running += 1
            if self.given.leak_bytes:
                self.memory.append(os.urandom(1024) * (self.given.leak_bytes // 1024))
            for _ in range(self.given.leak_files):
                self.files.append(os.open(os.devnull, os.O_RDONLY))
            return self.requests

    def end(self) -> None:
        with self.lock:
            self.running -= 1

    def metrics(self) -> str:
        usage = min(1.0, self.requests * self.given.leak_kv)
        lines = {
            "vllm:kv_cache_usage_perc": usage,
            "vllm:num_requests_running": self.running,
            "vllm:num_requests_waiting": 0,
            "process_resident_memory_bytes": _rss(),
            "process_open_fds": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - no Path is needed
            "process_start_time_seconds": _STARTED,
        }
        return "".join(f"{name} {value}\n" for name, value in lines.items())


def _rss() -> int:
    with open("/proc/self/statm", encoding="ascii") as stream:  # noqa: PTH123
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state: State

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path.endswith("/models"):
            self._send(json.dumps({"data": [{"id": "soaked"}]}).encode())
        elif self.path == "/metrics":
            self._send(self.state.metrics().encode(), "text/plain")
        else:
            self._send(b"{}", status=404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if not self.path.endswith("/completions") or "chat" in self.path:
            self._send(b"{}", status=404)
            return
        count = self.state.begin()
        try:
            given = self.state.given
            if given.fail_every and count % given.fail_every == 0:
                self._send(b'{"error": "told to fail"}', status=500)
                return
            time.sleep((given.ttft_ms + given.slower_ms * count) / 1000)
            with suppress(ConnectionError):  # the client went away
                self._stream(int(body.get("max_tokens", 4)), body)
        finally:
            self.state.end()
        if given.die_after and count >= given.die_after:
            os._exit(1)

    def _stream(self, tokens: int, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(tokens):
            self._event({"choices": [{"index": 0, "text": "word ", "finish_reason": None}]})
        prompt = body.get("prompt")
        length = len(str(prompt).split())
        self._event({"choices": [], "usage": {"prompt_tokens": length, "completion_tokens": tokens}})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, value: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _send(self, data: bytes, kind: str = "application/json", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    parser = argparse.ArgumentParser(description="A server that leaks, slows down or is sound.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-ms", type=float, default=5.0)
    parser.add_argument("--leak-bytes", type=int, default=0, help="kept for each request")
    parser.add_argument("--leak-files", type=int, default=0, help="left open for each request")
    parser.add_argument("--leak-kv", type=float, default=0.0, help="share of the KV cache for each request")
    parser.add_argument("--slower-ms", type=float, default=0.0, help="each request is that much slower")
    parser.add_argument("--fail-every", type=int, default=0)
    parser.add_argument("--die-after", type=int, default=0)
    given = parser.parse_args()
    handler = type("Bound", (Handler,), {"state": State(given)})
    server = ThreadingHTTPServer(("127.0.0.1", given.port), handler)
    server.daemon_threads = True
    sys.stdout.write(f"listening on http://127.0.0.1:{server.server_address[1]}\n")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
