"""A program in the place of `tk` for the trials of a matrix: quick, and it fails as it is told.

`python -I -S matrix_stand_in.py DIR COMMAND ...`: DIR/told.json says what becomes of `MODEL COMMAND`.
DIR/calls has a line where a call begins, with its process id, and one where it comes to its end.
"""

import json
import os
import sys
import time
from pathlib import Path

OUTPUT = {"name": "y", "where": [0], "actual": 1.0, "expected": 1.0, "needed": 0.0, "tolerance": 1e-5,
          "problem": "", "passed": True}  # fmt: skip
DOCUMENTS = {
    "zoo": {},
    "compile": {"library_bytes": 7, "peak_memory": 5},
    "verify": {"reference": "stand-in", "outputs": [OUTPUT], "device": ""},
    "bench": {"p50_ms": 2.0, "p90_ms": 2.1, "p99_ms": 2.2, "low_ms": 1.9, "high_ms": 2.05, "spread": 0.1,
              "runs": 100, "threads": 1, "noisy": "", "device": ""},
    "inspect": {"unsupported": []},
}  # fmt: skip


def main() -> int:
    folder, command, *words = sys.argv[1:]
    model = Path(words[1] if command == "zoo" else words[0]).stem
    output = Path(words[words.index("-o") + 1]) if "-o" in words else None
    if command in ("compile", "verify", "bench"):
        model = Path(words[0]).read_text()
    told = json.loads((Path(folder) / "told.json").read_text()).get(f"{model} {command}", {})
    say(folder, f"began {model} {command}")
    if "writes" in told:
        (Path(os.environ["TMPDIR"]) / "written").write_bytes(bytes(told["writes"]))
    if "seconds" in told:
        time.sleep(told["seconds"])
    if "signal" in told:
        os.kill(os.getpid(), told["signal"])
    if output is not None:
        output.write_text(model)
    sys.stdout.write(json.dumps(DOCUMENTS[command] | told.get("document", {})))
    sys.stderr.write(told.get("said", "") + "\n")
    say(folder, f"ended {model} {command}")
    return int(told.get("code", 0))


def say(folder: str, text: str) -> None:
    handle = os.open(Path(folder) / "calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{os.getpid()} {text}\n".encode())
    os.close(handle)


if __name__ == "__main__":
    sys.exit(main())
