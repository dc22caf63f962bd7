"""The least that a container needs to use accelerators: nodes, numeric groups, a runtime; never everything.

Nothing here gives `--privileged` or the host's network. Groups are the numbers of the host's nodes, as images
name other groups: `render` is 109 in AMD's images and 993, 106 or 44 on hosts (ROCm-docker issues 90, 116).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compiler import HostError, UsageError, did_you_mean
from toolchain.devices.arch import VENDORS, Vendor
from toolchain.devices.detect import DRIVERS, Device, Inventory, natural_order
from toolchain.devices.host_facts import Caller, EngineFacts
from toolchain.devices.options import RunOption
from toolchain.devices.sysroot import DeviceNode
from toolchain.devices.wishes import Wishes

HOME = "/tk/home"
"""The home of whoever runs in a container: a file system in memory that is theirs."""
TEMPORARY = "/tk/tmp"
"""Their private place for temporary files."""
PRODUCTS: Mapping[Vendor, str] = {"nvidia": "NVIDIA", "amd": "AMD", "hygon": "Hygon", "intel": "Intel"}

DOCKER_GPUS = "docs.nvidia.com/datacenter/cloud-native/container-toolkit, docker-specialized"
ROCM_DOCKER = "rocm.docs.amd.com, install-on-linux, docker"
HAMI = "Project-HAMi/dcu-vgpu-device-plugin at 10dd197, internal/pkg/dcu/server.go"
GROUPS = "ROCm/ROCm-docker issues 90 and 116"
_COUNTERS = "developer.nvidia.com/ERR_NVGPUCTRPERM"
INTEL = "intel/intel-device-plugins-for-kubernetes, cdi; intel/llvm, DockerBKMs.md"
_PTRACE = "rocm.docs.amd.com, ROCgdb in containers"
_TMPDIR = "intel/llvm issue 7777: a temporary cubin of another user cannot be replaced"


@dataclass(frozen=True, slots=True)
class Lack:
    """What keeps a vendor's accelerators from being used in a container, and what helps."""

    what: str
    fix: str


def base_options(engine: EngineFacts, caller: Caller) -> tuple[RunOption, ...]:
    """Options of every container that runs for a user, with or without accelerators."""
    places = "rw,nosuid,nodev,exec,mode=1777"
    return (
        RunOption("rm", "", "the container is removed at its end, also when tk is killed"),
        RunOption("init", "", "PID 1 hands on signals and collects ended processes"),
        *_identity(engine, caller),
        RunOption("cap-drop", "ALL", "compilers and accelerators need no capability of root"),
        RunOption("security-opt", "no-new-privileges", "no program in the image makes its user root"),
        RunOption("tmpfs", f"{HOME}:{places}", "a home that is writable for any user id, gone at the end"),
        RunOption("env", f"HOME={HOME}", "names that home"),
        RunOption(
            "tmpfs",
            f"{TEMPORARY}:{places}",
            "temporary files of this run alone; kernels compiled at run time are loaded from it",
            _TMPDIR,
        ),
        RunOption("env", f"TMPDIR={TEMPORARY}", "names that place"),
    )


def _identity(engine: EngineFacts, caller: Caller) -> tuple[RunOption, ...]:
    who = f"{caller.uid}:{caller.gid}"
    if engine.is_rootless and engine.kind == "podman":
        return (
            RunOption("userns", "keep-id", "a rootless podman maps this user to itself"),
            RunOption("user", who, "files that are written belong to whoever asked for them"),
        )
    if engine.is_rootless:
        return (RunOption("user", "0:0", "root of a rootless Docker is this user on the host"),)
    return (RunOption("user", who, "files that are written belong to whoever asked for them"),)


def run_options(
    inventory: Inventory, vendor: Vendor, engine: EngineFacts, caller: Caller, wishes: Wishes | None = None
) -> tuple[RunOption, ...]:
    """The least that gives a container a vendor's accelerators, all of them or those that `wishes` numbers.

    Raises UsageError for a number that does not exist, and HostError with every fix at once when a driver,
    node, group or runtime is missing.
    """
    asked = wishes or Wishes()
    devices = chosen_devices(inventory, vendor, asked.numbers)
    if lacks := find_lacks(inventory, vendor, engine, caller, devices):
        raise HostError(
            f"{PRODUCTS[vendor]} accelerators of {inventory.origin} cannot be used in a container",
            why="\n".join(one.what for one in lacks),
            hint="\n".join(dict.fromkeys(one.fix for one in lacks)),
        )
    make = {"nvidia": _nvidia, "amd": _amd, "hygon": _hygon, "intel": _intel}[vendor]
    return tuple(make(inventory, devices, engine, caller, asked))


