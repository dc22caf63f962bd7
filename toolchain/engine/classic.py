"""Builds without BuildKit, with Docker's classic builder or podman: the same plan, without mounts.

The classic builder knows neither secrets nor caches, and whatever a step copies into a stage stays in a
layer; podman goes on with a step when nobody waits for it any more. So each RUN gets a container of its own,
in which secrets, files of the context and caches are volumes, and what it changed becomes the next layer (a
commit leaves volumes out). No secret enters a layer, nothing is shared but through the engine, and what is
interrupted goes with its container. All other instructions are left to the engine's builder, a sequence of
them at a time, each beginning at the layer before.

Engines put what a container has beside its image into what is committed: Docker its command and labels,
podman its environment and anonymous volumes, too. None of that may get into the result, which is to be the
same image whoever builds it; see `_run_and_commit`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from compiler import InternalError
from toolchain.engine import labels
from toolchain.engine.builders import BuildRequest, Failure, archive, build_with_api, engine_refusal
from toolchain.engine.client import Engine
from toolchain.engine.events import Event, Listener, split_lines
from toolchain.engine.watch import awaited, followed
from toolchain.images import quoting
from toolchain.images.plan import ContextFile, Copy, Env, From, Instruction, Mount, Plan, Run, Stage, encode


class ClassicBuild:
    """One build: the image so far of each stage."""

    def __init__(self, engine: Engine, request: BuildRequest, listener: Listener, log: list[str]) -> None:
        self._engine = engine
        self._request = request
        self._tell = listener
        self._log = log
        self._files = {one.path: one for one in request.files if one.path != "Dockerfile"}
        self._stages: dict[str, str] = {}
        self._steps = 0
        self._leaked: set[str] = set()

    def run(self, plan: Plan) -> Failure | None:
        """Build all stages; the last one gets the name and the labels."""
        for stage in plan.stages:
            parts = list(_parts(stage))
            for number, part in enumerate(parts):
                is_last = stage is plan.stages[-1] and number == len(parts) - 1
                failure = self._part(plan, stage.name, part, is_last=is_last)
                if failure is not None:
                    return failure
        return None

    def _part(
        self, plan: Plan, stage: str, part: Run | tuple[Instruction, ...], *, is_last: bool
    ) -> Failure | None:
        if isinstance(part, Run):
            result = self._run(part, self._stages[stage])
            if isinstance(result, Failure):
                return result
            self._stages[stage] = result
            part = ()
        return self._build(plan, stage, part, is_last=is_last) if part or is_last else None

    def _build(
        self, plan: Plan, stage: str, part: tuple[Instruction, ...], *, is_last: bool
    ) -> Failure | None:
        """Give plain instructions to the engine's builder; the last part names the image."""
        from toolchain.images.render import dockerfile

        steps = [self._here(one) for one in part]
        if not steps or not isinstance(steps[0], From):
            steps.insert(0, From(self._stages[stage], "part"))
        piece = dataclasses.replace(plan, stages=(Stage("part", tuple(steps)),))
        files = (ContextFile("Dockerfile", dockerfile(piece).encode()), *self._files.values())
        request = dataclasses.replace(
            self._request,
            reference=self._request.reference if is_last else "",
            labels=self._request.labels if is_last else {},
            cache_from=(),
            unset=tuple(sorted(self._leaked - _set_by(plan))),
        )
        failure, identity = build_with_api(
            self._engine, request, archive(files), self._renumbered(), self._log
        )
        if failure is not None:
            return failure
        if not identity:
            raise InternalError("the engine's builder does not say what it has made")
        self._stages[stage] = identity
        return None

    def _renumbered(self) -> Listener:
        """Steps of one run of the builder count on from those before."""
        self._steps += 1
        run = self._steps
        return lambda event: self._tell(dataclasses.replace(event, step=f"{run}.{event.step}"))

    def _here(self, one: Instruction) -> Instruction:
        """The instruction with earlier stages by their images."""
        if isinstance(one, From):
            image = self._stages.get(one.image, one.mirror or one.image)
            return From(image, "part")
        if isinstance(one, Copy) and one.from_stage in self._stages:
            return dataclasses.replace(one, from_stage=self._stages[one.from_stage])
        return one

    def _run(self, step: Run, image: str) -> str | Failure:
        """Run one step with its mounts and return the image after it."""
        key = self._key(step, image)
        text = " && ".join(" ".join(map(quoting.word, command)) for command in step.commands)
        self._steps += 1
        number = f"{self._steps}.run"
        self._tell(Event("started", number, f"RUN {text}"))
        self._log.append(f"RUN {text}")
        if not self._request.no_cache and (before := self._made_before(key)):
            self._tell(Event("cached", number))
            self._note_leaks(image, before)
            return before
        began = time.monotonic()
        result = self._run_and_commit(image, text, step.mounts, key, number)
        if isinstance(result, Failure):
            self._tell(Event("failed", number, result.why))
        else:
            self._tell(Event("done", number, seconds=time.monotonic() - began))
            self._note_leaks(image, result)
        return result

    def _note_leaks(self, before: str, after: str) -> None:
        """Remember variables that the engine's containers have and a step's layer got: podman's TERM."""
        new = _variables(_config(self._engine, after)) - _variables(_config(self._engine, before))
        self._leaked |= new

    def _run_and_commit(
        self, image: str, text: str, mounts: Sequence[Mount], key: str, number: str
    ) -> str | Failure:
        """The layer that a step makes: its container's changes with the configuration of the layer before.

        All of the command is the entrypoint, so that there is no command to inherit, and its name says whose
        the container is in place of a label.
        """
        engine, name = self._engine, labels.step_name()
        folders = _by_folder(mounts)
        volumes = [self._volume(name, *one) for one in folders.items()]
        host: dict[str, Any] = {"mounts": volumes}
        if self._request.network:
            host["network_mode"] = self._request.network
        with engine.container(image, [], name=name, entrypoint=["/bin/sh", "-c", text], host=host):
            for folder, inside in folders.items():
                self._fill(name, folder, inside)
            doing = f"run a step of {self._request.reference}"
            with engine.guard(doing):
                engine.api.start(name)
                for line in split_lines(self._output(name, doing)):
                    self._log.append(line)
                    self._tell(Event("output", number, line))
                code = int(engine.api.wait(name)["StatusCode"])
            if code:
                return Failure(f"`{text}` ended with exit code {code}")
            return self._commit(name, image, labels.step_label(key))

    def _output(self, container: str, doing: str) -> Iterator[str]:
        """What a container prints, in parts as they come."""
        api = self._engine.api
        watch = self._engine.watch(doing, container)
        for part in followed(lambda: api.logs(container, stream=True, follow=True), watch):
            yield part.decode(errors="replace")

    def _commit(self, container: str, image: str, label: str) -> str | Failure:
        """Make an image of what a container changed: without a limit, as vendors' layers have many GB.

        Docker takes the configuration that it is handed, and podman changes to the container's own.
        """
        api, doing = self._engine.api, f"keep a step of {self._request.reference}"
        config = _config(self._engine, image)
        entry, command = config.get("Entrypoint") or [], config.get("Cmd") or []
        own = {**(config.get("Labels") or {}), labels.PLAN: label}
        body = {**config, "Entrypoint": entry, "Cmd": command, "Labels": own}
        query: dict[str, Any] = {"container": container}
        if self._engine.kind == "podman":
            words = (f"ENTRYPOINT {json.dumps(entry)}", f"CMD {json.dumps(command)}")
            query["changes"] = [*words, f"LABEL {labels.PLAN}={label}"]
        with self._engine.guard(doing):
            url = f"{api.base_url}/v{api.api_version}/commit"
            answer = awaited(
                lambda: api.post(url, params=query, json=body, timeout=None), self._engine.watch(doing)
            )
        return engine_refusal(answer) or str(answer.json()["Id"])

    def _key(self, step: Run, image: str) -> str:
        """What decides the result of a step: the layers before it, its text, and the files that it reads."""
        read = [one.source for one in step.mounts if one.kind == "bind"]
        content = [self._files[path].data.hex() for path in read if path in self._files]
        sources = [self._stages.get(one.from_stage, one.from_stage) for one in step.mounts]
        parts = [image, encode(step), content, sources]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _made_before(self, key: str) -> str:
        with self._engine.guard("look for earlier steps"):
            found = self._engine.api.images(
                filters={"label": f"{labels.PLAN}={labels.step_label(key)}"}, all=True
            )
        made = sorted(found, key=lambda one: (int(one.get("Created") or 0), str(one["Id"])))
        return str(made[0]["Id"]) if made else ""

    def _volume(self, container: str, folder: str, mounts: Sequence[Mount]) -> Mapping[str, str]:
        """A volume at `folder`: that of a cache, which is kept, or one that goes with its container.

        Even that has a name, as podman makes each anonymous one a volume of the image; the engine makes it
        with the container.
        """
        volume, digits = (
            {"Type": "volume", "Target": folder},
            hashlib.sha256(folder.encode()).hexdigest()[:12],
        )
        if mounts[0].kind != "cache":
            return {**volume, "Source": labels.volume_of(container, digits)}
        name = f"tk-cache-{mounts[0].id or digits}"
        with self._engine.guard(f"make the volume {name}"):
            self._engine.api.create_volume(name, labels={labels.VOLUME: "build"})
        return {**volume, "Source": name}

    def _fill(self, container: str, folder: str, mounts: Sequence[Mount]) -> None:
        """Put secrets and files into the volume that a container has at `folder`."""
        if mounts[0].kind == "cache":
            return
        for archived in self._contents(folder, mounts):
            with self._engine.guard(f"hand files to a step of {self._request.reference}"):
                self._engine.api.put_archive(container, folder, archived)

    def _contents(self, folder: str, mounts: Sequence[Mount]) -> Iterator[bytes]:
        files = []
        for one in mounts:
            path = str(PurePosixPath(one.target).relative_to(folder))
            if one.kind == "secret":
                files.append(ContextFile(path, self._request.secrets.get(one.id, b""), 0o400))
            elif one.from_stage:
                yield self._from_stage(one)
            else:
                found = self._files[one.source]
                files.append(ContextFile(path, found.data, found.mode))
        yield archive(files)

    def _from_stage(self, mount: Mount) -> bytes:
        """The content of a folder of an earlier stage, as an archive."""
        engine = self._engine
        image = self._stages[mount.from_stage]
        with engine.container(image, ["none"]) as name, engine.guard(f"read {mount.source} of {image}"):
            parts, _ = engine.api.get_archive(name, f"{mount.source}/.")
            return b"".join(parts)


