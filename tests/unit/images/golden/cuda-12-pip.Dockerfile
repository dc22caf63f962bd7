# cuda-12-pip
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
 && sh /run/tk/site.sh run /opt/venv/bin/python -m pip install nvidia-cuda-nvrtc-cu12==12.9.86 \
      nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-nvcc-cu12==12.9.86 nvidia-cuda-cccl-cu12==12.9.27 \
 && sh /run/tk/site.sh run /opt/venv/bin/python -m pip uninstall --yes pip setuptools \
 && /usr/bin/python3 /run/tk/link_duplicates.py /opt/venv

# The image: CUDA from Python packages
FROM system AS image
COPY --from=packages /opt/venv /opt/venv
COPY probes/cuda-nvrtc.py probes/cuda-nvrtc.sh /usr/local/share/tk/probes/
ENV NVIDIA_VISIBLE_DEVICES="all" \
    NVIDIA_DRIVER_CAPABILITIES="compute,utility" \
    TK_PYTHON="/opt/venv/bin/python"
LABEL "org.opencontainers.image.title"="cuda-12-pip" \
      "org.opencontainers.image.description"="CUDA from Python packages" \
      "org.opencontainers.image.base.name"="debian:bookworm-slim" \
      "tk.recipe"="4fc70db53e2cea7290f62851e89e1f6dac2a5871856dc21de0cc36f31b91737f" \
      "tk.components"="cuda-pip=12"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile probes/cuda-nvrtc.py probes/cuda-nvrtc.sh tk/link_duplicates.py tk/site.sh
