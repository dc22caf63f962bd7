"""Hostile recipes of a site: refused with file and line, or taken as exactly what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler import BadInputError
from toolchain.images.parse_back import check_parses_back
from toolchain.images.planner import plan_image
from toolchain.images.render import dockerfile
from toolchain.recipes.resolve import load_catalog, resolve
from toolchain.site import SiteConfig

# A complete and harmless recipe; FIELDS says how each field's line begins.
STACK = """\
stack: acme
title: ACME stack
vendor: none
name: "acme-{version}"
each:
  sources:
    provides: "a test"
    install: "a test"
    archs: "a test"
rows:
  - version: "1.0"
    bases:
      - system: debian-12
        reference: "registry.acme.example/acme/base:1.0"
        digest: unresolved
        source: "a test"
        parameters:
          suite: stable
    provides:
      acme: "1.0"
    prefixes:
      acme: /opt/acme
    archs:
      - spir64
    default_archs: [spir64]
    driver:
      minimum: "450"
      source: "a test"
    notes:
      - "nothing"
    install:
      - remove:
          - /etc/apt/sources.list.d/old.list
        repositories:
          - name: acme
            uri: https://apt.acme.example/debian/
            suites:
              - "{suite}"
            key: https://apt.acme.example/key.asc
            key_sha256: unresolved
            pin_origin: apt.acme.example
            pin_priority: 600
        apt:
          - acme-compiler
        pip:
          - acme==1.0
        downloads:
          - url: https://acme.example/acme-1.0.tar.gz
            sha256: unresolved
            path: /opt/acme
            unpack: tar
            strip: 1
            source: "a test"
        env:
          ACME_HOME: /opt/acme
        path:
          - /opt/acme/bin
        libraries:
          - /opt/acme/lib
        smoke:
          - name: version
            run:
              - acmecc
              - --version
            expect: "acme"
"""

# what is changed -> the text in the recipe whose value is replaced
FIELDS = {
    "title": "title: ACME stack",
    "name": 'name: "acme-{version}"',
    "stack": "stack: acme",
    "version": '  - version: "1.0"',
    "system": "system: debian-12",
    "reference": 'reference: "registry.acme.example/acme/base:1.0"',
    "digest": "digest: unresolved",
    "parameter": "suite: stable",
    "provides": '      acme: "1.0"',
    "prefix": "      acme: /opt/acme",
    "arch": "      - spir64",
    "driver": 'minimum: "450"',
    "note": '      - "nothing"',
    "remove": "          - /etc/apt/sources.list.d/old.list",
    "repository": "          - name: acme",
    "uri": "uri: https://apt.acme.example/debian/",
    "suite": '              - "{suite}"',
    "key": "key: https://apt.acme.example/key.asc",
    "key_sha256": "key_sha256: unresolved",
    "pin_origin": "pin_origin: apt.acme.example",
    "pin_priority": "pin_priority: 600",
    "apt": "          - acme-compiler",
    "pip": "          - acme==1.0",
    "url": "url: https://acme.example/acme-1.0.tar.gz",
    "sha256": "            sha256: unresolved",
    "path-of-download": "            path: /opt/acme",
    "unpack": "unpack: tar",
    "strip": "strip: 1",
    "env": "ACME_HOME: /opt/acme",
    "path": "          - /opt/acme/bin",
    "libraries": "          - /opt/acme/lib",
    "smoke-name": "          - name: version",
    "smoke-program": "              - acmecc",
    "smoke-argument": "              - --version",
    "expect": 'expect: "acme"',
}
# A scalar in double quotes, as YAML's own escapes make every character possible.
PAYLOADS = {
    "newline": r'"a\nUSER root"',
    "carriage-return": r'"a\rUSER root"',
    "line-separator": r'"a\u2028USER root"',
    "null": r'"a\0"',
    "escape": r'"\e[2Ja"',
    "right-to-left": r'"a\u202eb"',
    "substitution": '"$(touch /owned)"',
    "variable": '"${HOME}"',
    "backtick": '"`id`"',
    "template": '"{{ 7 * 7 }}"',
    "statement": '"{% for x in y %}"',
    "placeholder": '"{nothing}"',
    "format": '"{0.__class__}"',
    "backslash": r'"a\\"',
    "empty": '""',
    "long": '"' + "a" * 2000 + '"',
    "list": '[["a"]]',
    "mapping": "{a: {b: c}}",
}
# Harmless in some fields: there they must arrive in the Dockerfile as they are, or not at all.
DOUBTFUL = {
    "option": '"--privileged"',
    "short-option": '"-o"',
    "semicolon": '"a; rm -rf /"',
    "ampersand": '"a && id"',
    "quote": '"it\'s"',
    "double-quote": r'"a\"b"',
    "hash": '"a # b"',
    "blank": '" a"',
    "parent": '"/opt/../etc"',
    "instruction": '"FROM scratch"',
    "unicode": '"a\u00e9"',
    "wildcard": '"*"',
    "yes": "yes",
    "tilde": "~",
}


SYSTEMS = """\
systems:
  - {system: debian, version: "12", family: debian, codename: bookworm, source: a test,
     provides: {tk-python: "3.11"}, prefixes: {tk-python: /usr}}
