"""Write the tests' tiny corpus: ``python .ci/make_tiny_corpus.py DIR``, in any environment."""

import runpy
import sys
from pathlib import Path

HELPER = Path(__file__).resolve().parents[1] / "tests" / "tiny_corpus.py"

if __name__ == "__main__":
    runpy.run_path(str(HELPER))["write_corpus"](Path(sys.argv[1]).absolute())
