# cpu-sycl
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

# The image's own Python environment
FROM system AS packages
# What makes Python environments
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-debian-12,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-debian-12,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install python3-venv
# Python packages, in an environment of their own
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-pip,sharing=shared,target=/var/cache/tk-pip \
    --mount=type=bind,source=tk/link_duplicates.py,target=/run/tk/link_duplicates.py \
    sh /run/tk/site.sh run /usr/bin/python3 -m venv /opt/venv \
 && sh /run/tk/site.sh run /opt/venv/bin/python -m pip install dpcpp-cpp-rt==2026.2.0 \
 && sh /run/tk/site.sh run /opt/venv/bin/python -m pip uninstall --yes pip setuptools \
 && /usr/bin/python3 /run/tk/link_duplicates.py /opt/venv

# The image: SYCL and OpenCL on host cores
FROM system AS image
# Packages of cpu-sycl 2026.2.0
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-debian-12,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-debian-12,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install ocl-icd-libopencl1 ocl-icd-opencl-dev opencl-c-headers
COPY --from=packages /opt/venv /opt/venv
COPY probes/opencl-kernel.c probes/opencl-kernel.sh probes/sycl-runtime.cpp probes/sycl-runtime.sh /usr/local/share/tk/probes/
ENV ONEAPI_DEVICE_SELECTOR="opencl:cpu" \
    OCL_ICD_FILENAMES="libintelocl.so"
ENV LD_LIBRARY_PATH=/opt/venv/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
LABEL "org.opencontainers.image.title"="cpu-sycl" \
      "org.opencontainers.image.description"="SYCL and OpenCL on host cores" \
      "org.opencontainers.image.base.name"="debian:bookworm-slim" \
      "tk.recipe"="26236b386db6d92a9a223b23d6f86a5bd69261a3758b11dbec5f0af7f02633a2" \
      "tk.components"="cpu-sycl=2026.2.0"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile probes/opencl-kernel.c probes/opencl-kernel.sh probes/sycl-runtime.cpp probes/sycl-runtime.sh tk/link_duplicates.py tk/site.sh
