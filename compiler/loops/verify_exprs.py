"""Types and accesses: what the verifier asks of expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from compiler.loops import ir
from compiler.loops.intervals import Span, span_of
from compiler.loops.ir import Buffer, Expr, Region
from compiler.loops.printer import print_expr


class ExprChecker:
    """Checks expressions against the scope; `report` collects sentences.

    variables: what is defined here. spans: bounds of integer variables. exact: variables that take both of
    their bounds, independently of each other. guarded: under a condition, so that ranges say nothing.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.variables: dict[str, ir.Var] = {}
        self.buffers: dict[str, Buffer] = {}
        self.spans: dict[str, Span] = {}
        self.exact: set[str] = set()
        self.guarded = False

    def place(self) -> str:
        """Where the walk is, for messages."""
        raise NotImplementedError

    def accessed(self, buffer: Buffer, indices: Sequence[Expr], how: str) -> None:
        """Told of every access: `how` is read, or address."""
        raise NotImplementedError

    def report(self, sentence: str) -> None:
        self.problems.append(f"{self.place()}: {sentence}")

    def expr(self, expr: Expr) -> None:
        """Check an expression and all below it."""
        _CHECKS.get(type(expr), ExprChecker.plain)(self, expr)
        for sentence in expr.type_errors():
            self.report(sentence.replace("{}", f"`{print_expr(expr)}`"))

    def plain(self, expr: Expr) -> None:
        """What is in an expression; its class has no rule of its own."""
        self.exprs(item for item in expr.children() if isinstance(item, Expr))

    def exprs(self, items: Iterable[Expr]) -> None:
        for item in items:
            self.expr(item)

    def condition(self, expr: Expr, what: str) -> None:
        """A scalar truth value."""
        self.expr(expr)
        if expr.dtype.name != "bool" or expr.dtype.lanes != 1:
            self.report(f"the {what} `{print_expr(expr)}` is {expr.dtype}, not bool")

    def integer(self, expr: Expr, what: str) -> None:
        """A scalar integer."""
        self.expr(expr)
        if not expr.dtype.is_int or expr.dtype.lanes != 1:
            self.report(f"the {what} `{print_expr(expr)}` is {expr.dtype}, not a scalar integer")

    def under_condition(self, check: Callable[[], None]) -> None:
        outer, self.guarded = self.guarded, True
        check()
        self.guarded = outer

    # ------------------------------------------------------------ kinds of expressions

    def var(self, expr: ir.Var) -> None:
        known = self.variables.get(expr.name)
        if known is None:
            self.report(f"variable `{expr.name}` is used where it is not defined")
        elif known.type != expr.type:
            self.report(f"variable `{expr.name}` is {known.type} and is used as {expr.type}")

    def binary(self, expr: ir.Binary) -> None:
        self.expr(expr.a)
        if expr.op in ir.LOGICAL:
            self.under_condition(lambda: self.expr(expr.b))
        else:
            self.expr(expr.b)

    def select(self, expr: ir.Select) -> None:
        self.expr(expr.cond)
        self.under_condition(lambda: self.exprs((expr.a, expr.b)))

    def ramp(self, expr: ir.Ramp) -> None:
        self.integer(expr.base, "base of a ramp")
        self.integer(expr.stride, "stride of a ramp")

    # ------------------------------------------------------------ memory

    def load(self, expr: ir.Load) -> None:
        lanes = self.access(expr.buffer, expr.indices, expr.mask)
        self.accessed(expr.buffer, expr.indices, "read")
        if expr.other is not None:
            self.expr(expr.other)
            if expr.mask is None:
                self.report(f"`{print_expr(expr)}` has a value for masked-off lanes and no mask")
            if expr.other.dtype != expr.buffer.dtype.with_lanes(expr.buffer.dtype.lanes * lanes):
                self.report(f"the value for masked-off lanes of `{print_expr(expr)}` is {expr.other.dtype}")

    def address(self, expr: ir.AddressOf) -> None:
        self.access(expr.buffer, expr.indices, None)
        self.accessed(expr.buffer, expr.indices, "address")

    def access(self, buffer: Buffer, indices: Sequence[Expr], mask: Expr | None) -> int:
        """Check an access and return its lanes."""
        self.exprs(indices)
        self.known_buffer(buffer)
        widths = {item.dtype.lanes for item in indices} - {1}
        lanes = max(widths, default=1)
        if len(widths) > 1:
            self.report(f"the indices into `{buffer.name}` have different numbers of lanes")
        if any(not item.dtype.is_int for item in indices):
            self.report(f"an index into `{buffer.name}` is not an integer")
        elif len(indices) != len(buffer.shape):
            self.report(f"`{buffer.name}` has {len(buffer.shape)} dimensions and {len(indices)} indices")
        elif mask is None:
            self.in_range(buffer, indices)
        if mask is not None:
            self.expr(mask)
            if not mask.dtype.is_bool or mask.dtype.lanes not in (1, lanes):
                self.report(f"the mask of an access to `{buffer.name}` is {mask.dtype}")
        return lanes

    def known_buffer(self, buffer: Buffer) -> None:
        known = self.buffers.get(buffer.name)
        if known is None:
            self.report(f"buffer `{buffer.name}` is used where it does not exist")
        elif known is not buffer and known != buffer:
            self.report(f"buffer `{buffer.name}` is not used as it was declared")

    def region(self, region: Region) -> None:
        self.known_buffer(region.buffer)
        outer, self.guarded = (
            self.guarded,
            True,
        )  # an index that is loaded may be under a condition of the body
        self.exprs((*region.begin, *region.extent))
        self.guarded = outer
        if not len(region.begin) == len(region.extent) == len(region.buffer.shape):
            self.report(f"the region of `{region.buffer.name}` has another rank than the buffer")

    def in_range(self, buffer: Buffer, indices: Sequence[Expr]) -> None:
        if self.guarded:
            return
        for dim, (index, size) in enumerate(zip(indices, buffer.shape, strict=True)):
            if not isinstance(size, ir.Const):
                continue
            low, high = span_of(index, self.spans)
            wrong = low >= size.value or high < 0
            if not wrong and (low < 0 or high >= size.value):
                wrong = self.takes_bounds(index)
            if wrong:
                where = f"index {dim} of `{buffer.name}`, `{print_expr(index)}`,"
                self.report(
                    f"{where} lies in {_range(low, high)}, and that dimension has {size.value} elements"
                )

    def takes_bounds(self, expr: Expr) -> bool:
        """Whether the bounds of an expression are surely reached: a sum of independent variables."""
        seen: list[str] = []
        return self._linear(expr, seen) and len(seen) == len(set(seen))

    def _linear(self, expr: Expr, seen: list[str]) -> bool:
        if isinstance(expr, ir.Const):
            return True
        if isinstance(expr, ir.Var):
            seen.append(expr.name)
            return expr.name in self.exact
        if isinstance(expr, ir.Ramp):
            return isinstance(expr.stride, ir.Const) and self._linear(expr.base, seen)
        if isinstance(expr, ir.Broadcast):
            return self._linear(expr.value, seen)
        if not isinstance(expr, ir.Binary) or expr.op not in ("add", "sub", "mul"):
            return False
        if expr.op == "mul" and not isinstance(expr.a, ir.Const) and not isinstance(expr.b, ir.Const):
            return False
        return self._linear(expr.a, seen) and self._linear(expr.b, seen)


def _range(low: float, high: float) -> str:
    return f"{low:g}..{high:g}" if low != high else f"{low:g}"


_CHECKS: dict[type, Callable[[ExprChecker, Any], None]] = {
    ir.Var: ExprChecker.var,
    ir.Binary: ExprChecker.binary,
    ir.Select: ExprChecker.select,
    ir.Load: ExprChecker.load,
    ir.Ramp: ExprChecker.ramp,
    ir.AddressOf: ExprChecker.address,
}
