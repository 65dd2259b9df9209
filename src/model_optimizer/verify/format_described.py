"""The rule about the description itself: it is one, names layers, and holds numbers where they belong."""

from collections.abc import Iterator, Mapping
from typing import cast

from model_optimizer.core import Comparison

from .format_checkpoint import Checkpoint
from .format_claims import Claims
from .format_found import checked, remark, unknown

PLACES = ("quantization_config", "compression_config")
NUMBERS = ("bits", "w_bit", "group_size", "q_group_size")
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