def _config(engine: Engine, image: str) -> dict[str, Any]:
    return dict((engine.image(image) or {}).get("Config") or {})


def _set_by(plan: Plan) -> set[str]:
    steps = (one for stage in plan.stages for one in stage.instructions if isinstance(one, Env))
    return {name for one in steps for name, _ in one.pairs}


def _variables(config: Mapping[str, Any]) -> set[str]:
    """Names of the environment variables of an image, without PATH, which every builder sets."""
    return {str(one).partition("=")[0] for one in config.get("Env") or ()} - {"PATH"}


def _parts(stage: Stage) -> Iterator[Run | tuple[Instruction, ...]]:
    """A stage cut into its RUNs, and sequences of other instructions."""
    plain: list[Instruction] = []
    for one in stage.instructions:
        if isinstance(one, Run):
            if plain:
                yield tuple(plain)
            plain = []
            yield one
        else:
            plain.append(one)
    if plain:
        yield tuple(plain)


def _by_folder(mounts: Sequence[Mount]) -> dict[str, list[Mount]]:
    """Mounts by the folder that a volume must be at: the target of a folder, the parent of a file."""
    folders: dict[str, list[Mount]] = {}
    for one in mounts:
        is_folder = one.kind == "cache" or bool(one.from_stage)
        folder = one.target if is_folder else str(PurePosixPath(one.target).parent)
        folders.setdefault(folder, []).append(one)
    return folders
