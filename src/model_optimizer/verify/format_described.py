"""The rule about the description itself: it is one, names layers, and holds numbers where they belong."""

from collections.abc import Iterator, Mapping
from typing import cast

from model_optimizer.core import Comparison

from . import format_patterns
from .format_checkpoint import Checkpoint
from .format_claims import Claims
from .format_found import checked, remark, unknown

PLACES = ("quantization_config", "compression_config")
NUMBERS = ("bits", "w_bit", "group_size", "q_group_size")
GROUPS = {"nvfp4-pack-quantized": 16, "mxfp4-pack-quantized": 32}
LISTS = ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers")


def described(checkpoint: Checkpoint, claims: Claims | None) -> Iterator[Comparison]:
    """What an engine could not read, or takes for something else; silent where all is well."""
    found = _found(checkpoint.keys)
    if found is None:
        if claims is not None and not claims.known:
            yield _unknown(claims)
        return
    faults = list(_faults(found, claims))
    if faults:
        yield checked(
            "description",
            faults,
            of=1,
            what="descriptions",
            reference="config.json: an engine stops at it, or loads packed numbers as weights",
            hint="take config.json from the tool that made the checkpoint",
        )
    elif claims is not None and not claims.known:
        yield _unknown(claims)
    if isinstance(found, dict):
        yield from _remarks(cast("Mapping[str, object]", found), checkpoint, claims)


def _remarks(
    found: Mapping[str, object], checkpoint: Checkpoint, claims: Claims | None
) -> Iterator[Comparison]:
    """Two descriptions that differ, patterns that nothing answers to, a layout that is taken for another."""
    here = str(found.get("quant_algo") or "").upper()
    beside = str(_sidecar(checkpoint).get("quant_algo") or "").upper()
    method = str(found.get("quant_method") or "").lower()
    if beside and (here != beside if here else not method.startswith("modelopt")):
        says = f"config.json says {here or method}, hf_quant_config.json {beside}"
        yield remark("two_descriptions", says, reference="vLLM reads config.json, other engines the other")
    known = checkpoint.layers()
    unused = list(format_patterns.idle(claims.excluded if claims else (), known))
    if unused:
        more = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
        says = f"`{unused[0][:80]}`{more} in the list of excluded layers answers to no layer"
        yield remark("idle_patterns", says, reference="a word that is spelt wrong excludes nothing")
    layout = str(found.get("version") or "gemm").lower()
    if method == "awq" and layout != "gemm":
        says = f"AutoAWQ's layout `{layout[:20]}` is described: vLLM reads the weights as `gemm`"
        yield remark("awq_layout", says, reference="vLLM auto_awq.py does not look at `version`")


def _sidecar(checkpoint: Checkpoint) -> Mapping[str, object]:
    inner = (checkpoint.sidecar or {}).get("quantization")
    return cast("Mapping[str, object]", inner) if isinstance(inner, dict) else {}


def _found(keys: Mapping[str, object]) -> object:
    inner = keys.get("text_config")
    within = cast("Mapping[str, object]", inner if isinstance(inner, dict) else {})
    places = (keys, within)
    return next((source[name] for source in places for name in PLACES if source.get(name)), None)


def _faults(found: object, claims: Claims | None) -> Iterator[str]:
    if not isinstance(found, dict):
        yield f"`quantization_config` is {str(found)[:40]!r}, and should hold keys"
        return
    keys = cast("Mapping[str, object]", found)
    method = keys.get("quant_method")
    if method is not None and not isinstance(method, str):
        yield f"`quant_method` is {str(method)[:40]}, and should be a word"
    for name in NUMBERS:
        value = keys.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            yield f"`{name}` is {str(value)[:40]!r}, and should be a number"
        elif isinstance(value, int) and not (0 < value <= 1 << 16 or (value == -1 and "group" in name)):
            yield f"`{name}` is {str(value)[:40]}"
    for name in LISTS:
        if not isinstance(keys.get(name) or [], list):
            yield f"`{name}` is no list"
    for kind in claims.kinds if claims is not None else ():
        if (wanted := GROUPS.get(kind.layout)) and kind.group not in (None, wanted):
            yield f"`{kind.layout}` in groups of {kind.group}: the format has groups of {wanted}"
    sparse = bool(keys.get("sparsity_config"))
    if claims is not None and claims.known and not (claims.kinds or claims.cache_scales or sparse):
        yield "no group of layers is described that could be read"


def _unknown(claims: Claims) -> Comparison:
    if claims.method == "bitsandbytes":
        says = "bitsandbytes keeps its scales in states of its own: types and shapes are not looked at"
        return remark("description", says, reference="quantization_config")
    layouts = ", ".join(sorted(claims.layouts))
    what = f"`{claims.method[:40]}`" + (f" in {layouts[:60]}" if layouts else "")
    says = f"{what} as described is not known here: its scales and shapes are not looked at"
    return unknown("description", says, reference="quantization_config")
