# Image with the gateway. It runs as the user `stayput`, keeps its sessions in /var/lib/stayput, and reads
# /etc/stayput/stayput.json, which has to have `auth`: inside a container it listens on all addresses.
#
#   docker build --tag stayput .
#   docker run --init --publish 7337:7337 --volume ./stayput.json:/etc/stayput/stayput.json:ro stayput
#
# Servers that are started as commands need their runtime in the image: `FROM stayput`, and install Node or Python there.

FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
RUN scripts/dist && mkdir /package && tar -xzf target/packages/stayput-*.tar.gz -C /package --strip-components=1

FROM debian:bookworm-slim
RUN useradd --system --create-home --home-dir /var/lib/stayput --shell /usr/sbin/nologin stayput
COPY --from=build /package/stayput /usr/local/bin/
COPY --from=build /package/LICENSE-MIT /package/LICENSE-APACHE /package/LICENCES-OF-DEPENDENCIES /usr/share/doc/stayput/
USER stayput
WORKDIR /var/lib/stayput
VOLUME /var/lib/stayput
EXPOSE 7337
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["stayput", "status", "--config", "/etc/stayput/stayput.json"]
ENTRYPOINT ["stayput"]
CMD ["serve", "--config", "/etc/stayput/stayput.json", "--listen", "0.0.0.0:7337", "--probe", "always"]
