"""When a quiet phase may end."""

from chaos.history import Event, SlurmSilent, SlurmTold
from chaos.run import heard


def told(asked: float) -> SlurmTold:
    """Return an answer of slurmctld's."""
    return SlurmTold(at=asked + 0.1, asked=asked)


STEADY: list[Event] = [told(number / 2) for number in range(20)]


def test_a_quiet_phase_ends_when_slurmctld_has_answered_for_a_while() -> None:
    """All that it was asked, and it was asked twice a second."""
    assert heard(STEADY, 9.7)


def test_what_was_not_answered_is_waited_for() -> None:
    """A stall of the machine, in which nobody could answer, is no fault of the scheduler's."""
    silent = SlurmSilent(at=9.7, asked=9.6)
    assert not heard([*STEADY, silent], 9.7)
    assert not heard([*STEADY[:10], silent, *STEADY[10:]], 9.7)
    assert heard([silent, *STEADY], 9.7)


def test_a_question_that_was_not_asked_is_waited_for() -> None:
    """Whoever asks was stopped for three seconds, now or before."""
    assert not heard(STEADY, 12.7)
    assert not heard([*STEADY[:10], *STEADY[16:]], 9.7)
    assert not heard([], 9.7)
