# dpcpp-2022-06 on oneapi-2023.1.0
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: intel/oneapi-basekit:2023.1.0-devel-ubuntu22.04
FROM intel/oneapi-basekit:2023.1.0-devel-ubuntu22.04 AS system
# Files of the base that would mislead a later step
RUN rm -f /etc/apt/sources.list.d/oneAPI.list /etc/apt/sources.list.d/intel-graphics.list
# Packages of every image on ubuntu-22.04
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-22.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-22.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install ca-certificates g++ libc6-dev python3
# A fixed user; who runs a container says at run time as whom
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    sh /run/tk/site.sh user tk 10000 /home/tk

# dpcpp-2022-06 on oneapi-2023.1.0: sources and build
FROM system AS build
# Packages of the build of dpcpp
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-22.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-22.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install build-essential ccache git libffi-dev libhwloc-dev libtool libva-dev \
      libzstd-dev ninja-build ocl-icd-opencl-dev pkg-config python3 unzip zip cmake
ENV ONEAPI_DEVICE_SELECTOR="level_zero:*"
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/intel/llvm 2022-06 4043dda356af59d3d88607037955a0728dc0f466 \
      /src/dpcpp
# Configuring
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-ccache,sharing=shared,target=/var/cache/tk-ccache \
    sh /run/tk/site.sh run python3 /src/dpcpp/buildbot/configure.py \
      --cmake-opt=-DCMAKE_C_COMPILER_LAUNCHER=ccache --cmake-opt=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
      -o /build -t Release --no-assertions --cmake-opt=-DCMAKE_INSTALL_PREFIX=/opt/dpcpp
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
      "tk.version"="2022-06" \
      "tk.commit"="4043dda356af59d3d88607037955a0728dc0f466"
# build context: Dockerfile tk/site.sh

# oneapi-2023.1.0+dpcpp-2022-06
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: intel/oneapi-basekit:2023.1.0-devel-ubuntu22.04
FROM intel/oneapi-basekit:2023.1.0-devel-ubuntu22.04 AS system
# Files of the base that would mislead a later step
RUN rm -f /etc/apt/sources.list.d/oneAPI.list /etc/apt/sources.list.d/intel-graphics.list
# Packages of every image on ubuntu-22.04
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-22.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-22.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install ca-certificates g++ libc6-dev python3
# A fixed user; who runs a container says at run time as whom
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    sh /run/tk/site.sh user tk 10000 /home/tk

# Downloads, each checked by its sha256
FROM system AS fetched
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

# The image: Intel oneAPI
FROM system AS image
# Packages of dpcpp 2022-06
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-22.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-22.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install g++ libc6-dev libhwloc15 libzstd1
COPY --from=fetched /fetched/opt/python /opt/python
COPY --from=tk/dpcpp:2022-06-oneapi-2023.1.0-b892d67b8b00 /opt/dpcpp /opt/dpcpp
COPY probes/sycl-kernel.cpp probes/sycl-kernel.sh /usr/local/share/tk/probes/
ENV ONEAPI_DEVICE_SELECTOR="level_zero:*"
ENV PATH=/opt/dpcpp/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ENV LD_LIBRARY_PATH=/opt/dpcpp/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
ENV SYCL_DEVICE_FILTER="level_zero"
LABEL "org.opencontainers.image.title"="oneapi-2023.1.0+dpcpp-2022-06" \
      "org.opencontainers.image.description"="Intel oneAPI" \
      "org.opencontainers.image.base.name"="intel/oneapi-basekit:2023.1.0-devel-ubuntu22.04" \
      "tk.recipe"="07e71ddc0a0e0b4913aaf614892227a63c2b5c1956749474051e5d3bb0a80c54" \
      "tk.components"="oneapi=2023.1.0 dpcpp=2022-06 tk-python=3.11.6"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile probes/sycl-kernel.cpp probes/sycl-kernel.sh tk/site.sh
