"""What is found on captured machines: vendors, architectures, drivers, nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compiler import BadInputError
from tests.support.device_trees import machine, names
from toolchain.devices.arch import decode_gfx_target_version, load_chips
from toolchain.devices.detect import Inventory, detect
from toolchain.devices.sysroot import DeviceNode, Sysroot, capture, from_lines, natural

Find = Callable[[str], Inventory]


@pytest.fixture
def find(tmp_path: Path) -> Find:
    return lambda name: detect(machine(name, tmp_path / name))


ARCHS = {
    "amd-mi250": {"amd": ("gfx90a",)},
    "amd-mi50": {"amd": ("gfx906", "gfx90c")},
    "amd-no-driver": {"amd": ("gfx906",)},
    "amd-no-kfd": {"amd": ("gfx906",)},
    "amd-old-kernel": {"amd": ("gfx906",)},
    "amd-root-only": {"amd": ("gfx906",)},
    "hygon-cpu": {},
    "hygon-k100-ai": {"hygon": ("gfx928",)},
    "hygon-z100": {"hygon": ("gfx906",)},
    "intel-arctic-sound": {"intel": ("spir64",)},
    "intel-flex": {"intel": ("spir64",)},
    "none": {},
    "nvidia-and-amd": {"nvidia": ("sm_70",), "amd": ("gfx906",)},
    "nvidia-h100-cdi": {"nvidia": ("sm_90",)},
    "nvidia-nouveau": {"nvidia": ("sm_70",)},
    "nvidia-v100": {"nvidia": ("sm_70",)},
}


@pytest.mark.parametrize("name", names())
def test_vendors_and_architectures(find: Find, name: str) -> None:
    found = find(name)
    assert {one: found.archs(one) for one in found.vendors} == ARCHS[name]


def test_nodes_belong_to_their_device_and_come_in_a_sensible_order(find: Find) -> None:
    first, second = find("amd-mi250").devices
    assert first.nodes == ("/dev/dri/card1", "/dev/dri/renderD9")
    assert second.nodes == ("/dev/dri/card2", "/dev/dri/renderD128")
    assert (first.index, second.index) == (0, 1)  # KFD's nodes 2 and 10: numbers, not texts


def test_the_minor_of_an_nvidia_device_is_not_its_place(find: Find) -> None:
    first, second = find("nvidia-v100").devices
    assert (first.address, first.nodes[0]) == ("0000:3b:00.0", "/dev/nvidia1")
    assert (second.address, second.nodes[0]) == ("0000:d8:00.0", "/dev/nvidia0")
    assert first.name == "Tesla V100-PCIE-32GB"
    assert second.numa_node == 1


@pytest.mark.parametrize(
    ("name", "module", "version"),
    [
        ("nvidia-v100", "nvidia", "470.199.02"),
        ("nvidia-h100-cdi", "nvidia", "580.95.05"),  # the open module says "for x86_64" first
        ("nvidia-and-amd", "nvidia", "525.147.05"),
        ("amd-mi250", "amdgpu", "6.7.0"),
        ("hygon-k100-ai", "hydcu", "6.2.26"),
    ],
)
def test_driver_versions(find: Find, name: str, module: str, version: str) -> None:
    assert find(name).versions[module] == version


def test_an_old_kernel_is_matched_by_location_and_named_by_the_table(find: Find) -> None:
    (device,) = find("amd-old-kernel").devices
    assert device.index == 0
    assert "topology.c" in device.arch_source


def test_a_driver_is_believed_before_the_table(find: Find) -> None:
    assert "gfx_target_version" in find("amd-mi50").devices[0].arch_source


def test_a_new_device_is_found_without_a_name(tmp_path: Path) -> None:
    sysroot = Sysroot(
        "test",
        files={
            "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
            "/sys/bus/pci/devices/0000:01:00.0/device": "0xfffe\n",
            "/sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
        },
    )
    (device,) = detect(sysroot).devices
    assert (device.vendor, device.arch, device.name) == ("nvidia", "", "")


def test_cdi_specifications_are_read_and_broken_ones_passed_over(find: Find) -> None:
    (spec,) = find("nvidia-h100-cdi").cdi
    assert spec.devices == ("nvidia.com/gpu=0", "nvidia.com/gpu=all")
    assert spec.nodes == ("/dev/nvidia-uvm", "/dev/nvidiactl", "/dev/nvidia0")
    broken = {
        "/etc/cdi/a.json": "{",
        "/etc/cdi/b.yaml": "kind: [",
        "/etc/cdi/c.yaml": "[1]",
        "/etc/cdi/d.json": '{"kind": 3}',
        "/etc/cdi/e.json": '{"kind": "a.b/gpu", "devices": [1, {}], "containerEdits": {"deviceNodes": 7}}',
        "/etc/cdi/f.json": "[" * 100_000,
    }
    (odd,) = detect(Sysroot("test", files=broken)).cdi
    assert (odd.kind, odd.devices, odd.nodes) == ("a.b/gpu", (), ())


def test_whether_counters_are_for_administrators(find: Find) -> None:
    assert find("nvidia-v100").profiling_is_restricted
    assert not find("nvidia-h100-cdi").profiling_is_restricted


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (90006, "gfx906"),
        (90010, "gfx90a"),
        (90012, "gfx90c"),
        (90402, "gfx942"),
        (100100, "gfx1010"),
        (110501, "gfx1151"),
        (0, ""),
    ],
)
def test_gfx_target_version(value: int, name: str) -> None:
    assert decode_gfx_target_version(value) == name


def test_the_shipped_table_of_chips() -> None:
    chips = load_chips()
    assert chips["nvidia", 0x1DB6].arch == "sm_70"
    assert chips["amd", 0x66A1].arch == "gfx906"
    assert chips["hygon", 0x54B7].arch == "gfx906"
    assert all(chip.source for chip in chips.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("chips: []", "`sources` is missing"),
        (
            "sources: {a: x}\nchips:\n- {vendor: amd, chip: X, arch: gfx1, ids: [66A1], source: a}",
            "expected four hexadecimal digits",
        ),
        (
            "sources: {a: x}\nchips:\n- {vendor: amd, chip: X, arch: gfx1, ids: ['66a1'], source: b}",
            "not among",
        ),
        (
            "sources: {a: x}\nchips:\n- {vendor: amd, chip: X, arch: g, ids: ['66a1', '66a1'], source: a}",
            "66a1 is X, too",
        ),
        ("sources: {a: x}\nchips:\n- {vendor: ati, chip: X, arch: g, ids: ['66a1'], source: a}", "vendor"),
    ],
)
def test_a_bad_table_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "devices.yaml"
    path.write_text(text)
    with pytest.raises(BadInputError) as caught:
        load_chips(path)
    assert said in str(caught.value)
    assert "devices.yaml:" in str(caught.value)


def test_a_machine_without_any_of_these_files(tmp_path: Path) -> None:
    found = detect(capture(tmp_path))
    assert (found.devices, dict(found.nodes), found.cdi, found.hyhal) == ((), {}, (), "")


def test_only_character_devices_count_as_nodes(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").write_text("")
    assert capture(tmp_path).nodes == {}


def test_what_a_probe_prints_is_refused_when_it_is_no_answer() -> None:
    assert from_lines("", "there").nodes == {}
    wrong = (
        "x",
        "[]",
        '{"kind": "file"}',
        '{"kind": "node", "path": "L2E=", "text": "MQ=="}',
        '{"kind": "other", "path": "L2E="}',
        '{"kind": "file", "path": "?", "text": ""}',
    )
    for line in wrong:
        with pytest.raises(BadInputError, match="probe"):
            from_lines(line, "there")
    node = '{"kind": "node", "path": "L2Rldi9rZmQ=", "text": "MCA5OTMgMjA2NjA="}'  # /dev/kfd: 0 993 20660
    assert from_lines(node, "there").nodes == {"/dev/kfd": DeviceNode(0, 993, 0o660)}


def test_natural_order() -> None:
    assert sorted(["b10", "b9", "a", "b", "10", "9x"], key=natural) == ["a", "b", "b9", "b10", "9x", "10"]
