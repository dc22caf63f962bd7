# cuda-13.0.0
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: nvidia/cuda:13.0.0-devel-ubuntu24.04
FROM nvidia/cuda:13.0.0-devel-ubuntu24.04 AS system
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

# The image: NVIDIA CUDA
FROM system AS image
COPY probes/cuda-kernel.cu probes/cuda-kernel.sh /usr/local/share/tk/probes/
ENV CUDA_HOME="/usr/local/cuda" \
    NVIDIA_VISIBLE_DEVICES="all" \
    NVIDIA_DRIVER_CAPABILITIES="compute,utility"
ENV PATH=/usr/local/cuda/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
LABEL "org.opencontainers.image.title"="cuda-13.0.0" \
      "org.opencontainers.image.description"="NVIDIA CUDA" \
      "org.opencontainers.image.base.name"="nvidia/cuda:13.0.0-devel-ubuntu24.04" \
      "tk.recipe"="e96d04dbd0266413f3fb8d1629b87675b76a3dfe818eb2e33ec71e482efdfc42" \
      "tk.components"="cuda=13.0.0"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile probes/cuda-kernel.cu probes/cuda-kernel.sh tk/site.sh
