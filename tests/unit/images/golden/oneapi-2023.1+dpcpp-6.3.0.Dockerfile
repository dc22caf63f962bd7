# dpcpp-6.3.0 on oneapi-2023.1.0
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

# dpcpp-6.3.0 on oneapi-2023.1.0: sources and build
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
    sh /run/tk/site.sh git https://github.com/intel/llvm v6.3.0 unresolved /src/dpcpp
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/KhronosGroup/OpenCL-Headers main \
      6eabe90aa7b6cff9c67800a2fe25a0cd88d8b749 /src/OpenCL-Headers
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/KhronosGroup/OpenCL-ICD-Loader main \
      ddf6c70230a79cdb8fcccfd3c775b09e6820f42e /src/OpenCL-ICD-Loader
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/intel/vc-intrinsics master \
      60cea7590bd022d95f5cf336ee765033bd114d69 /src/vc-intrinsics
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/KhronosGroup/SPIRV-Headers main \
      c9aad99f9276817f18f72a4696239237c83cb775 /src/SPIRV-Headers
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/oneapi-src/level-zero master \
      35c037cdf4aa9a2e6df34b6f1ce1bdc86ac5422f /src/level-zero
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/ktprime/emhash master \
      3ba9abdfdc2e0430fcc2fd8993cad31945b6a02b /src/emhash
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/greg7mdp/parallel-hashmap master \
      8a889d3699b3c09ade435641fb034427f3fd12b6 /src/parallel-hashmap
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
      "tk.version"="6.3.0" \
      "tk.commit"="unresolved" \
      "tk.clones"="https://github.com/KhronosGroup/OpenCL-Headers@6eabe90aa7b6cff9c67800a2fe25a0cd88d8b749 https://github.com/KhronosGroup/OpenCL-ICD-Loader@ddf6c70230a79cdb8fcccfd3c775b09e6820f42e https://github.com/intel/vc-intrinsics@60cea7590bd022d95f5cf336ee765033bd114d69 https://github.com/KhronosGroup/SPIRV-Headers@c9aad99f9276817f18f72a4696239237c83cb775 https://github.com/oneapi-src/level-zero@35c037cdf4aa9a2e6df34b6f1ce1bdc86ac5422f https://github.com/ktprime/emhash@3ba9abdfdc2e0430fcc2fd8993cad31945b6a02b https://github.com/greg7mdp/parallel-hashmap@8a889d3699b3c09ade435641fb034427f3fd12b6"
# build context: Dockerfile tk/site.sh

# oneapi-2023.1.0+dpcpp-6.3.0
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
# Packages of dpcpp 6.3.0
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-22.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-22.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install g++ libc6-dev libhwloc15 libzstd1
COPY --from=fetched /fetched/opt/python /opt/python
COPY --from=tk/dpcpp:6.3.0-oneapi-2023.1.0-748aa2f51b8d /opt/dpcpp /opt/dpcpp
COPY probes/sycl-kernel.cpp probes/sycl-kernel.sh /usr/local/share/tk/probes/
ENV ONEAPI_DEVICE_SELECTOR="level_zero:*"
ENV PATH=/opt/dpcpp/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ENV LD_LIBRARY_PATH=/opt/dpcpp/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
ENV ONEAPI_DEVICE_SELECTOR="level_zero:*"
LABEL "org.opencontainers.image.title"="oneapi-2023.1.0+dpcpp-6.3.0" \
      "org.opencontainers.image.description"="Intel oneAPI" \
      "org.opencontainers.image.base.name"="intel/oneapi-basekit:2023.1.0-devel-ubuntu22.04" \
      "tk.recipe"="8dc634137a3787096efc667d94229ea7256b189b9a05a59a963086e6b09a8f87" \
      "tk.components"="oneapi=2023.1.0 dpcpp=6.3.0 tk-python=3.11.6"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile probes/sycl-kernel.cpp probes/sycl-kernel.sh tk/site.sh
