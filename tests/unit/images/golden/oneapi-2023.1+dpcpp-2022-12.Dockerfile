# dpcpp-2022-12 on oneapi-2023.1.0
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

# dpcpp-2022-12 on oneapi-2023.1.0: sources and build
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
    sh /run/tk/site.sh git https://github.com/intel/llvm 2022-12 6977f1ac /src/dpcpp
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/KhronosGroup/OpenCL-Headers main \
      dcd5bede6859d26833cd85f0d6bbcee7382dc9b3 /src/OpenCL-Headers
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/KhronosGroup/OpenCL-ICD-Loader main \
      792682ad3d877ab38573b997808bab3b43902b70 /src/OpenCL-ICD-Loader
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/intel/vc-intrinsics master \
      782fbf7301dc73acaa049a4324c976ad94f587f7 /src/vc-intrinsics
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/KhronosGroup/SPIRV-Headers main \
      5a121866927a16ab9d49bed4788b532c7fcea766 /src/SPIRV-Headers
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/boostorg/mp11 develop \
      7bc4e1ae9b36ec8ee635c3629b59ec525bbe82b9 /src/mp11
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/oneapi-src/unified-runtime main \
      fd711c920acc4434cb52ff18b078c082d9d7f44d /src/unified-runtime
# Sources
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-git,sharing=locked,target=/var/cache/tk-git \
    sh /run/tk/site.sh git https://github.com/oneapi-src/level-zero v1.8.8 \
      32c4431d731bc2ba7b5b88b32335063efa65e076 /src/level-zero
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
      "tk.version"="2022-12" \
      "tk.commit"="6977f1ac" \
      "tk.clones"="https://github.com/KhronosGroup/OpenCL-Headers@dcd5bede6859d26833cd85f0d6bbcee7382dc9b3 https://github.com/KhronosGroup/OpenCL-ICD-Loader@792682ad3d877ab38573b997808bab3b43902b70 https://github.com/intel/vc-intrinsics@782fbf7301dc73acaa049a4324c976ad94f587f7 https://github.com/KhronosGroup/SPIRV-Headers@5a121866927a16ab9d49bed4788b532c7fcea766 https://github.com/boostorg/mp11@7bc4e1ae9b36ec8ee635c3629b59ec525bbe82b9 https://github.com/oneapi-src/unified-runtime@fd711c920acc4434cb52ff18b078c082d9d7f44d https://github.com/oneapi-src/level-zero@32c4431d731bc2ba7b5b88b32335063efa65e076"
# build context: Dockerfile tk/site.sh

# oneapi-2023.1.0+dpcpp-2022-12
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
# Packages of dpcpp 2022-12
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-22.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-22.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install g++ libc6-dev libhwloc15 libzstd1
COPY --from=fetched /fetched/opt/python /opt/python
COPY --from=tk/dpcpp:2022-12-oneapi-2023.1.0-066b891f527a /opt/dpcpp /opt/dpcpp
COPY probes/sycl-kernel.cpp probes/sycl-kernel.sh /usr/local/share/tk/probes/
ENV ONEAPI_DEVICE_SELECTOR="level_zero:*"
ENV PATH=/opt/dpcpp/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ENV LD_LIBRARY_PATH=/opt/dpcpp/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
ENV SYCL_DEVICE_FILTER="level_zero"
LABEL "org.opencontainers.image.title"="oneapi-2023.1.0+dpcpp-2022-12" \
      "org.opencontainers.image.description"="Intel oneAPI" \
      "org.opencontainers.image.base.name"="intel/oneapi-basekit:2023.1.0-devel-ubuntu22.04" \
      "tk.recipe"="7c770ec308211c03b22faf87e0a468e2933baaa9a544280465ff09a7f186eaa4" \
      "tk.components"="oneapi=2023.1.0 dpcpp=2022-12 tk-python=3.11.6"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile probes/sycl-kernel.cpp probes/sycl-kernel.sh tk/site.sh
