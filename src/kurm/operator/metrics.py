"""What the operator measures of itself, for Prometheus: names begin with `kurm_operator_`, units are seconds."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
Values = Mapping[str, Callable[[], float]]


class Metrics:
    """One process's."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._writes = Counter(
            "kurm_operator_writes",
            "Requests that write, by verb and resource",
            ["verb", "resource"],
            registry=self.registry,
        )
        self._failures = Counter(
            "kurm_operator_write_failures",
            "Writes that failed, by error",
            ["verb", "resource", "error"],
            registry=self.registry,
        )
        self.reconciles = Histogram(
            "kurm_operator_reconcile_seconds",
            "From taking up a resource to having done with it, by controller and outcome",
            ["controller", "outcome"],
            buckets=SECONDS,
            registry=self.registry,
        )

    def wrote(self, verb: str, resource: str) -> None:
        """Count a write that the API server has taken."""
        self._writes.labels(verb, resource).inc()

    def failed(self, verb: str, resource: str, error: str) -> None:
        """Count a write that failed."""
        self._failures.labels(verb, resource, error).inc()

    @contextmanager
    def timed(self, controller: str) -> Iterator[None]:
        """Time a look at a resource."""
        start, outcome = time.perf_counter(), "failed"
        try:
            yield
            outcome = "done"
        finally:
            self.reconciles.labels(controller, outcome).observe(time.perf_counter() - start)

    def gauge(self, name: str, about: str, label: str, values: Values) -> None:
        """Tell these too, read when Prometheus asks, by the value of their one label."""
        gauge = Gauge(f"kurm_operator_{name}", about, [label], registry=self.registry)
        for value, read in values.items():
            gauge.labels(value).set_function(read)

    def text(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        return generate_latest(self.registry)
