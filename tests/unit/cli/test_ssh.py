"""How ssh is started: nothing that a person typed reaches a shell unquoted, and a host is never trusted unseen."""

import shlex
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kurm.cli import build
from kurm.cli.ssh import LoginPod, ssh_command

POD = LoginPod("slurm", "demo", "demo-login-1")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4Q"
VIA = ["/opt/my python", "-P", "-m", "kurm.cli", "ssh", "--proxy", "--kubeconfig", "/50%/$(reboot)"]


def started(folder: Path, key: str, *command: str) -> dict[str, str]:
    """Return what ssh itself makes of our words (ssh -G): its settings by their names, in small letters."""
    words = ssh_command(POD, key, VIA, folder / "known hosts", wish=["-l", "alice"], command=command)
    output = subprocess.run(["ssh", "-G", "-F", "/dev/null", *words[1:]], check=True, capture_output=True, text=True)
    return dict(line.split(" ", 1) for line in output.stdout.splitlines() if " " in line)


def test_the_cluster_s_host_key_is_the_only_one(tmp_path: Path) -> None:
    """It stands in a file of our own, and ssh asks nobody else."""
    found = started(tmp_path, KEY)
    assert (tmp_path / "known hosts").read_text() == f"demo.slurm.kurm {KEY}\n"
    names = ("hostname", "hostkeyalias", "user", "stricthostkeychecking", "globalknownhostsfile", "userknownhostsfile")
    assert [found[name] for name in names] == [
        "demo.slurm.kurm",
        "demo.slurm.kurm",
        "alice",
        "true",
        "/dev/null",
        str(tmp_path / "known hosts"),
    ]


def test_without_the_key_ssh_asks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever may not read the Secret is told so, and decides as with any new host."""
    assert started(tmp_path, "")["stricthostkeychecking"] == "ask"
    assert not (tmp_path / "known hosts").exists()
    assert capsys.readouterr().err == (
        "The host key of demo.slurm.kurm cannot be read from its Secret: ssh will ask you about it.\n"
    )


def test_the_proxy_is_started_word_by_word(tmp_path: Path) -> None:
    """The ProxyCommand is given to a shell, after ssh's own %-signs: what comes out are our words again."""
    command = started(tmp_path, KEY)["proxycommand"]
    assert shlex.split(command.replace("%%", "%")) == VIA


def test_a_command_reaches_the_login_shell_word_by_word(tmp_path: Path) -> None:
    """The far side's shell reads one line: spaces, quotes and dollars in a word stay in it."""
    words = ssh_command(POD, KEY, VIA, tmp_path / "known", wish=[], command=["echo", "a b", "$HOME", "it's"])
    assert words[-3:-1] == ["--", "demo.slurm.kurm"]
    assert (
        subprocess.run(["sh", "-c", words[-1]], check=True, capture_output=True, text=True).stdout == "a b $HOME it's\n"
    )


@pytest.mark.parametrize("destination", ["-oProxyCommand=reboot", "al ice@demo", "alice@demo@x", "Alice@", "de/mo"])
def test_a_destination_is_a_user_and_a_cluster(destination: str) -> None:
    """Anything else is refused before anybody is asked, and could be no option of ssh's either."""
    said = CliRunner().invoke(build("ssh"), ["ssh", "-n", "slurm", f" {destination}"])
    words = " ".join(said.output.replace("│", " ").split())
    assert (said.exit_code, "is not [USER@][CLUSTER]" in words) == (2, True)
