# cpu
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

# The image: C++ on Debian 12
FROM system AS image
COPY probes/cpp-kernel.cpp probes/cpp-kernel.py probes/cpp-kernel.sh /usr/local/share/tk/probes/
LABEL "org.opencontainers.image.title"="cpu" \
      "org.opencontainers.image.description"="C++ on Debian 12" \
      "org.opencontainers.image.base.name"="debian:bookworm-slim" \
      "tk.recipe"="57d0efbcee0153b8becbf58716ab08a4ac25555858d1acaf621fd160aea64ae8" \
      "tk.components"="cpu=12"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile probes/cpp-kernel.cpp probes/cpp-kernel.py probes/cpp-kernel.sh tk/site.sh
