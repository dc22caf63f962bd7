"""Loops and spills are found in assembly, made up and real."""

from __future__ import annotations

from compiler.core.settings import load_settings
from compiler.targets import get_target
from compiler.targets.assembly import innermost_loops, spilling_loops
from compiler.targets.build import compile_object
from compiler.targets.toolchain import find_cxx

NESTED = """\
tk_k0:
\tmovq\t%rdi, %rax
.L3:
\txorl\t%ecx, %ecx
\tvmovups\t%zmm1, 64(%rsp)
.L2:
\tvbroadcastss\t(%rax), %zmm2
\tvfmadd231ps\t%zmm1, %zmm2, %zmm3
\tvfmadd231ps\t%zmm1, %zmm2, %zmm4
{extra}
\tjne\t.L2
\tjne\t.L3
\tret
"""


def test_only_the_innermost_loop_counts() -> None:
    (loop,) = innermost_loops(NESTED.format(extra="\taddq\t$4, %rax"))
    assert (loop.function, loop.label, loop.multiply_adds, loop.spills) == ("tk_k0", ".L2", 2, ())


def test_operands_that_begin_with_a_dot_are_no_directives() -> None:
    extra = "\t.p2align 4\n\tvaddps\t.LC1(%rip), %zmm1, %zmm1\n\tvfmadd231ps\t.LC2(%rip), %zmm1, %zmm5"
    (loop,) = innermost_loops(NESTED.format(extra=extra))
    assert (len(loop.instructions), loop.multiply_adds) == (6, 3)


def test_loads_stores_and_operands_on_the_stack_are_spills() -> None:
    for extra in (
        "\tvmovups\t%zmm5, 128(%rsp)",
        "\tvmovaps\t-64(%rbp), %ymm7",
        "\tvfmadd231ps\t192(%rsp), %zmm1, %zmm5",
    ):
        (loop,) = spilling_loops(NESTED.format(extra=extra), least=2)
        assert loop.spills == (extra.strip(),)
    assert not spilling_loops(NESTED.format(extra="\tmovq\t%rax, 8(%rsp)"), least=2)


def many_accumulators(count: int) -> str:
    """A loop with so many accumulators, none of which can be given up."""
    names = [f"v{number}" for number in range(count)]
    lines = [f"    {name} += w * tk_splat<tk_f32x8>(x[{number}]);" for number, name in enumerate(names)]
    return "\n".join(
        [
            '#include "tk_vector.h"',
            "void f(const float *x, const float *k, float *y, long n) {",
            *(f"  tk_f32x8 {name} = {{}};" for name in names),
            "  for (long i = 0; i < n; ++i, x += 64) {",
            "    const tk_f32x8 w = tk_load<tk_f32x8>(k + i * 8);",
            *lines,
            "  }",
            *(f"  tk_store(y + {8 * number}, {name});" for number, name in enumerate(names)),
            "}",
            "",
        ]
    )


def test_real_code_spills_when_registers_run_out() -> None:
    target, cxx = get_target("cpu:x86-64-v3"), find_cxx(load_settings())
    flags = target.flags(cxx)

    def assembly(count: int) -> str:
        return compile_object(cxx, flags, "f", many_accumulators(count), output="-S").decode()

    assert not spilling_loops(assembly(12))
    assert any(loop.multiply_adds >= 12 for loop in innermost_loops(assembly(12)))
    assert spilling_loops(assembly(24))
