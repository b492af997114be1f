"""Why a job waits, in words: Slurm has one word for each reason, which says much to who knows it. Pure.

The words are those of job_state_reason.c; what they mean is said in squeue(1), "JOB REASON CODES".
"""

_WORDS = {
    "None": "Slurm has not looked at it yet",
    "Priority": "jobs of higher priority are before it",
    "Resources": "what it asks for is not free now; it is next",
    "Dependency": "an earlier job of the same name has not ended yet",
    "DependencyNeverSatisfied": "it depends on what can no longer happen",
    "Licenses": "the licences that it asks for are in use",
    "Reservation": "its reservation has not begun, or is full",
    "ReservationDeleted": "its reservation is gone",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "BeginTime": "the time at which it may start has not come",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "its user holds it",
    "JobHoldMaxRequeue": "it was requeued too often, and is held",
    "PartitionDown": "its partition starts no jobs now",
    "PartitionInactive": "its partition takes and starts no jobs now",
    "PartitionNodeLimit": "it asks for more nodes than one job may have in its partition, or than there are",
    "PartitionTimeLimit": "its time limit is longer than its partition allows",
    "BadConstraints": "no node of its partition has what it asks for",
    "Constraints": "the nodes with the features that it asks for are not free",
    "InvalidAccount": "its account is unknown",
    "AccountNotAllowed": "its account may not use the partition",
    "InvalidQOS": "its QOS is unknown",
    "QOSNotAllowed": "its account or partition does not allow its QOS",
    "Prolog": "the prolog runs",
    "Cleaning": "what an earlier run has left is being cleared away",
    "SchedDefer": "Slurm puts new jobs off",
    "DeadLine": "it can no longer end before its deadline",
}
_LIMITS = {
    "Assoc": "a limit of its account or user",
    "QOS": "a limit of its QOS",
    "Max": "a limit of its account or user",
}


def in_words(reason: str) -> str:
    """Return what one of Slurm's reasons means, as the rest of a sentence; empty for one that explains itself.

    What squeue puts behind a reason ("ReqNodeNotAvail, UnavailableNodes:n1") stays with it, and is no part of the word.
    """
    word = reason.partition(",")[0].strip()
    if word in _WORDS:
        return _WORDS[word]
    return next((f"{limit} is reached" for begin, limit in _LIMITS.items() if word.startswith(begin)), "")
