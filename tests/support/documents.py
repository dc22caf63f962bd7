"""What documents show."""

from __future__ import annotations

import re
import shlex


def shell_commands(text: str) -> list[str]:
    """The commands in the `sh` blocks of a Markdown text, as they are typed, without their comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [shlex.join(shlex.split(line, comments=True)) for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]
