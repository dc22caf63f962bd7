# tvm-0.10.0 on cpu-12
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: ubuntu:20.04
FROM ubuntu:20.04 AS system
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

# tvm-0.10.0 on cpu-12: sources and build
FROM system AS build
COPY --from=fetched /fetched/etc/apt/keyrings/tk-llvm.asc /etc/apt/keyrings/tk-llvm.asc
COPY apt/llvm.sources /etc/apt/sources.list.d/tk-llvm.sources
# Packages of llvm 14
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install clang-14 lld-14 llvm-14-dev libz3-dev libxml2-dev zlib1g-dev
# Packages of the build of tvm
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install build-essential ccache git libtinfo-dev libxml2-dev libz3-dev \
      ninja-build python3 python3-dev python3-pip python3-setuptools python3-wheel zlib1g-dev
COPY --from=packages /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
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
    sh /run/tk/site.sh git https://github.com/apache/tvm v0.10.0 7b50b2d0ddf45d9114715aad16b867e8be6b2230 \
      /src/tvm
# Configuring
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-ccache,sharing=shared,target=/var/cache/tk-ccache \
    sh /run/tk/site.sh run cmake -S /src/tvm -B /build -G Ninja -DCMAKE_INSTALL_PREFIX=/opt/tvm \
      -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
      -DCMAKE_BUILD_TYPE=Release -DUSE_RPC=ON -DUSE_GRAPH_EXECUTOR=ON -DUSE_PROFILER=ON \
      -DUSE_LLVM=/usr/lib/llvm-14/bin/llvm-config
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
RUN cp -R /src/tvm/python/. /opt/tvm/python

# What was built, alone
FROM scratch AS image
COPY --from=build /opt/tvm /opt/tvm
LABEL "tk.component"="tvm" \
      "tk.version"="0.10.0" \
      "tk.commit"="7b50b2d0ddf45d9114715aad16b867e8be6b2230"
# build context: Dockerfile apt/llvm.sources tk/link_duplicates.py tk/site.sh

# cpu+llvm-14+tvm-0.10.0+ubuntu-20.04
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: ubuntu:20.04
FROM ubuntu:20.04 AS system
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

# The image: TVM 0.10 for the host's cores
FROM system AS image
COPY --from=fetched /fetched/etc/apt/keyrings/tk-llvm.asc /etc/apt/keyrings/tk-llvm.asc
COPY apt/llvm.sources /etc/apt/sources.list.d/tk-llvm.sources
# Packages of llvm 14
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install clang-14 lld-14 llvm-14-dev libz3-dev libxml2-dev zlib1g-dev
# Packages of tvm 0.10.0
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-20.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-20.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install python3 python3-pip libtinfo6 libxml2
COPY --from=fetched /fetched/opt/python /opt/python
COPY --from=tk/tvm:0.10.0-cpu-12-913006f8331f /opt/tvm /opt/tvm
COPY probes/cpp-kernel.cpp probes/cpp-kernel.py probes/cpp-kernel.sh probes/tvm-import.sh /usr/local/share/tk/probes/
ENV TVM_LIBRARY_PATH="/opt/tvm/lib"
ENV LD_LIBRARY_PATH=/opt/tvm/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
ENV PYTHONPATH=/opt/tvm/python${PYTHONPATH:+:${PYTHONPATH}}
LABEL "org.opencontainers.image.title"="cpu+llvm-14+tvm-0.10.0+ubuntu-20.04" \
      "org.opencontainers.image.description"="TVM 0.10 for the host's cores" \
      "org.opencontainers.image.base.name"="ubuntu:20.04" \
      "tk.recipe"="247b2560e39edca1934f499888dd568923382349ec202bec827579696fa378d3" \
      "tk.components"="cpu=12 llvm=14 tk-python=3.11.6 tvm=0.10.0"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile apt/llvm.sources probes/cpp-kernel.cpp probes/cpp-kernel.py probes/cpp-kernel.sh probes/tvm-import.sh tk/site.sh