def named_vendors(words: Sequence[str]) -> tuple[Vendor, ...] | None:
    """The vendors that `--devices` names: None for `auto`, empty for `none`; raises UsageError."""
    choices = ("auto", "none", *VENDORS)
    for word in words:
        if word not in choices:
            hint = did_you_mean(word, choices) or f"one of {', '.join(choices)}"
            raise UsageError(f"no accelerators are called `{word}`", where="--devices", hint=hint)
    if len(words) > 1 and {"auto", "none"} & set(words):
        raise UsageError(
            "`auto` and `none` stand alone", where="--devices", hint="name vendors, or one of them"
        )
    return None if "auto" in words else tuple(one for one in VENDORS if one in words)


def chosen_devices(inventory: Inventory, vendor: Vendor, numbers: tuple[int, ...]) -> tuple[Device, ...]:
    """A vendor's accelerators of those numbers, else all; raises UsageError for one that is not there."""
    devices = inventory.of(vendor)
    if wrong := [one for one in numbers if one not in range(len(devices))]:
        count = len(devices)
        raise UsageError(
            f"there is no {PRODUCTS[vendor]} accelerator number {wrong[0]}",
            where="--gpu",
            why=f"{inventory.origin} has {count}" + (f", numbered 0 to {count - 1}" if count else ""),
            hint="`tk doctor` lists them",
        )
    return tuple(devices[one] for one in dict.fromkeys(numbers)) if numbers else devices


def asked_options(wishes: Wishes) -> Iterable[RunOption]:
    """Options that were asked for whatever the accelerators are."""
    if wishes.allow_debugging:
        yield RunOption("cap-add", "SYS_PTRACE", "asked for: debuggers attach to processes", _PTRACE)
    if wishes.no_seccomp:
        yield RunOption(
            "security-opt",
            "seccomp=unconfined",
            "asked for: no filter of system calls, which some memory mapping across NUMA nodes needs",
            ROCM_DOCKER,
        )


def _nvidia(
    inventory: Inventory, devices: tuple[Device, ...], engine: EngineFacts, caller: Caller, wishes: Wishes
) -> Iterable[RunOption]:
    everything = len(devices) == len(inventory.of("nvidia"))
    numbers = [str(one.index if one.index is not None else place) for place, one in enumerate(devices)]
    names = cdi_names(inventory, "nvidia.com/gpu", [] if everything else numbers) if engine.cdi else ()
    for name in names:
        yield RunOption("cdi", name, "nodes and driver libraries as NVIDIA's specification lists them",
                        "github.com/cncf-tags/container-device-interface")  # fmt: skip
    if not names:
        chosen = "all" if everything else ",".join(numbers)
        yield RunOption("gpus", chosen, "NVIDIA's container runtime adds nodes and driver libraries",
                        DOCKER_GPUS)  # fmt: skip
        yield RunOption(
            "env",
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            "libraries of the driver for CUDA and nvidia-smi; only CUDA's own images ask for them themselves",
            DOCKER_GPUS,
        )
    yield from _groups(inventory, used_nodes(inventory, "nvidia", devices), engine, caller)
    if wishes.allow_profiling and inventory.profiling_is_restricted:
        yield RunOption(
            "cap-add",
            "SYS_ADMIN",
            "asked for: the driver keeps hardware counters for administrators (RmProfilingAdminOnly: 1)",
            _COUNTERS,
        )


def cdi_names(inventory: Inventory, kind: str, numbers: list[str]) -> tuple[str, ...]:
    """Names of a kind that some specification offers: `all` without numbers; empty when any is missing."""
    offered = {name for spec in inventory.cdi if spec.kind == kind for name in spec.devices}
    wanted = [f"{kind}={one}" for one in (numbers or ["all"])]
    return tuple(wanted) if set(wanted) <= offered else ()


def _amd(
    inventory: Inventory, devices: tuple[Device, ...], engine: EngineFacts, caller: Caller, _wishes: Wishes
) -> Iterable[RunOption]:
    yield RunOption("device", "/dev/kfd", "the compute interface that all AMD GPUs share", ROCM_DOCKER)
    nodes = used_nodes(inventory, "amd", devices)
    for node in nodes[1:]:
        yield RunOption("device", node, f"the GPU {_called(devices, node)}", ROCM_DOCKER)
    yield from _groups(inventory, nodes, engine, caller)


