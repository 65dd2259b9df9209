"""Adapters on the PCI bus: a GPU is there whether or not a driver runs it."""

from model_optimizer.core.host import Adapter

from .world import World, attempt

_VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
_KINDS = {"0x0300": "display", "0x0302": "compute", "0x0380": "compute", "0x1200": "compute"}
_NVSWITCH = "0x0680"  # a bridge; of NVIDIA's it is an NVSwitch


def read(world: World) -> tuple[Adapter, ...] | None:
    """None where there is no list of PCI devices (Windows, WSL2)."""
    if not world.exists("/sys/bus/pci/devices"):
        return None
    found = (
        _adapter(world, f"/sys/bus/pci/devices/{name}") for name in world.names("/sys/bus/pci/devices") or ()
    )
    return tuple(adapter for adapter in found if adapter)


def _adapter(world: World, place: str) -> Adapter | None:
    vendor, device, kind = (
        (world.text(f"{place}/{name}") or "").strip() for name in ("vendor", "device", "class")
    )
    vendor_name = _VENDORS.get(vendor, vendor)
    if kind[:6] == _NVSWITCH and vendor_name == "nvidia":
        what = "switch"
    elif kind[:6] in _KINDS:
        what = _KINDS[kind[:6]]
    else:
        return None
    driver = attempt(lambda: world.at(f"{place}/driver").readlink().name)
    return Adapter(vendor=vendor_name, device=device.removeprefix("0x"), kind=what, driver=driver)
