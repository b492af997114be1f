"""What is in force, and what was refused."""

from dataclasses import dataclass

PORT = 6819
"""Where it is told."""


@dataclass
class Status:
    """Told as JSON."""

    hash: str = ""
    """Of the configuration in force; empty while slurmctld starts."""
    refused: str = ""
    """Of the newest one, if it was refused."""
    words: str = ""
    """Slurm's, about that."""
    epoch: str = ""
    """One life of slurmctld: another one after each start, the same after a reconfigure. Empty while it starts."""
