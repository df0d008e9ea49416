# A broker in a container: docs/how-to/deploy.md says how to build and run it.
ARG PYTHON_IMAGE=python:3.11-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
# The pins first: they change less often than what is built with them.
COPY constraints.txt ./
# --build-constraint, which pins what builds our package, wants the pinned pip.
RUN python3 -m venv /opt/pip \
    && /opt/pip/bin/pip install --no-cache-dir --constraint constraints.txt --upgrade pip
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY nebula nebula
# The installing pip stands outside: the environment that is shipped has none.
RUN python3 -m venv --without-pip /opt/nebula \
    && /opt/pip/bin/pip --python /opt/nebula/bin/python install --no-cache-dir --compile \
        --constraint constraints.txt --build-constraint constraints.txt '.[all]'

FROM ${PYTHON_IMAGE}
# A number of our own, so that a volume has the same owner whatever image comes later.
RUN groupadd --gid 10001 nebula \
    && useradd --uid 10001 --gid nebula --home-dir /var/lib/nebula --shell /usr/sbin/nologin nebula \
    && install --directory --owner nebula --group nebula --mode 0700 /var/lib/nebula
COPY --from=build /opt/nebula /opt/nebula
COPY deploy/container.toml /etc/nebula/nebula.toml
# Logs are lines that are read while they are written. The listener for probes is the container's own.
ENV PATH=/opt/nebula/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NEBULA_SERVER_DATA=/var/lib/nebula \
    NEBULA_SERVER_HTTP=8080
# Paths in nebula.toml are relative to the folder where the broker is started.
WORKDIR /etc/nebula
USER 10001:10001
VOLUME /var/lib/nebula
EXPOSE 61613
# The broker drains; `--stop-timeout` has to be longer than `drain_seconds`.
STOPSIGNAL SIGTERM
# After a crash it looks at every page of a large store before it listens.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python3", "-IS", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8080, timeout=4); c.request('GET', '/healthz'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["nebula"]
CMD ["broker"]
