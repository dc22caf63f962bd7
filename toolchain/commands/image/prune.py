"""`tk image prune`: what no longer has a use."""

from __future__ import annotations

from compiler import counted
from toolchain import console, options
from toolchain.commands.image import common, removal, target


def prune_command(
    yes: removal.Yes = False,
    dry_run: removal.DryRun = False,
    engine: common.Engine = common.ANY_ENGINE,
    json: options.Json = False,
) -> None:
    """Remove superseded images, and what interrupted runs left: containers, volumes, layers.

    Of each recipe the newest image stays, every image that a container uses, and every one that a tk.lock
    stands for which tk has written or used on this machine. Asks first; where nobody can be asked, --yes is
    needed.
    """
    from toolchain.engine import store

    connected = target.connect(engine)
    wanted = removal.wanted_by_locks(store.list_images(connected, untagged=True))
    superseded = store.unused_images(connected)
    unused = [one for one in superseded if one.id not in wanted]
    kept = removal.describe_images([one for one in superseded if one.id in wanted], wanted)
    layers = store.unused_steps(connected)
    left = [*store.abandoned_containers(connected), *store.abandoned_volumes(connected)]
    names = [name for one in unused for name in (one.references or (one.id,))]
    things = [*names, *layers, *left]
    removed = not dry_run and removal.confirmed(things, yes=yes, command="prune")
    if removed:
        left = store.sweep(connected)
        store.remove_images(connected, unused)
        store.remove_steps(connected, layers)
    size = sum(one.size for one in unused)
    if json:
        facts = {"images": names, "kept": kept, "layers": layers, "left_behind": left, "bytes": size}
        console.data_json({**facts, "removed": removed})
        return
    for line in kept:
        console.talk(f"kept: {line}")
    if not removed and not dry_run:
        return
    for name in things:
        console.data(name)
    verb = "would be removed" if dry_run else "removed"
    console.talk(
        f"{counted(len(names), 'image')} {verb}, {console.size(size)} with what they share;"
        f" {counted(len(layers), 'layer')}; {counted(len(left), 'thing')} of killed processes"
    )