def _hygon(
    inventory: Inventory, devices: tuple[Device, ...], engine: EngineFacts, caller: Caller, _wishes: Wishes
) -> Iterable[RunOption]:
    shared = {
        "/dev/kfd": "the compute interface that all DCUs share",
        "/dev/mkfd": "the second compute interface of newer DCU drivers",
    }
    nodes = used_nodes(inventory, "hygon", devices)
    for node in nodes:
        reason = shared.get(node) or f"the DCU {_called(devices, node)}"
        yield RunOption("device", node, reason, HAMI)
    if inventory.hyhal:
        yield RunOption(
            "mount",
            f"{inventory.hyhal}:{inventory.hyhal}:ro",
            "libraries that belong to the host's driver, read only",
            HAMI,
        )
    yield from _groups(inventory, nodes, engine, caller)


def _intel(
    inventory: Inventory, devices: tuple[Device, ...], engine: EngineFacts, caller: Caller, _wishes: Wishes
) -> Iterable[RunOption]:
    nodes = used_nodes(inventory, "intel", devices)
    for node in nodes:
        yield RunOption("device", node, f"the GPU {_called(devices, node)}", INTEL)
    yield from _groups(inventory, nodes, engine, caller)


def _called(devices: Iterable[Device], node: str) -> str:
    owner = next(one for one in devices if node in one.nodes)
    return " ".join(part for part in (owner.address, owner.name) if part)


def _groups(
    inventory: Inventory, nodes: Iterable[str], engine: EngineFacts, caller: Caller
) -> Iterable[RunOption]:
    """Groups of the host, by number, that open those nodes for who is not root; each once."""
    by_group: dict[int, list[str]] = {}
    for path in nodes:
        node = inventory.nodes.get(path)
        if node is not None and not is_open(node) and node.gid not in (0, caller.gid):
            by_group.setdefault(node.gid, []).append(path)
    if by_group and engine.is_rootless:
        paths = " and ".join(natural_order(path for group in by_group.values() for path in group))
        yield RunOption("group-add", "keep-groups", f"this user's groups on the host open {paths}",
                        "podman-run(1)")  # fmt: skip
        return
    for gid in sorted(by_group):
        paths = " and ".join(natural_order(by_group[gid]))
        yield RunOption("group-add", str(gid), f"the host's group of {paths}, by number", GROUPS)


def is_open(node: DeviceNode) -> bool:
    """Whether everybody may read and write a node."""
    return node.mode & 0o006 == 0o006


def used_nodes(inventory: Inventory, vendor: Vendor, devices: Iterable[Device]) -> list[str]:
    """Nodes that a container gets for `devices`: those that all share, then those of each.

    AMD's runtime needs no card nodes; NVIDIA's own nodes come with its runtime, and only their groups are
    ours; /dev/mkfd is used where it is there (older DCU drivers lack it).
    """
    shared = [*_SHARED_NODES[vendor], *(("/dev/mkfd",) if vendor == "hygon" else ())]
    wanted = {"nvidia": "/dev/nvidia", "amd": "/dev/dri/renderD", "hygon": "/dev/dri/", "intel": "/dev/dri/"}
    own = [node for one in devices for node in one.nodes if node.startswith(wanted[vendor])]
    optional = [path for path in shared if path in inventory.nodes]
    return [*optional, *own]


_INSTALL: Mapping[Vendor, str] = {
    "nvidia": "install NVIDIA's driver (Debian: `sudo apt-get install nvidia-driver`), then restart",
    "amd": "load AMD's driver (`sudo modprobe amdgpu`), or install it (docs of ROCm, `amdgpu-dkms`)",
    "hygon": "install the DCU driver (rock-*.run, developer.sourcefind.cn), then `sudo modprobe hydcu`",
    "intel": "load Intel's driver (`sudo modprobe i915`, or `xe` for newer GPUs)",
}
_FOREIGN_DRIVERS = {
    "vfio-pci": "it is given to virtual machines; bind it to its own driver again",
    "nouveau": "CUDA does not work with nouveau; install NVIDIA's driver, which replaces it",
    "radeon": "ROCm does not work with radeon; such old GPUs are not supported",
}
_SHARED_NODES: Mapping[Vendor, Mapping[str, str]] = {
    "nvidia": {
        "/dev/nvidiactl": "`sudo nvidia-modprobe -c 0` makes it, or `nvidia-smi` once as root",
        "/dev/nvidia-uvm": "`sudo nvidia-modprobe -u -c 0` makes it",
    },
    "amd": {"/dev/kfd": "`sudo modprobe amdgpu` makes it; the kernel needs CONFIG_HSA_AMD"},
    "hygon": {"/dev/kfd": "the DCU driver makes it: `sudo modprobe hydcu`, then see `dmesg`"},
    "intel": {},
}


