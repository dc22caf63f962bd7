"""What builds SYCL: the shim by the host's compiler, SYCLBIN by the runtime, ahead of time by DPC++."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from compiler.core.cache import ContentCache, content_key
from compiler.core.compilers import DEFECT, SHOWN_LINES
from compiler.core.diagnostics import BuildError, HostError
from compiler.core.files import private_directory, sha256_bytes, sha256_file, write_atomic
from compiler.core.process import Completed, check_host, run
from compiler.core.settings import Settings, child_environment, search_path
from compiler.runtime.library import INCLUDE, ROOT, SOURCES, headers_digest
from compiler.runtime.vendor_runtimes import IntelRuntime, runtime_environment
from compiler.targets.features import host_flags
from compiler.targets.toolchain import Cxx, find_cxx

SHIM = ROOT / "sycl" / "shim.cpp"
SHIM_PARTS = (SHIM, SHIM.with_name("shim_devices.h"))
BUILDER = ROOT / "sycl" / "build.cpp"
_LIMIT_SECONDS = 900.0
_PIECE_CHARACTERS = 64_000
"""A piece takes a second of its own to build and milliseconds to load; a larger one more than its share."""
_HOST_STATUS = (4, 6)  # TK_ERR_HOST, TK_ERR_DEVICE: nothing here can build; anything else is a wrong text
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_KERNEL = re.compile(r"^TK_KERNEL\((\w+), (\d+), (\d+), (\d+), (.*)\) \{$", re.MULTILINE)


def module_text(text: str, model: str, lanes: int | None) -> str:
    """A module and what stands before its prelude: digits of the model, for GPUs lanes of a sub-group."""
    words = [f"#define TK_MODEL {model}"]
    if lanes is not None:
        words.append(f"#define TK_SUBGROUP {lanes}")
    return "\n".join([*words, text])


# ---------------------------------------------------------------- the shim, for kernels built by the runtime


def build_shim(runtime: IntelRuntime, settings: Settings) -> bytes:
    """The shared object between libraries and this runtime; raises HostError without headers, BuildError."""
    check_headers(runtime)
    cxx = find_cxx(settings)
    argv = [*_FLAGS, "-I", str(INCLUDE), "-I", str(SOURCES), "-isystem", str(runtime.headers), "shim.cpp"]
    return _host_built("shim.so", cxx, argv, SHIM_PARTS, str(runtime.sycl), runtime, settings).read_bytes()


def check_headers(runtime: IntelRuntime) -> None:
    """Raise HostError unless the runtime has what a shim is compiled against."""
    if runtime.headers is None or runtime.sycl is None:
        raise HostError(
            "the SYCL runtime here has no headers",
            where=str(runtime.libraries),
            why=f"{runtime.libraries.parent / 'include' / 'sycl' / 'sycl.hpp'} is not there",
            hint="install them with `pip install intel-sycl-rt`",
        )


def _builder(runtime: IntelRuntime, settings: Settings) -> Path:
    argv = ["-std=c++17", "-O1", "-I", str(INCLUDE), "-I", str(SOURCES), "build.cpp"]
    return _host_built("build", find_cxx(settings), argv, (BUILDER,), "-ldl", runtime, settings)


def _host_built(
    name: str,
    cxx: Cxx,
    argv: Sequence[str],
    sources: Sequence[Path],
    library: str,
    runtime: IntelRuntime,
    settings: Settings,
) -> Path:
    """What the host's compiler makes of a source of ours, from the cache where it was made before."""
    digests = [*(sha256_file(path) for path in sources), headers_digest(INCLUDE, SOURCES)]
    cache = ContentCache(settings.cache_dir / "sycl")
    key = content_key(name, cxx.identity, runtime.identity, *argv, *digests)
    # Under plain names, so that no path of this machine gets into the object.
    files: dict[str, str | bytes] = {source.name: source.read_bytes() for source in sources}
    command = [cxx.path, *argv, "-o", name, library]
    what = "the C++ compiler rejected the part of the library that speaks SYCL"
    return cache.made(key, partial(_compiled, command, files, name, what, runtime.source), ".bin")


def _compiled(
    argv: Sequence[str], files: Mapping[str, str | bytes], output: str, what: str, where: str
) -> bytes:
    """What a compiler makes of files in a private directory; raises BuildError with what it complains of."""
    with private_directory("tk-sycl") as directory:
        for name, content in files.items():
            write_atomic(directory / name, content)
        done = run(argv, cwd=directory, env=child_environment(TMPDIR=str(directory)), timeout=_LIMIT_SECONDS)
        _check(done, what, where)
        return (directory / output).read_bytes()


# ---------------------------------------------------------------- SYCLBIN


@dataclass(frozen=True, slots=True)
class Binaries:
    """What the runtime made of a module for the processor here: nothing, and why, where it has no device."""

    pieces: tuple[bytes, ...]
    note: str = ""


