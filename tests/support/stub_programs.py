"""Programs in place of real ones, for builds with stubs: they refuse what the real ones refuse."""

from __future__ import annotations

import json
from collections.abc import Iterable

CMAKE = """#!/usr/bin/python3
import json, os, sys
words = sys.argv[1:]
note = "/build/configured.json"
if "-S" in words:
    assert os.path.isdir(words[words.index("-S") + 1])
    os.makedirs("/build", exist_ok=True)
    json.dump(words, open(note, "w"))
elif "--install" in words:
    told = json.load(open(note))
    (prefix,) = [one.partition("=")[2] for one in told if one.startswith("-DCMAKE_INSTALL_PREFIX=")]
    os.makedirs(prefix + "/lib")
    json.dump({"configure": told}, open(prefix + "/recorded.json", "w"))
else:
    assert words[0] == "--build" and os.path.exists(note), words
"""

CONFIGURE = """import json, os, subprocess, sys
words = sys.argv[1:]
place = words[words.index("-o") + 1]
os.makedirs(place, exist_ok=True)
if "--cuda" in words:
    names = ("-DCUDA_TOOLKIT_ROOT_DIR=", "-DCUDAToolkit_ROOT=")
    (root,) = [one.rpartition("=")[2] for one in words if any(name in one for name in names)]
    if os.environ.get("CUDA_LIB_PATH") != root + "/lib64/stubs":
        sys.exit("CMake Error: variables are set to NOTFOUND: CUDA_CUDA_LIBRARY (ADVANCED)")
clones = json.load(open(os.path.join(os.path.dirname(__file__), "clones.json")))
for number, (url, commit) in enumerate(clones):
    folder = os.path.join(place, "_deps", str(number))
    subprocess.check_call(["git", "clone", "--quiet", "--no-checkout", url, folder])
    subprocess.check_call(["git", "-C", folder, "checkout", "--quiet", commit, "--"])
json.dump(words, open(os.path.join(place, "configured.json"), "w"))
"""

COMPILE = """import json, os, sys
words = sys.argv[1:]
told = json.load(open(os.path.join(words[words.index("-o") + 1], "configured.json")))
prefix = [one.rpartition("=")[2] for one in told if "-DCMAKE_INSTALL_PREFIX=" in one][-1]
os.makedirs(prefix + "/bin")
os.makedirs(prefix + "/lib")
json.dump({"configure": told, "compile": words}, open(prefix + "/recorded.json", "w"))
"""

PIP = """import json, os, runpy, sys
here = os.path.dirname(os.path.abspath(__file__))
base = json.load(open(os.path.join(here, "base.json")))
sys.path[:] = [one for one in sys.path if os.path.abspath(one) != os.path.dirname(here)]
del sys.modules["pip"]
from pip._vendor.packaging.specifiers import SpecifierSet
for word in sys.argv[1:]:
    wanted = base["requires"].get(word, "")
    if not SpecifierSet(wanted).contains(base["python"]):
        sys.exit(f"ERROR: Package {word!r} requires a different Python: {base['python']} not in {wanted!r}")
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
"""The system's pip, which asks before whether each pin is for the Python that the base stands for."""

TVM_TREE = {"python/tvm/__init__.py": "__version__ = 'stub'\n", "CMakeLists.txt": "# stub\n"}
PYTHON_TREE = {"bin/python3": '#!/bin/sh\nexec /usr/bin/python3 "$@"\n'}


def dpcpp_tree(clones: Iterable[tuple[str, str]]) -> dict[str, str]:
    """A DPC++ whose configuration clones trees: each an address and the commit that it wants."""
    return {
        "buildbot/configure.py": CONFIGURE,
        "buildbot/compile.py": COMPILE,
        "buildbot/clones.json": json.dumps(list(clones)),
    }
