# oneapi-2024.2.1+intel-gpu-24.22.29735.20
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: intel/oneapi-basekit:2024.2.1-0-devel-ubuntu22.04
FROM intel/oneapi-basekit:2024.2.1-0-devel-ubuntu22.04 AS system
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
      https://github.com/intel/compute-runtime/releases/download/24.22.29735.20/libigdgmm12_22.3.19_amd64.deb \
      unresolved /fetched/packages/libigdgmm12_22.3.19_amd64.deb \
 && sh /run/tk/site.sh fetch \
      https://github.com/intel/intel-graphics-compiler/releases/download/igc-1.0.16900.23/intel-igc-core_1.0.16900.23_amd64.deb \
      unresolved /fetched/packages/intel-igc-core_1.0.16900.23_amd64.deb \
 && sh /run/tk/site.sh fetch \
      https://github.com/intel/intel-graphics-compiler/releases/download/igc-1.0.16900.23/intel-igc-opencl_1.0.16900.23_amd64.deb \
      unresolved /fetched/packages/intel-igc-opencl_1.0.16900.23_amd64.deb \
 && sh /run/tk/site.sh fetch \
      https://github.com/intel/compute-runtime/releases/download/24.22.29735.20/intel-level-zero-gpu_1.3.29735.20_amd64.deb \
      unresolved /fetched/packages/intel-level-zero-gpu_1.3.29735.20_amd64.deb \
 && sh /run/tk/site.sh fetch \
      https://github.com/intel/compute-runtime/releases/download/24.22.29735.20/intel-opencl-icd_24.22.29735.20_amd64.deb \
      unresolved /fetched/packages/intel-opencl-icd_24.22.29735.20_amd64.deb \
 && sh /run/tk/site.sh fetch \
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
# Packages of intel-gpu 24.22.29735.20
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-22.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-22.04,sharing=locked,target=/var/lib/apt/lists \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install clinfo ocl-icd-libopencl1
COPY --from=fetched /fetched/opt/python /opt/python
# Packages that were fetched as files
RUN --mount=type=bind,source=tk/site.sh,target=/run/tk/site.sh \
    --mount=type=secret,id=tk-ca,target=/run/secrets/tk-ca \
    --mount=type=secret,id=tk-site,target=/run/secrets/tk-site \
    --mount=type=cache,id=tk-apt-ubuntu-22.04,sharing=locked,target=/var/cache/apt \
    --mount=type=cache,id=tk-apt-lists-ubuntu-22.04,sharing=locked,target=/var/lib/apt/lists \
    --mount=type=bind,from=fetched,source=/fetched/packages,target=/fetched/packages \
    sh /run/tk/site.sh apt update \
 && sh /run/tk/site.sh apt install /fetched/packages/libigdgmm12_22.3.19_amd64.deb \
      /fetched/packages/intel-igc-core_1.0.16900.23_amd64.deb \
      /fetched/packages/intel-igc-opencl_1.0.16900.23_amd64.deb \
      /fetched/packages/intel-level-zero-gpu_1.3.29735.20_amd64.deb \
      /fetched/packages/intel-opencl-icd_24.22.29735.20_amd64.deb
COPY probes/sycl-kernel.cpp probes/sycl-kernel.sh /usr/local/share/tk/probes/
ENV ONEAPI_DEVICE_SELECTOR="level_zero:*"
LABEL "org.opencontainers.image.title"="oneapi-2024.2.1+intel-gpu-24.22.29735.20" \
      "org.opencontainers.image.description"="Intel oneAPI" \
      "org.opencontainers.image.base.name"="intel/oneapi-basekit:2024.2.1-0-devel-ubuntu22.04" \
      "tk.recipe"="a1ffcc36afc03ff1f20c753bae4de7bd5d102f6843687e65f54999bc9d932264" \
      "tk.components"="oneapi=2024.2.1 intel-gpu=24.22.29735.20 tk-python=3.11.6"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile probes/sycl-kernel.cpp probes/sycl-kernel.sh tk/site.sh
