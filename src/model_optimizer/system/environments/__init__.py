"""Environments of their own for the heavy stages, and the jobs that run in them.

    create("onnx", progress=print)                       make one from its lock
    run_worker("onnx", "selftest", {}, print)            run workers/selftest.py in it to its end
    start_worker("onnx", "serve_embeddings", {...}, log=path)    run one as a server

An environment is a folder in locks/ with a lock and a description; see recipe.py.
"""

from .bundles import Bundle, bundle, download_commands
from .make import Environment, check, commands, create, ensure, list_all, needs, remove, state
from .pythons import Installed, Interpreter, Marker, folder, installed, interpreter
from .recipe import Recipe, load, names
from .worker import run_worker, start_module, start_program, start_worker, why_ended

__all__ = [
    "Bundle", "Environment", "Installed", "Interpreter", "Marker", "Recipe", "bundle", "check", "commands",
    "create", "download_commands", "ensure", "folder", "installed", "interpreter", "list_all", "load",
    "names", "needs", "remove", "run_worker", "start_module", "start_program", "start_worker", "state",
    "why_ended",
]  # fmt: skip
