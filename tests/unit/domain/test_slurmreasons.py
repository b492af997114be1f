"""Slurm's reasons, for people."""

import pytest

from kurm.domain.slurmreasons import in_words


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Priority", "jobs of higher priority are before it"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-3]", "nodes that it needs are down, drained or reserved"),
        ("QOSMaxCpuPerUserLimit", "a limit of its QOS is reached"),
        ("AssocGrpGRES", "a limit of its account or user is reached"),
        ("MaxJobsPerAccount", "a limit of its account or user is reached"),
        ("NvidiaImexChannels", ""),
        ("", ""),
    ],
)
def test_a_reason_in_words(reason: str, words: str) -> None:
    """Known ones have their own words, limits are told by how they begin, and nothing is made up for the rest."""
    assert in_words(reason) == words
