"""The engine's own counters, from its Prometheus page. Names and pages are facts."""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit, urlunsplit

from model_optimizer.facts import metrics
from model_optimizer.system import local_http

from .timeline import Event

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})?\s+(\S+)")
_SUFFIXES = ("_total", "_sum", "_count")
_LARGEST = 4 << 20
# What every Prometheus client library writes about its own process.
_PROCESS = {
    "process_resident_memory_bytes": "server.rss_bytes",
    "process_open_fds": "server.open_files",
    "process_start_time_seconds": "server.started_s",
}
_TAKE_LARGEST = frozenset({"kv_usage", "prefix_hit_rate"})


def parse(text: str) -> dict[str, list[float]]:
    """The values of each name, one for each set of labels. What is no sample is left out."""
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        if line.startswith("#") or not (match := _LINE.match(line)):
            continue
        if match[2] and 'le="' in match[2]:  # buckets of a histogram
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if value == value:
            found.setdefault(match[1], []).append(value)
    return found


def quantities(text: str, version: str | None = None) -> tuple[str | None, dict[str, float]]:
    """The engine that wrote the page, and its quantities: `engine.kv_usage`, `engine.queue_s_sum`, ...

    Ranks and replicas are added up, shares take the largest. Times stay sums and counts, so that a mean
    over any stretch can be made. `version` only orders names where an engine has two for one quantity.
    """
    samples = parse(text)
    engine = _writer(samples)
    found: dict[str, float] = {}
    for name, ours in _PROCESS.items():
        if name in samples:
            found[ours] = samples[name][0] if ours == "server.started_s" else sum(samples[name])
    if engine is None:
        return None, found
    rows = sorted(metrics.of(engine), key=lambda row: not row.holds_in(version))
    for row in rows:
        for suffix in ("", *_SUFFIXES):
            values = samples.get(row.name + suffix)
            ours = f"engine.{row.quantity}" + (suffix if row.kind == "histogram" else "")
            if values and ours not in found and not (row.kind == "histogram" and suffix in ("", "_total")):
                found[ours] = max(values) if row.quantity in _TAKE_LARGEST else sum(values)
    return engine, found


def _writer(samples: Mapping[str, object]) -> str | None:
    for engine in metrics.engines():
        if any(name.startswith(page.prefix) for page in metrics.pages(engine) for name in samples):
            return engine
    return None


class EngineMetrics:
    """Scrapes once a second. Paths are tried until one has names that are known; a server that was there
    and does not answer is an event, and so is one that began again. Without `process`, what the page says
    about its own process is left out: another source looks at that."""

    name = "engine metrics"
    interval_s = 1.0

    def __init__(
        self, url: str, *, version: str | None = None, key: str | None = None, process: bool = True
    ) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        self._origin = (parts.scheme, parts.netloc)
        self._key = key
        self._version = version
        self._process = process
        self._path: str | None = None
        self._tried = 0
        self._answered = True
        self._started: float | None = None
        self._events: list[Event] = []
        self._missing: dict[str, str] = {}
        self.engine: str | None = None
        if parts.scheme != "http":
            self._tried = 3
            self._missing["engine metrics"] = "not available: only http pages are read"

    def read(self, now_ns: int) -> Mapping[str, float]:
        if self._path is not None:
            return self._judged(self._ask(self._path), now_ns)
        if self._tried < 3:
            self._tried += 1
            for path in dict.fromkeys(p.path for e in metrics.engines() for p in metrics.pages(e)):
                if values := self._ask(path):
                    self._path = path
                    self._missing.pop("engine metrics", None)
                    return self._judged(values, now_ns)
            self._missing["engine metrics"] = f"not available: no known metrics at {self._origin[1]}{_hint()}"
        return {}

    def _judged(self, values: Mapping[str, float] | None, now_ns: int) -> Mapping[str, float]:
        if values is None and self._answered:
            self._say(now_ns, "server-silent", "the server's metrics page does not answer")
        elif values is not None and not self._answered:
            self._say(now_ns, "server-back", "the server's metrics page answers again")
        self._answered = values is not None
        started = (values or {}).get("server.started_s")
        if started is not None:
            if self._started is not None and started > self._started + 1:
                self._say(now_ns, "server-restarted", "the server's process began again")
            self._started = started
        if not self._process:
            return {name: v for name, v in (values or {}).items() if not name.startswith("server.")}
        return values or {}

    def _ask(self, path: str) -> Mapping[str, float] | None:
        url = urlunsplit((*self._origin, path, "", ""))
        try:
            reply = local_http.ask(url, key=self._key, timeout_s=2.0)
        except ValueError:
            return None
        if reply is None or reply.status != 200 or len(reply.body) > _LARGEST:
            return None
        self.engine, values = quantities(reply.body.decode("utf-8", errors="replace"), self._version)
        return values or None

    def _say(self, now_ns: int, kind: str, text: str) -> None:
        self._events.append(Event(time_ns=now_ns, kind=kind, text=text))

    def events(self) -> Sequence[Event]:
        events, self._events = self._events, []
        return events

    def missing(self) -> Mapping[str, str]:
        return self._missing

    def close(self) -> None:
        pass


def _hint() -> str:
    flags = [
        f"{engine} needs {page.enabled_by}"
        for engine in metrics.engines()
        for page in metrics.pages(engine)
        if page.enabled_by
    ]
    return f" ({', '.join(flags)})" if flags else ""
