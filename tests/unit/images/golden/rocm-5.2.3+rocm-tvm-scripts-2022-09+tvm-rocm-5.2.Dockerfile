# rocm-tvm-scripts-2022-09 on rocm-5.2.3
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: rocm/dev-ubuntu-20.04:5.2.3
FROM rocm/dev-ubuntu-20.04:5.2.3 AS system
# Files of the base that would mislead a later step
RUN rm -f /etc/apt/sources.list.d/rocm.list /etc/apt/sources.list.d/amdgpu.list
# Packages of every image on ubuntu-20.04
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install ca-certificates g++ libc6-dev python3
# A fixed user; who runs a container says at run time as whom
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    sh /run/tk/site.sh user tk 10000 /home/tk

# Downloads, each checked by its sha256
FROM system AS fetched
# What reads signing keys
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install gpg
# Keys of package sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-downloads,sharing=shared,target=/var/cache/tk-downloads \
    sh /run/tk/site.sh key https://repo.radeon.com/rocm/rocm.gpg.key \
      CA8BB4727A47B4D09B4EE8969386B48A1A693C5C /fetched/etc/apt/keyrings/tk-rocm.asc

# rocm-tvm-scripts-2022-09 on rocm-5.2.3: sources and build
FROM system AS build
COPY --from=fetched /fetched/etc/apt/keyrings/tk-rocm.asc /etc/apt/keyrings/tk-rocm.asc
COPY apt/rocm.sources /etc/apt/sources.list.d/tk-rocm.sources
COPY apt/amdgpu.sources /etc/apt/sources.list.d/tk-amdgpu.sources
COPY apt/rocm.pref /etc/apt/preferences.d/tk-rocm.pref
# Packages of the build of rocm-tvm-scripts
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install git
ENV ROCM_PATH="/opt/rocm" \
    HIP_PATH="/opt/rocm" \
    HIP_PLATFORM="amd"
ENV PATH=/opt/rocm/bin:/opt/rocm/llvm/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ENV LD_LIBRARY_PATH=/opt/rocm/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/mvermeulen/rocm-tvm master \
      e6bda7311dab02fa15f7f35cbbc5e0e708a87fb6 /src/rocm-tvm-scripts
# The files
RUN cp -R /src/rocm-tvm-scripts /opt/rocm-tvm \
 && rm -rf /opt/rocm-tvm/.git

# What was built, alone
FROM scratch AS image
COPY --from=build /opt/rocm-tvm /opt/rocm-tvm
LABEL "tk.component"="rocm-tvm-scripts" \
      "tk.version"="2022-09" \
      "tk.commit"="e6bda7311dab02fa15f7f35cbbc5e0e708a87fb6"
# build context: Dockerfile apt/amdgpu.sources apt/rocm.pref apt/rocm.sources tk/site.sh

# tvm-rocm-5.2 on rocm-5.2.3
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: rocm/dev-ubuntu-20.04:5.2.3
FROM rocm/dev-ubuntu-20.04:5.2.3 AS system
# Files of the base that would mislead a later step
RUN rm -f /etc/apt/sources.list.d/rocm.list /etc/apt/sources.list.d/amdgpu.list
# Packages of every image on ubuntu-20.04
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install ca-certificates g++ libc6-dev python3
# A fixed user; who runs a container says at run time as whom
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    sh /run/tk/site.sh user tk 10000 /home/tk

# Downloads, each checked by its sha256
FROM system AS fetched
# What reads signing keys
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install gpg
# Keys of package sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-downloads,sharing=shared,target=/var/cache/tk-downloads \
    sh /run/tk/site.sh key https://repo.radeon.com/rocm/rocm.gpg.key \
      CA8BB4727A47B4D09B4EE8969386B48A1A693C5C /fetched/etc/apt/keyrings/tk-rocm.asc

