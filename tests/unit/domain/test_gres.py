"""From an extended resource and a label to Slurm's GRES: a table, and what no label may ever bring about."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kurm.domain.gres import Gres, gres, read, written
from kurm.domain.nodeset import GresSource
from kurm.slurm.conf import Conf, Record, parse, render

PRODUCT = "nvidia.com/gpu.product"


@pytest.mark.parametrize(
    ("resource", "source", "labels", "expected"),
    [
        ("nvidia.com/gpu", {}, {PRODUCT: "NVIDIA-H100-80GB-HBM3"}, "gpu:nvidia-h100-80gb-hbm3:2 /dev/nvidia[0-1]"),
        ("nvidia.com/gpu", {}, {}, "gpu:2 /dev/nvidia[0-1]"),
        ("nvidia.com/gpu", {}, {PRODUCT: ""}, "gpu:2 /dev/nvidia[0-1]"),
        ("nvidia.com/gpu", {"type": "h100"}, {PRODUCT: "NVIDIA-H100"}, "gpu:h100:2 /dev/nvidia[0-1]"),
        ("nvidia.com/gpu", {"typeLabel": ""}, {PRODUCT: "NVIDIA-H100"}, "gpu:2 /dev/nvidia[0-1]"),
        ("nvidia.com/gpu", {"typeLabel": "example.com/gpu"}, {"example.com/gpu": "L4"}, "gpu:l4:2 /dev/nvidia[0-1]"),
        (
            "amd.com/gpu",
            {},
            {"amd.com/gpu.product-name": "AMD_Instinct_MI300X"},
            "gpu:amd_instinct_mi300x:2 /dev/dri/renderD[128-129]",
        ),
        ("gpu.intel.com/xe", {}, {"gpu.intel.com/product": "Max_1550"}, "gpu:max_1550:2 /dev/dri/renderD[128-129]"),
        ("example.com/gpu", {}, {}, "gpu:2 /dev/nvidia[0-1]"),
        ("example.com/fpga", {}, {}, "fpga:2 "),
        ("example.com/fpga", {"name": "card", "typeLabel": "card"}, {"card": "U280"}, "card:u280:2 "),
        ("nvidia.com/mig-1g.5gb", {}, {}, "mig_1g_5gb:2 "),
        ("rdma/hca_shared", {}, {}, "hca_shared:2 "),
        ("example.com/3d", {}, {}, "x3d:2 "),
    ],
)
def test_gres_have_the_names_of_slurm(
    resource: str, source: dict[str, str], labels: dict[str, str], expected: str
) -> None:
    """GPUs by the vendor's label and device files, anything else by its own name, counted."""
    found = gres(resource, msgspec.convert(source, GresSource), 2, labels)
    assert f"{found} {found.files}" == expected


@given(st.text(), st.text())
def test_no_label_breaks_a_line(one: str, other: str) -> None:
    """Whatever stands in it, the line has the fields that it is to have, and two products have two types."""
    first, second = (gres("nvidia.com/gpu", GresSource(), 2, {PRODUCT: value}) for value in (one, other))
    line = Record((("NodeName", "n1"), ("Name", first.name), ("Type", first.type or "none"), ("File", first.files)))
    assert parse(render(Conf((line,)))).lines == (line,)
    assert re.fullmatch(r"gpu(:[a-z0-9][a-z0-9_.-]*)?:2", str(first))
    assert (first.type == second.type) == (one.lower() == other.lower())
    assert first == gres("nvidia.com/gpu", GresSource(), 2, {PRODUCT: one})


def test_what_is_written_on_a_node_is_read_again() -> None:
    """By resource, with the device files."""
    found = {
        "nvidia.com/gpu": Gres("gpu", "h100", 8, "/dev/nvidia[0-7]"),
        "example.com/fpga": Gres("fpga", "", 1),
    }
    assert read(written(found)) == found
    assert written(found) == '{"example.com/fpga":"fpga:1","nvidia.com/gpu":"gpu:h100:8"}'


@pytest.mark.parametrize(
    "text", ["", "gpu:8", "[]", '{"a":8}', '{"a":"gpu"}', '{"a":"gpu:0"}', '{"a":"gpu:8 x=y"}', '{"a":"gpu:8\\n"}']
)
def test_what_we_have_not_written_is_nothing(text: str) -> None:
    """Anybody who may change nodes may change the annotation."""
    assert read(text) is None
