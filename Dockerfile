# lockctl and nothing else: docker build -t lockctl . && docker run lockctl --help
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake g++ make
WORKDIR /polylock
COPY . .
RUN cargo build --release --locked --package lockctl

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /polylock/target/release/lockctl /usr/bin/lockctl
USER nobody
ENTRYPOINT ["lockctl"]
