"""What slurmctld's init tells of a log: why a configuration is not taken, and nothing else."""

from slurmctld_init.log import words

CAUSE = ["error: Parsing error at unrecognized key: Bad", "fatal: Unable to process configuration file"]


def test_only_what_is_wrong_with_the_configuration_is_told() -> None:
    """A busy machine and silent nodes are complained of at any moment, amid a refusal, too."""
    said = [
        "error: High latency for 1000 calls to gettimeofday(): 237 microseconds",
        "Running with local authentication",
        CAUSE[0],
        "error: Nodes gpu-[0-7] not responding",
        CAUSE[1],
    ]
    assert "; ".join(CAUSE) == words(said)


def test_an_error_is_told_once_and_without_our_folders() -> None:
    """A parser says the same of each file that includes another, and nobody has heard of the trial's folder."""
    said = ["error: in /run/trial/slurm.conf: Bad", "error: in /run/trial/slurm.conf: Bad", CAUSE[1]]
    assert f"error: in slurm.conf: Bad; {CAUSE[1]}" == words(said, hidden=["/run/trial/"])


def test_of_many_errors_the_last_ones_are_told() -> None:
    """The cause stands at the end."""
    errors = [f"error: {number}" for number in range(7)]
    assert "; ".join([*errors[-4:], "fatal: 7"]) == words([*errors, "fatal: 7"])
