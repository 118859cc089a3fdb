# The locked environment, our sources, and the released CALM source at its pinned revision. No model weights.
#
# docs/running.md has the lines that build and run it.
#
# BASE, UV and CALM may name local images, for machines that reach no registry or no GitHub; APT may name a
# mirror; a secret named "ca" may hold the certificates of a proxy. tests/container/run.sh does all of that.
# BuildKit is needed (DOCKER_BUILDKIT=1 before engine 23); no front end is pulled.

ARG BASE=nvidia/cuda:12.4.1-base-ubuntu22.04@sha256:0f6bfcbf267e65123bcc2287e2153dedfc0f24772fb5ce84afe16ac4b2fada95
ARG UV=ghcr.io/astral-sh/uv:0.12.24@sha256:3af4716e991d6956a41e573eab705d0ee08500cd829ed30293eb8472f372c65a
ARG CALM=calm-clone

# hadolint ignore=DL3006
FROM ${UV} AS uv


# Ubuntu as it was on one day, after the base was built; apt checks Ubuntu's signatures, so plain http will do.
# hadolint ignore=DL3006
FROM ${BASE} AS system
ARG APT=http://snapshot.ubuntu.com/ubuntu/20260101T000000Z
ARG SOURCE_DATE_EPOCH=1767225600
# NVIDIA's list follows today's packages, so it goes first. Triton and Unsloth compile at run time: headers, gcc.
# Signatures are made and checked by ssh-keygen.
# hadolint ignore=DL3008
RUN rm -f /etc/apt/sources.list.d/* \
    && printf "deb ${APT} %s main\n" jammy jammy-updates jammy-security >/etc/apt/sources.list \
    && apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        gcc libc6-dev openssh-client python3.10 python3.10-dev \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/cache/ldconfig/* /var/log/* /tmp/*


# The released source, at the revision that artifact/calm/pin.toml names, with the hash of every file.
FROM system AS calm-fetcher
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git && rm -rf /var/lib/apt/lists/*
COPY artifact/calm/fetch.sh artifact/calm/pin.toml /

FROM calm-fetcher AS calm-clone
RUN --mount=type=secret,id=ca,target=/run/ca.pem \
    if [ -s /run/ca.pem ]; then export GIT_SSL_CAINFO=/run/ca.pem; fi; \
    bash /fetch.sh /pin.toml /calm

# hadolint ignore=DL3006
FROM ${CALM} AS calm


# Our files, whatever the umask of the checkout was: readable by all, writable by none, compiled once.
FROM system AS sources
ARG SOURCE_DATE_EPOCH=1767225600
WORKDIR /opt/search-to-signal
COPY . .
COPY --from=calm /calm /opt/calm
RUN ln -s /results results \
    && python3.10 -m compileall -q --invalidation-mode unchecked-hash artifact \
    && chmod -R a+rX,a-w . /opt/calm \
    && find . /opt/calm -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH}" {} +


FROM system
ARG EXTRAS="gpu cluster"
ARG REVISION=unknown
ARG BASE
ARG SOURCE_DATE_EPOCH=1767225600
WORKDIR /opt/search-to-signal
ENV UV_PYTHON=/usr/bin/python3.10 UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 \
    PYC_INVALIDATION_MODE=UNCHECKED_HASH
COPY pyproject.toml uv.lock .python-version ./
RUN --mount=from=uv,source=/uv,target=/usr/local/bin/uv \
    --mount=type=cache,target=/root/.cache/uv \
    --mount=type=tmpfs,target=/tmp --mount=type=secret,id=ca,target=/run/ca.pem \
    if [ -s /run/ca.pem ]; then export SSL_CERT_FILE=/run/ca.pem; fi; \
    for extra in ${EXTRAS}; do set -- "$@" --extra "${extra}"; done; \
    uv sync --locked --no-install-project "$@"
COPY --from=sources /opt/calm /opt/calm
COPY --from=sources /opt/search-to-signal /opt/search-to-signal
RUN --mount=from=uv,source=/uv,target=/usr/local/bin/uv \
    --mount=type=cache,target=/root/.cache/uv \
    --mount=type=tmpfs,target=/tmp --mount=type=secret,id=ca,target=/run/ca.pem \
    if [ -s /run/ca.pem ]; then export SSL_CERT_FILE=/run/ca.pem; fi; \
    UV_COMPILE_BYTECODE=0 uv sync --locked --inexact \
    && rm -f .venv/.lock \
    && install -d -m 1777 /results

# ssh-keygen refuses a user without a name.
RUN echo s2s:x:10001:10001::/results:/usr/sbin/nologin >>/etc/passwd && echo s2s:x:10001: >>/etc/group

# Everything that a library wants to keep goes below the one mount; nothing asks the network.
ENV PATH=/opt/search-to-signal/.venv/bin:$PATH S2S_IMAGE=1 S2S_CALM=/opt/calm/source \
    HOME=/results USER=s2s TMPDIR=/results XDG_CACHE_HOME=/results/.cache \
    MPLCONFIGDIR=/dev/shm/matplotlib NUMBA_CACHE_DIR=/results/.cache/numba \
    TRITON_CACHE_DIR=/results/.cache/triton TORCHINDUCTOR_CACHE_DIR=/results/.cache/inductor \
    MYPY_CACHE_DIR=/results/.cache/mypy RUFF_CACHE_DIR=/results/.cache/ruff \
    HYPOTHESIS_STORAGE_DIRECTORY=/results/.cache/hypothesis PYTEST_ADDOPTS="-p no:cacheprovider" \
    PYTHONDONTWRITEBYTECODE=1 \
    HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_DATASETS_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 \
    VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 RAY_USAGE_STATS_ENABLED=0

LABEL org.opencontainers.image.title="search-to-signal" \
    org.opencontainers.image.description="From Search to Signal: an executable, reproducible artifact" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.licenses="MIT" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.base.name="${BASE}" \
    search-to-signal.calm.revision="ecb3cadcf4b0" \
    search-to-signal.extras="${EXTRAS}"

USER 10001:10001
VOLUME /results
ENTRYPOINT ["/opt/search-to-signal/reproduce.sh"]
CMD ["smoke"]
