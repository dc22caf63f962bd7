"""Faults for our own compiler, each one line: what a fuzzer of compilers has to find.

`before` stands once in its file; with `after` in its place the compiler still compiles, and is wrong
somewhere.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A fault: what it is, the file below `compiler/`, and the text that changes.

    op: the operator without which no graph shows it; empty where many do.
    """

    name: str
    file: str
    before: str
    after: str
    op: str = ""


_OPS, _LOWER, _REWRITES, _INCLUDE = "graph/ops/", "lower/", "graph/rewrites/", "runtime/include/"

MUTANTS: tuple[Mutant, ...] = (
    # ---------------------------------------------------------------- operators
    Mutant("maximum of floats begins with 0", "loops/build.py",
           'const(sign * float("inf"), dtype)', "const(0.0, dtype)"),
    Mutant("product begins with 0", "loops/build.py",
           'const(0 if op == "add" else 1, dtype)', "const(0, dtype)"),
    Mutant("maximum of integers begins with 0", "loops/build.py",
           'const(-(2 ** (dtype.bits - 1)) if op == "max"', 'const(0 if op == "max"'),
    Mutant("slice without its step", _OPS + "indexing.py",
           "return (i * by + first for i", "return (i + first for i"),
    Mutant("parts of a split begin with those of the next", _OPS + "indexing.py",
           "accumulate(sizes[:-1], initial=0)", "accumulate(sizes[1:], initial=0)"),
    Mutant("parts of a concatenation overlap by one", _OPS + "indexing.py",
           "index[axis] + start, *index", "index[axis] + max(start - 1, 0), *index"),
    Mutant("border at the end is one short", _OPS + "indexing.py",
           "((0, low), (low + n, high))", "((0, low), (low + n, max(high - 1, 0)))"),
    Mutant("reflection repeats the edge", _OPS + "indexing.py", "+ 2 * (extent - 1))", "+ 2 * extent - 1)"),
    Mutant("index from the end is one off", _OPS + "repeating.py",
           "Select(index.lt(0), index + extent, index)", "Select(index.lt(0), index + (extent - 1), index)",
           "Gather"),
    Mutant("windows without dilation", _OPS + "windows.py", "o * stride + t * dilation", "o * stride + t"),
    Mutant("groups of a convolution read the first group's channels", _OPS + "linear.py",
           "k // outer * per_group + c", "c"),
    Mutant("average counts padding where it should not", _OPS + "pooling.py",
           "if include else (nothing, nothing)", "if not include else (nothing, nothing)"),
    Mutant("exclusive sums include the element", _OPS + "scan.py",
           "seq(keep, add) if exclusive else seq(add, keep)", "seq(add, keep)"),
    Mutant("last index of the extreme is the first", _OPS + "reduction.py",
           'place, "max" if last else "min", I64)', 'place, "min", I64)'),
    Mutant("batch normalisation without epsilon", _OPS + "norm.py",
           'e.emit("Add", var, emit_scalar(e, item.attrs.number("epsilon"), var))', "var"),
    Mutant("variance of a sample", _OPS + "norm.py",
           "spread[i] * (1 / count) + epsilon", "spread[i] * (1 / max(count - 1, 1)) + epsilon"),
    Mutant("quantisation cuts", _OPS + "quantised.py",
           'wide = e.emit("Round", wide)', 'wide = e.emit("Floor", wide)'),
    Mutant("gates of a GRU change places", _OPS + "recurrent_cells.py",
           'e.emit("Mul", cell.one_minus(update), found)', 'e.emit("Mul", update, found)', "GRU"),
    Mutant("smallest in place of largest", _OPS + "sort.py",
           "smaller = a.lt(b) if not largest else b.lt(a)", "smaller = a.lt(b)"),
    Mutant("remainder with the sign of the dividend", _OPS + "conditional.py",
           'Binary("truncmod" if a.flag("fmod") else "floormod", x, y)', 'Binary("truncmod", x, y)', "Mod"),
    # ---------------------------------------------------------------- rewrites
    Mutant("folded addition is not scaled", _REWRITES + "fold_batchnorm.py",
           'return (editor.emit("Add", scaled, editor.constant(np.asarray(inner * known))),)',
           'return (editor.emit("Add", scaled, editor.constant(np.asarray(inner + 0 * known))),)'),
    Mutant("bias of a convolution is not scaled", _REWRITES + "fold_batchnorm.py",
           "offset = offset * factor", "offset = offset + 0 * factor"),
    Mutant("transpositions compose the wrong way round", _REWRITES + "cancel_transposes.py",
           "perm=tuple(first[axis] for axis in second)", "perm=tuple(second[axis] for axis in first)",
           "Transpose"),
    Mutant("a sunk transposition forgets the axis", _REWRITES + "cancel_transposes.py",
           'attrs.with_(axis=perm[attrs.integer("axis")])', 'attrs.with_(axis=attrs.integer("axis"))',
           "Transpose"),
    Mutant("a moved slice begins elsewhere", _REWRITES + "move_slices.py",
           "begin * inner, made[axis] * inner)", "0 * begin, made[axis] * inner)"),
    Mutant("equal operands make equal nodes", _REWRITES + "share_common.py",
           "(item.op.name, item.inputs, item.attrs), item)",
           "(item.op.name, item.inputs, Attrs({})), item)"),
    # ---------------------------------------------------------------- schedules and lowering
    Mutant("pieces of a loop overlap by one", _LOWER + "partition_loops.py",
           '{loop.var.name: binary("add", var, low)}', '{loop.var.name: binary("add", var, low - 1)}'),
    Mutant("rest of a vectorised loop is one short", _LOWER + "vectorize.py",
           "self._rest(loop, full * lanes, rest, lanes)",
           "self._rest(loop, full * lanes, max(rest - 1, 0), lanes)"),
    Mutant("mask is one lane short", _LOWER + "vectorize.py",
           "Broadcast(const(count), lanes))", "Broadcast(const(count - 1), lanes))"),
    Mutant("lanes of a sum begin with 1", _LOWER + "accumulate.py",
           "Broadcast(identity_of(added.op, vector.scalar), vector.lanes)",
           "Broadcast(const(1, vector.scalar), vector.lanes)"),
    Mutant("strides change places", _LOWER + "flatten_buffers.py",
           "return tuple(reversed(strides))", "return tuple(strides)"),
    Mutant("a shrunk buffer is read where it was", _LOWER + "compact_buffers.py",
           'moved = binary("sub", index, begin)', "moved = index"),
    Mutant("a guard lets the last tile run on", "schedule/primitives/split.py",
           "split.index().lt(split.loop.extent)", "split.index().le(split.loop.extent)"),
    # ---------------------------------------------------------------- memory and plan
    Mutant("a tensor is overwritten while it is read", "graph/memory.py",
           "(firsts <= item.last) & (lasts >= item.first) if",
           "(firsts < item.last) & (lasts > item.first) if"),
    Mutant("a tensor is over when it is made", "stages/storage.py", "min(numbers), max(numbers)",
           "min(numbers), min(numbers)"),
    Mutant("part of a concatenation lies in its place although it is not contiguous", "graph/alias.py",
           "if any(extent != 1 for extent in node.output.type.shape[:axis]):",
           "if any(extent > 99 for extent in node.output.type.shape[:axis]):", "Concat"),
    Mutant("samples of a batch lie too close", _LOWER + "over_samples.py",
           'binary("mul", sample, step))', 'binary("mul", sample, max(step - 1, 0)))'),
    # ---------------------------------------------------------------- runtime
    Mutant("places of samples are those of one", "runtime/src/context.cpp",
           "samples_ * arg.sample_offset", "arg.sample_offset"),
    Mutant("casts to f8 and f16 cut", _INCLUDE + "tk_narrow.h",
           "+ odd + ((1u << (shift - 1)) - 1)) >> shift;", ") >> shift;", "Cast"),
    Mutant("casts to bf16 cut", _INCLUDE + "tk_narrow.h",
           "(bits + ((bits >> 16) & tk_splat<U>(1u)) + 0x7fffu) >> 16", "bits >> 16", "Cast"),
)  # fmt: skip
