"""RO-Crate 1.1 metadata: files, runs and software of a results directory, for tools that archive results."""

import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.provenance.blocks import BLOCKS
from search_to_signal.provenance.checksums import DATA_SUMS, SUMS, listed_files
from search_to_signal.records.manifest import INTERRUPTED, Manifest, read_manifest, runs_below

CRATE = "ro-crate-metadata.json"
_SOFTWARE = {"@id": "#search-to-signal"}
_LICENCE = {"@id": "https://spdx.org/licenses/MIT"}


def _publication_date() -> str:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.fromtimestamp(int(epoch), timezone.utc) if epoch else datetime.now(timezone.utc)
    return now.date().isoformat()


def _file(directory: Path, path: Path) -> dict[str, Any]:
    name, size = path.relative_to(directory).as_posix(), str(path.stat().st_size)
    return {"@id": name, "@type": "File", "name": path.name, "contentSize": size}


def _run(name: str, manifest: Manifest) -> dict[str, Any]:
    return {
        "@id": f"#run-{name}",
        "@type": "CreateAction",
        "name": f"run {name}, {manifest.status}, source {manifest.source.sha256}",
        "description": f"configuration {manifest.config_sha256}",
        "instrument": _SOFTWARE,
        "result": {"@id": f"{name}/manifest.json"},
    }


def describe_crate(directory: Path, title: str) -> bytes:
    """Return the metadata as canonical JSON: every file except the checksum lists, and every run.

    ``datePublished`` is SOURCE_DATE_EPOCH where it is set, else the current date.
    """
    written_later = {directory / name for name in (CRATE, SUMS, DATA_SUMS, BLOCKS)}
    paths = [path for path in listed_files(directory) if path not in written_later]
    files = [_file(directory, p) for p in paths if INTERRUPTED not in p.relative_to(directory).parts]
    runs = [_run(run.relative_to(directory).as_posix(), read_manifest(run)) for run in runs_below(directory)]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": title,
        "description": "Records, tables and figures of search-coupled online post-training; "
        "manifests say what ran on what, and SHA256SUMS covers every file.",
        "datePublished": _publication_date(),
        "license": _LICENCE,
        "hasPart": [{"@id": file["@id"]} for file in files],
        "mentions": [{"@id": run["@id"]} for run in runs],
    }
    about = {
        "@id": CRATE,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
    }
    software = {**_SOFTWARE, "@type": "SoftwareApplication", "name": "search-to-signal", "license": _LICENCE}
    licence = {**_LICENCE, "@type": "CreativeWork", "name": "MIT License"}
    context = "https://w3id.org/ro/crate/1.1/context"
    crate = {"@context": context, "@graph": [about, root, licence, software, *runs, *files]}
    return msgspec.json.format(msgspec.json.encode(crate, order="sorted"), indent=2) + b"\n"
