"""A small plan that uses everything: stages, secrets, caches, files of the context, labels, a fixed user."""

from __future__ import annotations

from toolchain.images.plan import (
    CA_SECRET,
    BaseImage,
    Cmd,
    ContextFile,
    Copy,
    Env,
    From,
    Label,
    Mount,
    Plan,
    Run,
    SmokeTest,
    Stage,
    User,
)

MARK = "0f1e2d3c-secret-of-the-site"
"""What the tests hand in as a secret and look for afterwards."""


def small_plan(base: str, *, word: str = "one", fails: bool = False, seconds: str = "") -> Plan:
    """An image of two stages on `base`; `word` makes it another one, `fails` makes a step of it fail.

    `seconds` makes a step that takes so long.
    """
    secret = Mount("secret", f"/run/secrets/{CA_SECRET}", id=CA_SECRET)
    cache = Mount("cache", "/var/cache/tk-small", id="tk-small")
    script = Mount("bind", "/run/tk/step.sh", source="tk/step.sh")
    build = Stage(
        "build",
        (
            From(base, "build"),
            Env((("WORD", word),)),
            Run((("sh", "/run/tk/step.sh"),), (script, secret, cache)),
            Run((("sh", "-c", "echo doing; echo no such thing: 42 >&2; exit 3"),))
            if fails
            else Run((("true",),)),
        ),
    )
    image = Stage(
        "image",
        (
            From(base, "image"),
            Copy(("/made",), "/made", "build"),
            Run((("sh", "-c", "cat /made"),), (secret,)),
            *([Run((("sleep", seconds),), (cache,))] if seconds else []),
            Label((("org.opencontainers.image.title", "small"),)),
            User("10000:10000"),
            Cmd(("cat", "/made")),
        ),
    )
    text = (
        "set -eu\n"
        'printf "%s %s\\n" "$WORD" "$(sha256sum < /run/secrets/tk-ca)" > /made\n'
        "echo kept >> /var/cache/tk-small/kept\n"
        "test -w /var/cache/tk-small\n"
    )
    return Plan(
        name=f"small-{word}",
        repository="tk/small",
        tag=word,
        base=BaseImage(base, os="debian-12", stand_in=True),
        stages=(build, image),
        files=(ContextFile("tk/step.sh", text.encode(), 0o755),),
        smoke=(SmokeTest("made", ("grep", word, "/made")),),
        labels=(("org.opencontainers.image.title", "small"),),
    )


def plan_with_component(base: str) -> Plan:
    """An image that copies from a component's, which holds nothing but what was built."""
    made = Run((("sh", "-c", "mkdir -p /opt/part && echo whole > /opt/part/file"),))
    part = Plan(
        name="small-part",
        repository="tk/part",
        tag="1",
        base=BaseImage(base, os="debian-12", stand_in=True),
        stages=(
            Stage("build", (From(base, "build"), made)),
            Stage("image", (From("scratch", "image"), Copy(("/opt/part",), "/opt/part", "build"))),
        ),
        provides=("/opt/part",),
    )
    copied = Copy(("/opt/part",), "/opt/part", part.reference)
    return Plan(
        name="small-whole",
        repository="tk/small",
        tag="whole",
        base=BaseImage(base, os="debian-12", stand_in=True),
        stages=(Stage("image", (From(base, "image"), copied, User("10000:10000"))),),
        needs=(part,),
    )
