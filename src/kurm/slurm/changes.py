"""What a change of configuration needs to come into force: a reconfigure, or the restart of which daemons.

Since Slurm 23.11 `scontrol reconfigure` replaces every daemon by a new process with the new files, so most changes
need nothing else (scontrol(1), "reconfigure"). The exceptions are in `NEEDS`, each with the place in Slurm 26.05's
manual that names it. What takes effect for new jobs or steps only is none: no restart would change that.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import yaml

from kurm.slurm.conf import REPEATED, Conf, ConfError, Include, Record, parse, render_line


class Step(IntEnum):
    """What brings a change into force. Each includes what is before it."""

    RECONFIGURE = 1
    """`scontrol reconfigure`: all daemons take it, jobs are not disturbed."""
    RESTART_SLURMCTLD = 2
    """slurmctld is started anew, and all daemons are reconfigured then. Jobs run on."""
    RESTART_ALL = 3
    """Every slurmd too, after slurmctld. Jobs run on where slurmd's restart leaves them (not in a pod)."""
    RESTART_IDLE = 4
    """The same, with no job running: running steps would be lost."""


@dataclass(frozen=True)
class Need:
    """Why a key needs more than a reconfigure; `source` is the section of the manual."""

    step: Step
    why: str
    source: str


_TCP = "slurm.conf(5), DESCRIPTION"
_AUTH = Need(Step.RESTART_IDLE, "the daemons' authentication cannot change while they run", "slurm.conf(5), AuthType")
_LISTENING = Need(Step.RESTART_ALL, "listening settings need a daemon's restart", _TCP)
NEEDS: Mapping[str, Mapping[str, Need]] = {
    "slurm.conf": {
        "slurmctldport": Need(Step.RESTART_SLURMCTLD, "listening settings need a daemon's restart", _TCP),
        "slurmdport": _LISTENING,
        "communicationparameters": _LISTENING,
        "authtype": _AUTH,
        "credtype": _AUTH,
        "authinfo": Need(Step.RESTART_ALL, _AUTH.why, "scontrol(1), reconfigure"),
        "authalttypes": Need(Step.RESTART_SLURMCTLD, _AUTH.why, "scontrol(1), reconfigure"),
        "authaltparameters": Need(Step.RESTART_SLURMCTLD, _AUTH.why, "scontrol(1), reconfigure"),
        "tlstype": Need(Step.RESTART_ALL, _AUTH.why, "scontrol(1), reconfigure"),
        "tlsparameters": Need(Step.RESTART_ALL, _AUTH.why, "scontrol(1), reconfigure"),
        "selecttype": Need(
            Step.RESTART_IDLE, "all job information is lost with the change", "slurm.conf(5), SelectType"
        ),
        "switchtype": Need(
            Step.RESTART_IDLE, "records of jobs may be lost with the change", "slurm.conf(5), SwitchType"
        ),
        "statesavelocation": Need(
            Step.RESTART_SLURMCTLD,
            "the state is moved while slurmctld is down",
            "slurm.conf(5), RELOCATING CONTROLLERS",
        ),
        # A process cannot become another user, so no reconfigure can do it; the manual has it under upgrades only.
        "slurmuser": Need(Step.RESTART_ALL, "a daemon cannot change its user", "slurm.conf(5), SlurmUser"),
        "slurmduser": Need(Step.RESTART_ALL, "a daemon cannot change its user", "slurm.conf(5), SlurmdUser"),
        "clustername": Need(
            Step.RESTART_IDLE, "slurmctld refuses another name's state", "StateSaveLocation's file clustername"
        ),
    },
    "gres.conf": {
        "cores": Need(Step.RESTART_SLURMCTLD, "slurmctld reads Cores at its start", "gres.conf(5), Cores"),
        # A reconfigure suffices while every such slurmd answers; nobody can promise that here.
        "type": Need(Step.RESTART_ALL, "a slurmd that is away misses a reconfigure", "gres.conf(5), Type"),
    },
    "cgroup.conf": {
        "cgroupslice": Need(Step.RESTART_IDLE, "running steps hold the old slice", "cgroup.conf(5), CgroupSlice"),
    },
    "topology.yaml": {},
}
"""By file and by key, in lower case: what needs more than a reconfigure."""


