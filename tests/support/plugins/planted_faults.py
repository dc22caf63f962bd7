"""A plugin that offers broken candidates beside the sound ones: each fault twenty times."""

from __future__ import annotations

from compiler.core.types import F32
from compiler.loops.ir import Call, Store, const
from compiler.plugin import (
    Chooser,
    For,
    Func,
    IRNode,
    LoweringPass,
    Option,
    Plugin,
    Schedule,
    ScheduleRule,
    TargetFacts,
    rewrite_nodes,
)

KIND, NUMBER, NOTE = "faults.kind", "faults.number", "planted_fault"
_EATING = """for (volatile int on = 1; on;) {
  auto *const page = static_cast<volatile char *>(__builtin_malloc(1 << 24));
  for (int place = 0; place < 1 << 24; place += 4096) page[place] = 1;
}"""
FAULTS = {
    "wrong": ("wrong", "return 1.0f;"),
    "crash": ("crash", "*(volatile int *)8 = 1;"),
    "hang": ("timeout", "for (volatile int on = 1; on;) {}"),
    "memory": ("memory", _EATING),
    "busy": ("busy", "if (!__builtin_fork()) for (volatile int on = 1; on;) {}"),
    "build": ("build", "this is no C++;"),
}
"""The class that a candidate has to get, and what is in its kernel."""
KINDS = list(FAULTS)
COUNT = 20
_ONCE = "static bool is_done; if (is_done) return 0.0f; is_done = true;"


def offer_faults(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Leave the kernel to the built-in rules, or mark it: what is cheapest is sound."""
    if not schedule.blocks():
        return False
    faults = [Option((1 + number,), cost=4.0) for number in range(len(KINDS))]
    (kind,) = chooser.choose(KIND, [*faults, Option((0,), cost=1.0)])
    if kind == 0:
        return False
    (number,) = chooser.choose(NUMBER, [Option((one,), cost=1.0) for one in range(COUNT)])
    schedule.annotate(schedule.loops(schedule.blocks()[0])[0], NOTE, COUNT * (kind - 1) + number)
    return True


def plant(func: Func, facts: TargetFacts) -> Func:
    """The function with a fault in each statement below a marked loop."""

    def in_loop(item: IRNode) -> IRNode | None:
        notes = dict(item.annotations) if isinstance(item, For) else {}
        if not isinstance(item, For) or NOTE not in notes:
            return None
        kind, number = divmod(int(notes[NOTE]), COUNT)
        text = " ".join(FAULTS[KINDS[kind]][1].split())
        # The name of a call is printed as it stands behind `tk_`.
        name = f"bitcast<float>(0) + [](int64_t) -> float {{ {_ONCE} {text} return 0.0f; }}"

        def broken(one: IRNode) -> IRNode | None:
            if not isinstance(one, Store) or one.value.dtype != F32:
                return None
            return one.replace(value=one.value + Call(name, (const(number),), F32))

        return item.replace(body=rewrite_nodes(item.body, broken))

    return func.replace(body=rewrite_nodes(func.body, in_loop))


PLUGIN = Plugin(
    rules=(ScheduleRule("faults", offer_faults),),
    passes=(LoweringPass("plant_faults", plant, after="place_allocations"),),
)
