# rocm-6.4.1
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: rocm/dev-ubuntu-24.04:6.4.1
FROM rocm/dev-ubuntu-24.04:6.4.1 AS system
# Files of the base that would mislead a later step
RUN rm -f /etc/apt/sources.list.d/rocm.list /etc/apt/sources.list.d/amdgpu.list
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

# Downloads, each checked by its sha256
FROM system AS fetched
# What reads signing keys
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-24.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-24.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install gpg
# Keys of package sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-downloads,sharing=shared,target=/var/cache/tk-downloads \
    sh /run/tk/site.sh key https://repo.radeon.com/rocm/rocm.gpg.key \
      CA8BB4727A47B4D09B4EE8969386B48A1A693C5C /fetched/etc/apt/keyrings/tk-rocm.asc

# The image: AMD ROCm
FROM system AS image
COPY --from=fetched /fetched/etc/apt/keyrings/tk-rocm.asc /etc/apt/keyrings/tk-rocm.asc
COPY apt/rocm.sources /etc/apt/sources.list.d/tk-rocm.sources
COPY apt/amdgpu.sources /etc/apt/sources.list.d/tk-amdgpu.sources
COPY apt/rocm.pref /etc/apt/preferences.d/tk-rocm.pref
COPY probes/hip-kernel.hip probes/hip-kernel.sh /usr/local/share/tk/probes/
ENV ROCM_PATH="/opt/rocm" \
    HIP_PATH="/opt/rocm" \
    HIP_PLATFORM="amd"
ENV PATH=/opt/rocm/bin:/opt/rocm/llvm/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ENV LD_LIBRARY_PATH=/opt/rocm/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
LABEL "org.opencontainers.image.title"="rocm-6.4.1" \
      "org.opencontainers.image.description"="AMD ROCm" \
      "org.opencontainers.image.base.name"="rocm/dev-ubuntu-24.04:6.4.1" \
      "tk.recipe"="7a79bc4ca3ffcafec624a378ce286fd76db373f31e3b542c7fe26fd289c5290d" \
      "tk.components"="rocm=6.4.1"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile apt/amdgpu.sources apt/rocm.pref apt/rocm.sources probes/hip-kernel.hip probes/hip-kernel.sh tk/site.sh
