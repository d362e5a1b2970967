"""Programs that root runs as an unprivileged user."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence

UNPRIVILEGED_USER = "nobody"


def clean_environment() -> Mapping[str, str]:
    """Return environment variables without the caller's locale, time zone and PG* settings."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def unprivileged_prefixes() -> list[list[str]]:
    """Return command prefixes with which root runs a program as an unprivileged user, least privileges first.

    The second and third can access files below a restricted folder, such as a clone in /root: by the capability
    CAP_DAC_OVERRIDE, or in a user namespace in which root has another user id.
    """
    user = pwd.getpwnam(UNPRIVILEGED_USER)
    change = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    # Without the secure bit, access(2), which PostgreSQL uses, ignores the capability.
    override = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--securebits=+no_setuid_fixup"]
    return [
        change,
        [*change, *override],
        ["unshare", "--user", f"--map-user={user.pw_uid}", f"--map-group={user.pw_gid}"],
    ]


def unprivileged_prefix(probes: Sequence[Sequence[str]]) -> Sequence[str] | None:
    """Return the prefix with the least privileges with which all commands succeed; None if there is none.

    Args:
        probes: Commands that use what the programs will use. For a user other than root, the prefix is empty, and they
            are not run.
    """
    if os.geteuid() != 0:
        return ()
    for prefix in unprivileged_prefixes():
        if not any(_run_quietly([*prefix, *probe]).returncode for probe in probes):
            return prefix
    return None


def _run_quietly(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd="/", env=clean_environment(), capture_output=True, check=False)
