"""RO-Crate 1.1 metadata: files, runs, and the software that made them, for tools that archive results."""

import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.provenance.blocks import BLOCKS
from search_to_signal.provenance.checksums import DATA_SUMS, SUMS, listed_files
from search_to_signal.records.manifest import INTERRUPTED, Manifest, read_manifest, runs_below

CRATE = "ro-crate-metadata.json"
SOFTWARE = "#search-to-signal"
_CONTEXT = "https://w3id.org/ro/crate/1.1/context"
_LICENCE = "https://spdx.org/licenses/MIT"
_TYPES = {
    ".jsonl": "application/jsonl",
    ".json": "application/json",
    ".csv": "text/csv",
    ".md": "text/markdown",
    ".html": "text/html",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".log": "text/plain",
    ".safetensors": "application/octet-stream",
}


def _published() -> str:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.fromtimestamp(int(epoch), timezone.utc) if epoch else datetime.now(timezone.utc)
    return now.date().isoformat()


def _file(directory: Path, path: Path) -> dict[str, Any]:
    return {
        "@id": str(path.relative_to(directory)),
        "@type": "File",
        "name": path.name,
        "contentSize": str(path.stat().st_size),
        "encodingFormat": _TYPES.get(path.suffix, "text/plain"),
    }


def _run(directory: Path, run: Path, manifest: Manifest) -> list[dict[str, Any]]:
    name = str(run.relative_to(directory))
    action = {
        "@id": f"#run-{name}",
        "@type": "CreateAction",
        "name": f"run {name}, {manifest.status}",
        "description": f"configuration {manifest.config_sha256}",
        "instrument": {"@id": SOFTWARE},
        "result": {"@id": f"{name}/"},
    }
    return [{"@id": f"{name}/", "@type": "Dataset", "name": f"records of run {name}"}, action]


def _software(manifests: list[Manifest]) -> dict[str, Any]:
    commits = sorted({m.source.commit for m in manifests if m.source.commit})
    versions = sorted({m.source.sha256 for m in manifests})
    return {
        "@id": SOFTWARE,
        "@type": "SoftwareApplication",
        "name": "search-to-signal",
        "license": {"@id": _LICENCE},
        "softwareVersion": ", ".join(commits) or "no commit known",
        "description": f"source bundle {', '.join(versions) or 'unknown'}",
    }


def crate(directory: Path, title: str) -> bytes:
    """The metadata as canonical JSON: every file but the checksum lists, every run of every layer.

    ``datePublished`` is SOURCE_DATE_EPOCH where it is set, and today otherwise.
    """
    after = {directory / name for name in (CRATE, SUMS, DATA_SUMS, BLOCKS)}
    files = [path for path in listed_files(directory) if path not in after]
    kept = [path for path in files if INTERRUPTED not in path.relative_to(directory).parts]
    runs = [(run, read_manifest(run)) for run in runs_below(directory)]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": title,
        "description": "Records, tables and figures of search-coupled online post-training; "
        "manifests say what ran on what, and SHA256SUMS covers every file.",
        "datePublished": _published(),
        "license": {"@id": _LICENCE},
        "hasPart": [{"@id": str(path.relative_to(directory))} for path in kept],
        "mentions": [{"@id": f"#run-{run.relative_to(directory)}"} for run, _ in runs],
    }
    about = {
        "@id": CRATE,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
    }
    licence = {"@id": _LICENCE, "@type": "CreativeWork", "name": "MIT License"}
    entities = [entity for run, manifest in runs for entity in _run(directory, run, manifest)]
    graph = [
        about,
        root,
        licence,
        _software([manifest for _, manifest in runs]),
        *entities,
        *(_file(directory, path) for path in kept),
    ]
    text = msgspec.json.encode({"@context": _CONTEXT, "@graph": graph}, order="sorted")
    return msgspec.json.format(text, indent=2) + b"\n"
