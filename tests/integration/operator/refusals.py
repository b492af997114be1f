"""Specs that the API server must refuse, each with the sentence that it must say."""

from typing import Any

Json = dict[str, Any]

BATCH = {"name": "batch", "nodeSets": ["workers"]}
SSH = {"name": "a", "uid": 1001}
EXTERNAL = {"host": "db", "user": "slurm", "password": {"name": "db", "key": "password"}}
SPACE = "must be a duration above zero, as 90s, 10m, 1h30m or 7d"
SHARE = "must be a number of nodes above zero, as 1, or a share of them, as 10%, which is rounded up"
NAMED = "must be letters, digits, _, . and -, with a letter or digit first"

BAD_CLUSTERS: list[tuple[Json, str]] = [
    (
        {"deadAfter": "5 minutes"},
        f'spec.deadAfter: Invalid value: "5 minutes": {SPACE}',
    ),
    (
        {"topology": {"type": "block", "nodeLabels": ["rack"]}},
        "spec.topology.blockSizes: Invalid value: must be given for blocks, as [4, 16], and for nothing else",
    ),
    (
        {"topology": {"type": "tree", "nodeLabels": ["rack"], "blockSizes": [4]}},
        "spec.topology.blockSizes: Invalid value: must be given for blocks, as [4, 16], and for nothing else",
    ),
    (
        {"topology": {"type": "block", "nodeLabels": ["rack"], "blockSizes": [4, 12]}},
        (
            "spec.topology.blockSizes: Invalid value: must rise, and each be the first one times 2, 4, 8 and so on: "
            "as [4, 8, 32]"
        ),
    ),
    (
        {"topology": {"type": "block", "nodeLabels": ["rack"], "blockSizes": [8, 4]}},
        (
            "spec.topology.blockSizes: Invalid value: must rise, and each be the first one times 2, 4, 8 and so on: "
            "as [4, 8, 32]"
        ),
    ),
    (
        {"topology": {"type": "tree", "nodeLabels": []}},
        "spec.topology.nodeLabels: Invalid value: must name a label of the nodes",
    ),
    (
        {"clusterName": "Big One"},
        'spec.clusterName: Invalid value: "Big One": must be a-z, 0-9, _ and -, with a letter or digit first',
    ),
    (
        {"controller": {"storage": {"size": "10 GB"}}},
        'spec.controller.storage.size: Invalid value: "10 GB": must be a number of bytes, as 512Mi, 10Gi or 1Ti',
    ),
    (
        {"controller": {"storage": {"size": "0Gi"}}},
        "spec.controller.storage.size: Invalid value: must be above zero",
    ),
    (
        {"accounting": {"companion": {}, "external": EXTERNAL}},
        (
            "spec.accounting: Invalid value: companion and external are both set: "
            "a cluster has one database; keep the one that it shall use"
        ),
    ),
    (
        {"accounting": {"external": {"host": "db", "user": "slurm"}}},
        (
            "[spec.accounting.external.password: Required value, "
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
            "correct the existing errors to complete validation]"
        ),
    ),
    (
        {"scheduler": {"name": "default-scheduler"}},
        (
            'spec.scheduler.name: Invalid value: "default-scheduler": must be another name: every pod that names no '
            "scheduler bears it, and Kubernetes' own places those"
        ),
    ),
    (
        {"scheduler": {"name": "Kurm!"}},
        (
            'spec.scheduler.name: Invalid value: "Kurm!": '
            "must be a-z, 0-9, . and -, with a letter or digit first and last"
        ),
    ),
    (
        {"scheduler": {"partition": "services"}},
        "spec.scheduler.partition: Invalid value: there is no partition services in spec.partitions",
    ),
    (
        {"scheduler": {"partition": "pin"}, "partitions": [BATCH]},
        "spec.scheduler.partition: Invalid value: there is no partition pin in spec.partitions",
    ),
    (
        {"scheduler": {"namespaces": [{"name": "a", "partitions": ["batch"]}, {"name": "b", "partitions": ["big"]}]}},
        "spec.scheduler.namespaces: Invalid value: a partition of namespace b is none of spec.partitions",
    ),
    (
        {"scheduler": {"namespaces": [{"name": "a"}, {"name": "a"}]}},
        'spec.scheduler.namespaces[1]: Duplicate value: {"name":"a"}',
    ),
    (
        {"scheduler": {"priorityClasses": [{"name": "high", "partition": "big"}]}, "partitions": [BATCH]},
        (
            "spec.scheduler.priorityClasses: Invalid value: "
            "the partition of PriorityClass high is none of spec.partitions"
        ),
    ),
    (
        {"scheduler": {}, "partitions": [BATCH | {"tier": 65533}]},
        (
            "spec.partitions: Invalid value: with a scheduler no partition can have tier 65533: "
            "it is that of pods which are pinned again"
        ),
    ),
    (
        {"partitions": [BATCH | {"nodeSets": []}]},
        "spec.partitions[0].nodeSets: Invalid value: a partition needs at least one NodeSet",
    ),
    (
        {"partitions": [BATCH, BATCH]},
        'spec.partitions[1]: Duplicate value: {"name":"batch"}',
    ),
    (
        {"partitions": [BATCH | {"default": True}, BATCH | {"name": "x"}, BATCH | {"name": "y", "default": True}]},
        "spec.partitions: Invalid value: one partition can be the default, not both batch and y",
    ),
    (
        {"partitions": [BATCH | {"name": "Default"}]},
        (
            'spec.partitions[0].name: Invalid value: "Default": must be another name: '
            "DEFAULT is Slurm's, for the settings of all partitions, and pin is Kurm's"
        ),
    ),
    (
        {"partitions": [BATCH | {"name": "a b"}]},
        f'spec.partitions[0].name: Invalid value: "a b": {NAMED}',
    ),
    (
        {"partitions": [BATCH | {"maxTime": "INFINITE"}]},
        f'spec.partitions[0].maxTime: Invalid value: "INFINITE": {SPACE}, or UNLIMITED',
    ),
    (
        {"partitions": [BATCH | {"extra": "LLN=YES maxtime=3"}]},
        'spec.partitions[0].extra: Invalid value: "LLN=YES maxtime=3": MaxTime has a field of its own: maxTime',
    ),
    (
        {"partitions": [BATCH | {"extra": "LLN=YES # why"}]},
        (
            'spec.partitions[0].extra: Invalid value: "LLN=YES # why": '
            "settings stand in one line, as MaxMemPerCPU=4000 LLN=YES, without a comment or a backslash"
        ),
    ),
    (
        {"login": {"users": [SSH, SSH | {"name": "b"}]}},
        (
            "spec.login.users: Invalid value: every user needs a uid of their own, "
            "and the one of a is given more than once"
        ),
    ),
    (
        {"login": {"users": [SSH, SSH | {"uid": 1002}]}},
        'spec.login.users[1]: Duplicate value: {"name":"a"}',
    ),
    (
        {"login": {"users": [SSH | {"name": "root"}]}},
        'spec.login.users[0].name: Invalid value: "root": must be another name: this is a system user of the images',
    ),
    (
        {"login": {"users": [SSH | {"uid": 65534}]}},
        "spec.login.users[0].uid: Invalid value: 65534: must be another number: this is the user nobody",
    ),
    (
        {"login": {"users": [SSH | {"uid": 0}]}},
        (
            "spec.login.users[0].uid: Invalid value: 0: "
            "spec.login.users[0].uid in body should be greater than or equal to 1000"
        ),
    ),
    (
        {"login": {"users": [SSH | {"sshKeys": ["-----BEGIN OPENSSH PRIVATE KEY-----"]}]}},
        (
            'spec.login.users[0].sshKeys[0]: Invalid value: "-----BEGIN OPENSSH PRIVATE KEY-----": '
            "must be a public key: one line of authorized_keys, as ssh-ed25519 AAAA... me@home"
        ),
    ),
    (
        {"login": {"service": {"nodePort": 30022}}},
        (
            "spec.login.service.nodePort: Invalid value: a Service of type ClusterIP has no port on the nodes: "
            "set type to NodePort or LoadBalancer"
        ),
    ),
    (
        {"login": {"service": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0"]}}},
        (
            'spec.login.service.loadBalancerSourceRanges[0]: Invalid value: "10.0.0.0": '
            "must be a range of addresses, as 10.0.0.0/8"
        ),
    ),
    (
        {"sharedVolumes": [{"claimName": "home", "mountPath": "/"}]},
        (
            'spec.sharedVolumes[0].mountPath: Invalid value: "/": '
            "must be a path below /, of letters, digits, _, ., @, %, +, =, ~ and -"
        ),
    ),
    (
        {"config": {"extra": " PreemptMode = cancel , Suspend\n"}},
        (
            'spec.config.extra: Invalid value: " PreemptMode = cancel , Suspend\\n": '
            "PreemptMode=SUSPEND cannot be set here: "
            "a suspended job's CPUs are sold again while its pod runs on"
        ),
    ),
]
BAD_NODE_SETS: list[tuple[Json, str]] = [
    (
        {"replicas": -1},
        (
            "[spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0, "
            ".spec.replicas: Invalid value: -1: should be a non-negative integer]"
        ),
    ),
    (
        {"slurm": {"features": ["a,b"]}},
        (
            'spec.slurm.features[0]: Invalid value: "a,b": '
            "must be letters, digits, _, ., :, / and -, with a letter, digit or _ first"
        ),
    ),
    (
        {"slurm": {"features": ["nodeset:workers"]}},
        (
            'spec.slurm.features[0]: Invalid value: "nodeset:workers": '
            "must not begin with nodeset:, which marks NodeSets"
        ),
    ),
    (
        {"slurm": {"gres": {"nvidia.com/gpu": {"name": "gpu:h100"}}}},
        (
            'spec.slurm.gres[nvidia.com/gpu].name: Invalid value: "gpu:h100": '
            "must be a-z, 0-9 and _, with a letter first, as gpu"
        ),
    ),
    (
        {"slurm": {"gres": {"nvidia.com/gpu": {"type": "h100,1"}}}},
        (
            'spec.slurm.gres[nvidia.com/gpu].type: Invalid value: "h100,1": '
            "must be letters, digits, _, . and -, with a letter or digit first, as h100"
        ),
    ),
    (
        {"slurm": {"gres": {"nvidia.com/gpu": {"type": "h100", "typeLabel": "example.com/gpu"}}}},
        (
            "spec.slurm.gres[nvidia.com/gpu]: Invalid value: "
            "type and typeLabel are both set: a GRES has one type; keep the one that it shall have"
        ),
    ),
    (
        {"slurm": {"featureLabels": {"topology.kubernetes.io/zone": "zone:"}}},
        (
            'spec.slurm.featureLabels[topology.kubernetes.io/zone]: Invalid value: "zone:": '
            "must be letters, digits, _, . and -, with a letter, digit or _ first, or empty"
        ),
    ),
    (
        {"updateStrategy": {"maxUnavailable": 0}},
        f"spec.updateStrategy.maxUnavailable: Invalid value: 0: {SHARE}",
    ),
    (
        {"updateStrategy": {"maxUnavailable": "0%"}},
        f'spec.updateStrategy.maxUnavailable: Invalid value: "0%": {SHARE}',
    ),
    (
        {"updateStrategy": {"maxUnavailable": "101%"}},
        f'spec.updateStrategy.maxUnavailable: Invalid value: "101%": {SHARE}',
    ),
    (
        {"busyDeadline": "0s"},
        f'spec.busyDeadline: Invalid value: "0s": {SPACE}',
    ),
    (
        {"taintKey": "pool!"},
        'spec.taintKey: Invalid value: "pool!": must be the key of a taint, as kurm.dev/pool',
    ),
    (
        {"reserve": {"memory": "lots"}},
        'spec.reserve.memory: Invalid value: "lots": must be a number of bytes, as 512Mi, 10Gi or 1Ti',
    ),
]