# The image's own Python environment
FROM system AS packages
# What makes Python environments
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install python3-venv
# Python packages, in an environment of their own
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-pip,sharing=shared,target=/var/cache/tk-pip \
    --mount=type=bind,source=tk/link_duplicates.py,target=/run/tk/link_duplicates.py \
    sh /run/tk/site.sh run /usr/bin/python3 -m venv /opt/venv \
 && sh /run/tk/site.sh run /opt/venv/bin/python -m pip install cmake==3.31.10 \
 && sh /run/tk/site.sh run /opt/venv/bin/python -m pip uninstall --yes pip setuptools \
 && /usr/bin/python3 /run/tk/link_duplicates.py /opt/venv

# tvm-rocm-5.2 on rocm-5.2.3: sources and build
FROM system AS build
COPY --from=fetched /fetched/etc/apt/keyrings/tk-rocm.asc /etc/apt/keyrings/tk-rocm.asc
COPY apt/rocm.sources /etc/apt/sources.list.d/tk-rocm.sources
COPY apt/amdgpu.sources /etc/apt/sources.list.d/tk-amdgpu.sources
COPY apt/rocm.pref /etc/apt/preferences.d/tk-rocm.pref
# Packages of the build of tvm-rocm
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install build-essential ccache git libprotobuf-dev libssl-dev libtinfo-dev \
      libxml2-dev libz3-dev miopen-hip ninja-build protobuf-compiler python3 python3-dev python3-pip \
      python3-setuptools python3-wheel rocm-libs zlib1g-dev
COPY --from=packages /opt/venv /opt/venv
COPY --from=tk/rocm-tvm-scripts:2022-09-rocm-5.2.3-1f226c0e2842 /opt/rocm-tvm /opt/rocm-tvm
ENV ROCM_PATH="/opt/rocm" \
    HIP_PATH="/opt/rocm" \
    HIP_PLATFORM="amd"
ENV PATH=/opt/venv/bin:/opt/rocm/bin:/opt/rocm/llvm/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ENV LD_LIBRARY_PATH=/opt/rocm/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
# Python packages that it imports
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-pip,sharing=shared,target=/var/cache/tk-pip \
    sh /run/tk/site.sh run /usr/bin/python3 -m pip install --no-deps --target /opt/tvm/python \
      attrs==25.3.0 cloudpickle==3.1.2 decorator==5.3.1 numpy==1.23.0 onnx==1.12.0 protobuf==3.20.1 \
      psutil==7.2.2 scipy==1.10.1 synr==0.6.0 tornado==6.4.2 typing_extensions==4.13.2 xgboost==1.5.2
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/mvermeulen/tvm rocm-5.2-test \
      af4a35db00b96be8025fe1f55aa83a6844f9e340 /src/tvm-rocm
# Configuring
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-ccache,sharing=shared,target=/var/cache/tk-ccache \
    sh /run/tk/site.sh run cmake -S /src/tvm-rocm -B /build -G Ninja -DCMAKE_INSTALL_PREFIX=/opt/tvm \
      -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
      -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=-Wno-deprecated-declarations -DUSE_ROCM=/opt/rocm \
      -DUSE_MIOPEN=ON -DUSE_ROCBLAS=ON -DUSE_LLVM=/opt/rocm/llvm/bin/llvm-config
# Compiling
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-ccache,sharing=shared,target=/var/cache/tk-ccache \
    sh /run/tk/site.sh run cmake --build /build --parallel
# Installing
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-ccache,sharing=shared,target=/var/cache/tk-ccache \
    sh /run/tk/site.sh run cmake --install /build
# Its Python package
RUN cp -R /src/tvm-rocm/python/. /opt/tvm/python

# What was built, alone
FROM scratch AS image
COPY --from=build /opt/tvm /opt/tvm
LABEL "tk.component"="tvm-rocm" \
      "tk.version"="5.2" \
      "tk.commit"="af4a35db00b96be8025fe1f55aa83a6844f9e340"
# build context: Dockerfile apt/amdgpu.sources apt/rocm.pref apt/rocm.sources tk/link_duplicates.py tk/site.sh

# rocm-5.2.3+rocm-tvm-scripts-2022-09+tvm-rocm-5.2
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: rocm/dev-ubuntu-20.04:5.2.3
FROM rocm/dev-ubuntu-20.04:5.2.3 AS system
# Files of the base that would mislead a later step
RUN rm -f /etc/apt/sources.list.d/rocm.list /etc/apt/sources.list.d/amdgpu.list
# Packages of every image on ubuntu-20.04
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install ca-certificates g++ libc6-dev python3
# A fixed user; who runs a container says at run time as whom
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    sh /run/tk/site.sh user tk 10000 /home/tk

