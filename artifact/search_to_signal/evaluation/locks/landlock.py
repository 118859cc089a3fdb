"""A second lock where the kernel has it: no path, no TCP port, no signal out of the domain."""

import os
import struct

from search_to_signal.evaluation.locks.linux import syscall

_VERSION = 1
# Number of file-system rights by ABI: 13 in the first, then refer, truncate and ioctl_dev.
_RIGHTS = ((5, 16), (3, 15), (2, 14), (1, 13))
_NETWORK_ABI, _SCOPE_ABI = 4, 6
_BIND_AND_CONNECT = 3
_SIGNAL_AND_ABSTRACT_SOCKET = 3


def landlock_abi() -> int:
    """ABI of the running kernel, 0 without Landlock."""
    return max(0, syscall("landlock_create_ruleset", None, 0, _VERSION))


def deny_everything() -> int:
    """Handle every right and grant none, for this process and its children; returns the ABI or 0."""
    abi = landlock_abi()
    if abi == 0:
        return 0
    rights = next(bits for least, bits in _RIGHTS if abi >= least)
    words = [(1 << rights) - 1]
    words += [_BIND_AND_CONNECT] if abi >= _NETWORK_ABI else []
    words += [_SIGNAL_AND_ABSTRACT_SOCKET] if abi >= _SCOPE_ABI else []
    attribute = struct.pack(f"<{len(words)}Q", *words)
    ruleset = syscall("landlock_create_ruleset", attribute, len(attribute), 0)
    if ruleset < 0:
        return 0
    failed = syscall("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)
    return 0 if failed else abi
