# cursor-gateway with Cursor's own CLI. Build and run it with `docker compose up --build`.

FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY cursor_gateway cursor_gateway
RUN python -m venv /opt/gateway && /opt/gateway/bin/pip install --no-cache-dir .

FROM python:3.13-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl git ripgrep \
    && rm -rf /var/lib/apt/lists/*
# A download that breaks off must break the build.
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# The installer writes below HOME. There it would be hidden by the volume that keeps the sign-in.
RUN curl -fsS https://cursor.com/install | HOME=/opt/cursor bash \
    && chmod -R a+rX /opt/cursor \
    && test -x /opt/cursor/.local/bin/cursor-agent
COPY --from=build /opt/gateway /opt/gateway
RUN useradd --create-home --uid 1000 gateway
# By number: so that whoever runs it can see that it is not root.
USER 1000:1000
WORKDIR /home/gateway
ENV PATH=/opt/gateway/bin:/opt/cursor/.local/bin:/usr/local/bin:/usr/bin:/bin \
    HOST=0.0.0.0 \
    PORT=32124
EXPOSE 32124
VOLUME /home/gateway
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["curl", "--fail", "--silent", "--output", "/dev/null", "http://127.0.0.1:32124/health"]
ENTRYPOINT ["cursor-gateway"]
CMD ["serve"]