# Downloads, each checked by its sha256
FROM system AS fetched
# What reads signing keys
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install gpg
# Keys of package sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-downloads,sharing=shared,target=/var/cache/tk-downloads \
    sh /run/tk/site.sh key https://repo.radeon.com/rocm/rocm.gpg.key \
      CA8BB4727A47B4D09B4EE8969386B48A1A693C5C /fetched/etc/apt/keyrings/tk-rocm.asc
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-downloads,sharing=shared,target=/var/cache/tk-downloads \
    sh /run/tk/site.sh fetch \
      https://github.com/indygreg/python-build-standalone/releases/download/20231002/cpython-3.11.6+20231002-x86_64-unknown-linux-gnu-install_only.tar.gz \
      ee37a7eae6e80148c7e3abc56e48a397c1664f044920463ad0df0fc706eacea8 \
      /fetched/packages/cpython-3.11.6+20231002-x86_64-unknown-linux-gnu-install_only.tar.gz \
 && mkdir -p /fetched/opt/python \
 && tar --extract \
      --file=/fetched/packages/cpython-3.11.6+20231002-x86_64-unknown-linux-gnu-install_only.tar.gz \
      --directory=/fetched/opt/python --no-same-owner --strip-components=1 \
 && rm /fetched/packages/cpython-3.11.6+20231002-x86_64-unknown-linux-gnu-install_only.tar.gz

# The image: AMD ROCm
FROM system AS image
COPY --from=fetched /fetched/etc/apt/keyrings/tk-rocm.asc /etc/apt/keyrings/tk-rocm.asc
COPY apt/rocm.sources /etc/apt/sources.list.d/tk-rocm.sources
COPY apt/amdgpu.sources /etc/apt/sources.list.d/tk-amdgpu.sources
COPY apt/rocm.pref /etc/apt/preferences.d/tk-rocm.pref
# Packages of tvm-rocm 5.2
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install graphviz libomp-dev libopenblas-dev libprotobuf-dev libtinfo6 libxml2 \
      libz3-4 miopen-hip pciutils python3 python3-pip rccl rocm-libs
COPY --from=fetched /fetched/opt/python /opt/python
COPY --from=tk/rocm-tvm-scripts:2022-09-rocm-5.2.3-1f226c0e2842 /opt/rocm-tvm /opt/rocm-tvm
COPY --from=tk/tvm-rocm:5.2-rocm-5.2.3-f4d317e00698 /opt/tvm /opt/tvm
COPY probes/hip-kernel.hip probes/hip-kernel.sh probes/tvm-import.sh /usr/local/share/tk/probes/
ENV ROCM_PATH="/opt/rocm" \
    HIP_PATH="/opt/rocm" \
    HIP_PLATFORM="amd"
ENV PATH=/opt/rocm/bin:/opt/rocm/llvm/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ENV LD_LIBRARY_PATH=/opt/tvm/lib:/opt/rocm/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
ENV PYTHONPATH=/opt/tvm/python${PYTHONPATH:+:${PYTHONPATH}}
LABEL "org.opencontainers.image.title"="rocm-5.2.3+rocm-tvm-scripts-2022-09+tvm-rocm-5.2" \
      "org.opencontainers.image.description"="AMD ROCm" \
      "org.opencontainers.image.base.name"="rocm/dev-ubuntu-20.04:5.2.3" \
      "tk.recipe"="1411ae35ad1ec563f8340434cc3eff968e0602bcb019ce89251dc25457d2da83" \
      "tk.components"="rocm=5.2.3 rocm-tvm-scripts=2022-09 tk-python=3.11.6 tvm-rocm=5.2"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile apt/amdgpu.sources apt/rocm.pref apt/rocm.sources probes/hip-kernel.hip probes/hip-kernel.sh probes/tvm-import.sh tk/site.sh
