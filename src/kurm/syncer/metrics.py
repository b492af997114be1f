"""What the syncer measures of itself, for Prometheus: names begin with `kurm_syncer_`, units are seconds and bytes."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kurm.kube.traffic import Traffic as KubeTraffic
from kurm.slurm.traffic import Traffic

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
Gauges = Mapping[str, tuple[str, Callable[[], Mapping[str, float]]]]
"""By name: what it tells, and a function to its values by the value of its one label."""


class Metrics:
    """One process's. What can be read off at any time is read as Prometheus asks (`watch`), the rest is counted."""

    def __init__(self, cluster: str, namespace: str) -> None:
        self.registry = CollectorRegistry()
        self._of = {"cluster": cluster, "namespace": namespace}
        latency = Histogram(
            "kurm_syncer_sync_seconds",
            "From the first look at a node on which the sides differ to their agreement, by the side that is written",
            ["direction", *self._of],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.to_slurm = latency.labels("to_slurm", *self._of.values())
        self.to_pods = latency.labels("to_pods", *self._of.values())
        self.errors = Counter(
            "kurm_syncer_errors", "Writes that failed, by side and error", ["side", "error"], registry=self.registry
        )
        self.instructions = Counter(
            "kurm_syncer_instructions", "What was decided to be done, by kind", ["kind"], registry=self.registry
        )
        self.drains = Counter(
            "kurm_syncer_drains", "Drains that were decided, by cause", ["cause"], registry=self.registry
        )
        self.queue_retries = Counter(
            "kurm_syncer_looks_after_writes", "Looks at nodes because they were written to", registry=self.registry
        )
        self.pod_writes = Counter("kurm_syncer_pod_writes", "Writes of pods' conditions", registry=self.registry)

    def watch(self, traffic: Traffic, kube: KubeTraffic, gauges: Gauges) -> None:
        """Tell these, too, whenever they are asked for: what was exchanged with slurmrestd and with the API server."""
        self.registry.register(_Reading(traffic, kube, gauges))

    def text(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        return generate_latest(self.registry)


class _Reading(Collector):
    """Reads what is counted elsewhere."""

    def __init__(self, traffic: Traffic, kube: KubeTraffic, gauges: Gauges) -> None:
        self._traffic, self._kube, self._gauges = traffic, kube, gauges

    def describe(self) -> Iterable[Metric]:
        return ()  # names are told by collect; a registry would call it here otherwise, before there is anything

    def collect(self) -> Iterator[Metric]:
        for name, (about, values) in self._gauges.items():
            gauge = GaugeMetricFamily(f"kurm_syncer_{name}", about, labels=["of"])
            for label, value in values().items():
                gauge.add_metric([label], value)
            yield gauge
        calls = CounterMetricFamily("kurm_syncer_slurm_calls", "Requests to slurmrestd", labels=["route"])
        for route, count in self._traffic.calls.items():
            calls.add_metric([route], count)
        yield calls
        failures = CounterMetricFamily(
            "kurm_syncer_slurm_failures", "Requests to slurmrestd that failed", labels=["route", "error"]
        )
        for (route, error), count in self._traffic.failures.items():
            failures.add_metric([route, error], count)
        yield failures
        yield _exchanged("slurm", "slurmrestd", self._traffic)
        asked = CounterMetricFamily("kurm_syncer_kube_calls", "Requests to the API server", labels=["method"])
        for method, count in self._kube.calls.items():
            asked.add_metric([method], count)
        yield asked
        yield _exchanged("kube", "the API server", self._kube)
        yield CounterMetricFamily(
            "kurm_syncer_slurm_wait_seconds", "Time waited for slurmrestd", value=self._traffic.seconds
        )


def _exchanged(side: str, whom: str, traffic: Traffic | KubeTraffic) -> Metric:
    family = CounterMetricFamily(f"kurm_syncer_{side}_bytes", f"Bodies exchanged with {whom}", labels=["way"])
    family.add_metric(["sent"], traffic.sent)
    family.add_metric(["received"], traffic.received)
    return family
