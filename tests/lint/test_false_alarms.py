"""What the rules once reported wrongly in public code, and a twin of each that they must go on reporting."""

from __future__ import annotations

import pytest

from samerun.lint.file_linting import lint_text
from samerun.lint.table import RULES

DEFAULT = [rule for rule in RULES if rule.default]
LISTED = "import os\nimport random\nrandom.seed(0)\nnames = os.listdir('data')\n"

HARMLESS_AND_TWIN = {
    "parts of all": (
        LISTED + "for i in range(0, len(names), 8):\n    send(names[i : i + 8])\n",
        LISTED + "send(names[:8])\n",
    ),
    "a queue": (
        LISTED + "while names:\n    send(names[:8])\n    names = names[8:]\n",
        LISTED + "send(names[:8])\n",
    ),
    "only gone through": (
        LISTED + "random.shuffle(names)\nfor name in names:\n    convert(name)\n",
        LISTED + "random.shuffle(names)\ntrain(names)\n",
    ),
    "a position that finds its own element": (
        LISTED + "opened, where = [], {}\nfor i, name in enumerate(names):\n    opened.append(open(name))\n"
        "    where[opened[i].name] = i\n",
        LISTED + "where = {}\nfor i, name in enumerate(names):\n    where[name] = i\n",
    ),
    "sorted in the next line": (
        "import os\nimport numpy as np\nrows = np.vstack([np.loadtxt(n) for n in os.listdir('d')])\n"
        "rows = rows[rows[:, 0].argsort()]\n",
        "import os\nimport numpy as np\nrows = np.vstack([np.loadtxt(n) for n in os.listdir('d')])\n",
    ),
    "a draw that no seed reaches": (
        "import os\nimport random\nshown = random.sample(os.listdir('d'), 3)\n",
        "import os\nimport random\nrandom.seed(1)\nshown = random.sample(os.listdir('d'), 3)\n",
    ),
    "an order that came back to another call": (
        "import os\ndef pass_on(rows):\n    return rows\nfor name in pass_on(os.listdir('d')):\n    convert(name)\n"
        "numbers = {name: i for i, name in enumerate(pass_on(['a', 'b']))}\n",
        "import os\ndef pass_on(rows):\n    return rows\n"
        "numbers = {name: i for i, name in enumerate(pass_on(os.listdir('d')))}\n",
    ),
    "a hash of numbers": (
        "import torch\ndef start(seed, rank):\n    torch.manual_seed(hash((seed, rank)))\n",
        "import torch\ndef start(name: str):\n    torch.manual_seed(hash(name))\n",
    ),
    "a hash seed that is asked for": (
        "import os\nassert os.environ['PYTHONHASHSEED'] == '0'\ndef bucket(word):\n    return hash(word) % 9\n",
        "def bucket(word):\n    return hash(word) % 9\n",
    ),
    "a state that is put back": (
        "import random\ndef draw_port():\n    state = random.getstate()\n    random.seed()\n"
        "    port = random.randint(1, 9)\n    random.setstate(state)\n    return port\n",
        "import random\ndef draw_port():\n    random.seed()\n    return random.randint(1, 9)\n",
    ),
    "a generator that is seeded later": (
        "import numpy as np\nclass Masks:\n    def __init__(self):\n        self.rng = np.random.RandomState()\n"
        "    def draw(self, seed):\n        self.rng.seed(seed)\n        return self.rng.rand()\n",
        "import numpy as np\nclass Masks:\n    def __init__(self):\n        self.rng = np.random.RandomState()\n"
        "    def draw(self):\n        return self.rng.rand()\n",
    ),
    "a generator for who gives no seed": (
        "import numpy as np\ndef make_random_seed():\n    return int(np.random.default_rng().integers(9))\n",
        "import numpy as np\ndef make_noise():\n    return int(np.random.default_rng().integers(9))\n",
    ),
    "scikit-learn in a library": (
        "from sklearn.cluster import KMeans\ndef group(x):\n    return KMeans(4).fit(x)\n",
        "from sklearn.cluster import KMeans\ngroups = KMeans(4).fit(x)\n",
    ),
    "weights that are loaded": (
        "import torch\nmodel = torch.nn.Linear(2, 2)\nmodel.load_state_dict(saved)\ntorch.manual_seed(0)\nmodel(x)\n",
        "import torch\nmodel = torch.nn.Linear(2, 2)\ntorch.manual_seed(0)\nmodel(x)\n",
    ),
    "a sum that is thrown away": (
        "import torch\n_ = torch.empty(1) + 1\n",
        "import torch\nx = torch.empty(1) + 1\n",
    ),
    "a draw from its own generator": (
        "import random\nimport torch\nrandom.seed(0)\ng = torch.Generator().manual_seed(1)\n"
        "for _ in range(3):\n    print(torch.randn(2, generator=g))\n",
        "import random\nimport torch\nrandom.seed(0)\nfor _ in range(3):\n    print(torch.randn(2))\n",
    ),
    "a helper of tests": (
        "import numpy as np\ndef make_rows():\n    return np.random.default_rng().random(3)\n"
        "def test_rows():\n    assert len(make_rows()) == 3\n",
        "import numpy as np\ndef make_rows():\n    return np.random.default_rng().random(3)\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HARMLESS_AND_TWIN)
def test_the_harmless_one_is_silent_and_its_twin_is_not(case: str) -> None:
    harmless, twin = HARMLESS_AND_TWIN[case]
    assert [one.code for one in lint_text(harmless, "train.py", DEFAULT).findings] == []
    assert len(lint_text(twin, "train.py", DEFAULT).findings) == 1
