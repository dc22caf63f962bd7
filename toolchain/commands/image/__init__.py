"""`tk image`: from a recipe's name to a running container. One module for each subcommand.

Modules here import nothing heavy at the top (no yaml, pydantic, jinja2, docker), as `tk --help` imports them.
"""

from __future__ import annotations

import typer

from toolchain.commands.image import (
    build,
    bundle,
    check,
    diff,
    lint,
    lock,
    ls,
    prune,
    publish,
    pull,
    push,
    render,
    rm,
    run,
    sbom,
    shell,
    show,
    why,
)
from toolchain.commands.image import list as list_images

app = typer.Typer(help="Images of vendor stacks with the right LLVM and SYCL.", no_args_is_help=True)


@app.callback()
def image() -> None:
    """Images of vendor stacks with the right LLVM and SYCL."""


# One line for each subcommand, in the order of `tk image --help`.
app.command("list")(list_images.list_command)
app.command("show")(show.show_command)
app.command("why")(why.why_command)
app.command("lint")(lint.lint_command)
app.command("render")(render.render_command)
app.command("diff")(diff.diff_command)
app.command("lock")(lock.lock_command)
app.command("build")(build.build_command)
app.command("check")(check.check_command)
app.command("ls")(ls.ls_command)
app.command("pull")(pull.pull_command)
app.command("push")(push.push_command)
app.command("publish")(publish.publish_command)
app.command("rm")(rm.rm_command)
app.command("prune")(prune.prune_command)
app.command("sbom")(sbom.sbom_command)
app.command("run")(run.run_command)
app.command("shell")(shell.shell_command)
app.add_typer(bundle.app, name="bundle")
