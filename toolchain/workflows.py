"""Workflows for GitHub Actions as text: templates in workflows/, actions pinned to commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolchain.data import data_directory

IMAGES, RELEASE = "tk-images.yml", "tk-release.yml"
GHCR = "ghcr.io"
RUNNER = "ubuntu-24.04"
_PYTHON = "3.12"
# Versions as the package index has them.
_BUILD, _CYCLONEDX = "1.6.1", "7.5.0"


@dataclass(frozen=True, slots=True)
class Action:
    """An action at one commit, the version that its source says this is, and its licence."""

    commit: str
    version: str
    source: str
    licence: str = "MIT"


_OWN_TAG = "the tag of that name in the action's repository"
ACTIONS = {
    "actions/checkout": Action("3d3c42e5aac5ba805825da76410c181273ba90b1", "v7.0.1", _OWN_TAG),
    "actions/setup-python": Action("5fda3b95a4ea91299a34e894583c3862153e4b97", "v7.0.0", _OWN_TAG),
    "actions/upload-artifact": Action("bbbca2ddaa5d8feaa63e36b76fdaad77386f024f", "v7.0.0", _OWN_TAG),
    "actions/download-artifact": Action("3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c", "v8.0.1", _OWN_TAG),
    "actions/attest": Action("1e69f48acb82d1966a394da916b4c1698aa569d6", "v4.2.2", _OWN_TAG),
    "pypa/gh-action-pypi-publish": Action(
        "ba38be9e461d3875417946c167d0b5f3d385a247",
        "v1.14.1",
        "beeware/briefcase pull request 2983, and beeware/toga 4634: this commit is tag v1.14.1",
        "BSD-3-Clause",
    ),
}


@dataclass(frozen=True, slots=True)
class ImagesWorkflow:
    """What differs between workflows that publish images.

    `registry` is `host[:port][/path]`; `ghcr.io` alone stands for the repository's own packages there.
    `package` is what pip installs as tk, `evidence` the file in the repository that evidence goes to.
    """

    names: Sequence[str]
    registry: str
    private: bool
    package: str
    evidence: str


def images_workflow(wanted: ImagesWorkflow) -> str:
    """The workflow that builds, checks and pushes images and commits what was found out."""
    return _rendered(
        IMAGES,
        names=wanted.names,
        registry=wanted.registry,
        is_ghcr=wanted.registry == GHCR,
        private=wanted.private,
        package=wanted.package,
        evidence=wanted.evidence,
    )


def release_workflow() -> str:
    """The workflow that packs tk, installs it in empty environments, and publishes a tag."""
    return _rendered(RELEASE, build=_BUILD, cyclonedx=_CYCLONEDX)


def _rendered(name: str, **values: object) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_directory("workflows")),
        undefined=jinja2.StrictUndefined,
        variable_start_string="[[",
        variable_end_string="]]",
        block_start_string="[%",
        block_end_string="%]",
        comment_start_string="[#",
        comment_end_string="#]",
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - YAML, not HTML; every value is checked, and is JSON where it is text
    )
    return environment.get_template(f"{name}.j2").render(
        action=_pinned, runner=RUNNER, python=_PYTHON, **values
    )


def _pinned(name: str) -> str:
    found = ACTIONS[name]
    return f"{name}@{found.commit} # {found.version}"
