# dpcpp-2022-09 on rocm-5.4.3
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: rocm/dev-ubuntu-20.04:5.4.3
FROM rocm/dev-ubuntu-20.04:5.4.3 AS system
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

# dpcpp-2022-09 on rocm-5.4.3: sources and build
FROM system AS build
COPY --from=fetched /fetched/etc/apt/keyrings/tk-rocm.asc /etc/apt/keyrings/tk-rocm.asc
COPY apt/rocm.sources /etc/apt/sources.list.d/tk-rocm.sources
COPY apt/amdgpu.sources /etc/apt/sources.list.d/tk-amdgpu.sources
COPY apt/rocm.pref /etc/apt/preferences.d/tk-rocm.pref
# Packages of the build of dpcpp
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install build-essential ccache git libffi-dev libhwloc-dev libtool libva-dev \
      libzstd-dev ninja-build ocl-icd-opencl-dev pkg-config python3 unzip zip
COPY --from=packages /opt/venv /opt/venv
ENV ROCM_PATH="/opt/rocm" \
    HIP_PATH="/opt/rocm" \
    HIP_PLATFORM="amd"
ENV PATH=/opt/venv/bin:/opt/rocm/bin:/opt/rocm/llvm/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ENV LD_LIBRARY_PATH=/opt/rocm/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/intel/llvm 2022-09 0f579bae55c48d810e1ed76db29229c854e61d5e \
      /src/dpcpp
# Configuring
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-ccache,sharing=shared,target=/var/cache/tk-ccache \
    sh /run/tk/site.sh run python3 /src/dpcpp/buildbot/configure.py \
      --cmake-opt=-DCMAKE_C_COMPILER_LAUNCHER=ccache --cmake-opt=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
      -o /build -t Release --no-assertions --hip --hip-platform AMD \
      --cmake-opt=-DSYCL_BUILD_PI_HIP_ROCM_DIR=/opt/rocm --cmake-opt=-DCMAKE_INSTALL_PREFIX=/opt/dpcpp
# Compiling and installing
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-ccache,sharing=shared,target=/var/cache/tk-ccache \
    sh /run/tk/site.sh run python3 /src/dpcpp/buildbot/compile.py -o /build

# What was built, alone
FROM scratch AS image
COPY --from=build /opt/dpcpp /opt/dpcpp
LABEL "tk.component"="dpcpp" \
      "tk.version"="2022-09" \
      "tk.commit"="0f579bae55c48d810e1ed76db29229c854e61d5e"
# build context: Dockerfile apt/amdgpu.sources apt/rocm.pref apt/rocm.sources tk/link_duplicates.py tk/site.sh

# rocm-5.4.3+dpcpp-2022-09
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: rocm/dev-ubuntu-20.04:5.4.3
FROM rocm/dev-ubuntu-20.04:5.4.3 AS system
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
# Packages of dpcpp 2022-09
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install g++ libc6-dev libhwloc15 libzstd1
COPY --from=fetched /fetched/opt/python /opt/python
COPY --from=tk/dpcpp:2022-09-rocm-5.4.3-c7d301e72950 /opt/dpcpp /opt/dpcpp
COPY probes/hip-kernel.hip probes/hip-kernel.sh probes/sycl-kernel-amd.sh probes/sycl-kernel.cpp /usr/local/share/tk/probes/
ENV ROCM_PATH="/opt/rocm" \
    HIP_PATH="/opt/rocm" \
    HIP_PLATFORM="amd"
ENV PATH=/opt/dpcpp/bin:/opt/rocm/bin:/opt/rocm/llvm/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ENV LD_LIBRARY_PATH=/opt/dpcpp/lib:/opt/rocm/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
ENV SYCL_DEVICE_FILTER="hip"
LABEL "org.opencontainers.image.title"="rocm-5.4.3+dpcpp-2022-09" \
      "org.opencontainers.image.description"="AMD ROCm" \
      "org.opencontainers.image.base.name"="rocm/dev-ubuntu-20.04:5.4.3" \
      "tk.recipe"="6a951230892ca2cf2413c9c9441d4e34d5a2fd70027c9a792f8af9c2816b6b17" \
      "tk.components"="rocm=5.4.3 dpcpp=2022-09 tk-python=3.11.6"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile apt/amdgpu.sources apt/rocm.pref apt/rocm.sources probes/hip-kernel.hip probes/hip-kernel.sh probes/sycl-kernel-amd.sh probes/sycl-kernel.cpp tk/site.sh
