# rocm-5.2.3-debian
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: debian:bookworm-slim
FROM debian:bookworm-slim AS system
# Packages of every image on debian-12
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-debian-12,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-debian-12,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install ca-certificates g++ libc6-dev python3 python3-venv
# A fixed user; who runs a container says at run time as whom
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    sh /run/tk/site.sh user tk 10000 /home/tk

# The image: HIP of Debian 12
FROM system AS image
# Packages of rocm-debian 5.2.3
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-debian-12,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-debian-12,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install hipcc rocm-device-libs libamdhip64-dev clang-15 lld-15
COPY probes/hip-kernel.hip probes/hip-kernel.sh /usr/local/share/tk/probes/
ENV HIP_PLATFORM="amd"
LABEL "org.opencontainers.image.title"="rocm-5.2.3-debian" \
      "org.opencontainers.image.description"="HIP of Debian 12" \
      "org.opencontainers.image.base.name"="debian:bookworm-slim" \
      "tk.recipe"="b0206d0d3d6d276dbee2111c5d3401db9965fbdc2f5bc18f386c10bf2abe030e" \
      "tk.components"="rocm-debian=5.2.3"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile probes/hip-kernel.hip probes/hip-kernel.sh tk/site.sh
