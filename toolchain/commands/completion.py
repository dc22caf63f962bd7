"""`tk completion`: shell completion as a script to source."""

from __future__ import annotations

from typing import Annotated

import typer

import compiler
from toolchain import console

# Each asks `tk` itself, in the protocol of typer: _TK_COMPLETE names the shell, the words are in variables.
_SCRIPTS = {
    "bash": """\
_tk_complete() {
  local IFS=$'\\n'
  COMPREPLY=( $(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _TK_COMPLETE=complete_bash tk) )
}
complete -o default -F _tk_complete tk""",
    "zsh": """\
#compdef tk
_tk_complete() {
  eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _TK_COMPLETE=complete_zsh tk)
}
compdef _tk_complete tk""",
    "fish": """\
complete --command tk --arguments "(env _TK_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \
_TYPER_COMPLETE_ARGS=(commandline -cp) tk)" --condition "env _TK_COMPLETE=complete_fish \
_TYPER_COMPLETE_FISH_ACTION=is-args _TYPER_COMPLETE_ARGS=(commandline -cp) tk" """,
}


def completion_command(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a script that completes `tk` in a shell.

    Load it as in `source <(tk completion bash)`.
    """
    if shell not in _SCRIPTS:
        raise compiler.UsageError(
            f"no completion for the shell `{shell}`",
            hint=compiler.did_you_mean(shell, _SCRIPTS) or "choose bash, zsh or fish",
        )
    console.data(_SCRIPTS[shell].rstrip())
