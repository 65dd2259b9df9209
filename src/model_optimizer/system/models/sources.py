"""Which of the places that may know a model is asked, and in what order.

1. A path that exists: a folder, or a config.json by itself.
2. A hub id that was downloaded before: the folder in the hub client's cache.
3. A hub id in the built-in table, unless a revision is asked for: no network is needed.
4. The hub itself, within seconds.
"""

from pathlib import Path

from model_optimizer.core import ModelSpec, MoptError, UsageError
from model_optimizer.facts import models as table
from model_optimizer.system import files, hub

from . import config as keys_of
from . import folder as folders
from .config import Config
from .spec import build


def read(reference: str, *, revision: str | None = None, offline: bool | None = None) -> ModelSpec:
    """The shape of a model.

    `reference` is a hub id (`modelscope:` before it for ModelScope), a folder or a config.json. A known
    hub id is answered from the built-in table without a network, unless `revision` is given or `offline`
    is False, which asks the hub first. `offline` True never asks it; None leaves that to HF_HUB_OFFLINE.

    Raises UsageError when it is no model that can be understood, also when neither the table nor a hub
    knows it; the error then names the nearest ids.
    """
    text = reference.strip()
    if not text:
        raise UsageError("no model was named", hint=(_WAYS,))
    path = files.expanded(text)
    if _exists(path):
        return _from_path(path, revision)
    if text.lower().endswith(".gguf"):
        raise folders.is_gguf(path)
    if text.startswith(("http://", "https://")):
        raise UsageError(f"`{text}` is an address", hint=("write the model's id alone, organisation/name",))
    address = hub.parse(text, revision)
    if address is None or _looks_like_path(text):
        raise UsageError(
            f"there is no folder or file `{text}`",
            hint=("check the path and the working directory", _WAYS),
            reference="model-missing",
        )
    return _from_hub(address, offline)


_WAYS = (
    "a model is a hub id such as Qwen/Qwen3-8B, a folder with config.json and safetensors, or a config.json"
)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _looks_like_path(text: str) -> bool:
    return (
        text.startswith((".", "~", "/"))
        or text.endswith((".json", ".safetensors", "/"))
        or text.count("/") > 1
    )


def _from_path(path: Path, revision: str | None) -> ModelSpec:
    if revision is not None:
        raise UsageError(
            f"`{path}` is on this machine and has no revisions",
            hint=("leave --revision out, or pass the hub id",),
        )
    if path.is_dir():
        return read_folder(path)
    if path.suffix.lower() == ".gguf":
        raise folders.is_gguf(path)
    if path.suffix.lower() != ".json":
        raise UsageError(
            f"`{path}` is not a config.json",
            hint=("pass the folder that holds the model, or its config.json",),
            reference="model-missing",
        )
    keys = keys_of.read(path)
    named = keys.get("_name_or_path")
    name = (
        named if isinstance(named, str) and hub.parse(named) and "/" in named else path.absolute().parent.name
    )
    return build(Config(keys, name=str(path)), name=name or str(path), provenance=f"the file {path.name}")


def read_folder(path: Path, *, name: str | None = None, provenance: str | None = None) -> ModelSpec:
    """The shape of a model in a folder; `path` of the result is None when the folder holds no weights."""
    folder = folders.look(path)
    config = Config(keys_of.read(path / "config.json"), name=str(path / "config.json"))
    tensors = folder.tensors() if folder.files else None
    if tensors is None:
        config.notes.append("the folder holds no weights: counts are from its config.json")
    return build(
        config,
        name=name or path.absolute().name,
        path=str(path.absolute()) if folder.files else None,
        provenance=provenance or "config.json" + (" and the headers of its safetensors" if tensors else ""),
        beside=folder.beside,
        tensors=tensors,
        checkpoint_bytes=folder.checkpoint_bytes,
        sidecar=folder.sidecar(),
    )