"""


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No shipped recipes but a system: reading those for each of a thousand cases would take minutes."""
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "systems.yaml").write_text(SYSTEMS)
    monkeypatch.setattr("toolchain.recipes.catalog.data_directory", lambda _: folder)


def changed(field: str, payload: str) -> tuple[str, int]:
    """The recipe with the value of one field replaced, and the line of it."""
    old = FIELDS[field]
    assert STACK.count(old + "\n") == 1, old
    line = STACK[: STACK.index(old + "\n")].count("\n") + 1
    kept = old[: old.index("- ") + 2] if old.lstrip().startswith("- ") and ": " not in old else ""
    kept = kept or old[: old.index(": ") + 2]
    return STACK.replace(old + "\n", f"{kept}{payload}\n"), line


def site(folder: Path, text: str, name: str = "stacks/acme.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def refused(folder: Path) -> BadInputError:
    with pytest.raises(BadInputError) as caught:
        load_catalog([folder])
    return caught.value


def test_the_recipe_itself_is_fine(tmp_path: Path) -> None:
    site(tmp_path, STACK)
    taken_as_it_is(tmp_path)


def taken_as_it_is(folder: Path) -> str:
    """Resolve, plan and render; the text read back is the plan."""
    catalog = load_catalog([folder])
    (stack,) = [
        one for one in catalog.stacks.values() if "ACME" in one.stack.title or "acme" in one.stack.name
    ]
    (entry,) = stack.rows
    name = stack.stack.name.replace("{version}", entry.row.version)
    plan = plan_image(resolve(name, catalog), site=SiteConfig())
    text = dockerfile(plan)
    check_parses_back(plan, text)
    return text


def outcome(folder: Path) -> tuple[str, BadInputError | None]:
    try:
        return taken_as_it_is(folder), None
    except BadInputError as error:
        return "", error


@pytest.mark.sample(4)
@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("field", FIELDS)
def test_hostile_value(field: str, payload: str, alone: None, tmp_path: Path) -> None:
    if (field, payload) == ("env", "empty"):
        return  # an empty variable is harmless
    text, line = changed(field, PAYLOADS[payload])
    path = site(tmp_path, text)
    assert f"{path}:{line}" in str(refused(tmp_path))


@pytest.mark.sample(4)
@pytest.mark.parametrize("payload", DOUBTFUL)
@pytest.mark.parametrize("field", FIELDS)
def test_doubtful_value(field: str, payload: str, alone: None, tmp_path: Path) -> None:
    """Where such a value is allowed, the rendered Dockerfile is read back as exactly what was planned."""
    text, line = changed(field, DOUBTFUL[payload])
    path = site(tmp_path, text)
    rendered, error = outcome(tmp_path)
    if error is not None:
        assert f"{path}:{line}" in str(error) or f"{path}:" in error.where, str(error)
        return
    assert "\nFROM scratch" not in rendered


def conditional(has: str) -> str:
    return STACK.replace("      - remove:", f"      - when: {{has: {{{has}}}}}\n        remove:")


WHOLE = {
    "tag": ("stack: !!python/object/apply:os.system ['id']\n", 1),
    "binary": ("stack: !!binary aWQ=\n", 1),
    "set": ("stack: acme\nrows: !!set {a, b}\n", 2),
    "anchor": ("stack: &a acme\ntitle: *a\n", 1),
    "alias": ("stack: acme\ntitle: *a\n", 2),
    "billion-laughs": ("a: &a [x]\nb: &b [*a, *a, *a]\nc: [*b, *b]\n", 1),
    "merge": ("stack: acme\n<<: {title: x}\n", 2),
    "duplicate": ("stack: acme\ntitle: one\ntitle: two\n", 3),
    "duplicate-in-row": (STACK.replace("    prefixes:\n", "    provides:\n      x: y\n    prefixes:\n"), 21),
    "directive": ("%YAML 1.2\n---\nstack: acme\n", 1),
    "documents": ("stack: acme\n---\nstack: other\n", 2),
    "complex-key": ("? {a: b}\n: c\n", 1),
    "tabs": ("stack: acme\nrows:\n\t- version: 1\n", 3),
    "crlf": ("stack: acme\r\n", 1),
    "null": ("stack: acme\ntitle: a\0b\n", 2),
    "bidi-comment": ("stack: acme  # \u202e hidden\n", 1),
    "deep": ("a: " + "[" * 5000 + "\n", 1),
    "deep-mapping": ("\n".join(" " * i + "a:" for i in range(40)) + "\n", 18),
    "many": ("rows:\n" + "  - a\n" * 30_000, 19_999),
    "long-text": ("title: " + "x" * 5000 + "\n", 1),
    "huge": ("# " + "x" * 300_000 + "\n", 1),
    "list": ("- a\n- b\n", 1),
    "text": ("just text\n", 1),
    "empty": ("", 1),
    "broken": ("stack: 'acme\n", 2),
    "unknown-key": (STACK.replace("vendor: none", "vendro: none"), 0),
    "unknown-key-in-row": (STACK.replace("    archs:\n", "    arch:\n"), 0),
    "unknown-key-in-layer": (STACK.replace("        apt:\n", "        aptt:\n"), 0),
    "run-as-code": (STACK.replace("        apt:\n", "        commands:\n"), 0),
    "unknown-vendor": (STACK.replace("vendor: none", "vendor: nvidea"), 0),
    "unknown-system": (STACK.replace("debian-12", "debian-11"), 0),
    "no-rows": ("stack: acme\ntitle: a\nvendor: none\nname: acme\nrows: []\n", 5),
    "rows-text": ("stack: acme\ntitle: a\nvendor: none\nname: acme\nrows: a\n", 5),
    "stack-list": ("stack: [acme]\n", 0),
    "version-list": (STACK.replace('- version: "1.0"', "- version: [1]"), 0),
    "same-version": (STACK + STACK[STACK.index('  - version: "1.0"') :], STACK.count("\n") + 1),
    "no-source": (STACK.replace('    install: "a test"\n', ""), 10),
    "path-in-env": (STACK.replace("ACME_HOME", "PATH"), 0),
    "ld-preload": (STACK.replace("ACME_HOME", "LD_PRELOAD"), 0),
    "small-env": (STACK.replace("ACME_HOME", "acme"), 0),
    "env-with-equals": (STACK.replace("ACME_HOME:", '"A=B":'), 0),
    "http": (STACK.replace("url: https:", "url: http:"), 0),
    "file-url": (STACK.replace("https://acme.example/acme-1.0.tar.gz", "file:///etc/passwd"), 0),
    "credentials": (STACK.replace("https://acme.example/", "https://me:secret@acme.example/"), 0),
    "condition-unknown": (conditional("rcom: any"), 0),
    "condition-no-specifier": (conditional("acme: '>=a b'"), 0),
    "run-and-probe": (STACK.replace('expect: "acme"', "probe: cpp-kernel"), 61),
    "flag": (STACK.replace('expect: "acme"', "needs_device: 1"), 0),
}  # fmt: skip


def first_difference(text: str) -> int:
    """The first line that is not as in the harmless recipe."""
    pairs = zip(text.split("\n"), [*STACK.split("\n"), ""], strict=False)
    return next(number for number, (one, other) in enumerate(pairs, 1) if one != other)


@pytest.mark.parametrize("case", WHOLE)
def test_hostile_file(case: str, alone: None, tmp_path: Path) -> None:
    text, line = WHOLE[case]
    path = site(tmp_path, text)
    line = line or first_difference(text)
    error = refused(tmp_path)
    assert f"{path}:{line}" in str(error), str(error)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (
            "rules.yaml",
            (
                "rules:\n  - id: rocm-5.5-dpcpp\n    when: {}\n    verdict: warn\n"
                "    because: mine\n    source: me\n"
            ),
            2,
        ),
        (
            "rules.yaml",
            (
                "rules:\n  - id: x\n    when: {has: {rocm: any}}\n    verdict: allow\n"
                "    because: a\n    source: b\n"
            ),
            4,
        ),
        (
            "rules.yaml",
            (
                "rules:\n  - id: x\n    when: {has: {rocn: any}}\n    verdict: warn\n"
                "    because: a\n    source: b\n"
            ),
            2,
        ),
        ("rules.yaml", "rule: []\n", 1),
        ("environments.yaml", "environments:\n  - {name: mine, title: a, image: rocm-99, source: b}\n", 2),
        ("environments.yaml", "environments:\n  - {name: mine, title: a, image: mine, source: b}\n", 2),
        ("environments.yaml", "environments:\n  - {name: rocm, title: a, image: cpu, source: b}\n", 2),
        ("environments.yaml", "environments:\n  - {name: rocm-tvm, title: a, image: cpu, source: b}\n", 2),
        ("environments.yaml", "environments:\n  - {name: x, title: a, image: 'cpu; id', source: b}\n", 2),
        ("targets.yaml", "targets:\n  - {target: cpu, images: [], because: a}\n", 2),
        ("targets.yaml", "targets:\n  - {target: cpu, images: [cpuu], because: a}\n", 2),
        ("issues/x.yaml", "issues:\n  - {id: x, patterns: [short], cause: a, evidence: b, action: c}\n", 2),
        (
            "issues/x.yaml",
            "issues:\n  - {id: x, patterns: ['* a b c *'], cause: a, evidence: b, action: c}\n",
            2,
        ),
        ("issues/x.yaml", "issues:\n  - {id: x, cause: a, evidence: b, action: c}\n", 2),
        (
            "issues/x.yaml",
            "issues:\n  - {id: x, patterns: [a long one], follows: [no], cause: a, evidence: b, action: c}\n",
            2,
        ),
        (
            "issues/x.yaml",
            "issues:\n  - {id: base-gone, patterns: [a long one], cause: a, evidence: b, action: c}\n",
            2,
        ),
        (
            "systems.yaml",
            "systems:\n  - {system: debian, version: '12', family: debian, codename: b, source: a}\n",
            2,
        ),
        (
            "systems.yaml",
            "systems:\n  - {system: arch, version: '1', family: pacman, codename: b, source: s}\n",
            2,
        ),
        (
            "components/x.yaml",
            ("component: x\ntitle: a\nreleases:\n  - version: '1'\n    released: soon\n    source: b\n"),
            5,
        ),
        (
            "components/x.yaml",
            (
                "component: x\ntitle: a\nreleases:\n  - version: '1'\n    released: 2022-12\n"
                "    source: b\n    install:\n      - apt: ['{rocm.prefixx}']\n"
            ),
            8,
        ),
        (
            "components/x.yaml",
            (
                "component: x\ntitle: a\nreleases:\n  - version: '1'\n    released: 2022-12\n"
                "    source: b\n    install:\n      - path: ['{rocn.prefix}']\n"
            ),
            8,
        ),
    ],
)
def test_hostile_table(name: str, text: str, line: int, tmp_path: Path) -> None:
    path = site(tmp_path, text, name)
    assert f"{path}:{line}" in str(refused(tmp_path))


@pytest.mark.parametrize(
    "name", ["stacks/x.yml", "stack/x.yaml", "evil.yaml", "stacks/deep/x.yaml", "issues.yaml"]
)
def test_files_that_are_none(name: str, tmp_path: Path) -> None:
    site(tmp_path, "a: b\n", name)
    assert name in str(refused(tmp_path))


def test_too_many_files(tmp_path: Path) -> None:
    for number in range(300):
        site(tmp_path, "a: b\n", f"stacks/s{number}.yaml")
    assert "too many" in str(refused(tmp_path))


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    site(tmp_path, STACK.replace("vendor: none", "vendro: none").replace("debian-12", "Debian 12"))
    site(tmp_path, "stack: [\n", "stacks/broken.yaml")
    message = str(refused(tmp_path))
    assert "broken.yaml:" in message
    (tmp_path / "stacks/broken.yaml").unlink()
    message = str(refused(tmp_path))
    assert "acme.yaml:3" in message
    assert "did you mean 'vendor'?" in message
    assert "acme.yaml:13" in message


def test_there_are_enough() -> None:
    assert len(FIELDS) * len(PAYLOADS) + len(WHOLE) >= 150
