"""What an upgrade from one release of an engine to another changes."""

from collections.abc import Mapping
from dataclasses import fields

from model_optimizer.core import UsageError
from model_optimizer.core.explanation import Change, Changes
from model_optimizer.facts import flags, vllm
from model_optimizer.facts.flags import Row, Section, Table
from model_optimizer.facts.gpus import GpuFact
from model_optimizer.facts.versions import key
from model_optimizer.facts.vllm import VllmRelease

from . import names


def changes(
    engine: str, before: str, after: str, learned: tuple[Table, ...] = (), *, gpu: GpuFact | None = None
) -> Changes:
    """Names that came, went or have another default. UsageError for engines and releases without a table."""
    program = next(iter(names.programs(engine)), None)
    if program is None:
        known = ", ".join(names.TITLES[e] for e in flags.engines())
        raise UsageError(f"there are no tables of `{engine}`", hint=(f"there are of {known}",))
    old, new = _table(program, before, learned), _table(program, after, learned)
    if old.version == new.version:
        raise UsageError(
            f"{before} and {after} are both read as {names.TITLES[program]} {old.version}",
            hint=(f"known: {', '.join(flags.versions(program))}",),
        )
    parts = [_section(program, section, old, new) for section in flags.SECTIONS]
    merged = {name: tuple(c for part in parts for c in part[name]) for name in parts[0]}
    settings = _settings(old.version, new.version, gpu) if program == "vllm" else ()
    return Changes(
        engine=names.TITLES[program],
        before=old.version,
        after=new.version,
        added=merged["added"],
        removed=merged["removed"],
        deprecated=merged["deprecated"],
        defaults=(*settings, *merged["defaults"]),
        choices=merged["choices"],
        news=_news(old.version, new.version) if program == "vllm" else (),
        source=tuple(dict.fromkeys([*old.source, *new.source])),
    )


def _table(program: str, version: str, learned: tuple[Table, ...]) -> Table:
    """A release by its number; one that was learned wins over the nearest one that ships."""
    key(version)
    for table in learned:
        if table.engine == program and key(table.version) == key(version):
            return table
    known = flags.versions(program)
    newest = [v for v in known if v.startswith(f"{version}.")]
    return flags.table(program, newest[-1] if newest else version)


def _section(program: str, section: Section, old: Table, new: Table) -> dict[str, list[Change]]:
    before, after = old.section(section), new.section(section)
    found: dict[str, list[Change]] = {
        k: [] for k in ("added", "removed", "deprecated", "defaults", "choices")
    }
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if section == "options" and old.option(name) and new.option(name) and (was is None or now is None):
            continue  # only its first spelling is another
        if was is None and now is not None:
            found["added"].append(_change(program, section, name, after=now.default))
        elif now is None and was is not None:
            found["removed"].append(_change(program, section, name, before=was.default))
        elif was is not None and now is not None:
            _compare(program, section, name, was, now, found)
    return found


def _compare(
    program: str, section: Section, name: str, was: Row, now: Row, found: dict[str, list[Change]]
) -> None:
    if now.deprecated and not was.deprecated:
        found["deprecated"].append(_change(program, section, name))
    if was.default is not None and now.default is not None and not _alike(was.default, now.default):
        found["defaults"].append(_change(program, section, name, before=was.default, after=now.default))
    came = [c for c in now.choices if c not in was.choices]
    went = [c for c in was.choices if c not in now.choices]
    if was.choices and now.choices and (came or went):
        found["choices"].append(
            _change(program, section, name, before=", ".join(went) or None, after=", ".join(came) or None)
        )


def _alike(was: str, now: str) -> bool:
    """Two spellings of one value: `1` and `true`, a name in other letters."""
    plain = {"1": "true", "0": "false"}
    return plain.get(was, was).lower() == plain.get(now, now).lower()


