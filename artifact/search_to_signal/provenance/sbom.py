"""A software bill of materials: CycloneDX 1.5 from the lock, the same bytes from the same lock."""

import hashlib
import uuid
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import msgspec

from search_to_signal.package_data import LOCK
from search_to_signal.provenance.lock import PROJECT, Pinned, direct, needed, read_lock

SBOM = "sbom.cdx.json"


def _reference(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def _component(package: Pinned) -> dict[str, Any]:
    reference = _reference(package.name, package.version)
    hashes = [{"alg": "SHA-256", "content": package.wheels[name]} for name in sorted(package.wheels)]
    return {
        "type": "library",
        "bom-ref": reference,
        "name": package.name,
        "version": package.version,
        "purl": reference,
        "hashes": hashes,
    }


def bill_of_materials(extras: Sequence[str] = ()) -> bytes:
    """The bill as canonical JSON: what the project with these extras installs on Linux x86_64.

    ``hashes`` are those of every locked wheel of a package. The serial number comes from the lock's hash,
    and there is no timestamp, so that equal locks give equal bytes.
    """
    lock = read_lock()
    packages = needed(lock, extras)
    versions = {package.name: package.version for package in packages}
    project = next(package for package in lock["package"] if package["name"] == PROJECT)
    root = _reference(PROJECT, project["version"])
    sha256 = hashlib.sha256(LOCK.read_bytes() + ",".join(extras).encode()).hexdigest()
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "serialNumber": f"urn:uuid:{uuid.UUID(hex=sha256[:32], version=4)}",
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": PROJECT,
                "version": project["version"],
            }
        },
        "components": [_component(package) for package in packages],
        "dependencies": [
            {"ref": root, "dependsOn": [_reference(name, versions[name]) for name in direct(lock, extras)]},
            *(
                {
                    "ref": _reference(package.name, package.version),
                    "dependsOn": [_reference(name, versions[name]) for name in package.requires],
                }
                for package in packages
            ),
        ],
    }
    return msgspec.json.format(msgspec.json.encode(bill, order="sorted"), indent=2) + b"\n"


def possible_bills() -> list[bytes]:
    """The bills of every choice of extras, none first."""
    lock = read_lock()
    project = next(package for package in lock["package"] if package["name"] == PROJECT)
    extras = sorted(project.get("optional-dependencies", {}))
    return [bill_of_materials(some) for size in range(len(extras) + 1) for some in combinations(extras, size)]
