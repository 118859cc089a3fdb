"""Search hosts by name, the released CALM among them; a profile may also name one by entry point or path."""

from contextlib import AbstractContextManager
from typing import cast

from search_to_signal.base import plugins
from search_to_signal.base.errors import ConfigError
from search_to_signal.records.schema import FIRST_HOST
from search_to_signal.records.schema import HOSTS as FURTHER
from search_to_signal.search.host import Host, HostFactory, HostSetup
from search_to_signal.search.hosts.calm.host import reference_host

REFERENCE, RELEASED = FIRST_HOST, "released"
GROUP = "search_to_signal.hosts"
_METHODS = ("start", "propose", "update")


def _released(setup: HostSetup) -> Host:
    raise ConfigError(
        "the released host brings a loop and a learner of its own: run it with s2s released --calm DIR"
    )


HOSTS: dict[str, HostFactory] = {
    REFERENCE: reference_host,
    RELEASED: _released,
    **{entry.key: plugins.part(f"search/hosts/{entry.key}", "host").host for entry in FURTHER},
}


def get_host(name_or_path: str) -> HostFactory:
    """Return what makes a host, by name, by entry point of group search_to_signal.hosts, or by pkg.mod:obj.

    Raises ConfigError with the known names.
    """
    return _factory(name_or_path, plugins.load(name_or_path, HOSTS, GROUP))


def open_host(name_or_path: str, setup: HostSetup) -> Host:
    """Make a host; raises ConfigError as ``get_host`` does, for settings that the host refuses, and with what
    the object lacks to be one.
    """
    return _made(name_or_path, get_host(name_or_path), setup)


def find_host(name_or_path: str, setup: HostSetup) -> Host:
    """``open_host`` for a name that a results directory gives: runs no code that was not allowed."""
    plugin = plugins.find(name_or_path, HOSTS, GROUP, "--host")
    return _made(name_or_path, _factory(name_or_path, plugin), setup)


def host_errors(name: str) -> AbstractContextManager[None]:
    """Context in which a third-party host runs: its errors become one line (MappingError)."""
    return plugins.third_party_errors(f"host {name}", name in HOSTS)


def _factory(name_or_path: str, plugin: object) -> HostFactory:
    if not callable(plugin):
        raise ConfigError(
            f"{name_or_path!r} cannot make a host: give a class or function that takes a HostSetup"
        )
    return cast(HostFactory, plugin)


def _made(name_or_path: str, factory: HostFactory, setup: HostSetup) -> Host:
    with host_errors(name_or_path):
        host = factory(setup)
    if missing := [name for name in _METHODS if not callable(getattr(host, name, None))]:
        raise ConfigError(f"the host {name_or_path!r} lacks {', '.join(missing)}: see search/host.py")
    return host
