"""Plans: what decides their key, how pins and stand-ins get in, what is asked before a build."""

from __future__ import annotations

import dataclasses

import pytest

from compiler import BadInputError
from tests.support.recipes import catalog, plan
from toolchain.images.parse_back import check_parses_back
from toolchain.images.plan import ContextFile, Copy, From, Pins, Plan, Run
from toolchain.images.planner import plan_image
from toolchain.images.probes import probe_files
from toolchain.images.render import context, dockerfile, without_mounts
from toolchain.recipes.resolve import resolve
from toolchain.recipes.schema import Layer, Smoke
from toolchain.site import Mirror, SiteConfig

DPCPP = "rocm-5.4.3+dpcpp-2022-12"
KEY_URL = "https://repo.radeon.com/rocm/rocm.gpg.key"
LLVM = "https://github.com/intel/llvm"


def made(name: str, **options: object) -> Plan:
    return plan_image(resolve(name, catalog(), allow=tuple(catalog().rules)), **options)  # type: ignore[arg-type]


def flat(one: Plan) -> str:
    return " ".join(dockerfile(one).replace("\\\n", " ").split())


def test_the_reference_names_stack_components_and_content() -> None:
    one = plan(DPCPP)
    assert one.reference == f"tk/rocm:5.4.3-dpcpp-2022-12-{one.key[:12]}"
    assert one.needs[0].reference.startswith("tk/dpcpp:2022-12-rocm-5.4.3-")
    assert dict(one.build_labels) == {"tk.plan": one.key, "tk.name": DPCPP}


def test_plans_are_the_same_every_time() -> None:
    for name in ("cpu", DPCPP, "tvm-sycl-rocm"):
        assert made(name).key == made(name).key
        assert context(made(name)) == context(made(name))


def test_a_component_is_one_image_whatever_is_beside_it() -> None:
    alone = {one.repository: one.key for one in plan(DPCPP).needs}
    beside = {one.repository: one.key for one in plan("tvm-sycl-rocm").needs}
    assert beside["tk/dpcpp"] == alone["tk/dpcpp"]


def test_archs_count_only_where_something_bakes_them() -> None:
    def key(name: str, arch: str) -> str:
        return plan_image(resolve(name, catalog(), archs=[arch], allow=tuple(catalog().rules))).key

    assert key(DPCPP, "gfx906") == key(DPCPP, "gfx908")
    baked = "rocm-5.4.3+dpcpp-2022-12+llvm-14+tvm-sycl-0.10"
    assert key(baked, "gfx906") != key(baked, "gfx908")
    assert "-gfx906-" in plan("tvm-sycl-rocm").reference


def test_the_key_follows_the_content() -> None:
    one = plan("cpu")
    first = one.files[0]
    changed = [
        dataclasses.replace(one, files=(dataclasses.replace(first, data=b"x"), *one.files[1:])),
        dataclasses.replace(one, files=(dataclasses.replace(first, mode=0o600), *one.files[1:])),
        dataclasses.replace(one, files=(*one.files, ContextFile("more", b""))),
        dataclasses.replace(one, stages=one.stages[:-1]),
        dataclasses.replace(one, needs=(plan("cpu-sycl"),)),
    ]
    assert len({one.key, *(other.key for other in changed)}) == len(changed) + 1


def test_pins_get_into_the_instructions() -> None:
    pins = Pins(
        base_digest=f"sha256:{'c' * 64}",
        apt={"hipcc": "5.2.3-8", "g++": "4:12.2.0-3"},
    )
    text = flat(made("rocm-5.2-debian", lock=pins))
    assert f"FROM debian:bookworm-slim@sha256:{'c' * 64} AS system" in text
    assert " hipcc=5.2.3-8 " in text
    assert " g++=4:12.2.0-3 " in text
    assert "base.digest" in text


def test_locked_python_packages_are_checked_by_their_hashes() -> None:
    pins = Pins(pip={"b": ("2", ("f" * 64, "e" * 64)), "a": ("1", ("d" * 64,))})
    locked = made("cuda-12-pip", lock=pins)
    (file,) = [one for one in context(locked) if one.path == "tk/requirements.txt"]
    hashes = f"--hash=sha256:{'e' * 64} --hash=sha256:{'f' * 64}"
    assert file.data.decode() == f"a==1 --hash=sha256:{'d' * 64}\nb==2 {hashes}\n"
    assert "--require-hashes --no-deps --requirement /run/tk/requirements.txt" in flat(locked)


