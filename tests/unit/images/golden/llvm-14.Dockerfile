# llvm-14
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

# The image: LLVM
FROM system AS image
# Packages of llvm 14
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-debian-12,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-debian-12,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install clang-14 lld-14 llvm-14-dev
ENV PATH=/usr/lib/llvm-14/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
LABEL "org.opencontainers.image.title"="llvm-14" \
      "org.opencontainers.image.description"="LLVM" \
      "org.opencontainers.image.base.name"="debian:bookworm-slim" \
      "tk.recipe"="415231f2371d128061e6d6f699aa58242d8143182944410d764eb87a715149a8" \
      "tk.components"="llvm=14"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile tk/site.sh
