"""What the two-way demo sees of the pods, and the time-line that it prints of it."""

from kurm.local.twoway import REPLICAS, TimeLine, Watch


def test_a_pod_is_seen_made_bound_ready_and_ending() -> None:
    """Each line of kubectl's watch says how a pod is now; what was reached is not taken back by a later line."""
    watch = Watch()
    for line in ("web-1 <none> <none> <none>", "web-1 n2 <none> <none>", "web-1 n2 True <none>"):
        watch.tell(line)
    seen = watch.pods["web-1"]
    assert (seen.node, 0 < seen.created <= seen.bound <= seen.ready, seen.ending) == ("n2", True, 0.0)
    watch.tell("web-1 n2 False 2026-01-01T00:00:00Z")
    assert seen.created <= seen.bound <= seen.ready <= seen.ending


def test_what_is_missing_is_counted() -> None:
    """As long as one replica lacks it, the words say how many have it."""
    watch = Watch()
    for number in range(REPLICAS):
        assert watch.waiting("bound") == f"{number} of {REPLICAS} are bound"
        watch.tell(f"web-{number} n1 False <none>")
    assert (watch.waiting("bound"), watch.waiting("ready")) == ("", f"0 of {REPLICAS} are ready")


def test_the_time_line_is_in_order_and_begins_at_zero() -> None:
    """Entries may be written down later than what they tell of."""
    line = TimeLine()
    line.note("scaled", 100.0)
    line.note("answered", 102.5)
    line.note("bound", 100.25)
    assert list(line.lines()) == ["   0.00 s  scaled", "   0.25 s  bound", "   2.50 s  answered"]
