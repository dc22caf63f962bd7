# conda-25.3.0
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: condaforge/miniforge3:25.3.0-1
FROM condaforge/miniforge3:25.3.0-1 AS system
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

# The image: conda (Miniforge)
FROM system AS image
COPY probes/cpp-kernel.cpp probes/cpp-kernel.py probes/cpp-kernel.sh /usr/local/share/tk/probes/
ENV PATH=/opt/conda/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
LABEL "org.opencontainers.image.title"="conda-25.3.0" \
      "org.opencontainers.image.description"="conda (Miniforge)" \
      "org.opencontainers.image.base.name"="condaforge/miniforge3:25.3.0-1" \
      "tk.recipe"="836a158e0628a199627d901d55e4efc34298028fdcaae025e1c2f15fd5442e42" \
      "tk.components"="conda=25.3.0"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile probes/cpp-kernel.cpp probes/cpp-kernel.py probes/cpp-kernel.sh tk/site.sh