def build_syclbin(text: str, model: str, runtime: IntelRuntime, shim: bytes, settings: Settings) -> Binaries:
    """The kernels as the processor here runs them; raises BuildError when the runtime refuses the text.

    In processes of their own: a defect in the runtime must not end ours. In pieces:
    the time of its compiler grows with the square of the kernels that it gets at once.
    """
    cache = ContentCache(settings.cache_dir / "images")
    builder = _builder(runtime, settings)
    identity = (runtime.identity, sha256_bytes(shim), sha256_file(builder), *sorted(host_flags()))

    def build(piece: str) -> bytes | str:
        key = content_key("syclbin", piece, *identity)
        if found := cache.get(key, ".syclbin"):
            return found.read_bytes()
        made = _build_piece(piece, model, builder, shim, settings)
        if isinstance(made, bytes):
            cache.put(key, made, ".syclbin")
        return made

    with ThreadPoolExecutor(max_workers=settings.jobs) as pool:
        made = list(pool.map(build, pieces(text)))
    pieces_made = tuple(item for item in made if isinstance(item, bytes))
    if len(pieces_made) == len(made):
        return Binaries(pieces_made)
    return Binaries((), "; ".join({item for item in made if isinstance(item, str)}))


def pieces(text: str, limit: int = _PIECE_CHARACTERS) -> list[str]:
    """A module cut into modules of a few kernels each; what comes before the first kernel is part of each."""
    starts = [found.start() for found in _KERNEL.finditer(text)]
    if not starts:
        return [text]
    ends = [*starts[1:], len(text)]
    groups: list[str] = [""]
    for start, end in zip(starts, ends, strict=True):
        if groups[-1] and len(groups[-1]) + end - start > limit:
            groups.append("")
        groups[-1] += text[start:end]
    return [text[: starts[0]] + group for group in groups]


def _build_piece(text: str, model: str, builder: Path, shim: bytes, settings: Settings) -> bytes | str:
    """The binary of one piece, or why there is none on this machine."""
    with private_directory("tk-syclbin") as directory:
        write_atomic(directory / "build", builder.read_bytes(), mode=0o700)
        write_atomic(directory / "shim.so", shim)
        write_atomic(directory / "module.cpp", text)
        argv = [str(directory / "build"), "./shim.so", "module.cpp", f"_{model}", "module.syclbin"]
        env = runtime_environment(settings, TMPDIR=str(directory))
        done = run(argv, cwd=directory, env=env, timeout=_LIMIT_SECONDS)
        if done.returncode in _HOST_STATUS:
            check_host(done)
            return f"kernels are built when the library is loaded: {done.stderr.strip() or 'no device'}"
        _check(done, "the SYCL runtime refused the generated kernels", "module.cpp")
        return (directory / "module.syclbin").read_bytes()


# ---------------------------------------------------------------- ahead of time


@dataclass(frozen=True, slots=True)
class Dpcpp:
    """A DPC++ compiler; `identity` changes whenever its output might."""

    path: str
    description: str
    identity: str


def find_dpcpp(settings: Settings) -> Dpcpp | None:
    """The compiler that TK_DPCXX names, else icpx or a clang++ on the PATH that has SYCL; None without one.

    Raises HostError when TK_DPCXX names one that has not.
    """
    if settings.dpcxx is not None:
        path = shutil.which(settings.dpcxx, path=search_path())
        found = None if path is None else probe_dpcpp(path)
        if found is None:
            raise HostError(
                f"`{settings.dpcxx}` does not compile SYCL",
                where="TK_DPCXX",
                why="it was not found" if path is None else "it refuses -fsycl with <sycl/sycl.hpp>",
                hint="set TK_DPCXX to the clang++ of DPC++ or to icpx, or unset it",
            )
        return found
    paths = [shutil.which(name, path=search_path()) for name in ("icpx", "clang++")]
    return next((found for path in paths if path and (found := probe_dpcpp(path))), None)


@lru_cache(maxsize=8)
def probe_dpcpp(path: str) -> Dpcpp | None:
    """Who the compiler at `path` is, or None when it is not one for SYCL."""
    argv = [path, "-fsycl", "-fsyntax-only", "-x", "c++", "-std=c++17", "-"]
    done = run(argv, input=b"#include <sycl/sycl.hpp>\n", env=child_environment(), timeout=_LIMIT_SECONDS)
    if done.returncode != 0:
        return None
    banner = run([path, "--version"], env=child_environment()).stdout.partition("\n")[0]
    return Dpcpp(path, banner, content_key("dpcpp", banner))


def _ahead_flags(arch: str) -> tuple[str, ...]:
    """Options of DPC++ for one architecture, as every release from 2022-09 on understands them."""
    if arch.startswith("sm_"):
        triple = "nvptx64-nvidia-cuda"
        return (f"-fsycl-targets={triple}", f"-Xsycl-target-backend={triple}", f"--cuda-gpu-arch={arch}")
    if arch.startswith("gfx"):
        triple = "amdgcn-amd-amdhsa"
        return (f"-fsycl-targets={triple}", f"-Xsycl-target-backend={triple}", f"--offload-arch={arch}")
    if arch.startswith("intel_gpu_"):
        return ("-fsycl-targets=spir64",)  # its driver compiles the kernels: no ocloc is needed
    return (f"-fsycl-targets={arch}",)


