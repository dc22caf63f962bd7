# dpcpp-2022-12 on cuda-11.2.2
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: nvidia/cuda:11.2.2-devel-ubuntu20.04
FROM nvidia/cuda:11.2.2-devel-ubuntu20.04@sha256:66af04302040b76bc04dc69bb7216f31d488938caa09dde95a22517ae97bdf25 AS system
# Files of the base that would mislead a later step
RUN rm -f /etc/apt/sources.list.d/cuda.list /etc/apt/sources.list.d/nvidia-ml.list
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

# dpcpp-2022-12 on cuda-11.2.2: sources and build
FROM system AS build
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
ENV CUDA_HOME="/usr/local/cuda" \
    NVIDIA_VISIBLE_DEVICES="all" \
    NVIDIA_DRIVER_CAPABILITIES="compute,utility" \
    CUDA_LIB_PATH="/usr/local/cuda/lib64/stubs"
ENV PATH=/opt/venv/bin:/usr/local/cuda/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
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
      -o /build -t Release --no-assertions --cuda --cmake-opt=-DCUDA_TOOLKIT_ROOT_DIR=/usr/local/cuda \
      --cmake-opt=-DCMAKE_INSTALL_PREFIX=/opt/dpcpp
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
# build context: Dockerfile tk/link_duplicates.py tk/site.sh

# tvm-sycl-0.10-reload22 on cuda-11.2.2
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: nvidia/cuda:11.2.2-devel-ubuntu20.04
FROM nvidia/cuda:11.2.2-devel-ubuntu20.04@sha256:66af04302040b76bc04dc69bb7216f31d488938caa09dde95a22517ae97bdf25 AS system
# Files of the base that would mislead a later step
RUN rm -f /etc/apt/sources.list.d/cuda.list /etc/apt/sources.list.d/nvidia-ml.list
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
    sh /run/tk/site.sh key https://apt.llvm.org/llvm-snapshot.gpg.key \
      6084F3CF814B57C1CF12EFD515CF4D18AF4F7421 /fetched/etc/apt/keyrings/tk-llvm.asc

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

# tvm-sycl-0.10-reload22 on cuda-11.2.2: sources and build
FROM system AS build
COPY --from=fetched /fetched/etc/apt/keyrings/tk-llvm.asc /etc/apt/keyrings/tk-llvm.asc
COPY apt/llvm.sources /etc/apt/sources.list.d/tk-llvm.sources
# Packages of dpcpp 2022-12
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install g++ libc6-dev libhwloc15 libzstd1
# Packages of llvm 14
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install clang-14 lld-14 llvm-14-dev libz3-dev libxml2-dev zlib1g-dev
# Packages of the build of tvm-sycl
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install build-essential ccache git libtinfo-dev libxml2-dev libz3-dev \
      ninja-build python3 python3-dev python3-pip python3-setuptools python3-wheel zlib1g-dev
COPY --from=packages /opt/venv /opt/venv
COPY --from=tk/dpcpp:2022-12-cuda-11.2.2-57fe6b694f37 /opt/dpcpp /opt/dpcpp
ENV CUDA_HOME="/usr/local/cuda" \
    NVIDIA_VISIBLE_DEVICES="all" \
    NVIDIA_DRIVER_CAPABILITIES="compute,utility"
ENV PATH=/opt/venv/bin:/opt/dpcpp/bin:/usr/local/cuda/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ENV LD_LIBRARY_PATH=/opt/dpcpp/lib:/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
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
    sh /run/tk/site.sh git https://github.com/RELOAD22/tvm sycl 5b36163df4d030cd99dabbfeea3acbce58cee711 \
      /src/tvm-sycl
# Configuring
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-ccache,sharing=shared,target=/var/cache/tk-ccache \
    sh /run/tk/site.sh run cmake -S /src/tvm-sycl -B /build -G Ninja -DCMAKE_INSTALL_PREFIX=/opt/tvm \
      -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
      -DCMAKE_C_COMPILER=/opt/dpcpp/bin/clang -DCMAKE_CXX_COMPILER=/opt/dpcpp/bin/clang++ \
      -DCMAKE_BUILD_TYPE=Release -DUSE_RPC=ON -DUSE_GRAPH_EXECUTOR=ON -DUSE_PROFILER=ON \
      -DUSE_GTEST=OFF -DUSE_SYCL=/opt/dpcpp -DUSE_LLVM=/usr/lib/llvm-14/bin/llvm-config \
      -DSYCL_GPU=nvidia -DUSE_SYCL_CUDA=nvptx64-nvidia-cuda -DCMAKE_CXX_FLAGS=-DUSE_SYCL_CUDA \
      -DUSE_CUDA=/usr/local/cuda
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
RUN cp -R /src/tvm-sycl/python/. /opt/tvm/python

