# oneapi-2025.0.1
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: intel/oneapi-basekit:2025.0.1-0-devel-ubuntu24.04
FROM intel/oneapi-basekit:2025.0.1-0-devel-ubuntu24.04 AS system
# Packages of every image on ubuntu-24.04
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-24.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-24.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install ca-certificates g++ libc6-dev python3 python3-venv
# A fixed user; who runs a container says at run time as whom
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    sh /run/tk/site.sh user tk 10000 /home/tk

# The image: Intel oneAPI
FROM system AS image
COPY probes/sycl-kernel.cpp probes/sycl-kernel.sh /usr/local/share/tk/probes/
ENV ONEAPI_DEVICE_SELECTOR="level_zero:*"
LABEL "org.opencontainers.image.title"="oneapi-2025.0.1" \
      "org.opencontainers.image.description"="Intel oneAPI" \
      "org.opencontainers.image.base.name"="intel/oneapi-basekit:2025.0.1-0-devel-ubuntu24.04" \
      "tk.recipe"="d21d2c6f0bc62161ad6a6e0123e8b8fccf9539880f35c349110cd00a0d89e1ef" \
      "tk.components"="oneapi=2025.0.1"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile probes/sycl-kernel.cpp probes/sycl-kernel.sh tk/site.sh
