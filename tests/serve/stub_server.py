"""A server that does what a test asks of it, run as a program: stub_server.py PORT BEHAVIOUR."""

import json
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, BEHAVIOUR = int(sys.argv[1]), sys.argv[2]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(503 if BEHAVIOUR == "never-ready" else 200, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if BEHAVIOUR == "key" and self.headers["Authorization"] != "Bearer secret-key":
            self._answer(401, {"error": {"message": "no key"}})
        elif BEHAVIOUR == "broken":
            self._answer(500, {"error": {"message": "the engine failed"}})
        elif BEHAVIOUR == "empty":
            self._answer(200, {"choices": [], "usage": {"completion_tokens": 0}})
        elif self.path == "/v1/embeddings":
            vector = {"nan": [float("nan")], "zeros": [0.0, 0.0]}.get(BEHAVIOUR, [0.5, 0.5])
            self._answer(200, {"data": [{"embedding": vector}]})
        else:
            assert body["max_tokens"] == 8
            text = "!" * 8 if BEHAVIOUR == "bangs" else "a"
            self._answer(200, {"choices": [{"text": text}], "usage": {"completion_tokens": len(text)}})

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_args: object) -> None:
        pass


if BEHAVIOUR == "dies":
    sys.stderr.write("Traceback (most recent call last):\nValueError: the weights are of another shape\n")
    sys.exit(1)
if BEHAVIOUR == "hangs":
    sys.stderr.write('{"progress": "loading a very large model"}\n')
    sys.stderr.flush()
    time.sleep(600)
if BEHAVIOUR == "deaf":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