# What was built, alone
FROM scratch AS image
COPY --from=build /opt/tvm /opt/tvm
LABEL "tk.component"="tvm-sycl" \
      "tk.version"="0.10-reload22" \
      "tk.commit"="5b36163df4d030cd99dabbfeea3acbce58cee711"
# build context: Dockerfile apt/llvm.sources tk/link_duplicates.py tk/site.sh

# cuda-11.2.2+dpcpp-2022-12+llvm-14+tvm-sycl-0.10-reload22
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: nvidia/cuda:11.2.2-devel-ubuntu20.04
FROM nvidia/cuda:11.2.2-devel-ubuntu20.04@sha256:66af04302040b76bc04dc69bb7216f31d488938caa09dde95a22517ae97bdf25 AS system
# Files of the base that would mislead a later step
RUN rm -f /etc/apt/sources.list.d/cuda.list /etc/apt/sources.list.d/nvidia-ml.list
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
    sh /run/tk/site.sh key https://apt.llvm.org/llvm-snapshot.gpg.key \
      6084F3CF814B57C1CF12EFD515CF4D18AF4F7421 /fetched/etc/apt/keyrings/tk-llvm.asc
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

# The image: TVM 0.10 with the SYCL branch that the team's report names, on CUDA
FROM system AS image
COPY --from=fetched /fetched/etc/apt/keyrings/tk-llvm.asc /etc/apt/keyrings/tk-llvm.asc
COPY apt/llvm.sources /etc/apt/sources.list.d/tk-llvm.sources
# Packages of dpcpp 2022-12
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install g++ libc6-dev libhwloc15 libzstd1
# Packages of llvm 14
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install clang-14 lld-14 llvm-14-dev libz3-dev libxml2-dev zlib1g-dev
# Packages of tvm-sycl 0.10-reload22
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install python3 python3-pip libtinfo6 libxml2
COPY --from=fetched /fetched/opt/python /opt/python
COPY --from=tk/dpcpp:2022-12-cuda-11.2.2-57fe6b694f37 /opt/dpcpp /opt/dpcpp
COPY --from=tk/tvm-sycl:0.10-reload22-cuda-11.2.2-sm_70-abcb84f0fc62 /opt/tvm /opt/tvm
COPY probes/cuda-kernel.cu probes/cuda-kernel.sh probes/sycl-kernel-nvidia.sh probes/sycl-kernel.cpp probes/tvm-import.sh /usr/local/share/tk/probes/
ENV CUDA_HOME="/usr/local/cuda" \
    NVIDIA_VISIBLE_DEVICES="all" \
    NVIDIA_DRIVER_CAPABILITIES="compute,utility"
ENV PATH=/opt/dpcpp/bin:/usr/local/cuda/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ENV LD_LIBRARY_PATH=/opt/tvm/lib:/opt/dpcpp/lib:/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
ENV SYCL_DEVICE_FILTER="cuda"
ENV PYTHONPATH=/opt/tvm/python${PYTHONPATH:+:${PYTHONPATH}}
LABEL "org.opencontainers.image.title"="cuda-11.2.2+dpcpp-2022-12+llvm-14+tvm-sycl-0.10-reload22" \
      "org.opencontainers.image.description"="TVM 0.10 with the SYCL branch that the team's report names, on CUDA" \
      "org.opencontainers.image.base.name"="nvidia/cuda:11.2.2-devel-ubuntu20.04" \
      "org.opencontainers.image.base.digest"="sha256:66af04302040b76bc04dc69bb7216f31d488938caa09dde95a22517ae97bdf25" \
      "tk.recipe"="00bbe085a4b8b928eea1f0c6a369314ed9733326b073debb66ef155f09763c88" \
      "tk.components"="cuda=11.2.2 dpcpp=2022-12 llvm=14 tk-python=3.11.6 tvm-sycl=0.10-reload22" \
      "tk.archs"="sm_70"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile apt/llvm.sources probes/cuda-kernel.cu probes/cuda-kernel.sh probes/sycl-kernel-nvidia.sh probes/sycl-kernel.cpp probes/tvm-import.sh tk/site.sh
