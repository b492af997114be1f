"""Slurm's guard against a lost state, held back until there is a state that could be lost.

Where slurmctld finds its file `clustername` it insists on all the others, and ends if one is missing ("No Assoc usage
file to recover"): so nobody goes on with half a state without knowing. But that file is written at the very first
start, and the others together only at an orderly end, at a reconfigure and every five minutes (PERIODIC_CHECKPOINT in
slurmctld.h). A slurmctld with accounting that is killed before would never start again. So until all of them have been
there once, `clustername` is taken away before a start; slurmctld asks slurmdbd for its number again and writes it anew,
and loads whatever files there are. From then on the guard stands.
"""

from dataclasses import dataclass
from pathlib import Path

NAME = "clustername"
FILES = ("assoc_usage", "fed_mgr_state", "job_state", "node_state", "resv_state", "trigger_state")
"""Those that slurmctld insists on (26.05: `clustername_existed`)."""
SEEN = "kurm-saved"
"""Our mark that all of them have been there. It lies beside them: who empties the folder takes it away, too."""


@dataclass(frozen=True)
class Guard:
    """The folder of slurmctld's state (StateSaveLocation)."""

    folder: Path

    def note(self) -> bool:
        """Return whether slurmctld has ever saved all of its state, and remember it if so. Raises OSError."""
        mark = self.folder / SEEN
        if mark.exists():
            return True
        whole = all((self.folder / name).exists() for name in FILES)
        if whole:
            mark.touch()
        return whole

    def hold_back(self) -> bool:
        """Let slurmctld start with what there is, if it never saved all; return whether that was needed."""
        name = self.folder / NAME
        if self.note() or not name.exists():
            return False
        name.unlink()
        return True