def _from_hub(address: hub.Address, offline: bool | None) -> ModelSpec:
    folder = hub.cached_folder(address)
    if folder is not None and hub.is_complete(folder):
        return _from_download(folder, address)
    silent = hub.is_offline() if offline is None else offline
    fact = None if address.revision else table.fact(address.id)
    if fact is not None and (silent or offline is None):
        return _from_table(fact)
    if silent and folder is None:
        raise _unknown(address, "no hub may be asked (offline)")
    try:
        if not silent:
            return _from_remote(hub.look(address))
    except MoptError as error:
        if error.reference not in ("hub-unreachable", "hub-client"):
            raise
        if fact is not None:
            return _from_table(fact, "the hub was to be asked first, and could not be")
        if folder is None:
            raise _unknown(address, error.message, *error.cause) from error
    assert folder is not None
    return _from_download(folder, address)


def _from_download(folder: Path, address: hub.Address) -> ModelSpec:
    return read_folder(folder, name=address.id, provenance="an earlier download from the hub")


def _from_table(fact: table.ModelFact, *notes: str) -> ModelSpec:
    config = Config(fact.config, name=f"the row of {fact.id}", condensed=True)
    config.notes.extend(notes)
    origin = "a copy of the published config" if fact.provenance == "published config" else "documentation"
    like = f", as {fact.like}" if fact.like else ""
    return build(config, name=fact.id, provenance=f"the built-in table ({origin}{like}); no hub was asked")


def _from_remote(remote: hub.Remote) -> ModelSpec:
    """From config.json on the hub, and the headers of its weights when there are few enough files."""
    content = hub.small_file(remote, "config.json")
    if content is None:
        raise _without_config(remote)
    name = f"config.json of {remote.address}"
    config = Config(keys_of.parse(content, name), name=name)
    sidecar = hub.small_file(remote, "hf_quant_config.json")
    tensors = hub.headers(remote)
    return build(
        config,
        name=remote.address.id,
        beside=lambda name: hub.small_file(remote, name),
        tensors=tensors,
        checkpoint_bytes=remote.checkpoint_bytes,
        sidecar=keys_of.parse(sidecar, "hf_quant_config.json") if sidecar else None,
        provenance=f"the hub at {remote.commit[:12]}: config.json"
        + (" and the headers of its weights" if tensors else ""),
    )


def _without_config(remote: hub.Remote) -> UsageError:
    files = remote.files
    if any(name.endswith(".gguf") for name in files):
        return folders.is_gguf(Path(next(name for name in files if name.endswith(".gguf"))))
    kind = "an adapter (LoRA)" if "adapter_config.json" in files else "not a transformers model"
    return UsageError(
        f"`{remote.address}` is {kind}",
        cause=("it has no config.json on the hub",),
        hint=("pass the model that it was made from",),
        reference="model-folder",
    )


def _unknown(address: hub.Address, *cause: str) -> UsageError:
    """Neither the table nor a hub: the nearest ids, and the ways out."""
    from difflib import get_close_matches

    known = {known.lower(): known for known in (*table.ids(), *(alias.id for alias in table.aliases()))}
    wanted = address.id.lower()
    near = get_close_matches(wanted, known, n=3)
    if not near:
        short = {full.rpartition("/")[2]: full for full in known}
        near = [short[name] for name in get_close_matches(wanted.rpartition("/")[2], short, n=3)]
    hint = [f"the nearest that are known without a hub: {', '.join(known[n] for n in near)}"] if near else []
    return UsageError(
        f"`{address}` is not in the built-in table"
        + (f" at revision `{address.revision}`" if address.revision else ""),
        cause=(f"there is no folder `{address.id}` here either", *(line for line in cause if line)),
        hint=(
            *hint,
            "download the model and pass its folder, or pass its config.json alone for planning",
            "with a network: pip install 'model-optimizer[hub]', and HF_ENDPOINT for a mirror",
        ),
        reference="model-unknown",
    )
