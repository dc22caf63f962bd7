"""The models of a plan: what each is, and a digest of its content that costs little to find again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from compiler import (
    BadInputError,
    TkError,
    content_key,
    did_you_mean,
    external_files,
    package_digest,
    sha256_file,
    write_atomic,
)
from toolchain import zoo
from toolchain.matrix.plan import ModelsPlan, PlanSource
from toolchain.recipes.check import Problems
from toolchain.records.record import Subject

_ZOO = Path(zoo.__file__).parent


@dataclass(frozen=True, slots=True)
class TrialModel:
    """A model that is tried: how it is had, and what records call it.

    kind: `random` is written by `tk zoo make`, `trained` downloaded, `file` is there. gflop: of one
    inference, where it is known.
    """

    kind: Literal["random", "trained", "file"]
    subject: Subject
    gflop: float | None = None
    path: Path | None = None

    @property
    def name(self) -> str:
        """What the user calls it."""
        return str(self.path) if self.path else self.subject.revision or self.subject.network


def planned_models(models: ModelsPlan, source: PlanSource, problems: Problems) -> tuple[TrialModel, ...]:
    """The models that a plan names, each once; what it names wrongly is added to `problems`."""
    chosen: dict[str, TrialModel] = {}
    for one in (*_of_zoo(models, source, problems), *_files(models, source, problems)):
        chosen.setdefault(one.name, one)
    left_out = [one for pattern in models.without for one in chosen.values() if _is_called(one, pattern)]
    names = {one.name for one in left_out}
    return tuple(
        one for one in chosen.values() if one.name not in names and fits_size(one, models.most_gflop)
    )


def fits_size(model: TrialModel, most_gflop: float | None) -> bool:
    """Whether a model computes no more than that; one of which that is not known does not."""
    return most_gflop is None or (model.gflop is not None and model.gflop <= most_gflop)


def _is_called(model: TrialModel, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in (model.name, model.subject.network))


def _of_zoo(models: ModelsPlan, source: PlanSource, problems: Problems) -> Iterator[TrialModel]:
    networks = zoo.networks()
    families = {one.family for one in networks.values()}
    originals = {revision.name: one for one in networks.values() for revision in one.originals}
    named = _matching("networks", models.networks, networks, source, problems)
    of_family = _matching("families", models.families, families, source, problems)
    for one in networks.values():
        if one.name in named or one.family in of_family:
            if "random" in models.weights:
                yield TrialModel("random", Subject(network=one.name, family=one.family), one.gflop)
            if "trained" in models.weights:
                yield from (_trained(one, revision.name) for revision in one.originals)
    for name in _matching("revisions", models.revisions, originals, source, problems):
        yield _trained(originals[name], name)


def _trained(network: zoo.Network, revision: str) -> TrialModel:
    subject = Subject(network=network.name, family=network.family, revision=revision)
    return TrialModel("trained", subject, network.gflop)


def _matching(
    field_name: str, patterns: Iterable[str], known: Iterable[str], source: PlanSource, problems: Problems
) -> list[str]:
    """The known names that patterns stand for; a pattern that stands for none is a problem."""
    names, found = list(known), dict[str, None]()
    for number, pattern in enumerate(patterns):
        hits = [name for name in names if fnmatchcase(name, pattern)]
        if not hits:
            hint = did_you_mean(pattern, names) or "`tk zoo list` has them"
            where = source.where("models", field_name, number)
            problems.append((where, f"`{field_name}`: nothing is called {pattern!r}; {hint}"))
        found |= dict.fromkeys(hits)
    return list(found)


def _files(models: ModelsPlan, source: PlanSource, problems: Problems) -> Iterator[TrialModel]:
    for number, text in enumerate(models.files):
        found = list(_paths(source.folder, text))
        if not found:
            problems.append(
                (source.where("models", "files", number), f"`files`: no ONNX file is at {text!r}")
            )
        for path in found:
            yield TrialModel("file", Subject(network=path.stem, model=str(path)), path=path)


def _paths(folder: Path, text: str) -> list[Path]:
    place = folder / Path(text).expanduser()
    if place.is_dir():
        return sorted(place.glob("*.onnx"))
    if place.is_file():
        return [place]
    anchor = Path(place.anchor) if place.is_absolute() else Path()
    return sorted(one for one in anchor.glob(str(place.relative_to(anchor))) if one.is_file())


@dataclass(slots=True)
class ModelDigests:
    """Digests of models' contents; those of files are kept in `path` by name, size and time of change.

    A network that is written by its record has that of the record and of what writes it.
    """

    path: Path
    _known: dict[str, Any] = field(default_factory=dict)
    _zoo: str = ""
    _changed: bool = False

    def __post_init__(self) -> None:
        try:
            known = json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            return
        self._known = known if isinstance(known, dict) else {}

    def digest(self, model: TrialModel) -> str:
        """A text that changes when the content does; raises BadInputError for a file that cannot be read."""
        if model.path is not None:
            return self._of_files(model.path)
        self._zoo = self._zoo or package_digest(_ZOO)
        if model.kind == "trained":
            original = zoo.trained(model.subject.revision)[1]
            pinned = original.sha256
            return pinned if pinned != zoo.UNRESOLVED else content_key("trained", original.path)
        return content_key("random", repr(zoo.network(model.subject.network)), self._zoo)

    def save(self) -> None:
        """Keep what was found; raises HostError when that cannot be written."""
        if self._changed:
            write_atomic(self.path, json.dumps(self._known))

    def _of_files(self, path: Path) -> str:
        place = str(path.absolute())
        stamp, entry = _stamp(path), self._known.get(place)
        if not (isinstance(entry, Mapping) and entry.get("stamp") == stamp):
            entry = {"stamp": stamp, "sha256": sha256_file(path), "names": _names_beside(path)}
            self._known[place], self._changed = entry, True
        beside = [self._of_data(path.parent / name) for name in entry["names"]]
        return str(entry["sha256"]) if not beside else content_key(entry["sha256"], *beside)

    def _of_data(self, path: Path) -> str:
        place = str(path.absolute())
        stamp, entry = _stamp(path), self._known.get(place)
        if not (isinstance(entry, Mapping) and entry.get("stamp") == stamp):
            entry = {"stamp": stamp, "sha256": sha256_file(path)}
            self._known[place], self._changed = entry, True
        return str(entry["sha256"])


def _names_beside(path: Path) -> list[str]:
    """Files of external data; none where the model cannot be read, which its trial will say."""
    try:
        return list(external_files(path))
    except TkError:
        return []


def _stamp(path: Path) -> list[int]:
    try:
        facts = path.stat()
    except OSError as error:
        raise BadInputError("a model cannot be read", where=str(path), why=error.strerror or "") from error
    return [facts.st_size, facts.st_mtime_ns, facts.st_ino]
