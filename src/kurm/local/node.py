"""A node of the cluster: containerd, the kubelet and the service proxy, with the files that they read. Pure."""

import json
import textwrap
from pathlib import Path

import yaml

from kurm.local.layout import Layout, Machine
from kurm.local.machine import BINARIES, Service
from kurm.local.pki import Authority, kubeconfig

MIB = 1 << 20
ALLOCATABLE = 4 << 30
"""Bytes of memory that a node offers to pods: every node has the whole machine's, so all but this is reserved."""
EVICTION = 50 * MIB
"""Bytes that the kubelet keeps free; it takes them off what it offers."""
CONTROL_ROLE = "kurm.dev/role=control"
"""Label of n0, where control pods (slurmctld, login, database, CoreDNS, operator) belong."""
COMPUTE_ROLE = "kurm.dev/role=compute"
"""Label of the others."""
PAUSE_IMAGE = "localhost/kurm/pause:local"

KUBELET = "/var/lib/kubelet"
CNI = "/var/lib/cni/net.d"


def files(layout: Layout, node: Machine, authority: Authority, memory: int) -> dict[str, bytes | str]:
    """Everything the node's daemons read, by the path at which they see it. `memory` is the machine's, in bytes."""
    user = authority.sign(f"system:node:{node.name}", groups="system:nodes")
    server = authority.sign(node.name, addresses=(node.name, node.address))
    proxy = authority.sign("system:kube-proxy")
    ca = authority.pair.certificate
    return {
        f"{KUBELET}/pki/ca.crt": ca,
        f"{KUBELET}/pki/server.crt": server.certificate,
        f"{KUBELET}/pki/server.key": server.key,
        f"{KUBELET}/kubeconfig": kubeconfig(layout.name, layout.api_server, ca, user),
        f"{KUBELET}/config.yaml": yaml.safe_dump(kubelet_configuration(layout, node, memory)),
        # Pods that ask for the node's own DNS get an address that refuses at once: slurmctld waits for every name.
        f"{KUBELET}/resolv.conf": "nameserver 127.0.0.1\n",
        f"{CNI}/10-pods.conflist": json.dumps(cni_configuration(node), indent=2),
        "/var/lib/containerd/config.toml": CONTAINERD,
        "/var/lib/kube-proxy/kubeconfig": kubeconfig(layout.name, layout.api_server, ca, proxy),
        "/var/lib/kube-proxy/config.yaml": yaml.safe_dump(proxy_configuration(layout, node)),
    }


def services(node: Machine) -> list[Service]:
    """Return the node's daemons."""
    role = CONTROL_ROLE if node.name == "n0" else COMPUTE_ROLE
    return [
        Service("containerd", ["containerd", "--config=/var/lib/containerd/config.toml"]),
        Service(
            "kubelet",
            [
                f"{BINARIES}/kubelet",
                f"--config={KUBELET}/config.yaml",
                f"--kubeconfig={KUBELET}/kubeconfig",
                f"--hostname-override={node.name}",
                f"--node-ip={node.address}",
                f"--node-labels={role}",
            ],
            after="[ -S /run/containerd/containerd.sock ]",
        ),
        Service("kube-proxy", [f"{BINARIES}/kube-proxy", "--config=/var/lib/kube-proxy/config.yaml"]),
    ]


def kubelet_configuration(layout: Layout, node: Machine, memory: int) -> dict[str, object]:
    """Return the KubeletConfiguration; `memory` is the machine's, in bytes."""
    pki = f"{KUBELET}/pki"
    reserved = max(0, memory - ALLOCATABLE - EVICTION)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/server.crt",
        "tlsPrivateKeyFile": f"{pki}/server.key",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [str(layout.dns)],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{KUBELET}/resolv.conf",
        "systemReserved": {"memory": f"{reserved // MIB}Mi"},
        # The disk is the host's: its fill level says nothing about this node's pods.
        "evictionHard": {
            "memory.available": f"{EVICTION // MIB}Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        # Signs of life often enough for the control plane's grace period of 20 s.
        "nodeLeaseDurationSeconds": 20,
        "nodeStatusUpdateFrequency": "5s",
        # How long a changed ConfigMap may take to reach the pods that mount it; Kubernetes' default is a minute.
        "syncFrequency": "10s",
    }


def cni_configuration(node: Machine) -> dict[str, object]:
    """Return the CNI plug-ins' configuration: a bridge for the node's pods, host ports."""
    ipam = {
        "type": "host-local",
        # In /run: after a power failure no pod is left that could hold an address.
        "dataDir": "/run/cni",
        "ranges": [[{"subnet": str(node.pods)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": ipam}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}


def proxy_configuration(layout: Layout, node: Machine) -> dict[str, object]:
    """Return the KubeProxyConfiguration."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": "/var/lib/kube-proxy/kubeconfig"},
        "clusterCIDR": str(layout.pods),
        "hostnameOverride": node.name,
        # The connection table's size is the host's; a namespace may not set it.
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


CONTAINERD = textwrap.dedent(f"""\
    version = 2
    # /var/lib/containerd and /run/containerd are the defaults; each node has its own.
    [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "{PAUSE_IMAGE}"
    disable_apparmor = true
    # Root may lack CAP_SYS_RESOURCE; without this every sandbox then fails: "can't get final child's PID from pipe".
    restrict_oom_score_adj = true
    # Pods' network namespaces are mounted below /run/containerd, not in the host's /run/netns.
    netns_mounts_under_state_dir = true
    [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{CNI}"
    """)


def machine_memory(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return this machine's memory in bytes, as the kubelet will see it."""
    return int(meminfo.read_text().split("MemTotal:")[1].split()[0]) * 1024
