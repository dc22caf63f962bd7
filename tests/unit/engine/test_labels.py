"""Names and labels by which what a dead process left is told from everything else."""

from __future__ import annotations

import socket

from toolchain.engine import labels


def test_a_step_s_container_says_whose_it_is_without_a_label() -> None:
    name = labels.step_name()
    assert labels.owner_of(f"/{name}", {}) == labels.owner()
    assert not labels.is_abandoned(labels.owner_of(name, {}))
    dead = f"{labels.STEP_NAME}0123456789ab-{2**31 - 1}-1-{socket.gethostname()}"
    assert labels.is_abandoned(labels.owner_of(dead, {}))
    elsewhere = f"{labels.STEP_NAME}0123456789ab-{2**31 - 1}-1-another-host"
    assert not labels.is_abandoned(labels.owner_of(elsewhere, {}))


def test_its_volumes_are_known_by_name_and_belong_to_the_same_process() -> None:
    name, other = labels.step_name(), labels.step_name()
    volume = labels.volume_of(name, "0f1e")
    assert labels.is_volume_of(name, volume)
    assert not labels.is_volume_of(other, volume)
    assert not labels.is_volume_of("tk-run-0123456789ab", volume)
    assert labels.owner_of(volume, {}) == labels.owner()


def test_names_of_others_say_nothing() -> None:
    for name in ("tk-step-", "tk-step-abc", "/web", ""):
        assert labels.owner_of(name, {}) == ""
    assert labels.owner_of("tk-run-1", {labels.OWNER: "host:1:2"}) == "host:1:2"


def test_a_layer_is_no_image() -> None:
    assert labels.is_step({labels.PLAN: labels.step_label("ab" * 32)})
    assert not labels.is_step({labels.PLAN: "ab" * 32})
    assert not labels.is_step({})
