# A first image: the locked environment and the embedded path on a plain Debian with Python 3.10.
#   docker build -t search-to-signal .
#   docker run --rm --network none -v "$PWD/results:/results" search-to-signal smoke
ARG BASE=python:3.10-slim-bookworm
FROM ${BASE}

ENV UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 HF_HUB_OFFLINE=1 XDG_CACHE_HOME=/results/.cache
RUN python3 -m pip install --no-cache-dir uv==0.12.24
WORKDIR /opt/search-to-signal
COPY pyproject.toml uv.lock .python-version README.md LICENSE ./
RUN uv sync --locked --no-dev --no-install-project && rm -rf /root/.cache
COPY artifact artifact
RUN uv sync --locked --no-dev && rm -rf /root/.cache

USER 10001
VOLUME /results
ENTRYPOINT ["/bin/sh", "-c", "exec .venv/bin/s2s run --profile \"${0:-smoke}\" --out /results/\"${0:-smoke}\""]
