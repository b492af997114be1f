"""Conditions of our resources: made anew each time, with the time of their last transition kept. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from kurm.domain.spec import Condition, ConditionType
from kurm.kube.resources import micro_time

MESSAGE = 4096
"""Letters of a message; a hundred pods' troubles would be unreadable, and the API server bounds them."""


@dataclass(frozen=True)
class Trouble:
    """What keeps a resource from being what it asks for."""

    reason: str
    """One word."""
    message: str
    """A sentence."""
    stuck: bool = True
    """It will not come without a person."""


def condition(
    held: Iterable[Condition],
    kind: ConditionType,
    status: bool | None,  # noqa: FBT001 - it is the condition's status
    reason: str,
    message: str = "",
    *,
    generation: int,
    now: datetime,
) -> Condition:
    """Return a condition as it is to be (None: Unknown). The time of its transition stays while the status does."""
    word: Literal["True", "False", "Unknown"] = "Unknown" if status is None else "True" if status else "False"
    before = next((one for one in held if one.type == kind.value), None)
    # Kubernetes keeps whole seconds; with more the condition read back would never be the one that was written.
    since = before.last_transition_time if before and before.status == word else now.replace(microsecond=0)
    return Condition(kind.value, word, since, reason, message[:MESSAGE], generation)


def progress(
    held: Iterable[Condition],
    kinds: type[ConditionType],
    trouble: Trouble | None,
    *,
    note: str = "",
    generation: int,
    now: datetime,
) -> list[Condition]:
    """Return Ready, and Reconciling or Stalled if there is a trouble, as kstatus reads them.

    `note` is said where there is none.
    """
    held = tuple(held)
    ready, reconciling, stalled = (kinds[word] for word in ("READY", "RECONCILING", "STALLED"))
    if trouble is None:
        return [condition(held, ready, True, "Ready", note, generation=generation, now=now)]  # noqa: FBT003
    words = (trouble.reason, trouble.message)
    return [
        condition(held, ready, False, *words, generation=generation, now=now),  # noqa: FBT003
        condition(held, stalled if trouble.stuck else reconciling, True, *words, generation=generation, now=now),  # noqa: FBT003
    ]


def manifest(conditions: Iterable[Condition]) -> list[dict[str, Any]]:
    """Return conditions as they are applied."""
    return [
        {
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "message": one.message,
            "lastTransitionTime": rfc3339(one.last_transition_time),
            **({} if one.observed_generation is None else {"observedGeneration": one.observed_generation}),
        }
        for one in conditions
    ]


def rfc3339(moment: datetime) -> str:
    """Return a `meta/v1` Time: whole seconds."""
    return micro_time(moment).partition(".")[0] + "Z"
