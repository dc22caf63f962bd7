"""What the team's site says, who is logged in where, and the locks."""

from __future__ import annotations

import json
from collections.abc import Iterable

from compiler import TkError
from toolchain.doctor.row import CheckContext, Row, problem


def check_site(context: CheckContext) -> Iterable[Row]:
    """The site's configuration: which files, CA bundle, registry, mirrors."""
    from toolchain.site import load_site

    try:
        config = load_site(context.site)
        config.ca_certificates()
    except TkError as error:
        yield problem("site", error)
        return
    files = ", ".join(str(one) for one in config.files) or "no site.yaml: defaults"
    parts = [f"registry {config.registry}"] if config.registry else []
    if config.ca_bundle is not None:
        parts.append(f"CA bundle {config.ca_bundle} ({config.ca_source})")
    mirrors = len(config.apt_mirrors) + len(config.git_mirrors) + len(config.registry_mirrors)
    parts += [f"{mirrors} mirrors"] if mirrors else []
    yield Row("site", "ok", "; ".join([files, *parts]))


def logins(context: CheckContext) -> Iterable[Row]:
    """Registries that Docker's configuration has logins or helpers for: names, never secrets."""
    path = context.settings.config / "config.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        yield Row("registry logins", "ok", "none")
        return
    except (OSError, ValueError) as error:
        yield Row(
            "registry logins",
            "warning",
            f"{path} cannot be read",
            str(error),
            "`docker login` writes it anew",
        )
        return
    facts = document if isinstance(document, dict) else {}
    names = sorted({*_keys(facts.get("auths")), *_keys(facts.get("credHelpers"))})
    store = facts.get("credsStore")
    kept = f", kept by docker-credential-{store}" if isinstance(store, str) and store else ""
    plain = [
        name for name, entry in _items(facts.get("auths")) if isinstance(entry, dict) and entry.get("auth")
    ]
    if plain and not kept:
        yield Row(
            "registry logins",
            "warning",
            f"{', '.join(names)}: kept as plain text in {path}",
            "whoever reads the file has the passwords",
            "set `credsStore` in it to a helper such as `secretservice` or `pass`, and log in again",
        )
    else:
        yield Row("registry logins", "ok", (", ".join(names) or "none") + kept)


def _keys(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, dict) else []


def _items(value: object) -> list[tuple[str, object]]:
    return [(str(key), one) for key, one in value.items()] if isinstance(value, dict) else []


def lock(_context: CheckContext) -> Iterable[Row]:
    """The project's lock, and the user's own where there is one: which images they pin."""
    from toolchain.images.lock.file import read_lock
    from toolchain.images.lock.pins import lock_path, user_lock

    project = lock_path()
    for path in (project, user_lock()):
        is_own = path != project
        about = "own lock" if is_own else "lock"
        try:
            found = read_lock(path)
        except TkError as error:
            yield problem(about, error, "warning" if is_own else "problem")  # a project's may do without it
            continue
        if found is not None:
            names = ", ".join(sorted(found.images)) or "nothing"
            yield Row(about, "ok", f"{path} pins {names}")
        elif not is_own:
            yield Row(about, "ok", f"no {path.name} in {path.parent}")
