"""Why a trial is to be made: nothing like it was tried, or what has changed since."""

from __future__ import annotations

from toolchain.matrix.loop import Agenda, PlannedTrial
from toolchain.records.record import Record, State

_NAMES = {"tk_sha256": "tk", "toolchain": "toolchain", "driver": "driver", "reference": "reference"}


def why_made(planned: PlannedTrial, agenda: Agenda) -> str:
    """In words; empty where a record makes it needless."""
    if planned.found is not None:
        return ""
    before = [one for one in agenda.records if _is_alike(one, planned, agenda)]
    if not before:
        return "not tried yet"
    last = before[-1]
    if last.state == State.NOT_RUN:
        return f"was not run: {last.why}"
    if last.key in planned.keys:
        return "asked for again"
    now = agenda.around.versions(planned.trial.place)
    changed = [name for field, name in _NAMES.items() if getattr(now, field) != getattr(last.versions, field)]
    return f"changed: {', '.join(changed) or 'model, options, limits or processor'}"


def _is_alike(record: Record, planned: PlannedTrial, agenda: Agenda) -> bool:
    """Whether a record is of the same model, by name, at the same place."""
    place, tried = planned.trial.place, record.place
    subject = planned.trial.model.subject
    model = (subject.network, subject.revision, subject.model)
    return (
        record.kind == "cell"
        and (record.subject.network, record.subject.revision, record.subject.model) == model
        and (tried.target, tried.selector, tried.image) == (place.target, place.selector, place.image)
        and (tried.arch, tried.threads) == (agenda.around.machine.arch(place), place.threads)
        and tried.precision == place.precision
    )
