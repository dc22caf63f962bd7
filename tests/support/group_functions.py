"""The loop function of one group, in the form that a test asks for."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.graph.dtypes import Array
from compiler.graph.fuse import Group
from compiler.graph.ir import Value
from compiler.graph.to_loops import ChooseForm, GroupFunc, chosen_form, group_forms


def default_form(name: str, candidates: Mapping[str, GroupFunc]) -> str:
    """The form that stands first in the operator's record."""
    return next(iter(candidates))


def group_func(
    group: Group,
    constants: Mapping[Value, Array],
    choose: ChooseForm = default_form,
    *,
    threads: bool = False,
) -> GroupFunc:
    """Build the function of a group; where its anchor has several forms that fit, `choose` takes one.

    threads: of those, too, that devices which bind loops to threads have.
    """
    forms = group_forms(group, constants, threads=threads)
    return forms[chosen_form(group, forms, choose)]
