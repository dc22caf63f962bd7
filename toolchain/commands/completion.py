"""`tk completion`: shell completion as a script to source, and the hidden command that the scripts ask."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import compiler
from toolchain import console, zoo
from toolchain.settings import login_shell

# Each script asks `tk complete-words -- WORDS`, the words up to the cursor, and falls back to file names.
_SCRIPTS = {
    "bash": """\
_tk_complete() {
  local IFS=$'\\n'
  COMPREPLY=( $(tk complete-words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null) )
}
complete -o default -F _tk_complete tk""",
    "zsh": """\
#compdef tk
_tk_complete() {
  local -a found
  found=( ${(f)"$(tk complete-words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"} )
  if (( $#found )); then compadd -- $found; else _files; fi
}
compdef _tk_complete tk""",
    "fish": """\
function __tk_complete
  set --local before (commandline --tokenize --cut-at-cursor --current-process)
  tk complete-words -- $before[2..] (commandline --current-token --cut-at-cursor) 2>/dev/null
end
complete --command tk --arguments '(__tk_complete)'""",
}


def completion_command(
    shell: Annotated[
        str | None, typer.Argument(metavar="[SHELL]", help="bash, zsh or fish; default: the one you use.")
    ] = None,
) -> None:
    """Print a script that completes `tk` in a shell.

    To load it in every new bash: `echo 'source <(tk completion bash)' >> ~/.bashrc`. In zsh the same with
    ~/.zshrc; in fish: `tk completion fish > ~/.config/fish/completions/tk.fish`.
    """
    wanted = shell or login_shell()
    if wanted not in _SCRIPTS:
        raise compiler.UsageError(
            f"no completion for the shell `{wanted}`" if wanted else "which shell?",
            hint=compiler.did_you_mean(wanted, _SCRIPTS) or "choose bash, zsh or fish",
        )
    console.data(_SCRIPTS[wanted])


def complete_words_command(
    context: typer.Context, words: Annotated[list[str] | None, typer.Argument()] = None
) -> None:
    """Print what the last of the words may become, one candidate a line."""
    for candidate in candidates(context.find_root().command, words or [""]):
        console.data(candidate)


def candidates(root: Any, words: list[str]) -> list[str]:
    """Subcommands, options or networks that begin with the last word, in the order of the help."""
    *before, last = words
    command, path = root, []
    for word in before:
        if word in getattr(command, "commands", {}):
            command = command.commands[word]
            path.append(word)
    if before and _takes_a_value(command, before[-1]):
        return []  # most values are files, and the shell knows those
    if last.startswith("-"):
        choices = [name for param in command.params for name in param.opts if name.startswith("-")]
    elif hasattr(command, "commands"):
        choices = [name for name, child in command.commands.items() if not child.hidden]
    else:
        choices = list(zoo.networks()) if path in (["zoo", "make"], ["zoo", "fetch"], ["demo"]) else []
        choices += [*zoo.of_free_sizes(), *zoo.exported()] if path == ["zoo", "make"] else []
    return [choice for choice in choices if choice.startswith(last)]


def _takes_a_value(command: Any, word: str) -> bool:
    return any(word in one.opts and not getattr(one, "is_flag", True) for one in command.params)
