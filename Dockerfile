# fitzd and fitz in an image that holds nothing else. The programs are those of a release: the same bytes for the same commit and version of Go.
#
#   docker build --build-arg COMMIT=$(git rev-parse --short=12 HEAD) -t fitz .
#
# Without keys of tokens the broker does not start, because everybody who reaches the container would be served. For tokens whose claim "tid" is acme:
#
#   docker run -p 4191:4191 -p 4190:4190 -v ./hmac_secret:/run/secrets/hmac_secret:ro \
#     -e FITZ_HMAC_SECRET_FILE=/run/secrets/hmac_secret -e FITZ_FAMILY_MAP=acme=1 fitz
#
# --stop-timeout has to be above drain_grace_ms, 25 s, or the sessions have no time to move.

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS
ARG TARGETARCH
ARG COMMIT=unknown
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN go run ./tools/cmd/fitz-release build --target "$TARGETOS/$TARGETARCH" --commit "$COMMIT" --out /out

FROM scratch
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="fitzd" \
      org.opencontainers.image.description="Fitz lease broker" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="$COMMIT"
# Certificate authorities, for key sets that are fetched by https.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY LICENSE NOTICE THIRD_PARTY_NOTICES.md /licenses/
COPY --from=build /out/fitzd /out/fitz /usr/bin/
# Clients come from outside of the container, so they need tokens. The admin listener is for the container itself; metrics for others need
# FITZ_ADMIN=:4192 and FITZ_ADMIN_TOKEN_FILE.
ENV PATH=/usr/bin \
    FITZ_AUTH=token \
    FITZ_TCP=:4191 \
    FITZ_HTTP=:4190 \
    FITZ_ADMIN=127.0.0.1:4192 \
    FITZ_LOG_FORMAT=json
EXPOSE 4190 4191
USER 65532:65532
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=5s --retries=3 CMD ["fitzd", "healthcheck"]
ENTRYPOINT ["fitzd"]
