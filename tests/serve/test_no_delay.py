"""Answers leave at once: head and body are written apart, and the body must not wait for an acknowledgement."""

import subprocess
from pathlib import Path

import pytest

import model_optimizer.workers as workers

CODE = """
import socket, sys
sys.path.append(sys.argv[1])
from _serve_http import bind, bind_without_delay
import uvicorn
bind_without_delay()
taken = uvicorn.Config("app:app", host="127.0.0.1", port=0, log_level="critical").bind_socket()
taken.listen()
client = socket.create_connection(taken.getsockname())
for one in (taken.accept()[0], bind("127.0.0.1", 0)):
    print(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
"""


@pytest.mark.engine
def test_connections_of_our_servers_have_no_delay(onnx_env_python: Path) -> None:
    folder = str(Path(workers.__file__).parent)
    done = subprocess.run(
        [onnx_env_python, "-c", CODE, folder], capture_output=True, text=True, timeout=60, check=True
    )
    litserve, own = map(int, done.stdout.split()[-2:])
    assert litserve and own
