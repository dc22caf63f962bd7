"""Defects planted into the compiler of a process, and that process: `python -m tests.support.planted NAME`.

It is the process that reduces a model; what it copies itself into for each check has the defect, too.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import compiler.graph.alias
import compiler.graph.fuse
import compiler.lower
import compiler.pipeline
import compiler.render.vocabulary_cpp
import compiler.stages.constants
import compiler.stages.device
import compiler.stages.kernels
import compiler.stages.storage
from compiler.core.node import IRNode, rewrite_nodes
from compiler.core.types import INDEX
from compiler.graph.attrs import Attrs
from compiler.graph.fuse import Group
from compiler.graph.ir import Node
from compiler.graph.memory import MemoryPlan
from compiler.graph.ops import find_op
from compiler.loops.ir import Barrier, Binary, Const, For, Func, Store, Var, const, seq
from compiler.loops.text import print_func
from compiler.reduce import child
from compiler.render.host import ArgKind, HostPlan, PlanStep, PlanTurn
from compiler.render.launch import DeviceText
from compiler.schedule.primitives.reduction import DecomposeReduction


def _wrap(module: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    setattr(module, name, make(getattr(module, name)))


def _with_forms_of(op: str, other: str) -> None:
    record, source = find_op("", op), find_op("", other)
    assert record is not None
    assert source is not None
    object.__setattr__(record, "forms", source.forms)


def _lose_relu(original: Callable[..., Group]) -> Callable[..., Group]:
    """Of a convolution with an addition and a Relu behind it, the Relu."""

    def finish(*args: Any) -> Group:
        group = original(*args)
        names = [node.op.name for node in group.nodes]
        if names[-1:] != ["Relu"] or "Conv" not in names or "Add" not in names:
            return group
        *others, before, last = group.nodes
        joined = Node(before.op, before.inputs, last.outputs, before.attrs, (*before.origin, *last.origin))
        anchor = joined if group.anchor is before else group.anchor
        return replace(group, nodes=(*others, joined), anchor=anchor)

    return finish


def _gelu_wrong(original: Callable[..., Group]) -> Callable[..., Group]:
    """Where it is joined with others, Gelu becomes Tanh."""

    def finish(*args: Any) -> Group:
        group = original(*args)
        tanh = find_op("", "Tanh")
        assert tanh is not None
        if len(group.nodes) < 2:
            return group
        nodes = tuple(
            Node(tanh, node.inputs, node.outputs, Attrs(), node.origin) if node.op.name == "Gelu" else node
            for node in group.nodes
        )
        return replace(group, nodes=nodes)

    return finish


def _one_too_much(original: Callable[..., Any]) -> Callable[..., Any]:
    """Sums begin at one."""

    def apply(self: DecomposeReduction, program: Any) -> Any:
        func, name = original(self, program)

        def step(item: IRNode) -> IRNode | None:
            is_zero = isinstance(item, Store) and isinstance(item.value, Const) and item.value.value == 0
            return item.replace(value=const(1.0, item.value.dtype)) if is_zero else None

        return rewrite_nodes(func, step), name

    return apply


def _without_vector_max(func: Func) -> Func:
    def step(item: IRNode) -> IRNode | None:
        return item.a if isinstance(item, Binary) and item.op == "max" and item.dtype.lanes > 1 else None

    return rewrite_nodes(func, step)


def _with_a_shorter_loop(func: Func) -> Func:
    """The outermost loop that runs several times runs once less."""
    done: list[For] = []

    def longest(item: IRNode) -> For | None:
        found = [one for one in item.walk() if isinstance(one, For) and isinstance(one.extent, Const)]
        found = [one for one in found if int(one.extent.value) > 2]  # type: ignore[attr-defined]  # a Const, as above
        return found[0] if found else None

    target = longest(func.body)

    def step(item: IRNode) -> IRNode | None:
        if item is target and not done and isinstance(item, For) and isinstance(item.extent, Const):
            done.append(item)
            return item.replace(extent=const(int(item.extent.value) - 1, item.extent.dtype))
        return None

    return func if target is None else rewrite_nodes(func, step)


def _repeated(func: Func, often: int) -> Func:
    """What the outermost loops do for each iteration, `often` times."""
    outermost = next((one for one in func.walk() if isinstance(one, For)), None)
    if outermost is None:
        return func
    again = For(Var("again", INDEX), const(often, INDEX), outermost.body)
    done = outermost.replace(body=again)
    return rewrite_nodes(func, lambda item: done if item is outermost else None)


def _slow_exponentials(func: Func) -> Func:
    """Whatever computes an exponential does so many times over."""
    return _repeated(func, 5000) if "exp" in print_func(func) else func


def _endless_maximum(func: Func) -> Func:
    """A kernel with a maximum has no end."""
    has = any(isinstance(one, Binary) and one.op == "max" for one in func.walk())
    return _repeated(func, 1 << 50) if has else func


def _without_barriers(func: Func) -> Func:
    """Threads wait for each other nowhere."""
    return rewrite_nodes(func, lambda item: seq() if isinstance(item, Barrier) else None)


def _after_pass(name: str, change: Callable[[Func], Func]) -> None:
    compiler.lower.PASSES = tuple(
        (one, (lambda func, facts, run=run: change(run(func, facts))) if one == name else run)
        for one, run in compiler.lower.PASSES
    )


def _text_with(change: Callable[[str], str]) -> Callable[[], None]:
    """The text of kernels for devices is another one."""

    def render(original: Callable[..., DeviceText]) -> Callable[..., DeviceText]:
        def call(*args: Any) -> DeviceText:
            made = original(*args)
            return replace(made, text=change(made.text))

        return call

    return lambda: _wrap(compiler.stages.kernels, "render_launches", render)


def _one_block_fewer(text: str) -> str:
    """Before the last block is done another one takes itself for it."""
    return re.sub(r"(tk_last_block\(\w+, )(\d+)", lambda found: f"{found[1]}{int(found[2]) - 1}", text)


def _waits_for_nothing(original: Callable[..., PlanTurn]) -> Callable[..., PlanTurn]:
    """Steps wait for none of another branch."""
    return lambda branch, _: original(branch, ())


def _wrong_plan(change: Callable[[PlanStep], PlanStep]) -> None:
    def render(original: Callable[[HostPlan], str]) -> Callable[[HostPlan], str]:
        return lambda plan: original(replace(plan, steps=tuple(map(change, plan.steps))))

    _wrap(compiler.pipeline, "render_plan", render)


def _far_away(step: PlanStep) -> PlanStep:
    """Intermediate values lie where there is no memory."""
    args = [
        replace(arg, offset=arg.offset + (1 << 40)) if arg.kind is ArgKind.ARENA else arg for arg in step.args
    ]
    return replace(step, args=tuple(args))


def _beside(step: PlanStep) -> PlanStep:
    """Constants are read one cache line too far."""
    args = [replace(arg, offset=arg.offset + 64) if arg.kind is ArgKind.CONST else arg for arg in step.args]
    return replace(step, args=tuple(args))


def _short_lives(original: Callable[..., MemoryPlan]) -> Callable[..., MemoryPlan]:
    """What a value needs is free again as soon as it is written."""
    return lambda lifetimes, *more: original([replace(one, last=one.first) for one in lifetimes], *more)


def _times(factor: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            made = original(*args)
            return (
                None
                if made is None
                else tuple(one * factor for one in made)
                if isinstance(made, tuple)
                else made * factor
            )

        return call

    return wrap


def _wrong_for_24_channels(original: Callable[..., Any]) -> Callable[..., Any]:
    """A scale of 24 channels is half as large."""

    def per_axis(known: Any, rank: int, axis: int, extent: int) -> Any:
        made = original(known, rank, axis, extent)
        return made * 0.5 if made is not None and extent == 24 else made

    return per_axis


def _shifted(original: Callable[..., int]) -> Callable[..., int]:
    return lambda *args: max(0, original(*args) - 64)


def _print_tanh_for_erf() -> None:
    vocabulary = compiler.render.vocabulary_cpp.CPP
    original = vocabulary.math
    object.__setattr__(vocabulary, "math", lambda name: original("tanh" if name == "erf" else name))


def _refuse(original: Callable[..., Any]) -> Callable[..., Any]:
    def place(graph: Any, item: Node, *args: Any) -> Any:
        if item.op.name == "Softmax":
            raise RuntimeError(f"planted at {item.output}")
        return original(graph, item, *args)

    return place


def _hang(original: Callable[..., Any]) -> Callable[..., Any]:
    def finish(graph: Any, draft: Any, *args: Any) -> Any:
        if draft.nodes[-1].op.name == "MaxPool":
            time.sleep(1000)
        return original(graph, draft, *args)

    return finish


def _abort(original: Callable[..., Any]) -> Callable[..., Any]:
    def finish(graph: Any, draft: Any, *args: Any) -> Any:
        if draft.nodes[-1].op.name == "MaxPool":
            os.abort()
        return original(graph, draft, *args)

    return finish


@dataclass(frozen=True, slots=True)
class Plant:
    """A defect: how it is planted, a network that shows it, and the culprit's kind and a part of its name.

    fault: the kind that it shows. seconds: for each model that is tried. application: told of the culprit.
    targets: of devices with threads that show it. nodes: that show it, at most. decision: that belongs to it.
    """

    plant: Callable[[], None]
    model: str
    kind: str
    name: str
    fault: str = "wrong"
    seconds: float = 120.0
    application: str = ""
    targets: tuple[str, ...] = ("cuda-nvidia", "rocm-amd")
    nodes: int = 3
    decision: str = ""


def _plant(module: Any, name: str, make: Callable[..., Any]) -> Callable[[], None]:
    return lambda: _wrap(module, name, make)


_FUSE = compiler.graph.fuse
_FOLD = import_module("compiler.graph.rewrites.fold_batchnorm")  # its package has a function of that name
_CONSTANTS = compiler.stages.constants
_STORAGE = compiler.stages.storage

PLANTS: dict[str, Plant] = {
    "operator: Sigmoid computes Tanh":
        Plant(lambda: _with_forms_of("Sigmoid", "Tanh"), "squeezed", "operator", "Sigmoid"),
    "operator: Softmax computes its logarithm":
        Plant(lambda: _with_forms_of("Softmax", "LogSoftmax"), "transformer", "operator", "Softmax"),
    "fusion: a Relu is lost":
        Plant(_plant(_FUSE, "_finish", _lose_relu), "residual", "fusion", "fuse"),
    "fusion: a joined Gelu is Tanh":
        Plant(_plant(_FUSE, "_finish", _gelu_wrong), "transformer", "fusion", "fuse"),
    "layout: parts of a concatenation lie wrong":
        Plant(_plant(compiler.graph.alias, "_offset", _shifted), "squeezed",
              "in-place concatenation", "in-place"),
    "memory plan: values die early":
        Plant(_plant(_STORAGE, "plan_memory", _short_lives), "residual", "memory plan", "share-memory"),
    "rewrite: batch normalisation folded wrong":
        Plant(_plant(_FOLD, "_per_axis", _times(1.5)), "residual", "graph rewrite", "fold-batchnorm"),
    "rewrite: the 21st application is wrong":
        Plant(_plant(_FOLD, "_per_axis", _wrong_for_24_channels), "deep", "graph rewrite", "fold-batchnorm",
              application="application 21 of 28 in the original model: Mul (BatchNormalization_32)"),
    "schedule: sums begin at one":
        Plant(_plant(DecomposeReduction, "apply", _one_too_much), "squeezed",
              "schedule", "decompose_reduction"),
    "decision: transformed filters are too large":
        Plant(_plant(_CONSTANTS, "evaluate_func", _times(1.5)), "residual", "decision", "Conv.form"),
    "lowering: vectors lose a maximum":
        Plant(lambda: _after_pass("vectorize", _without_vector_max), "squeezed",
              "lowering pass", "vectorize"),
    "lowering: a loop is too short":
        Plant(lambda: _after_pass("flatten_buffers", _with_a_shorter_loop), "transformer",
              "lowering pass", "flatten_buffers"),
    "lowering: a kernel has no end":
        Plant(lambda: _after_pass("flatten_buffers", _endless_maximum), "squeezed",
              "lowering pass", "flatten_buffers", fault="hang", seconds=20.0),
    "lowering: a kernel is slow":
        Plant(lambda: _after_pass("insert_prefetch", _slow_exponentials), "transformer",
              "lowering pass", "insert_prefetch", fault="slow"),
    "render: erf is printed as tanh":
        Plant(_print_tanh_for_erf, "transformer", "render", "text"),
    "runtime: intermediate values lie nowhere":
        Plant(lambda: _wrong_plan(_far_away), "squeezed", "runtime", "plan", "crash"),
    "runtime: constants are read beside their place":
        Plant(lambda: _wrong_plan(_beside), "residual", "runtime", "plan"),
}  # fmt: skip
"""Defects by what they are, of all parts of the compiler."""

EMULATED: dict[str, Plant] = {
    "threads: nobody waits":
        Plant(lambda: _after_pass("merge_threads", _without_barriers), "transformer",
              "lowering pass", "merge_threads", fault="crash"),
    "clusters: blocks do not wait for each other":
        Plant(_text_with(lambda text: text.replace("tk_cluster_barrier();", "")), "late",
              "schedule", "bind", fault="crash", decision="conv.adds_up", targets=("cuda:sm_90",)),
    "last block: one comes too early":
        Plant(_text_with(_one_block_fewer), "late", "schedule", "bind", fault="crash",
              decision="conv.adds_up", targets=("cuda:sm_80", "rocm:gfx90a")),
    "branches: nothing waits":
        Plant(_plant(compiler.stages.device, "PlanTurn", _waits_for_nothing), "squeezed",
              "recording", "parallel-branches", decision="graph.branches", targets=("cuda:sm_90",), nodes=6),
}  # fmt: skip
"""Those that only a device with threads has; the emulator takes its place."""

AT_COMPILE_TIME: dict[str, Plant] = {
    "compile: a group cannot be placed": Plant(
        _plant(_FUSE, "_place", _refuse), "squeezed", "fusion", "fuse"
    ),
    "compile: never ends": Plant(_plant(_FUSE, "_finish", _hang), "squeezed", "compile", "fuse"),
    "compile: crashes": Plant(_plant(_FUSE, "_finish", _abort), "squeezed", "compile", "fuse"),
}
"""Those that no library comes from."""


def main() -> int:
    """Be the process that reduces models, with the defect that is named."""
    name = sys.argv[1]
    {**PLANTS, **EMULATED, **AT_COMPILE_TIME}[name].plant()
    return child.main()


if __name__ == "__main__":
    sys.exit(main())
