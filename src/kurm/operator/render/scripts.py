"""Users' prologs and epilogs: from their ConfigMaps to files beside slurm.conf, and the lines that name them.

All of them stand in the ConfigMap with the configuration. slurmctld hands prologs and epilogs to every slurmd with the
configuration itself (slurm.conf(5), SlurmctldParameters, enable_configless: their names have no path). So a change is
in force on all nodes at once, by a reconfigure, and the hash of the configuration tells the truth about it; a volume in
each slurmd pod would bring it when each kubelet pleases. It also spares us two traps of slurmd's with glob patterns:
one without a match is a failure, which drains the node, and several matches are run in reverse order
(src/plugins/prep/script/prep_script_slurmd.c).

slurmctld starts several PrologSlurmctld at the same time (prep_script_slurmctld.c), so its twins are one program each,
which runs them in order.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kurm.domain.slurmcluster import Scripts, ScriptSource
from kurm.operator.render.errors import MissingError, SpecError
from kurm.slurm.conf import Setting

FOLDER = "/etc/slurm"
"""Where slurmctld's pod has the newest configuration, in force or not."""
IN_FORCE = "/run/slurmctld/in-force"
"""Where it has the one in force: slurmctld's own scripts must not be those of a configuration that was refused."""
PROLOG_TIMEOUT = 180
"""Seconds, PrologTimeout where the start gate is: longer than the gate waits (120 s), and shorter than slurmctld and
the kubelet bear with a slurmd that waits for a prolog before it reconfigures itself (docs/design/start-gate.md)."""
REQUEUE = "nohold_on_prolog_fail"
"""Part of SchedulerParameters, where the start gate is: a job that it sends away is to start elsewhere, and not to be
held (slurm.conf(5))."""
GATE_FOLDER = "/run/kurm/gate"
"""Where a slurmd pod has its own annotations, in the file `annotations`."""
NAME_LENGTH = 240
"""Letters of a script's file name. slurmd writes it with `.new` behind at first, and file systems take 255."""

ConfigMaps = Mapping[str, Mapping[str, str]]
"""The `data` of ConfigMaps by their names."""


@dataclass(frozen=True)
class Kind:
    """One of Slurm's four hooks."""

    setting: str
    """Its key in slurm.conf."""
    file: str
    """How the names of its files begin."""
    field: str
    """Its field in the resource."""


PROLOG = Kind("Prolog", "prolog", "spec.scripts.prolog")
EPILOG = Kind("Epilog", "epilog", "spec.scripts.epilog")
PROLOG_SLURMCTLD = Kind("PrologSlurmctld", "prolog-slurmctld", "spec.scripts.prologSlurmctld")
EPILOG_SLURMCTLD = Kind("EpilogSlurmctld", "epilog-slurmctld", "spec.scripts.epilogSlurmctld")

_GATE = "prolog-start-gate"
_GATE_TEXT = f"""\
#!/bin/sh
# Kurm's start gate, on each node before each job: where a pod of Kurm's scheduler is recorded, more is asked.
# It stands beside slurm.conf and not in slurmd's image: a node with an older image would be drained for want of it.
annotations={GATE_FOLDER}/annotations
[ -e "$annotations" ] || exit 0  # this slurmd pod is older than the gate
/usr/bin/grep -q '^gate\\.kurm\\.dev/' "$annotations"
[ $? -eq 1 ] || exec /usr/local/sbin/start-gate
"""


@dataclass(frozen=True)
class Hooks:
    """What the scripts are to Slurm."""

    files: Mapping[str, str]
    """File name to text, to stand beside slurm.conf."""
    settings: tuple[Setting, ...]
    """Lines of slurm.conf."""


def hooks(scripts: Scripts, config_maps: ConfigMaps, *, gate: bool = False) -> Hooks:
    """Return the files and lines of all scripts, in the order of the resource's lists and then of the keys.

    `gate`: whether the start gate runs, before all others. Raises MissingError for a ConfigMap that is not there,
    SpecError for a script that Slurm could not run.
    """
    files: dict[str, str] = {}
    settings: list[Setting] = []
    if gate:
        files[_GATE] = _GATE_TEXT
        settings.append(Setting(PROLOG.setting, _GATE))
    for kind, sources in (
        (PROLOG, scripts.prolog),
        (EPILOG, scripts.epilog),
    ):
        own = dict(_collected(kind, sources, config_maps))
        files |= own
        settings += [Setting(kind.setting, name) for name in own]
    for kind, sources in (
        (PROLOG_SLURMCTLD, scripts.prolog_slurmctld),
        (EPILOG_SLURMCTLD, scripts.epilog_slurmctld),
    ):
        if own := dict(_collected(kind, sources, config_maps)):
            files |= own | {kind.file: _in_order(kind, own)}
            settings.append(Setting(kind.setting, f"{IN_FORCE}/{kind.file}"))
    return Hooks(files, tuple(settings))


def _collected(kind: Kind, sources: tuple[ScriptSource, ...], config_maps: ConfigMaps) -> Iterator[tuple[str, str]]:
    for number, source in enumerate(sources):
        field = f"{kind.field}[{number}]"
        if source.config_map_name not in config_maps:
            raise MissingError(field, "ConfigMap", source.config_map_name)
        for key, text in sorted(config_maps[source.config_map_name].items()):
            name = f"{kind.file}-{number:02d}-{key}"
            _check(f"{field} (ConfigMap {source.config_map_name!r}, key {key!r})", name, text)
            yield name, text


def _check(field: str, name: str, text: str) -> None:
    if not text.startswith("#!"):
        raise SpecError(
            field, "a script must begin with '#!' and its interpreter: a prolog that cannot be run drains its node"
        )
    if len(name) > NAME_LENGTH:
        raise SpecError(field, f"its file's name would have {len(name)} letters, and may have {NAME_LENGTH}")


def _in_order(kind: Kind, files: Mapping[str, str]) -> str:
    calls = "".join(f"{IN_FORCE}/{name}\n" for name in files)
    return (
        f"#!/bin/sh\n# Slurm would start several {kind.setting} at once. The first that fails ends it.\nset -e\n{calls}"
    )
