"""Each lint rule: a Dockerfile that it must speak about, and one that it must be silent about."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolchain.lint import Finding, lint_file, lint_text, rules

HERE = Path(__file__).parent
BASE = "FROM debian:12.5@sha256:" + "a" * 64 + "\n"
COMMIT = "0f579bae1234567890abcdef1234567890abcdef"


def found(text: str) -> list[Finding]:
    return list(lint_text(text, where="Dockerfile"))


def ids(text: str) -> set[str]:
    return {one.rule for one in found(text)}


# rule -> (texts that it is about, texts that it is not about); without FROM, BASE is put before
CASES: dict[str, tuple[list[str], list[str]]] = {
    "base-latest": (
        [
            "FROM ubuntu",
            "FROM ubuntu:latest AS x",
            "ARG V=latest\nFROM ubuntu:$V",
            "FROM host:5000/team/image",
        ],
        ["FROM ubuntu:20.04", "FROM scratch", "FROM a:1 AS build\nFROM build", "ARG V=1\nFROM a:${V}"],
    ),
    "base-without-digest": (["FROM ubuntu:20.04"], ["FROM ubuntu@sha256:" + "b" * 64, "FROM scratch"]),
    "git-unpinned": (
        ["RUN git clone https://x/y", "RUN git clone -b 2022-12 https://x/y && cd y && git checkout main"],
        [f"RUN git clone https://x/y && git -C y checkout {COMMIT}", "RUN git status"],
    ),
    "pip-unpinned": (
        [
            "RUN pip3 install -U numpy",
            "RUN python3 -m pip install 'numpy>=1.2'",
            "RUN pip install -r r.txt",
            "RUN pip install git+https://x/y@main",
            "RUN pip --no-input install scipy==1.*",
        ],
        [
            "RUN pip install numpy==1.26.4",
            "RUN pip install --require-hashes -r r.txt",
            "RUN pip install ./here",
            f"RUN pip install git+https://x/y@{COMMIT}",
            "RUN pip install -c constraints.txt numpy",
            "RUN pip list",
        ],
    ),
    "setup-py-install": (["RUN cd x && python3 setup.py install"], ["RUN pip install --no-deps ."]),
    "apt-unpinned": (
        ["RUN apt-get install -y gcc"],
        ["RUN apt-get install -y gcc=4:12.2.0-3", "RUN apt-get update"],
    ),
    "apt-upgrade": (["RUN apt-get -y dist-upgrade"], ["RUN apt-get update"]),
    "download-without-checksum": (
        ["RUN wget https://x/y.tar.gz && tar xf y.tar.gz", "RUN curl -fsSL -o y https://x/y"],
        [
            "RUN wget https://x/y && echo 'aa y' | sha256sum -c -",
            "RUN wget -O- https://x/rocm.gpg.key",
            "RUN echo 'aa  y' > s && curl -O https://x/y && sha256sum --check s",
        ],
    ),
    "download-moving": (
        ["RUN wget https://x/releases/latest/download/y.tar.gz", "RUN wget https://x/latest/y.deb"],
        ["RUN wget https://x/1.2/y.deb"],
    ),
    "add-url": (["ADD https://x/y /y"], ["ADD --checksum=sha256:aa https://x/y /y", "COPY y /y"]),
    "rocm-rolling-suite": (
        [
            "RUN echo 'deb https://repo.radeon.com/rocm/apt/debian/ ubuntu main' > /etc/apt/r.list",
            "RUN echo 'deb https://repo.radeon.com/amdgpu/latest/ubuntu focal main' > /etc/apt/r.list",
            "RUN sed -i s/5.2.3/debian/ /etc/apt/sources.list.d/rocm.list",
            "RUN sed -i -e 's|apt/5.2.3|apt/latest|g' /etc/apt/sources.list.d/rocm.list",
        ],
        [
            "RUN echo 'deb https://repo.radeon.com/rocm/apt/5.2.3/ ubuntu main' > /etc/apt/r.list",
            "RUN echo 'deb https://repo.radeon.com/amdgpu/5.2.3/ubuntu focal main' > /etc/apt/r.list",
            "RUN sed -i s/debian/5.2.3/ /etc/apt/sources.list.d/rocm.list",
            "RUN sed 's/debian/5.2.3/g' /etc/apt/sources.list.d/rocm.list > /etc/apt/sources.list.d/a.list",
            "RUN sed -i 's|apt/latest|apt/5.4.3|' /etc/apt/sources.list.d/rocm.list",
            "RUN echo 'deb https://repo.radeon.com/rocm/apt/debian/ u main' > r && sed -i s/debian/5.2.3/ r",
        ],
    ),
    "builders-kernel": (
        ["RUN apt-get install -y linux-headers-$(uname -r)", "RUN echo `uname -r`"],
        ["RUN echo $(uname -m)"],
    ),
    "conda-unpinned": (["RUN conda install -y numpy"], ["RUN conda install -y numpy=1.26.4"]),
    "apt-key": (
        [
            "RUN apt-key adv --fetch-keys https://x/k.pub",
            "RUN wget -O- https://x/k | sudo apt-key add -",
            "RUN wget -O /etc/apt/trusted.gpg.d/x.gpg https://x/k.gpg",
        ],
        ["RUN wget -O /etc/apt/keyrings/x.gpg https://x/k.gpg"],
    ),
    "apt-unauthenticated": (
        [
            "RUN apt-get install -y --allow-unauthenticated x",
            "RUN echo 'deb [trusted=yes] https://x y z' > l",
        ],
        ["RUN echo 'deb [signed-by=/k] https://x y z' > l"],
    ),
    "plain-http": (
        ["RUN wget http://x/y", "ADD http://x/y /y", "RUN pip install -i http://x/simple a==1"],
        ["RUN wget https://x/y", "RUN curl http://localhost:8080/", "RUN echo 'deb http://x y z' > l"],
    ),
    "pipe-to-shell": (
        [
            "RUN curl -sSL https://x | sh",
            "RUN wget -qO- https://x | sudo bash -s -- -y",
            'RUN bash -c "$(curl -fsSL https://x)"',
            "RUN bash <(curl -s https://x)",
        ],
        ["RUN curl -sSL https://x | tar x", "RUN cat x | sh"],
    ),
    "tls-off": (
        [
            "RUN wget --no-check-certificate https://x",
            "RUN curl -fsSLk https://x -o y",
            "RUN pip install --trusted-host x a==1",
            "RUN git -c http.sslVerify=false clone https://x",
            "ENV GIT_SSL_NO_VERIFY=1",
        ],
        ["RUN curl -fsSL https://x -o k", "RUN wget https://x/-k"],
    ),
    "secret-in-env": (
        ["ENV DB_PASSWORD=x", "ARG GITHUB_TOKEN", "ENV API_KEY abc"],
        ["ENV PASSWORD_FILE=/run/secrets/x", "ENV TOKENIZERS_PARALLELISM=false", "ENV A=b"],
    ),
    "secret-in-text": (
        ["RUN git clone https://me:hunter2@x/y", "RUN echo ghp_" + "a" * 36, "LABEL k=AKIA" + "A" * 16],
        ["RUN git clone https://x/y", "RUN curl https://x:$PORT@y"],
    ),
    "secret-file": (
        ["COPY .ssh /root/.ssh", "COPY id_rsa /k", "ADD .netrc /root/", "COPY a .docker/config.json /x/"],
        ["COPY --from=build /x/ca.pem /y", "COPY src /src"],
    ),
    "sudo": (
        [
            "RUN sudo make install",
            "RUN apt-get install -y sudo",
            "RUN echo 'u ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers",
        ],
        ["RUN make install"],
    ),
    "privileged": (
        [
            "# docker run --privileged -it x",
            "LABEL run='docker run --privileged x'",
            "RUN --security=insecure make",
            'CMD ["docker", "run", "--privileged", "x"]',
        ],
        ["# needs no privileges"],
    ),
    "host-network": (
        ["# docker run --network=host x", "RUN --network=host make", "LABEL run='docker run --net host x'"],
        ["RUN --network=none make"],
    ),
    "shared-tmp": (["# docker run -v /tmp:/tmp x"], ["# docker run -v /data:/tmp x"]),
    "cap-sys-admin": (
        ["# docker run --cap-add=SYS_ADMIN x", "# docker run --cap-add ALL x"],
        ["# --cap-add SYS_PTRACE"],
    ),
    "no-user": (
        ["RUN make", "USER root", "USER 1000\nUSER 0:0", BASE + "USER 1000\n" + BASE + "RUN x"],
        ["USER 1000:1000", BASE + "RUN x\n" + BASE + "USER tk"],
    ),
    "open-to-all": (["RUN chmod -R 777 /x", "RUN chmod a+rwx /x"], ["RUN chmod 755 /x", "RUN chmod a+rx /x"]),
    "remote-login": (
        ["RUN apt-get install -y openssh-server", "RUN echo root:x | chpasswd"],
        ["RUN apt-get install -y ssh"],
    ),
    "add-instead-of-copy": (["ADD x /y"], ["ADD x.tar.gz /y", "COPY x /y", "ADD https://x/y /y"]),
    "run-without-effect": (
        ["RUN export A=b", "RUN cd /x", "RUN . /opt/env.sh && export B=c"],
        ["RUN export A=b && make", "RUN cd /x && make", 'RUN ["export"]'],
    ),
    "apt-lists-left": (
        ["RUN apt-get update && apt-get install -y x"],
        [
            "RUN apt-get update && apt-get install -y x && rm -rf /var/lib/apt/lists/*",
            "RUN --mount=type=cache,target=/var/lib/apt apt-get update && apt-get install -y x",
        ],
    ),
    "pip-cache-left": (
        ["RUN pip install a==1"],
        [
            "RUN pip install --no-cache-dir a==1",
            "ENV PIP_NO_CACHE_DIR=1\nRUN pip install a==1",
            "RUN --mount=type=cache,target=/root/.cache/pip pip install a==1",
        ],
    ),
    "build-tree-left": (
        ["RUN cmake .. && make"],
        ["RUN cmake .. && make && rm -rf /src", BASE + "RUN make\n" + BASE + "RUN x"],
    ),
    "make-serial": (["RUN make"], ["RUN make -j8", "ENV MAKEFLAGS=-j8\nRUN make", "RUN make install"]),
    "python2": (
        ["RUN apt-get install -y python-dev", "RUN apt install python2"],
        ["RUN apt-get install -y python3-dev", "RUN apt-get install -y python-is-python3"],
    ),
    "apt-update-alone": (["RUN apt-get update"], ["RUN apt-get update && apt-get install -y x"]),
    "apt-install-alone": (
        ["RUN apt-get install -y x"],
        ["RUN apt-get update && apt-get install -y x", "RUN apt-get install -y ./x.deb"],
    ),
    "apt-in-script": (["RUN apt install -y x"], ["RUN apt-get install -y x"]),
    "apt-asks": (["RUN apt-get install x"], ["RUN apt-get install -y x", "RUN apt-get install -qqy x"]),
    "apt-recommends": (
        ["RUN apt-get install -y x"],
        [
            "RUN apt-get install -y --no-install-recommends x",
            "RUN apt-get -o APT::Install-Recommends=0 install -y x",
        ],
    ),
    "frontend-in-env": (
        ["ENV DEBIAN_FRONTEND=noninteractive", "ENV DEBIAN_FRONTEND noninteractive"],
        ["RUN DEBIAN_FRONTEND=noninteractive apt-get update", "ARG DEBIAN_FRONTEND=noninteractive"],
    ),
    "path-replaced": (
        ["ENV PATH=/opt/rocm/bin:/bin", "ENV LD_LIBRARY_PATH /x"],
        ["ENV PATH=/x:$PATH", "ENV LD_LIBRARY_PATH=/x:${LD_LIBRARY_PATH}"],
    ),
    "relative-workdir": (["WORKDIR src"], ["WORKDIR /src", "WORKDIR $HOME"]),
    "entrypoint-shell-form": (
        ["ENTRYPOINT run me"],
        ['ENTRYPOINT ["run", "me"]', "ENTRYPOINT []", "ENTRYPOINT [ ]"],
    ),
    "pipe-hides-failure": (
        ["RUN wget -O- https://x/y.tgz | tar xz"],
        [
            'SHELL ["/bin/bash", "-o", "pipefail", "-c"]\nRUN wget -O- https://x | tar xz',
            "RUN set -o pipefail; curl x | y",
        ],
    ),
    "maintainer": (["MAINTAINER me"], ["LABEL maintainer=me"]),
    "cmake-too-old": (
        [
            "RUN wget https://github.com/Kitware/CMake/releases/download/v3.17.3/cmake-3.17.3.tar.gz",
            "RUN pip install cmake==3.18.4",
            "ENV CMAKE_VERSION=3.16.3",
            "FROM ubuntu:20.04\nRUN apt-get install -y cmake && git clone https://github.com/intel/llvm",
        ],
        [
            "RUN pip install cmake==3.27.0",
            "FROM ubuntu:22.04\nRUN apt-get install -y cmake",
            "RUN python3 buildbot/configure.py --cmake-opt=-DX_VERSION=1.0 --no-assertions",
            "FROM ubuntu:20.04\nRUN apt-get install -y cmake",
        ],
    ),
    "dpcpp-runtime-tag": (
        ["RUN git clone -b 2023-WW27 https://github.com/intel/llvm"],
        ["RUN git clone -b 2022-12 https://github.com/intel/llvm"],
    ),
    "sycl-arch-in-triple": (
        ["RUN clang++ -fsycl -fsycl-targets=nvptx64-nvidia-cuda-sm_80 x.cpp"],
        ["RUN clang++ -fsycl -fsycl-targets=nvptx64-nvidia-cuda -Xsycl-target-backend --cuda-gpu-arch=sm_80"],
    ),
    "sycl-werror": (
        ["RUN clang++ -fsycl -Werror x.cpp", 'RUN cmake -DCMAKE_CXX_FLAGS="-fsycl -Werror" .'],
        ["RUN g++ -Werror x.cpp", "RUN clang++ -fsycl -Werror=return-type x.cpp"],
    ),
    "amdgcn-without-arch": (
        ["RUN clang++ -fsycl -fsycl-targets=amdgcn-amd-amdhsa x.cpp"],
        ["RUN clang++ -fsycl-targets=amdgcn-amd-amdhsa -Xsycl-target-backend --offload-arch=gfx906 x.cpp"],
    ),
    "dpcpp-assertions": (
        ["RUN python3 buildbot/configure.py -o /build"],
        ["RUN python3 buildbot/configure.py -o /build --no-assertions"],
    ),
    "gfx916": (["ENV ARCH=gfx916"], ["ENV ARCH=gfx906"]),
    "group-in-image": (["RUN usermod -aG video tk", "RUN groupadd -g 109 render"], ["RUN useradd -m tk"]),
    "group-by-name": (["# docker run --group-add=render x"], ["# docker run --group-add 109 x"]),
    "base-does-not-exist": (
        ["FROM rocm/dev-ubuntu-22.04:5.2.3"],
        ["FROM rocm/dev-ubuntu-22.04:5.4.3", "FROM rocm/dev-ubuntu-20.04:5.2.3"],
    ),
    "rocm-too-new-for-dpcpp": (
        ["FROM rocm/dev-ubuntu-20.04:5.5.1\nRUN git clone -b 2022-12 https://github.com/intel/llvm"],
        ["FROM rocm/dev-ubuntu-20.04:5.4.3\nRUN git clone -b 2022-12 https://github.com/intel/llvm"],
    ),
    "arch-too-old": (
        [
            "FROM rocm/dev-ubuntu-22.04:6.1.2\nENV A=gfx906",
            "FROM nvidia/cuda:13.0.0-devel-ubuntu22.04\nENV A=sm_70",
        ],
        [
            "FROM rocm/dev-ubuntu-22.04:5.7\nENV A=gfx906",
            "FROM nvidia/cuda:12.1.0-devel-ubuntu22.04\nENV A=sm_70",
        ],
    ),
    "sycl-old-selector": (
        ["ENV SYCL_DEVICE_FILTER=cuda", "ENV SYCL_BE=PI_CUDA"],
        [
            "ENV ONEAPI_DEVICE_SELECTOR=cuda:*",
            "COPY --from=tk/dpcpp:2022-06-cuda /a /a\nENV SYCL_DEVICE_FILTER=cuda",
        ],
    ),
    "nvidia-env-missing": (
        ["RUN apt-get install -y cuda-toolkit-12-1"],
        [
            "FROM nvidia/cuda:12.1.0-devel-ubuntu22.04\nRUN apt-get install -y cuda-toolkit-12-1",
            "ENV NVIDIA_VISIBLE_DEVICES=all\nRUN apt-get install -y cuda-toolkit-12-1",
        ],
    ),
    "kernels-in-shared-tmp": (
        ["RUN cmake -DSYCL_TEMP_FOLDER=/tmp/tvm_sycl .."],
        ["RUN cmake -DSYCL_TEMP_FOLDER=/run/x .."],
    ),
    "cuda-headers-on-path": (
        ["ENV CPATH=/usr/local/cuda/include\nRUN git clone https://github.com/intel/llvm"],
        ["ENV CPATH=/usr/local/cuda/include"],
    ),
}


def whole(text: str) -> str:
    return text if "FROM" in text.partition("\n")[0] or "\nFROM" in text else BASE + text


def test_every_rule_has_cases() -> None:
    assert set(CASES) == {rule.id for rule in rules()}


@pytest.mark.parametrize(
    ("rule", "text"), [(rule, text) for rule, (hits, _) in CASES.items() for text in hits]
)
def test_speaks(rule: str, text: str) -> None:
    assert rule in ids(whole(text))


@pytest.mark.parametrize(
    ("rule", "text"), [(rule, text) for rule, (_, misses) in CASES.items() for text in misses]
)
def test_is_silent(rule: str, text: str) -> None:
    assert rule not in ids(whole(text))


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_says_everything(rule: object) -> None:
    for field in ("id", "severity", "message", "why", "fix", "source"):
        assert getattr(rule, field)


@pytest.mark.parametrize(
    ("rule", "line", "part"),
    [
        ("git-unpinned", 12, "mvermeulen/tvm"),
        ("git-unpinned", 19, "mvermeulen/rocm-tvm"),
        ("pip-unpinned", 17, "numpy"),
        ("pip-unpinned", 20, "xgboost"),
        ("pip-unpinned", 23, "transformers"),
        ("pip-unpinned", 24, "tensorflow"),
        ("cmake-too-old", 7, "3.17.3"),
        ("download-without-checksum", 7, "cmake-3.17.3.tar.gz"),
        ("run-without-effect", 22, "export CMAKE_ARGS"),
        ("apt-lists-left", 6, "apt"),
        ("build-tree-left", 15, "stay"),
        ("pip-cache-left", 17, "pip"),
        ("no-user", 25, "root"),
        ("python2", 9, "python-dev"),
    ],
)
def test_the_teams_own_dockerfile(rule: str, line: int, part: str) -> None:
    """The rocm-tvm Dockerfile that the team used with ROCm 5.2.3; what it was found guilty of, by line."""
    findings = lint_file(HERE / "seed.Dockerfile")
    assert [one for one in findings if (one.rule, one.line) == (rule, line) and part in one.found]


def test_a_careful_file_has_no_findings() -> None:
    text = f"""
        # syntax=docker/dockerfile:1
        FROM debian:12.5@sha256:{"a" * 64} AS build
        RUN apt-get update && apt-get install -y --no-install-recommends gcc=4:12.2.0-3 \\
            && rm -rf /var/lib/apt/lists/*
        RUN git clone https://example.com/x /src && git -C /src checkout {COMMIT} && make -C /src -j8
        FROM debian:12.5@sha256:{"a" * 64}
        COPY --from=build /src/out /opt/x
        ENV PATH=/opt/x/bin:$PATH
        USER 1000:1000
        ENTRYPOINT ["/opt/x/bin/run"]
    """
    assert found("\n".join(line.strip() for line in text.strip().splitlines())) == []