def _change(
    program: str, section: Section, name: str, *, before: str | None = None, after: str | None = None
) -> Change:
    meaning = flags.meanings(program).get(name)
    fact = vllm.flag(name) if program == "vllm" and section == "options" else None
    instead = (
        " ".join(meaning.to).replace("{value}", "VALUE")
        if meaning and meaning.to
        else (fact.use_instead if fact else None)
    )
    return Change(
        name=name,
        section=section,
        before=before,
        after=after,
        means=meaning.means if meaning else None,
        use_instead=instead or (meaning.because if meaning else None),
        speed=meaning.speed if meaning else None,
    )


SPEED: Mapping[str, str] = {
    "gpu_memory_utilization": "a larger share is more KV cache, and less room for anything else on the GPU",
    "chunked_prefill": "on: prompts are cut into pieces beside decoding: later first tokens, more even gaps",
    "prefix_caching": "on: repeated prompt beginnings are not computed again; a benchmark of equal prompts "
    "then measures the cache",
    "async_scheduling": "on: the next step is scheduled while the GPU works, which hides time of the CPU",
    "kv_cache_dtype": "fewer bits hold more tokens, and need a backend that reads them",
    "block_size": "the total stays; sharing of prefixes is by whole blocks",
}


def _settings(before: str, after: str, gpu: GpuFact | None) -> tuple[Change, ...]:
    """What the engine does when it is told nothing, where an option's own default does not show it."""
    old, new = vllm.release(before).defaults, vllm.release(after).defaults
    found: list[Change] = []
    for field in fields(old):
        was, now = getattr(old, field.name), getattr(new, field.name)
        if was is not None and now is not None and was != now and field.name != "gpu_memory_utilization":
            found.append(
                Change(
                    name=field.name.replace("_", " "),
                    section="settings",
                    before=_plain(was),
                    after=_plain(now),
                    speed=SPEED.get(field.name),
                )
            )
    found += _batch(vllm.release(before), vllm.release(after), gpu)
    if vllm.release(before).torch != vllm.release(after).torch:
        found.append(
            Change(
                name="torch",
                section="settings",
                before=vllm.release(before).torch,
                after=vllm.release(after).torch,
                speed="compiled kernels and their caches are made anew; the first start takes longer",
            )
        )
    if vllm.release(before).cuda != vllm.release(after).cuda:
        found.append(
            Change(
                name="CUDA",
                section="settings",
                before=vllm.release(before).cuda,
                after=vllm.release(after).cuda,
                speed=None,
            )
        )
    return tuple(found)


def _batch(before: VllmRelease, after: VllmRelease, gpu: GpuFact | None) -> list[Change]:
    """The batch limits that the server takes by itself: of the GPU named, else of every size of GPU."""
    was, now = _limits(before, gpu), _limits(after, gpu)
    if not was or not now or was == now:
        return []
    name = f"batch limits on {gpu.name}" if gpu else "batch limits by memory of the GPU"
    speed = (
        "more tokens a step: better throughput, later first tokens of others; more sequences: a fuller GPU"
    )
    return [Change(name=name, section="settings", before=was, after=now, speed=speed)]


def _limits(release: VllmRelease, gpu: GpuFact | None) -> str:
    tiers = (
        [release.batch_for(memory_bytes=gpu.memory_bytes, gpu=gpu.name)]
        if gpu and release.batch
        else release.batch
    )
    shown = [f"{t.max_num_batched_tokens} tokens and {t.max_num_seqs} sequences" for t in tiers]
    if gpu:
        return "".join(shown)
    return ", ".join(
        f"{s} from {t.minimum_memory_bytes >> 30} GiB" for s, t in zip(shown, tiers, strict=True)
    )


def _plain(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _news(before: str, after: str) -> tuple[str, ...]:
    """What the facts say of each release in between."""
    between = [v for v in vllm.versions() if key(before) < key(v) <= key(after)]
    return tuple(f"{v}: {text}" for v in between for text in vllm.release(v).changes)
