"""Versions: compared as `packaging` does, and by release date where a component has dates for names."""

from __future__ import annotations

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

ANY = "any"


def is_comparable(version: str) -> bool:
    """Whether `packaging` can order this version."""
    try:
        Version(version)
    except InvalidVersion:
        return False
    return True


def is_specifier(text: str) -> bool:
    """Whether this is `any` or a specifier over versions or dates."""
    try:
        return text == ANY or SpecifierSet(_dated(text)) is not None
    except InvalidSpecifier:
        return False


def meets(version: str, specifier: str) -> bool:
    """Whether a version, or a date written with `-`, meets a specifier; every version meets `any`."""
    if specifier == ANY:
        return True
    return SpecifierSet(_dated(specifier)).contains(Version(_dated(version)), prereleases=True)


def version_key(version: str) -> Version:
    """A key to sort versions and dates by."""
    return Version(_dated(version))


def starts_with(version: str, beginning: str) -> bool:
    """Whether a version is the given one or a later part of it: 5.4.3 starts with 5.4, 5.41 does not."""
    return version == beginning or (
        version.startswith(beginning) and version[len(beginning)] in "._-" and bool(beginning)
    )


def shape_matches(shape: str, version: str) -> bool:
    """Whether a version has a shape in which Y and n stand for a digit: `YYYY-WWnn`."""
    if len(shape) != len(version):
        return False
    pairs = zip(shape, version, strict=True)
    return all(
        digit.isascii() and digit.isdigit() if sign in "Yn" else sign == digit for sign, digit in pairs
    )


def _dated(text: str) -> str:
    return text.replace("-", ".")