@dataclass(frozen=True)
class Change:
    """One difference. `key` is a setting's, or the kind of a record; `name` is the record's. None is "not there"."""

    file: str
    key: str
    name: str
    old: str | None
    new: str | None
    step: Step
    why: str = ""

    def __str__(self) -> str:
        what = f"{self.file}: {self.key}{f'={self.name}' if self.name else ''}"
        how = "added" if self.old is None else "removed" if self.new is None else "changed"
        return f"{what} {how}" + (f" ({self.why})" if self.why else "")


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[Change, ...]:
    """Return what differs between two sets of files (name to text; a missing one is empty), and what each needs.

    Comments, the case of keys and the order of settings are no difference; the order of records that are kept is none.
    Raises ConfError for text that Slurm would not parse.
    """
    found: list[Change] = []
    for file in sorted({*old, *new}):
        before, after = old.get(file, ""), new.get(file, "")
        found += _yaml_changes(file, before, after) if file.endswith(".yaml") else _conf_changes(file, before, after)
    return tuple(found)


def needed(found: Iterable[Change]) -> Step | None:
    """Return the one step that brings all of the changes into force; None if there are none."""
    return max((change.step for change in found), default=None)


def _conf_changes(file: str, old: str, new: str) -> list[Change]:
    before, after = parse(old), parse(new)
    keys = {setting.key.casefold(): setting.key for conf in (before, after) for setting in conf.settings()}
    found = []
    for folded, key in sorted(keys.items()):
        one, other = _value(before, key), _value(after, key)
        if one != other:
            found.append(_change(file, key, "", (one, other), {folded}))
    return found + _record_changes(file, before, after)


def _value(conf: Conf, key: str) -> str | None:
    """Return the value in force; of a setting that adds up, all of its values."""
    return " ".join(conf.all(key)) or None if key.casefold() in REPEATED else conf.get(key)


def _record_changes(file: str, old: Conf, new: Conf) -> list[Change]:
    before, after = _records(old), _records(new)
    found = []
    for identity in sorted({*before, *after}):
        one, other = before.get(identity, []), after.get(identity, [])
        if touched := _touched(one, other):
            first = (one + other)[0]
            found.append(_change(file, first.kind, first.name, (_text(one), _text(other)), touched))
    return found


def _records(conf: Conf) -> dict[tuple[str, str], list[Record]]:
    """Group records and includes by what they describe; several lines may describe the same (gres.conf's do)."""
    found: dict[tuple[str, str], list[Record]] = {}
    for line in conf.lines:
        record = Record((("Include", line.path),)) if isinstance(line, Include) else line
        if isinstance(record, Record):
            found.setdefault((record.kind.casefold(), record.name), []).append(record)
    return found


def _text(records: Iterable[Record]) -> str | None:
    return "\n".join(map(render_line, records)) or None


def _touched(one: Iterable[Record], other: Iterable[Record]) -> set[str]:
    """Return the keys (in lower case) that differ between two versions of what describes the same thing."""
    before, after = (Counter(map(_folded, records)) for records in (one, other))
    gone, come = before - after, after - before
    pairs = [Counter(pair for fields in lines.elements() for pair in fields) for lines in (gone, come)]
    differing = (pairs[0] - pairs[1]) + (pairs[1] - pairs[0])
    # The same pairs on other lines (two GPUs that change their types): then all of them are meant.
    return {key for key, _ in differing or pairs[0]}


def _folded(record: Record) -> tuple[tuple[str, str], ...]:
    return tuple((key.casefold(), value) for key, value in record.fields)


def _change(file: str, key: str, name: str, texts: tuple[str | None, str | None], touched: set[str]) -> Change:
    needs = [NEEDS.get(file, {})[part] for part in touched if part in NEEDS.get(file, {})]
    need = max(needs, key=lambda need: need.step, default=Need(Step.RECONFIGURE, "", ""))
    return Change(file, key, name, *texts, step=need.step, why=f"{need.why}: {need.source}" if need.why else "")


def _yaml_changes(file: str, old: str, new: str) -> list[Change]:
    if _yaml(file, old) == _yaml(file, new):
        return []
    return [Change(file, file, "", old or None, new or None, Step.RECONFIGURE)]


def _yaml(file: str, text: str) -> Any:
    """Read a YAML file, topology.yaml(5) for one. Raises ConfError."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        why = getattr(error, "problem", None) or str(error)
        raise ConfError(mark.line + 1 if mark else 0, file, f"this is no YAML: {why}") from error
