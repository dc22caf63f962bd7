# dtk-23.10
# Made from a recipe by `tk image render`: change the recipe, not this file.

# The base: image.sourcefind.cn:5000/dcu/admin/base/pytorch:2.1.0-centos7.6-dtk23.10-py38
FROM image.sourcefind.cn:5000/dcu/admin/base/pytorch:2.1.0-centos7.6-dtk23.10-py38 AS system
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

# The image: Hygon DTK
FROM system AS image
COPY --from=fetched /fetched/opt/python /opt/python
COPY probes/hip-kernel.hip probes/hip-kernel.sh /usr/local/share/tk/probes/
ENV ROCM_PATH="/opt/dtk" \
    HIP_PATH="/opt/dtk/hip" \
    HYHAL_PATH="/opt/hyhal" \
    DTKROOT="/opt/dtk" \
    HIP_PLATFORM="amd" \
    MIOPEN_FIND_MODE="3"
ENV PATH=/opt/dtk/bin:/opt/dtk/llvm/bin:/opt/dtk/hip/bin:/opt/hyhal/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
ENV LD_LIBRARY_PATH=/opt/dtk/hip/lib:/opt/dtk/llvm/lib:/opt/dtk/lib:/opt/dtk/lib64:/opt/hyhal/lib:/opt/hyhal/lib64${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}
LABEL "org.opencontainers.image.title"="dtk-23.10" \
      "org.opencontainers.image.description"="Hygon DTK" \
      "org.opencontainers.image.base.name"="image.sourcefind.cn:5000/dcu/admin/base/pytorch:2.1.0-centos7.6-dtk23.10-py38" \
      "tk.recipe"="883e36de179e7fa55acef5f1a6581287429e37d4cc0eca3df1e92b5f348c9964" \
      "tk.components"="dtk=23.10 tk-python=3.11.6"
USER 10000:10000
WORKDIR /home/tk
ENTRYPOINT []
CMD ["bash"]
# build context: Dockerfile probes/hip-kernel.hip probes/hip-kernel.sh tk/site.sh