def find_lacks(
    inventory: Inventory,
    vendor: Vendor,
    engine: EngineFacts,
    caller: Caller,
    devices: tuple[Device, ...] | None = None,
) -> tuple[Lack, ...]:
    """Everything that keeps a vendor's accelerators from being used in a container of that engine."""
    chosen = inventory.of(vendor) if devices is None else devices
    if not chosen:
        what = f"{inventory.origin} has no {PRODUCTS[vendor]} accelerator"
        return (Lack(what, "run without with `--devices none`, or on a machine that has one"),)
    lacks = [*_driver_lacks(chosen, vendor), *_node_lacks(inventory, vendor, chosen)]
    if not lacks:
        lacks += _access_lacks(inventory, vendor, engine, caller, chosen)
        lacks += _engine_lacks(inventory, vendor, engine)
    return tuple(lacks)


def _driver_lacks(devices: tuple[Device, ...], vendor: Vendor) -> Iterable[Lack]:
    for one in devices:
        where = f"{one.address} ({one.name or f'device {one.device_id:04x}'})"
        if not one.driver:
            yield Lack(f"{where} has no driver", _INSTALL[vendor])
        elif one.driver not in DRIVERS[vendor]:
            fix = _FOREIGN_DRIVERS.get(one.driver, _INSTALL[vendor])
            yield Lack(f"{where} has the driver {one.driver}", fix)


def _node_lacks(inventory: Inventory, vendor: Vendor, devices: tuple[Device, ...]) -> Iterable[Lack]:
    for path, fix in _SHARED_NODES[vendor].items():
        if path not in inventory.nodes:
            yield Lack(f"{path} is missing", fix)
    for one in devices:
        if one.driver not in DRIVERS[vendor]:
            continue
        missing = [path for path in one.nodes if path not in inventory.nodes]
        if vendor == "nvidia":
            missing = [path for path in missing if not path.startswith("/dev/dri/")]
        if missing:
            fix = "let udev make it: `sudo udevadm trigger`, then see `dmesg` for the driver"
            yield Lack(f"{' and '.join(missing)} of {one.address} is missing", fix)
        elif not any(_is_compute(path, vendor) for path in one.nodes):
            fix = f"see `dmesg | grep -i {one.driver}` for why the driver did not take it"
            yield Lack(f"{one.address} has no compute node", fix)


def _is_compute(path: str, vendor: Vendor) -> bool:
    return path.startswith("/dev/nvidia") if vendor == "nvidia" else "/renderD" in path


def _access_lacks(
    inventory: Inventory,
    vendor: Vendor,
    engine: EngineFacts,
    caller: Caller,
    devices: tuple[Device, ...],
) -> Iterable[Lack]:
    """Nodes that no group opens, and groups that this engine cannot give."""
    for path in used_nodes(inventory, vendor, devices):
        node = inventory.nodes.get(path)
        if node is None or is_open(node):
            continue
        if node.gid == 0 or node.mode & 0o060 != 0o060:
            rule = f'KERNEL=="{path.rsplit("/", 1)[1]}", GROUP="render", MODE="0660"'
            yield Lack(
                f"{path} is for root alone (group {node.gid}, mode {node.mode:04o})",
                f"give it to a group: '{rule}' in /etc/udev/rules.d/70-render.rules, then"
                " `sudo udevadm control --reload && sudo udevadm trigger`",
            )
        elif (engine.is_rootless and engine.kind == "docker") or engine.is_remapped:
            mapped = "a rootless Docker" if engine.is_rootless else "a Docker with mapped users"
            yield Lack(
                f"{path} needs the host's group {node.gid}, which {mapped} cannot give",
                "use podman (`--engine podman`) or an ordinary Docker, or open the node to all by udev",
            )
        elif engine.is_rootless and node.gid not in caller.groups:
            yield Lack(
                f"{path} needs the group {node.gid}, of which this user is no member",
                f"`sudo usermod -aG $(getent group {node.gid} | cut -d: -f1) $USER`, then log in again",
            )


def _engine_lacks(inventory: Inventory, vendor: Vendor, engine: EngineFacts) -> Iterable[Lack]:
    if engine.is_desktop and vendor != "nvidia":
        yield Lack(
            "Docker Desktop runs in a virtual machine that has no such device",
            "use Docker Engine of this machine: `docker context use default`",
        )
    if vendor != "nvidia" or (engine.cdi and cdi_names(inventory, "nvidia.com/gpu", [])):
        return
    if engine.kind == "podman":
        yield Lack(
            "podman reaches NVIDIA's GPUs by a CDI specification, and there is none for nvidia.com/gpu",
            "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` (package nvidia-container-toolkit)",
        )
    elif "nvidia" not in engine.runtimes:
        yield Lack(
            "Docker has no NVIDIA runtime, and no CDI specification for nvidia.com/gpu",
            "install nvidia-container-toolkit, then `sudo nvidia-ctk runtime configure --runtime=docker &&"
            " sudo systemctl restart docker`",
        )
