"""New decisions from those of one parent or of two."""

from __future__ import annotations

import random

from compiler.stages.tuned import Decisions
from compiler.tune.strategies.tree import Offer, Value, Walk

FORM_RATE = 0.05
"""Share of the mutations that take another form: little of what was decided has a meaning there."""


def mutated(parent: Walk, form: str, source: random.Random) -> Decisions:
    """The parent's decisions with one of them another option on offer; the same where there is none.

    form: the decision that is changed seldom. What follows from the change is for whoever replays it.
    """
    names = [name for name, offer in parent.offers.items() if len(offer.options) > 1]
    if not names:
        return parent.all_decisions
    inner = [name for name in names if name != form]
    takes_form = not inner or (form in names and source.random() < FORM_RATE)
    name = form if takes_form else source.choice(inner)
    value = _another(parent.decisions[name], parent.offers[name], source)
    return {**parent.all_decisions, name: value}


def crossed(a: Walk, b: Walk, form: str, source: random.Random) -> Decisions:
    """Each decision of one of the parents, by its name, in the form of the first."""
    child = dict(a.all_decisions)
    for name, value in b.all_decisions.items():
        if name != form and (name not in child or source.random() < 0.5):
            child[name] = value
    return child


def _another(value: Value, offer: Offer, source: random.Random) -> Value:
    """An option that is not `value`: rather one near to it, and rather one that should not cost much."""
    others, weights = offer.neighbours(value)
    (chosen,) = source.choices(others, cum_weights=weights)
    return chosen
