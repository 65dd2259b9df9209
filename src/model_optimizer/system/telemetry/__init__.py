"""What a machine and a server do while they are measured: meters, sources of samples, the recorder.

What cannot be read is left out and named, never computed from a datasheet. All times are
`perf_counter_ns`, which on Linux is the same clock in every process of the machine.
"""

from .meters import POWERCAP, Counter, Integral, Meter, energy, gpu_energy, memory, of_running, package_energy
from .recorder import Recorder, Source
from .timeline import Event, Series, Timeline
from .watch import Glance, Watch, What

__all__ = [
    "POWERCAP",
    "Counter",
    "Event",
    "Glance",
    "Integral",
    "Meter",
    "Recorder",
    "Series",
    "Source",
    "Timeline",
    "Watch",
    "What",
    "energy",
    "gpu_energy",
    "memory",
    "of_running",
    "package_energy",
]