COMMON_AHEAD = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-shared",
    "-fsycl",
    "-fvisibility=hidden",
    "-fno-fast-math",  # icpx would else compute with what exp and division of 11 bits give
    "-ffp-contract=fast",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-fno-sycl-id-queries-fit-in-int",
    "-Wno-sycl-target",
    "-Wno-unknown-cuda-version",
    "-DTK_AHEAD",
)


def ahead_text(text: str, arch: str) -> str:
    """The source of a shim with the kernels in it: the module, a launcher for each kernel, the shim."""
    kernels = list(_KERNEL.finditer(text))
    parts = [text.replace("#define TK_MODEL ", f"#define TK_MODEL {re.sub('[^a-z0-9]', '_', arch)}_", 1)]
    parts += [_launcher(found, text) for found in kernels]
    parts.append("struct tk_sycl_launcher {\n  const char *name;")
    parts.append("  void (*start)(sycl::handler &, const sycl::nd_range<3> &, void *const *);\n};")
    parts.append("static const tk_sycl_launcher tk_sycl_launchers[] = {")
    parts += [f'  {{"{found[1]}", TK_NAME({found[1]}_start)}},' for found in kernels]
    parts.append('};\n#include "shim.cpp"\n')
    return "\n".join(parts)


def _launcher(kernel: re.Match[str], text: str) -> str:
    """The function that starts a kernel, whose lambda has a name of its own in the process."""
    name, x, y, z, params = kernel.groups()
    end = text.find("\n}\n", kernel.end())
    size = _shared_bytes(text[kernel.end() : end])
    split = [re.fullmatch(r"(.*\*)\s*(?:__restrict )?(\w+)", part.strip()) for part in params.split(",")]
    values = [(found[1].strip(), found[2]) for found in split if found is not None]
    start = f"static void TK_NAME({name}_start)"
    attributes = f"[[sycl::reqd_work_group_size({z}, {y}, {x})]] TK_LANES"
    lines = [
        f"class TK_NAME({name}_kernel);",
        f"{start}(sycl::handler &h, const sycl::nd_range<3> &range, void *const *args) {{",
        *(f"  {kind} const {word} = ({kind})args[{n}];" for n, (kind, word) in enumerate(values)),
    ]
    memory = "nullptr"
    if size:
        lines.append(f"  sycl::local_accessor<unsigned char, 1> shared(sycl::range<1>({size}), h);")
        memory = "&shared[0]"
    words = ", ".join(("item", memory, *(word for _, word in values)))
    lines += [
        f"  h.parallel_for<class TK_NAME({name}_kernel)>(range, [=](sycl::nd_item<3> item) {attributes} {{",
        f"    TK_NAME({name})({words});",
        "  });",
        "}",
    ]
    return "\n".join(lines)


_SHARED = re.compile(r"TK_SHARED\((\w+), \w+, (\d+)\);")
_SIZES = {"double": 8, "float": 4, "int64_t": 8, "uint64_t": 8, "int32_t": 4, "uint32_t": 4}
_SIZES |= {"int16_t": 2, "uint16_t": 2, "int8_t": 1, "uint8_t": 1}
_VECTOR = re.compile(r"tk_[a-z]+(\d+)x(\d+)")


def _shared_bytes(body: str) -> int:
    """What the arrays of a work-group take, as TK_SHARED lays them out: each at a multiple of 64 bytes."""
    total = 0
    for kind, count in _SHARED.findall(body):
        vector = _VECTOR.fullmatch(kind)
        size = int(vector[1]) // 8 * int(vector[2]) if vector else _SIZES[kind]
        total += -(-size * int(count) // 64) * 64
    return total


def build_ahead(text: str, arch: str, dpcpp: Dpcpp, settings: Settings) -> bytes:
    """A shim with the kernels for one architecture; raises BuildError when DPC++ refuses."""
    source = ahead_text(text, arch)
    flags = (*COMMON_AHEAD, *_ahead_flags(arch))
    digests = [*(sha256_file(path) for path in SHIM_PARTS), headers_digest(INCLUDE, SOURCES)]
    cache = ContentCache(settings.cache_dir / "images")
    key = content_key("sycl-ahead", source, dpcpp.identity, *flags, *digests)
    argv = [dpcpp.path, *flags, "-I", str(INCLUDE), "-I", str(SOURCES), "module.cpp", "-o", "shim.so"]
    files: dict[str, str | bytes] = {
        "module.cpp": source,
        **{part.name: part.read_bytes() for part in SHIM_PARTS},
    }
    what = f"DPC++ refused the generated kernels for {arch}"
    make = partial(_compiled, argv, files, "shim.so", what, " ".join(argv))
    return cache.made(key, make, ".shim").read_bytes()


def _check(done: Completed, what: str, where: str) -> None:
    if done.returncode == 0:
        return
    check_host(done)
    lines = (done.stderr or done.stdout).splitlines()
    told = [line for line in lines if "error" in line.lower()] or lines
    if done.returncode < 0:
        told = [f"it was ended by signal {-done.returncode}", *told]
    raise BuildError(what, where=where, why="\n".join(told[:SHOWN_LINES]), hint=DEFECT)