def test_what_is_unresolved_is_listed_once_with_the_name_to_lock() -> None:
    name = "oneapi-2025.3.1+intel-gpu-24.22.29735.20"
    open_things = [*plan(name).unresolved(), *plan("cuda-11.8+dpcpp-nightly-2023-12-06").unresolved()]
    assert open_things[-1].what == f"commit of nightly-2023-12-06 in {LLVM}"
    assert len({one.what for one in open_things}) == 6
    assert all(f"tk image lock {name}" in one.hint for one in open_things[:-1])


def test_what_a_source_vouches_for_needs_no_lock() -> None:
    """A key by its fingerprint, a commit by its beginning: known before anybody is asked."""
    known = plan(DPCPP)
    assert known.unresolved() == ()
    assert (
        "site.sh key https://repo.radeon.com/rocm/rocm.gpg.key CA8BB4727A47B4D09B4EE8969386B48A1A693C5C"
        in flat(known)
    )
    assert "site.sh git https://github.com/intel/llvm 2022-12 6977f1ac " in flat(known.needs[0])


def test_a_lock_resolves_what_is_open_and_nothing_else() -> None:
    pins = Pins(
        downloads={KEY_URL: "a" * 64},
        needs={"dpcpp": Pins(downloads={KEY_URL: "a" * 64}, git={LLVM: "b" * 40})},
    )
    locked = made(DPCPP, lock=pins)
    assert locked.unresolved() == ()
    assert f"{LLVM} 2022-12 {'b' * 40} /src/dpcpp" in flat(locked.needs[0])
    own = made("rocm-5.2.3+dpcpp-2022-09", lock=pins)
    assert own.needs[0].git[0].commit.startswith("0f579bae")


def test_a_stand_in_is_marked_and_another_image() -> None:
    one = made("cpu", base="my/base:1")
    assert one.base.stand_in
    assert ("tk.stand-in", "my/base:1") in one.build_labels
    assert one.key != plan("cpu").key
    assert dockerfile(one).count("FROM my/base:1 AS system") == 1
    need = made(DPCPP, base="my/base:1").needs[0]
    assert need.base.stand_in


def test_a_site_with_a_mirror_gets_the_same_image_from_there() -> None:
    site = SiteConfig(registry_mirrors=(Mirror("docker.io", "mirror.local:5000"),))
    one = made("cpu", site=site)
    assert "FROM mirror.local:5000/library/debian:bookworm-slim AS system" in dockerfile(one)
    assert one.key == plan("cpu").key


def test_stages_that_become_the_image_hold_no_secrets_without_mounts() -> None:
    for name in ("cpu-sycl", DPCPP, "tvm-sycl-rocm"):
        for one in (plan(name), *plan(name).needs):
            classic = without_mounts(one)
            check_parses_back(classic, dockerfile(one, mounts=False))
            below = {
                step.stage: step.image
                for s in one.stages
                for step in s.instructions
                if isinstance(step, From)
            }
            kept, at = set(), one.stages[-1].name
            while at in below:
                kept.add(at)
                at = below[at]
            for stage in classic.stages:
                copies = [step for step in stage.instructions if isinstance(step, Copy)]
                secret = [step for step in copies if any(".secrets/" in source for source in step.sources)]
                assert not (secret and stage.name in kept)
                assert not any(isinstance(step, Run) and step.mounts for step in stage.instructions)


def test_every_shipped_probe_is_complete() -> None:
    from toolchain.data import data_directory

    folder = data_directory("dockerfiles") / "probes"
    names = sorted(one.stem for one in folder.glob("*.sh"))
    layers = [Layer(smoke=(Smoke(name="x", probe=name),)) for name in names]
    assert {one.path.removeprefix("probes/") for one in probe_files(layers, "test")} == {
        one.name for one in folder.iterdir()
    }


def test_an_unknown_probe_is_named_with_the_nearest() -> None:
    layer = Layer(smoke=(Smoke(name="x", probe="hip-kernl"),))
    with pytest.raises(BadInputError) as caught:
        probe_files([layer], "recipes/x.yaml:3")
    assert caught.value.hint == "did you mean 'hip-kernel'?"
