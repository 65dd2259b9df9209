"""What stands below the driver: firmware, distribution, SELinux, power, hybrid graphics, NVSwitch."""

from model_optimizer.core.host import Platform

from .machine import release_file
from .world import World, attempt

_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_FABRIC_MANAGER = "nv-fabricmanager"[:15]  # the kernel keeps 15 letters of a name
_PRIME = {"on": "on", "off": "off", "on-demand": "on-demand"}


def read(world: World) -> Platform:
    release = release_file(world)
    linux = world.system == "Linux"
    laptop, battery = _power(world) if linux else (None, None)
    return Platform(
        distribution_id=release.get("ID"),
        version_id=release.get("VERSION_ID"),
        architecture=world.machine or None,
        secure_boot=_secure_boot(world) if linux else None,
        selinux=_selinux(world) if linux else None,
        selinux_booleans=_booleans(world) if linux else None,
        laptop=laptop,
        on_battery=battery,
        prime=_PRIME.get((world.text("/etc/prime-discrete") or "").strip()),
        iommu=_iommu(world),
        fabric_manager=_runs(world, _FABRIC_MANAGER) if linux else None,
    )


def _secure_boot(world: World) -> bool | None:
    """The last byte of the firmware's variable. A machine that did not start through UEFI has none."""
    value = attempt(lambda: world.at(_SECURE_BOOT).read_bytes())
    if value:
        return value[-1] == 1
    hidden = world.exists("/sys/firmware/efi") or world.in_container() is not False
    return None if hidden else False


def _selinux(world: World) -> str | None:
    state = world.text("/sys/fs/selinux/enforce")
    if state is not None:
        return "enforcing" if state.strip() == "1" else "permissive"
    return "disabled" if world.in_container() is False else None


def _booleans(world: World) -> dict[str, bool] | None:
    place = "/sys/fs/selinux/booleans"
    if not world.exists(place):
        return None
    names = (n for n in world.names(place) or () if n.startswith("container_"))
    return {name: (world.text(f"{place}/{name}") or "").strip().startswith("1") for name in names}


def _power(world: World) -> tuple[bool | None, bool | None]:
    """Whether there is a battery, and whether the machine runs on it now."""
    place = "/sys/class/power_supply"
    if not world.exists("/sys/class"):
        return None, None
    supplies = world.names(place) or ()
    kinds = {name: (world.text(f"{place}/{name}/type") or "").strip() for name in supplies}
    batteries = [n for n, kind in kinds.items() if kind == "Battery" and n.upper().startswith("BAT")]
    mains = [n for n, kind in kinds.items() if kind in ("Mains", "USB")]
    online = [(world.text(f"{place}/{n}/online") or "").strip() == "1" for n in mains]
    return bool(batteries), bool(batteries) and bool(mains) and not any(online)


def _iommu(world: World) -> bool | None:
    """Whether it translates: an IOMMU that passes addresses through (iommu=pt) stands in nobody's way."""
    if not world.exists("/sys/class"):
        return None
    if not world.names("/sys/class/iommu"):
        return False
    groups = world.names("/sys/kernel/iommu_groups") or ()
    kinds = {(world.text(f"/sys/kernel/iommu_groups/{g}/type") or "").strip() for g in groups} - {""}
    return any(kind.startswith("DMA") for kind in kinds) if kinds else True


def _runs(world: World, name: str) -> bool | None:
    pids = world.names("/proc")
    if pids is None:
        return None
    return any((world.text(f"/proc/{p}/comm") or "").strip() == name for p in pids if p.isdigit())
