"""What the rules once reported wrongly in public code, and a twin of each that they must go on reporting."""

from __future__ import annotations

import pytest

from samerun.lint.file_linting import lint_text
from samerun.lint.source_index import FileInProject
from samerun.lint.table import RULES

ASKED_FOR = ("SR101", "SR104", "SR105", "SR122", "SR126", "SR130", "SR135", "SR151", "SR152")
CHECKED = [rule for rule in RULES if rule.default or rule.code in ASKED_FOR]
LISTED = "import os\nimport random\nrandom.seed(0)\nnames = os.listdir('data')\n"
SCHEDULED = (
    "import torch\nsaved = torch.load('a.pt')\noptimizer.load_state_dict(saved['optimizer'])\nstart = saved['epoch']\n"
    "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)\n"
    "torch.save({'optimizer': optimizer.state_dict(), 'epoch': 9, 'rng': torch.get_rng_state()}, 'a.pt')\n"
)
TRAINED = (
    "import torch\nsaved = torch.load('a.pt')\nadam.load_state_dict(saved['adam_opt'])\nbegin_at = {begin}\n"
    "optimizer.load_state_dict(saved['optimizer'])\n\n\n"
    "def save():\n    torch.save({{'optimizer': optimizer.state_dict()}}, 'a.pt')\n\n\n"
    "for epoch in range(begin_at, 9):\n    rows = dropout(rows)\n    save()\n"
)
CROPPED = (
    "import time\nimport numpy as np\n\n\ndef crop(rows):\n    np.random.seed(int(time.time()))\n"
    "    first = np.random.randint(9)\n    last = first + np.random.randint(9)\n    return {result}\n\n\n"
    "def load():\n{other}    return crop(0)\n\n\nload()\n"
)
LOADED = (
    "import os\nimport torch\nlast = len(os.listdir('runs'))\nnumber = last + 1\n\n\ndef load(optimizer):\n"
    "    saved = torch.load({path})\n    optimizer.load_state_dict(saved['optimizer'])\n"
    "    return optimizer, saved['epoch']\n\n\n{taken} = load(adam)\nfor epoch in range(start, 9):\n"
    "    loss(dropout(rows)).backward()\n"
    "    torch.save({{'optimizer': optimizer.state_dict(), 'epoch': epoch}}, 'a.pt')\n"
)
SCORED = (
    "import time\nimport torch\n\n\ndef main():\n    torch.manual_seed(int(time.time()))\n    model = build()\n"
    "    model.load_state_dict(torch.load('a.pt'))\n    model.eval()\n    print([{result} for row in rows])\n\n\n"
    "if __name__ == '__main__':\n    main()\n"
)
SWITCHED = (
    "import torch\n\n\nclass Trainer:\n    def __init__(self):\n"
    "        self.resume = {switch}\n        self.start = 0\n\n"
    "    def load(self):\n        saved = torch.load('a.pt')\n        if self.resume:\n"
    "            self.optimizer.load_state_dict(saved['optimizer'])\n            self.start = saved['epoch']\n\n"
    "    def train(self):\n        for epoch in range(self.start, 9):\n            fit(dropout(rows)).backward()\n"
    "            torch.save({{'optimizer': self.optimizer.state_dict(), 'epoch': epoch}}, 'a.pt')\n\n\n"
    "trainer = Trainer()\ntrainer.load()\ntrainer.train()\n"
)
TAKEN = (
    "import random\nrandom.seed(0)\nnames = open('names').read().split()\n\n\nclass Rows:\n    def __init__(self):\n"
    "        some = random.sample(names, 9)\n        {name} = list(set(names) - set(some))\n"
    "        self.names = {name}\n\n    def __getitem__(self, i):\n        return open(self.names[i]).read()\n"
)
DRAWN = (
    "import numpy as np\nimport torch\ntorch.manual_seed(0)\n{seeds}saved = torch.load('a.pt')\n"
    "optimizer.load_state_dict(saved['optimizer'])\n{before}for epoch in range(saved['epoch'], 9):\n"
    "    {inside}\n    loss(dropout(rows)).backward()\n"
    "    torch.save({{'optimizer': optimizer.state_dict(), 'epoch': epoch}}, 'a.pt')\n"
)

HARMLESS_AND_TWIN = {
    "parts of all": (
        LISTED + "for i in range(0, len(names), 8):\n    send(names[i : i + 8])\n",
        LISTED + "send(names[:80])\n",
    ),
    "a number for each file": (
        "import os\nrows = []\nfor i, label in enumerate(os.listdir('d')):\n    rows.append((load(label), i))\n"
        "use(rows)\n",
        "import os\nrows = []\nfor i, label in enumerate(os.listdir('d')):\n"
        "    for name in sorted(os.listdir(label)):\n        rows.append((load(name), i))\nuse(rows)\n",
    ),
    "a name for each number": (
        "import os\nclasses = os.listdir('d')\nnames = dict(zip(range(len(classes)), classes))\nuse(names)\n",
        "import os\nclasses = os.listdir('d')\nnumbers = dict(zip(classes, range(len(classes))))\nuse(numbers)\n",
    ),
    "a class that is found again by its number": (
        "import os\nclasses = os.listdir('d')\nnames = {i: classes[i] for i in range(len(classes))}\nuse(names)\n",
        "import os\nclasses = os.listdir('d')\nnumbers = {classes[i]: i for i in range(len(classes))}\nuse(numbers)\n",
    ),
    "as many of each as there are": (
        "import os\nlabels = []\nfor i, label in enumerate(os.listdir('d')):\n    labels += [1] * size(label)\n",
        "import os\nlabels = []\nfor i, label in enumerate(os.listdir('d')):\n    labels += [i] * size(label)\n",
    ),
    "folders that a walk sorts": (
        "import os\nlabels, label = [], 0\nfor root, folders, names in os.walk('d'):\n    folders.sort()\n"
        "    for name in names:\n        labels.append(label)\n    label += 1\nuse(labels)\n",
        "import os\nlabels, label = [], 0\nfor root, folders, names in os.walk('d'):\n"
        "    for name in names:\n        labels.append(label)\n    label += 1\nuse(labels)\n",
    ),
    "a mixture of one": (
        "from sklearn.mixture import GaussianMixture\nfound = GaussianMixture().fit(x)\nuse(found)\n",
        "from sklearn.mixture import GaussianMixture\nfound = GaussianMixture(3).fit(x)\nuse(found)\n",
    ),
    "rows that are only scored": (
        "from sklearn.utils import shuffle\nrows = shuffle(rows)\nlabels = rows['label']\n"
        "found = model.predict(rows.drop('label', axis=1))\nprint(f1_score(labels, found))\n",
        "from sklearn.utils import shuffle\nrows = shuffle(rows)\nlabels = rows['label']\n"
        "found = model.fit(rows.drop('label', axis=1), labels)\n",
    ),
    "the first file that fits": (
        LISTED + "rows = []\nfor name in names:\n    if fits(name):\n        for row in open(name):\n"
        "            rows.append(row)\n        break\nfit(rows[:80])\n",
        LISTED + "rows = []\nfor name in names:\n    if fits(name):\n        for row in open(name):\n"
        "            rows.append(row)\n            break\nfit(rows[:80])\n",
    ),
    "a queue": (
        LISTED + "while names:\n    send(names[:80])\n    names = names[80:]\n",
        LISTED + "send(names[:80])\n",
    ),
    "only gone through": (
        LISTED + "random.shuffle(names)\nfor name in names:\n    convert(name)\n",
        LISTED + "random.shuffle(names)\ntrain(names)\n",
    ),
    "a position that finds its own element": (
        LISTED + "opened, where = [], {}\nfor i, name in enumerate(names):\n    opened.append(open(name))\n"
        "    where[opened[i].name] = i\n",
        LISTED + "classes = {}\nfor i, name in enumerate(names):\n    classes[name] = i\n",
    ),
    "sorted in the next line": (
        "import os\nimport numpy as np\nrows = np.vstack([np.loadtxt(n) for n in os.listdir('d')])\n"
        "rows = rows[rows[:, 0].argsort()]\n",
        "import os\nimport numpy as np\nrows = np.vstack([np.loadtxt(n) for n in os.listdir('d')])\nfit(rows[:80])\n",
    ),
    "a draw that no seed reaches": (
        "import os\nimport random\nshown = random.sample(os.listdir('d'), 3)\n",
        "import os\nimport random\nrandom.seed(1)\nshown = random.sample(os.listdir('d'), 3)\n",
    ),
    "an order that came back to another call": (
        "import os\ndef pass_on(rows):\n    return rows\nfor name in pass_on(os.listdir('d')):\n    convert(name)\n"
        "labels = {name: i for i, name in enumerate(pass_on(['a', 'b']))}\n",
        "import os\ndef pass_on(rows):\n    return rows\n"
        "labels = {name: i for i, name in enumerate(pass_on(os.listdir('d')))}\n",
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
        "from sklearn.cluster import KMeans\ngroups = KMeans(4).fit(x)\nuse(groups)\n",
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
        "import random\nimport torch\nrandom.seed(0)\nfor size in range(3):\n    print(torch.randn(size))\n",
    ),
    "a helper of tests": (
        "import numpy as np\ndef make_rows():\n    return np.random.default_rng().random(3)\n"
        "def test_rows():\n    assert len(make_rows()) == 3\n",
        "import numpy as np\ndef make_rows():\n    return np.random.default_rng().random(3)\n",
    ),
    "a self-check at the end of a module": (
        "import time\nimport random\nclass Data:\n    def __init__(self, seed):\n"
        "        random.seed(seed)\nif __name__ == '__main__':\n    data = Data(int(time.time()))\n"
        "    print(len(data.rows))\n",
        "import time\nimport random\nclass Data:\n    def __init__(self, seed):\n"
        "        random.seed(seed)\nif __name__ == '__main__':\n    data = Data(int(time.time()))\n"
        "    train(data.rows)\n",
    ),
    "a generator that nothing draws from": (
        "import numpy as np\nrng = np.random.default_rng()\ndef load():\n    return 1\n",
        "import numpy as np\nrng = np.random.default_rng()\nx = rng.random()\n",
    ),
    "a sample of a set that no seed reaches": (
        "import random\nnames = set(open('a').read().split())\nif __name__ == '__main__':\n"
        "    use(random.sample(list(names), 3))\n",
        "import random\nrandom.seed(1)\nnames = set(open('a').read().split())\n"
        "if __name__ == '__main__':\n    use(random.sample(list(names), 3))\n",
    ),
    "a bucket, which lists by name": (
        "import random\nimport gcsfs\nrandom.seed(1)\nfs = gcsfs.GCSFileSystem()\n"
        "rows = random.sample(fs.glob('b/**'), 3)\n",
        "import random\nfrom pathlib import Path\nrandom.seed(1)\n"
        "rows = random.sample(list(Path('b').glob('*')), 3)\n",
    ),
    "a draw beside a seed of the clock": (
        "import os\nimport random\nimport numpy as np\ndef start(args):\n"
        "    np.random.seed(args.number + os.getpid())  # noqa: SR112\nif __name__ == '__main__':\n"
        "    use(random.random())\n",
        "import os\nimport random\nimport numpy as np\ndef start(args):\n"
        "    np.random.seed(args.number)\nif __name__ == '__main__':\n    use(random.random())\n",
    ),
    "an input to try something out": (
        "import numpy as np\nimport torch\nnp.random.seed(0)\nfor _ in [1]:\n"
        "    x = torch.randn(12, 2, 4)\n",
        "import numpy as np\nimport torch\nnp.random.seed(0)\nfor size in [1]:\n"
        "    x = torch.randn(size, 2, 4)\n",
    ),
    "a draw of what is displayed": (
        "import random\nimport torch\ntorch.manual_seed(0)\nfor i in range(9):\n"
        "    if i % args.disp_freq == 0:\n        show(random.randint(0, 9))\n",
        "import random\nimport torch\ntorch.manual_seed(0)\nfor i in range(9):\n"
        "    if i % args.step_freq == 0:\n        use(random.randint(0, 9))\n",
    ),
    "the same for each name": (
        "import os\nimport torch\nrows = [None for name in os.listdir('d')]\nfor i in range(9):\n"
        "    rows[i] = load(i)\nx = torch.stack(rows)\nfit(x[:80])\n",
        "import os\nimport torch\nrows = [load(name) for name in os.listdir('d')]\n"
        "x = torch.stack(rows)\nfit(x[:80])\n",
    ),
    "features of each file": (
        "import os\nimport torch\ndef read(model):\n    rows = []\n    for name in os.listdir('d'):\n"
        "        with torch.no_grad():\n            rows.append(model(load(name)))\n"
        "    return torch.cat(rows)\ndef learn(loss):\n    loss.backward()\n",
        "import os\nimport torch\ndef read(model):\n    rows = []\n    for name in os.listdir('d'):\n"
        "        rows.append(model(load(name)))\n    return torch.cat(rows)[:80]\ndef learn(loss):\n"
        "    loss.backward()\n",
    ),
    "all behind a header": (
        "import os\ndef list_rows():\n    rows = ['name']\n    for name in os.listdir('d'):\n"
        "        rows.append(name)\n    return rows\nrows = list_rows()\nfor name in rows[1:]:\n"
        "    convert(name)\n",
        "import os\ndef list_rows():\n    rows = ['name']\n    for name in os.listdir('d'):\n"
        "        rows.append(name)\n    return rows\nrows = list_rows()\nfor name in rows[2:]:\n"
        "    convert(name)\n",
    ),
    "a list of what failed": (
        "names = set(open('a').read().split())\nwith open('failed.txt', 'w') as out:\n"
        "    for name in names:\n        out.write(name)\n",
        "names = set(open('a').read().split())\nwith open('vocabulary.txt', 'w') as out:\n"
        "    for name in names:\n        out.write(name)\n",
    ),
    "results that are put under their names": (
        "from concurrent.futures import as_completed\ndef gather(futures):\n    rows = []\n"
        "    for future in as_completed(futures):\n        rows.append(future.result())\n"
        "    return rows\nscores = {}\nfor name, score in gather([]):\n    scores[name] = score\n",
        "from concurrent.futures import as_completed\ndef gather(futures):\n    rows = []\n"
        "    for future in as_completed(futures):\n        rows.append(future.result())\n"
        "    return rows\nscores = gather([])[:80]\n",
    ),
    "a tensor that is drawn before the seed": (
        "import torch\nz = torch.normal(mean=m, std=s)\ntorch.manual_seed(0)\nprint(z)\n",
        "import torch\nz = torch.nn.Linear(2, 2)\ntorch.manual_seed(0)\nprint(z)\n",
    ),
    "a buffer that is filled later": (
        "import torch\nfrom torch import nn\nclass Centers(nn.Module):\n    def __init__(self):\n"
        "        count = torch.empty(size=(1,)).float()\n"
        "        self.register_buffer('count', count)\n        nn.init.zeros_(self.count)\n",
        "import torch\nfrom torch import nn\nclass Centers(nn.Module):\n    def __init__(self):\n"
        "        count = torch.empty(size=(1,)).float() / 3\n"
        "        self.register_buffer('count', count)\n",
    ),
    "a schedule that is set to its epoch": (
        "import torch\ndef resume(model, optimizer):\n"
        "    s = torch.optim.lr_scheduler.StepLR(optimizer, 3, last_epoch=2)\n"
        "    torch.save({'o': optimizer.state_dict()}, 'a')\n"
        "    optimizer.load_state_dict(torch.load('a')['o'])\n",
        "import torch\ndef resume(model, optimizer):\n"
        "    s = torch.optim.lr_scheduler.StepLR(optimizer, 3)\n"
        "    torch.save({'o': optimizer.state_dict()}, 'a')\n"
        "    optimizer.load_state_dict(torch.load('a')['o'])\n",
    ),
    "the first of what failed": (
        "from concurrent.futures import as_completed\nproblems = []\n"
        "for future in as_completed(futures):\n    problems.append(future.result())\n"
        "for one in problems[:20]:\n    print(one)\n",
        "from concurrent.futures import as_completed\nproblems = []\n"
        "for future in as_completed(futures):\n    problems.append(future.result())\n"
        "for one in problems[:20]:\n    train(one)\n",
    ),
    "a parameter that is sorted on request": (
        "import os\ndef split(rows, is_sorted=True):\n    if is_sorted:\n        rows = sorted(rows)\n"
        "    return rows[:90]\nsplit(os.listdir('d'))\n",
        "import os\ndef split(rows, is_sorted=True):\n    return rows[:90]\nsplit(os.listdir('d'))\n",
    ),
    "arithmetic on what is then written": (
        "import torch\nlosses = -10 * torch.empty(9)\nfor i in range(9):\n    losses[i] = i\n"
        "use(losses)\n",
        "import torch\nlosses = -10 * torch.empty(9)\nuse(losses)\n",
    ),
    "all behind the first": (
        "import os\nnames = os.listdir('d')\nrows = read(names[0])\nfor name in names[1:]:\n"
        "    rows += read(name)\n",
        "import os\nnames = os.listdir('d')\nrows = read(names[0])\nfor name in names[100:]:\n"
        "    rows += read(name)\n",
    ),
    "some to look at": (
        "import os\nfor name in os.listdir('d')[:5]:\n    check(name)\n",
        "import os\nfor name in os.listdir('d')[:50]:\n    check(name)\n",
    ),
    "an array cut to what was filled": (
        "import glob\nimport numpy as np\nrows = np.zeros(99)\ncount = 0\n"
        "for name in glob.glob('*'):\n    rows[count] = read(name)\n    count += 1\n"
        "rows = rows[:count]\n",
        "import glob\nimport numpy as np\nrows = np.zeros(99)\ncount = 0\n"
        "for name in glob.glob('*'):\n    rows[count] = read(name)\n    count += 1\n"
        "rows = rows[:limit]\n",
    ),
    "each element for itself": (
        "import os\nrows = [read(name) for name in os.listdir('d')]\nfor i in range(len(rows)):\n"
        "    rows[i] = resize(rows[i])\n",
        "import os\nrows = os.listdir('d')\nlabels = {}\nfor i in range(len(rows)):\n"
        "    labels[rows[i]] = i\n",
    ),
    "a mean over all": (
        "import os\nimport torch\n"
        "mean = torch.stack([load(name) for name in os.listdir('d')]).mean(0)\n",
        "import os\nimport torch\n"
        "mean = torch.stack([load(name) for name in os.listdir('d')])\nfit(mean[:80])\n",
    ),
    "a shuffle that no seed reaches": (
        "import os\nimport random\nnames = os.listdir('d')\nrandom.shuffle(names)\n"
        "for name in names:\n    read(name)\ntrain = names[:80]\n",
        "import os\nimport random\nrandom.seed(3)\nnames = os.listdir('d')\nrandom.shuffle(names)\n"
        "for name in names:\n    read(name)\ntrain = names[:80]\n",
    ),
    "a generator with a function that seeds": (
        "import numpy as np\nGENERATOR = np.random.RandomState()\ndef start(number):\n"
        "    GENERATOR.seed(number)\ndef draw():\n    return GENERATOR.rand()\n",
        "import numpy as np\nGENERATOR = np.random.RandomState()\ndef draw():\n"
        "    return GENERATOR.rand()\n",
    ),
    "a number in a name": (
        "import random\nimport torch\ntorch.manual_seed(0)\nif __name__ == '__main__':\n"
        "    number = random.randint(0, 9)\n    start(f'run-{number}')\n",
        "import random\nimport torch\ntorch.manual_seed(0)\nif __name__ == '__main__':\n"
        "    number = random.randint(0, 9)\n    start(number)\n",
    ),
    "a new seed for a display": (
        "import numpy as np\nif args.visualize:\n    np.random.seed()\n",
        "import numpy as np\nif args.train:\n    np.random.seed()\n",
    ),
    "a position that is printed": (
        "import os\nrows = os.listdir('d')\nfor name in rows:\n    print(rows.index(name))\n",
        "import os\nclasses = os.listdir('d')\nfor name in classes:\n    use(classes.index(name))\n",
    ),
    "a draw beside a seed for one sample": (
        "import random\nimport numpy as np\ndef change(x, seed):\n    random.seed(seed)\n"
        "    return x * np.random.uniform()\nif __name__ == '__main__':\n"
        "    use(change(1, random.randint(0, 9)))  # noqa: SR115\n",
        "import random\nimport numpy as np\ndef change(x, seed):\n    random.seed(seed)\n"
        "    return x * np.random.uniform()\nif __name__ == '__main__':\n    use(change(1, 4))\n",
    ),
    "a shuffle of scikit-learn that no seed reaches": (
        "import glob\nfrom sklearn.utils import shuffle\ndef rows():\n"
        "    return shuffle(glob.glob('*'))\n",
        "import glob\nfrom sklearn.utils import shuffle\ndef rows():\n"
        "    return shuffle(glob.glob('*'), random_state=3)\n",
    ),
    "a generator that is given a saved state": (
        "import numpy as np\ndef restore(state):\n    rng = np.random.RandomState()\n"
        "    rng.set_state(state)\n    return rng\n",
        "import numpy as np\ndef restore(state):\n    rng = np.random.RandomState()\n    return rng\n",
    ),
    "a table of what lies in a folder": (
        "import os\nimport torch\nx = torch.stack([load(name) for name in os.listdir('d')])\n"
        "show(x.shape)\n",
        "import os\nimport torch\nx = torch.stack([load(name) for name in os.listdir('d')])\n"
        "train(x[:80])\n",
    ),
    "a random index that no seed reaches": (
        "import os\nimport random\nnames = os.listdir('d')\nshow(names[random.randint(0, 6)])\n",
        LISTED + "show(names[random.randint(0, 6)])\n",
    ),
    "results whose order nobody is seen to use": (
        "from concurrent.futures import as_completed\ndef gather(futures):\n    rows = []\n"
        "    for future in as_completed(futures):\n        rows.append(future.result())\n    return rows\n",
        "from concurrent.futures import as_completed\ndef gather(futures):\n    rows = []\n"
        "    for future in as_completed(futures):\n        rows.append(future.result())\n    return rows[:80]\n",
    ),
    "a sample to check files": (
        "import os\nimport random\ndef check_files():\n    random.seed(0)\n"
        "    return [decode(name) for name in random.sample(os.listdir('d'), 20)]\n",
        "import os\nimport random\ndef list_files():\n    random.seed(0)\n"
        "    return [decode(name) for name in random.sample(os.listdir('d'), 20)]\n",
    ),
    "a dataset of which each item stands alone": (
        LISTED + "class InferenceData:\n    def __init__(self):\n        self.names = os.listdir('d')\n"
        "    def __getitem__(self, i):\n        return load(self.names[i])\n",
        LISTED + "class Data:\n    def __init__(self):\n        self.names = os.listdir('d')\n"
        "    def __getitem__(self, i):\n        return load(self.names[i])\n",
    ),
    "a set that is written down": (
        "import json\nnames = set(open('a').read().split())\njson.dump(list(names), open('valid.json', 'w'))\n",
        "import json\nnames = set(open('a').read().split())\njson.dump(list(names), open('labels.json', 'w'))\n",
    ),
    "a generator that is given a seed on request": (
        "import torch\ndef start(seed=None):\n    own = torch.Generator()\n    own.seed()\n"
        "    if seed is not None:\n        own.manual_seed(seed)\n    return own\n",
        "import torch\ndef start(seed=None):\n    own = torch.Generator()\n    own.seed()\n    return own\n",
    ),
    "a split that nothing calls": (
        "import sys\nfrom sklearn.model_selection import train_test_split\ndef split(rows):\n"
        "    return train_test_split(rows)\nif __name__ == '__main__':\n    train(sys.argv)\n",
        "import sys\nfrom sklearn.model_selection import train_test_split\ndef split(rows):\n"
        "    return train_test_split(rows)\nif __name__ == '__main__':\n    train(split(sys.argv))\n",
    ),
    "one of two libraries": (
        "try:\n    from tsnecuda import TSNE\nexcept ImportError:\n    from sklearn.manifold import TSNE\n"
        "for rows in data:\n    show(TSNE().fit_transform(rows))\n",
        "from sklearn.manifold import TSNE\nfor rows in data:\n    show(TSNE().fit_transform(rows))\n",
    ),
    "a worker's seed without workers": (
        "import random\nfrom torch.utils.data import DataLoader\ndef start(number):\n    random.seed(3)\n"
        "loader = DataLoader(read(random.random()), worker_init_fn=start)\n",
        "import random\nfrom torch.utils.data import DataLoader\ndef start(number):\n    random.seed(3)\n"
        "loader = DataLoader(read(random.random()), num_workers=2, worker_init_fn=start)\n",
    ),
    "a game in real time": (
        "import random\nimport time\nwhile True:\n    if time.time() > last + 3:\n        move(random.random())\n",
        "import random\nimport time\nwhile True:\n    if time.time() > last + 3:\n        move(random.random())\n"
        "    loss.backward()\n",
    ),
    "numbers that only find files again": (
        LISTED + "file2id = {name: i for i, name in enumerate(names)}\n",
        LISTED + "class2id = {name: i for i, name in enumerate(names)}\n",
    ),
    "what is loaded to look at": (
        "import torch\nblock = torch.nn.Dropout(0.1)\ntorch.save({'o': optimizer.state_dict()}, 'a')\n"
        "optimizer.load_state_dict(torch.load('a')['o'])\n",
        "import torch\nblock = torch.nn.Dropout(0.1)\ntorch.save({'o': optimizer.state_dict(), 'epoch': 3}, 'a')\n"
        "saved = torch.load('a')\noptimizer.load_state_dict(saved['o'])\n"
        "for epoch in range(saved['epoch'], 9):\n    block(1)\n",
    ),
    "a drawn seed in a seeded transform": (
        "import random\ndef change(x, seed=None):\n    return rotate(x, seed or random.randint(0, 9))\n",
        "import os\ndef change(x, seed=None):\n    return rotate(x, seed or os.getpid())\n",
    ),
    "a setting that was made before": (
        "import os\nimport torch\nos.environ['CUBLAS_WORKSPACE_CONFIG'] = ':4096:8'\nmodel = make().cuda()\n"
        "os.environ['CUBLAS_WORKSPACE_CONFIG'] = ':4096:8'\n",
        "import os\nimport torch\nmodel = make().cuda()\nos.environ['CUBLAS_WORKSPACE_CONFIG'] = ':4096:8'\n",
    ),
    "a layer without weights": (
        LISTED + "import torch\nfor name in names:\n    use(torch.nn.Sigmoid()(load(name)))\n",
        LISTED + "import torch\nfor name in names:\n    use(torch.nn.Linear(2, 2)(load(name)))\n",
    ),
    "a function that is tried out without a seed": (
        "import numpy as np\ndef tasks(seed=None):\n    return np.random.default_rng(seed).normal(size=3)\n"
        "if __name__ == '__main__':\n    plot(tasks())\n",
        "import numpy as np\ndef tasks(seed=None):\n    return np.random.default_rng(seed).normal(size=3)\n"
        "if __name__ == '__main__':\n    fit(tasks())\n",
    ),
    "an order of samples in a file that seeds nothing": (
        "import os\nclass Data:\n    def __init__(self):\n        self.names = os.listdir('d')\n"
        "    def __getitem__(self, i):\n        return load(self.names[i])\n",
        "import os\nimport torch\ntorch.manual_seed(0)\nclass Data:\n    def __init__(self):\n"
        "        self.names = os.listdir('d')\n    def __getitem__(self, i):\n        return load(self.names[i])\n",
    ),
    "a generator that is chosen to have no seed": (
        "import numpy as np\ndef start(mode, number):\n    if mode == 'fixed':\n"
        "        rng = np.random.default_rng(number)\n    else:\n"
        "        rng = np.random.default_rng()\n    return rng\n",
        "import numpy as np\ndef start(mode, number):\n    if mode == 'fixed':\n"
        "        rng = None\n    else:\n        rng = np.random.default_rng()\n    return rng\n",
    ),
    "a function of one's own that is called split_data": (
        "import os\nimport random\ndef split_data(names):\n    random.shuffle(names)\n    return names\n"
        "write(split_data(os.listdir('d')))\n",
        LISTED + "from other import split_data\nwrite(split_data(os.listdir('d')))\n",
    ),
    "a measurement of speed": (
        "import os\ndef speedtest(model):\n    return [time(model, name) for name in os.listdir('d')[:80]]\n",
        "import os\ndef train(model):\n    return [fit(model, name) for name in os.listdir('d')[:80]]\n",
    ),
    "a split that is tried out in a module of data": (
        "import torch\nif __name__ == '__main__':\n    rows = read()\n"
        "    for row in torch.utils.data.random_split(rows, [8, 2])[0]:\n        print(row)\n",
        "import torch\nif __name__ == '__main__':\n    rows = read()\n"
        "    for row in torch.utils.data.random_split(rows, [8, 2])[0]:\n        train(row)\n",
    ),
    "a checkpoint of the best model": (
        "import torch\ndef resume(model, optimizer):\n    s = torch.optim.lr_scheduler.StepLR(optimizer, 3)\n"
        "    if loss < best_loss:\n        torch.save({'o': optimizer.state_dict()}, 'a')\n"
        "    optimizer.load_state_dict(torch.load('a')['o'])\n",
        "import torch\ndef resume(model, optimizer):\n    s = torch.optim.lr_scheduler.StepLR(optimizer, 3)\n"
        "    if epoch % 5 == 0:\n        torch.save({'o': optimizer.state_dict()}, 'a')\n"
        "    optimizer.load_state_dict(torch.load('a')['o'])\n",
    ),
    "a helper beside tests in a class": (
        "import numpy as np\ndef rows():\n    return np.random.default_rng().normal(size=3)\n"
        "class TestRows:\n    def test_rows(self):\n        assert len(rows()) == 3\n",
        "import numpy as np\ndef rows():\n    return np.random.default_rng().normal(size=3)\n"
        "def test_epoch(model):\n    model(rows())\n",
    ),
    "a list of another branch": (
        "import os\nimport torch\ntorch.manual_seed(0)\nclass Data:\n    def __init__(self, split, count):\n"
        "        self.split, self.names = split, []\n        if self.split == 'test':\n"
        "            self.names = os.listdir('d')\n        if self.split == 'train':\n"
        "            self.names = self.names[:count]\n",
        "import os\nimport torch\ntorch.manual_seed(0)\nclass Data:\n    def __init__(self, split, count):\n"
        "        self.split, self.names = split, []\n        if self.split == 'train':\n"
        "            self.names = os.listdir('d')\n        if self.split == 'train':\n"
        "            self.names = self.names[:count]\n",
    ),
    "samples that are only scored": (
        "import os\nimport torch\ntorch.manual_seed(0)\nclass Data:\n    def __init__(self, split):\n"
        "        if split == 'val':\n            self.names = os.listdir('d')\n"
        "    def __getitem__(self, i):\n        return load(self.names[i])\n",
        "import os\nimport torch\ntorch.manual_seed(0)\nclass Data:\n    def __init__(self, split):\n"
        "        if split == 'train':\n            self.names = os.listdir('d')\n"
        "    def __getitem__(self, i):\n        return load(self.names[i])\n",
    ),
    "images of a test": (
        "import os\nimport torch\ntorch.manual_seed(0)\nclass CellsTest:\n    def __init__(self):\n"
        "        self.names = os.listdir('d')\n    def __getitem__(self, i):\n        return load(self.names[i])\n",
        "import os\nimport torch\ntorch.manual_seed(0)\nclass CellsTraining:\n    def __init__(self):\n"
        "        self.names = os.listdir('d')\n    def __getitem__(self, i):\n        return load(self.names[i])\n",
    ),
    "a parameter that is shuffled without a seed": (
        "import os\nimport numpy as np\ndef split(rows):\n    order = np.arange(len(rows))\n"
        "    np.random.shuffle(order)\n    rows = rows[order]\n    return rows[:80]\nuse(split(os.listdir('d')))\n",
        "import os\nimport numpy as np\ndef split(rows):\n    order = np.arange(len(rows))\n"
        "    np.random.shuffle(order)\n    return rows[:80]\nuse(split(os.listdir('d')))\n",
    ),
    "a function that only one left over calls": (
        "from sklearn.ensemble import ExtraTreesClassifier\ndef choose(x):\n    return ExtraTreesClassifier().fit(x)\n"
        "def old(x):\n    return choose(x)\nif __name__ == '__main__':\n    run()\n",
        "from sklearn.ensemble import ExtraTreesClassifier\ndef choose(x):\n    return ExtraTreesClassifier().fit(x)\n"
        "def main(x):\n    return choose(x)\nif __name__ == '__main__':\n    main(rows)\n",
    ),
    "what is saved when the training has ended": (
        "import torch\nblock = torch.nn.Dropout(0.1)\noptimizer.load_state_dict(torch.load('resume')['o'])\n"
        "for epoch in range(9):\n    block(1).backward()\n"
        "    torch.save({'o': optimizer.state_dict()}, 'a')  # noqa: SR151\n"
        "torch.save({'o': optimizer.state_dict()}, 'last')\n",
        "import torch\nblock = torch.nn.Dropout(0.1)\noptimizer.load_state_dict(torch.load('resume')['o'])\n"
        "for epoch in range(9):\n    block(1).backward()\n"
        "    torch.save({'o': optimizer.state_dict()}, 'a')\n"
        "torch.save({'o': optimizer.state_dict()}, 'last')\n",
    ),
    "what is saved when an epoch has ended": (
        "import torch\nblock = torch.nn.Dropout(0.1)\noptimizer.load_state_dict(torch.load('resume')['o'])\n"
        "def train(rows):\n    for row in rows:\n        block(row).backward()\n"
        "    torch.save({'o': optimizer.state_dict()}, 'last')\n"
        "    torch.save({'o': optimizer.state_dict()}, 'a')  # noqa: SR151\n"
        "for row in rows:\n    torch.save({'o': optimizer.state_dict()}, 'a')  # noqa: SR151\ntrain(rows)\n",
        "import torch\nblock = torch.nn.Dropout(0.1)\noptimizer.load_state_dict(torch.load('resume')['o'])\n"
        "def train(rows):\n    for row in rows:\n        block(row).backward()\n"
        "    torch.save({'o': optimizer.state_dict()}, 'last')\n"
        "    torch.save({'o': optimizer.state_dict()}, 'a')  # noqa: SR151\n"
        "for epoch in range(9):\n    train(rows)\n",
    ),
    "the best model beside the last": (
        "import torch\nblock = torch.nn.Dropout(0.1)\noptimizer.load_state_dict(torch.load('resume')['o'])\n"
        "for epoch in range(9):\n    torch.save({'o': optimizer.state_dict()}, 'a')  # noqa: SR151\n"
        "    if loss < best_loss:\n        torch.save({'o': optimizer.state_dict()}, 'best')\n",
        "import torch\nblock = torch.nn.Dropout(0.1)\noptimizer.load_state_dict(torch.load('resume')['o'])\n"
        "for epoch in range(9):\n    if loss < best_loss:\n        torch.save({'o': optimizer.state_dict()}, 'best')\n",
    ),
    "a budget of time": (
        "import random\nimport time\nwhile rows:\n    if time.time() < end:\n        row = random.choice(rows)\n"
        "        model(row).backward()\n",
        "import random\nimport time\nwhile rows:\n    if time.time() < end:\n        row = random.choice(rows)\n"
        "    model(row).backward()\n",
    ),
    "a function that seeds and that nothing calls": (
        "import os\nimport torch\ndef fix_everything(seed):\n    os.environ['PYTHONHASHSEED'] = str(seed)\n"
        "    torch.manual_seed(seed)\nclass Data:\n    def __init__(self):\n        self.names = os.listdir('d')\n"
        "    def __getitem__(self, i):\n        return load(self.names[i])\nfor row in Data():\n    fit(row)\n",
        "import os\nimport torch\ndef fix_everything(seed):\n    os.environ['OMP_NUM_THREADS'] = '1'\n"
        "    torch.manual_seed(seed)\nclass Data:\n    def __init__(self):\n        self.names = os.listdir('d')\n"
        "    def __getitem__(self, i):\n        return load(self.names[i])\nfix_everything(1)\n"
        "for row in Data():\n    fit(row)\n",
    ),
    "one that is left out by a draw that no seed reaches": (
        "import os\nimport random\nnames = os.listdir('d')\nat = random.randint(0, 9)\nuse(names[at + 1 :])\n",
        LISTED + "at = random.randint(0, 9)\nuse(names[at + 1 :])\n",
    ),
    "files that are called those of a test": (
        "import os\nimport torch\ntorch.manual_seed(0)\ntest_names = os.listdir('d')\nclass Data:\n"
        "    def __init__(self, names):\n        self.names = names\n"
        "    def __getitem__(self, i):\n        return load(self.names[i])\nscore(Data(test_names))\n",
        "import os\nimport torch\ntorch.manual_seed(0)\nnames = os.listdir('d')\nclass Data:\n"
        "    def __init__(self, names):\n        self.names = names\n"
        "    def __getitem__(self, i):\n        return load(self.names[i])\nfit(Data(names))\n",
    ),
    "an estimator that nothing fits": (
        "from sklearn.manifold import TSNE\ntsne = TSNE(n_components=3)\nuse(rows)\n",
        "from sklearn.manifold import TSNE\ntsne = TSNE(n_components=3)\nuse(tsne.fit_transform(rows))\n",
    ),
    "a batch by its number, where nothing seeds": (
        "import os\nnames = os.listdir('d')\ndef batch(i, size=8):\n"
        "    return load(names[i * size : i * size + size])\n",
        LISTED + "def batch(i, size=8):\n    return load(names[i * size : i * size + size])\n",
    ),
    "a message of an error": (
        LISTED + "if not names:\n    raise OSError(f'none of {names[:20]}')\n",
        LISTED + "if not names:\n    use(names[:20])\n",
    ),
    "the first ones, to look at": (
        LISTED + "for name in names[0:3]:\n    plot(name)\n",
        LISTED + "for name in names[0:300]:\n    plot(name)\n",
    ),
    "a state among what is searched": (
        "from sklearn.ensemble import BaggingClassifier\nfrom sklearn.model_selection import GridSearchCV\n"
        "bag = BaggingClassifier(tree)\nfound = GridSearchCV(bag, {'bag__random_state': [1], 'size': [2, 4]}).fit(x)\n",
        "from sklearn.ensemble import BaggingClassifier\nfrom sklearn.model_selection import GridSearchCV\n"
        "bag = BaggingClassifier(tree)\nfound = GridSearchCV(bag, {'size': [2, 4]}).fit(x)\n",
    ),
    "a search that no seed was set for": (
        "import random\nwhile score < best:\n    random.seed()\n    score = attempt(random.random())\n",
        "import random\nimport torch\ntorch.manual_seed(0)\nwhile score < best:\n    random.seed()\n"
        "    score = attempt(random.random())\n",
    ),
    "a table of names, in any order": (
        "import pandas as pd\nmarked = set()\nfor line in open('a'):\n    marked.add(line.strip())\n"
        "table = pd.DataFrame([one.lower() for one in marked])\ntable.to_csv('marked.csv', index=False)\n",
        "import pandas as pd\nmarked = set()\nfor line in open('a'):\n    marked.add(line.strip())\n"
        "table = pd.DataFrame([one.lower() for one in marked])\ntable.to_csv('vocabulary.csv', index=False)\n",
    ),
    "a limit that is none unless it is given": (
        LISTED + "def load(limit=None):\n    return read(names[:limit])\nload(option)\n",
        LISTED + "def load(limit=None):\n    return read(names[:limit])\nload(200)\n",
    ),
    "a limit that is asked for": (
        LISTED + "if limit is not None:\n    names = names[:limit]\nread(names)\n",
        LISTED + "if large:\n    names = names[:limit]\nread(names)\n",
    ),
    "files that are added to those of a validation": (
        "import os\nimport torch\ntorch.manual_seed(0)\nvalid_names = []\nfor folder in 'ab':\n"
        "    valid_names += os.listdir(folder)\nclass Data:\n    def __init__(self, names):\n"
        "        self.names = names\n"
        "    def __getitem__(self, i):\n        return load(self.names[i])\nscore(Data(valid_names))\n",
        "import os\nimport torch\ntorch.manual_seed(0)\nnames = []\nfor folder in 'ab':\n"
        "    names += os.listdir(folder)\nclass Data:\n    def __init__(self, names):\n        self.names = names\n"
        "    def __getitem__(self, i):\n        return load(self.names[i])\nfit(Data(names))\n",
    ),
    "one seed for two transforms": (
        "import random\nclass Data:\n    def __getitem__(self, i):\n        seed = random.randint(0, 99)\n"
        "        random.seed(seed)\n        return turn(self.rows[i])\nif __name__ == '__main__':\n    train(Data())\n",
        "import random\nclass Data:\n    def __getitem__(self, i):\n        return turn(self.rows[i])\n"
        "if __name__ == '__main__':\n    seed = random.randint(0, 99)\n    random.seed(seed)\n    train(Data())\n",
    ),
    "a generator that its owner replaces": (
        "import numpy as np\nclass Data:\n    def __init__(self):\n        self.rng = np.random.RandomState()\n"
        "def start(worker, data):\n    data.rng = np.random.RandomState(worker)\n",
        "import numpy as np\nclass Data:\n    def __init__(self):\n        self.rng = np.random.RandomState()\n"
        "def start(worker, data):\n    data.other = np.random.RandomState(worker)\n",
    ),
    "numbers for a picture": (
        "import numpy as np\nrng = np.random.default_rng()\nplt.scatter(rows, rng.normal(size=9))\n",
        "import numpy as np\nrng = np.random.default_rng()\nmodel.fit(rows, rng.normal(size=9))\n",
    ),
    "the same numbers for each": (
        "import os\nimport torch\nfor name in os.listdir('d'):\n    torch.manual_seed(7)\n"
        "    save(name, torch.randn(3))\n",
        "import os\nimport torch\ntorch.manual_seed(7)\nfor name in os.listdir('d'):\n    save(name, torch.randn(3))\n",
    ),
    "a seed of another class": (
        "import os\nimport random\nclass Split:\n    def __init__(self):\n        random.seed(7)\n"
        "class Noise:\n    def __init__(self):\n        for name in os.listdir('d'):\n"
        "            save(name, random.random())\n",
        "import os\nimport random\nclass Noise:\n    def __init__(self):\n        random.seed(7)\n"
        "        for name in os.listdir('d'):\n            save(name, random.random())\n",
    ),
    "a split to try a class out": (
        "from sklearn.model_selection import train_test_split\nclass Loader:\n    pass\n"
        "if __name__ == '__main__':\n    a, b = train_test_split(rows)\n    print(len(Loader(a)), len(Loader(b)))\n",
        "from sklearn.model_selection import train_test_split\nclass Loader:\n    pass\n"
        "if __name__ == '__main__':\n    a, b = train_test_split(rows)\n    train(Loader(a), Loader(b))\n",
    ),
    "a state that nothing is drawn from": (
        "import numpy as np\nsave(np.random.RandomState().get_state())\n",
        "import numpy as np\nsave(np.random.RandomState().normal(size=3))\n",
    ),
    "a generator in a variable that nothing reads": (
        "import numpy as np\nclass Master:\n    def __init__(self):\n        self.rng = np.random.RandomState()\n"
        "    def run(self):\n        rng, rows = self.rng, self.rows\n        return sum(rows)\n",
        "import numpy as np\nclass Master:\n    def __init__(self):\n        self.rng = np.random.RandomState()\n"
        "    def run(self):\n        rng, rows = self.rng, self.rows\n        return rng.choice(rows)\n",
    ),
    "a function that finds a state for who gives none": (
        "import numpy as np\ndef random_state():\n    return np.random.RandomState().randint(99)\n",
        "import numpy as np\ndef random_rows():\n    return np.random.RandomState().randint(99)\n",
    ),
    "a split that is thrown away": (
        "from sklearn.model_selection import train_test_split\ntrain_test_split(rows)\n",
        "from sklearn.model_selection import train_test_split\nfit(train_test_split(rows))\n",
    ),
    "boosting, which draws nothing by itself": (
        "from sklearn.ensemble import AdaBoostClassifier\nAdaBoostClassifier().fit(x, y)\n",
        "from sklearn.ensemble import BaggingClassifier\nBaggingClassifier().fit(x, y)\n",
    ),
    "a position that is taken out": (
        "import os\nnames = os.listdir('d')\nnames.pop(names.index('README'))\ndel names[names.index('TODO')]\n"
        "label = names.index('label.png')\nlabel_path = names.pop(label)\n",
        "import os\nnames = os.listdir('d')\nlabel = names.index('cat')\nfit(label)\n",
    ),
    "a branch that nobody asks for": (
        "from sklearn.manifold import TSNE\ndef reduce(rows, kind='MDS'):\n    if kind == 'TSNE':\n"
        "        return TSNE().fit(rows)\nif __name__ == '__main__':\n    save(reduce(rows), reduce(rows, 'UMAP'))\n",
        "from sklearn.manifold import TSNE\ndef reduce(rows, kind='MDS'):\n    if kind == 'TSNE':\n"
        "        return TSNE().fit(rows)\nif __name__ == '__main__':\n    save(reduce(rows), reduce(rows, kind))\n",
    ),
    "lines in an order that no reader counts": (
        "found = {str(x) for x in rows}\nwith open('passwords.txt', 'w') as f:\n    for one in found:\n"
        "        f.write(one)\n",
        "found = {str(x) for x in rows}\nwith open('words.txt', 'w') as f:\n    for one in found:\n"
        "        f.write(one)\n",
    ),
    "results that are found again by their numbers": (
        "numbers, features = {}, []\nfor i, (smiles, row) in enumerate(pool.imap_unordered(compute, molecules)):\n"
        "    numbers[smiles] = i\n    features.append(row)\n",
        "numbers = {}\nfor i, word in enumerate(pool.imap_unordered(compute, texts)):\n    numbers[word] = i\n",
    ),
    "a position that is no class": (
        "import os\nframes = os.listdir('d')\nstart = frames.index('first.png')\nshow(start)\n",
        "import os\nclasses = os.listdir('d')\nkind = classes.index('cat')\nshow(kind)\n",
    ),
    "files that are only counted": (
        "import os\nfrom sklearn.model_selection import train_test_split\nlabels = []\nfor _ in os.listdir('cats'):\n"
        "    labels.append(1)\ntrain, test = train_test_split(labels, random_state=0)\n",
        "import os\nfrom sklearn.model_selection import train_test_split\nlabels = []\nfor _ in os.listdir('cats'):\n"
        "    labels.append(_)\ntrain, test = train_test_split(labels, random_state=0)\n",
    ),
    "a number by which a name is found again": (
        "import os\nnames = {}\nfor i, name in enumerate(os.listdir('classes')):\n    names[i] = name\n",
        "import os\nnames, labels = {}, []\nfor i, name in enumerate(os.listdir('classes')):\n    names[i] = name\n"
        "    labels.append(i)\n",
    ),
    "a seed for names of files": (
        "import random\nimport time\ndef store(rows):\n    random.seed(time.time())\n"
        "    tmp_name = ''.join(random.SystemRandom().choice('abc') for _ in range(6))\n    save(rows, tmp_name)\n",
        "import random\nimport time\ndef store(rows):\n    random.seed(time.time())\n"
        "    save([random.choice(rows) for _ in range(6)])\n",
    ),
    "pairs of which one side is not read": (
        "import os\nfor a, b in zip(os.listdir('x'), os.listdir('y')):\n"
        "    with open(a) as rows, open(b) as labels:\n        send(rows.read())\n",
        "import os\nfor a, b in zip(os.listdir('x'), os.listdir('y')):\n"
        "    with open(a) as rows, open(b) as labels:\n        send(rows.read(), labels.read())\n",
    ),
    "a clock seed before weights that are loaded and scored": (
        SCORED.format(result="model(row)"),
        SCORED.format(result="model.sample(row)"),
    ),
    "numbers that become colors": (
        "words = open('words').read().split()\nkinds = list(set(words))\nfor word in words:\n"
        "    number = kinds.index(word)\n    draw(word, get_color(number))\nfit(words)\n",
        "words = open('words').read().split()\nkinds = list(set(words))\nfor word in words:\n"
        "    number = kinds.index(word)\n    draw(word, embed(number))\nfit(words)\n",
    ),
    "words that become characters": (
        "import torch\ntorch.manual_seed(0)\nwords = open('words').read().split()\nkinds = set(words)\n"
        "numbers = dict(zip(kinds, range(len(kinds))))\ntext = ''.join(chr(numbers[word]) for word in words)\n",
        "import torch\ntorch.manual_seed(0)\nwords = open('words').read().split()\nkinds = set(words)\n"
        "numbers = dict(zip(kinds, range(len(kinds))))\nx = torch.tensor([numbers[word] for word in words])\n",
    ),
    "resuming that is switched off": (
        SWITCHED.format(switch="False"),
        SWITCHED.format(switch="args.resume"),
    ),
    "a set of samples that are only scored": (
        TAKEN.format(name="val_names"),
        TAKEN.format(name="more_names"),
    ),
    "rows that are shuffled for pictures": (
        "from sklearn.utils import shuffle\n\n\ndef visualize(rows):\n    rows = shuffle(rows)\n    show(rows)\n\n\n"
        "if __name__ == '__main__':\n    visualize(load())\n    train()\n",
        "from sklearn.utils import shuffle\n\n\ndef prepare(rows):\n    rows = shuffle(rows)\n    fit(rows)\n\n\n"
        "if __name__ == '__main__':\n    prepare(load())\n    train()\n",
    ),
    "resuming that fails": (
        LOADED.format(path="'a.pt'", taken="optimizer, start, best"),
        LOADED.format(path="'a.pt'", taken="optimizer, start"),
    ),
    "resuming in a folder that is new": (
        LOADED.format(path="'run' + str(number) + '.pt'", taken="optimizer, start"),
        LOADED.format(path="'run' + str(last) + '.pt'", taken="optimizer, start"),
    ),
    "a schedule that compares with what it is given": (
        SCHEDULED + "scheduler.best = score()\nfor _ in range(start, 9):\n    scheduler.step()\n",
        SCHEDULED + "best = scheduler.best\nfor _ in range(start, 9):\n    scheduler.step()\n",
    ),
    "a picture of which only the time is told": (
        "from sklearn.manifold import TSNE\nplaces = TSNE().fit_transform(rows)\nprint(time())\n",
        "from sklearn.manifold import TSNE\nplaces = TSNE().fit_transform(rows)\nshow(places)\n",
    ),
    "a schedule that catches up": (
        SCHEDULED + "for _ in range(start):\n    scheduler.step()\n",
        SCHEDULED + "for _ in range(start, 9):\n    scheduler.step()\n",
    ),
    "a seed for a part of the program": (
        "from pipeline import train\nfrom sklearn.manifold import TSNE\nshow(TSNE().fit(train(seed=0)))\n",
        "from sklearn.datasets import load\nfrom sklearn.manifold import TSNE\nshow(TSNE().fit(load(seed=0)))\n",
    ),
    "a set that is kept from growing": (
        "class State:\n    def mark(self, name):\n        self.seen: set[str] = set()\n        self.seen.add(name)\n"
        "        self.seen = set(list(self.seen)[-16:])\n",
        "class State:\n    def mark(self, name):\n        self.seen: set[str] = set()\n        self.seen.add(name)\n"
        "        self.words = set(list(self.seen)[-16:])\n",
    ),
    "an estimator that is asked for its parameters": (
        "from sklearn.manifold import TSNE\nnames = list(TSNE().get_params())\nshow(names)\n",
        "from sklearn.manifold import TSNE\nrows = TSNE().fit_transform(rows)\nshow(rows)\n",
    ),
    "a picture of many": (
        LISTED + "def combine_gifs():\n    write(names[:15])\n\n\ncombine_gifs()\n",
        LISTED + "def combine_parts():\n    write(names[:15])\n\n\ncombine_parts()\n",
    ),
    "rows that are shuffled to look at them": (
        "from sklearn.utils import shuffle\nfor name in shuffle(names):\n    print(score(name))\n",
        "from sklearn.utils import shuffle\nrows = []\nfor name in shuffle(names):\n    rows.append(name)\n"
        "fit(rows[:80])\n",
    ),
    "training that always begins anew": (
        TRAINED.format(begin="0"),
        TRAINED.format(begin="saved['epoch']"),
    ),
    "a seed behind which what is drawn is not used": (
        CROPPED.format(result="rows", other=""),
        CROPPED.format(result="rows[last:]", other=""),
    ),
    "a seed that the draws of others lose": (
        CROPPED.format(result="rows", other="    np.random.seed(0)\n    np.random.rand()\n"),
        CROPPED.format(result="rows", other="    np.random.rand()\n"),
    ),
    "a part that an option leaves out": (
        LISTED + "first = int(input())\nnames = names[first:] if first else names\nsend(names)\n",
        LISTED + "first = int(input())\nnames = names[first:] if names else names\nsend(names)\n",
    ),
    "one call, reported once": (
        "import torch\nbefore = torch.seed()  # noqa: SR105\ntorch.manual_seed(7)\ntorch.manual_seed(before)\n",
        "import os\nimport torch\nbefore = os.getpid()\ntorch.manual_seed(7)\ntorch.manual_seed(before)\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HARMLESS_AND_TWIN)
def test_the_harmless_one_is_silent_and_its_twin_is_not(case: str) -> None:
    harmless, twin = HARMLESS_AND_TWIN[case]
    assert [one.code for one in lint_text(harmless, "train.py", CHECKED).findings] == []
    assert len(lint_text(twin, "train.py", CHECKED).findings) == 1


@pytest.mark.parametrize(
    ("used", "code"),
    [("send(names[:80])\n", "SR135"), ("train = names[:80]\n", "SR121"), ("self.val_names = names[:80]\n", "SR121"),
     ("values = names[:80]\n", "SR135"), ("parts = {'test': names[:80]}\n", "SR121"),
     ("fit(train=names[:80])\n", "SR121"),
     ("send(names[:n])\nkeep(names[n:])\n", "SR121"), ("send(names[:n])\nkeep(other[n:])\n", "SR135"),
     ("some = names[:80]\nrandom.shuffle(some)\nfit(some)\n", "SR121")],
)  # fmt: skip
def test_a_slice_is_a_part_of_the_data_by_its_name_or_beside_the_other_part(used: str, code: str) -> None:
    """What else a slice takes is reported by a rule of its own; a seeded shuffle of it counts in any case."""
    assert code in [one.code for one in lint_text(LISTED + used, "train.py", CHECKED).findings]
    assert len({one.code for one in lint_text(LISTED + used, "train.py", CHECKED).findings}) == 1


@pytest.mark.parametrize(("file", "count"), [("data_tester.py", 0), ("check_data.py", 0), ("data.py", 1)])
def test_a_file_that_tries_something_out_draws_as_it_likes(file: str, count: int) -> None:
    assert len(lint_text("import os\nshow(os.listdir('d')[:80])\n", file, CHECKED).findings) == count


def test_samples_whose_loader_nothing_seeds_are_left_out_where_only_others_are_split() -> None:
    listed = "import os\nimport torch\nclass {}:\n    def __init__(self):\n        self.names = {}os.listdir('d'))\n"
    item = "    def __getitem__(self, i):\n        return open(self.names[i]).read()\n"
    split = "torch.utils.data.random_split(Split(), [8, 2], generator=torch.Generator().manual_seed(0))\n"
    other, sorted_names = listed.format("Other", "list(") + item, listed.format("Split", "sorted(") + item
    alone = FileInProject(is_seeded=False)
    assert not lint_text(other + sorted_names + split, "a.py", CHECKED, project=alone).findings
    seeded = lint_text(listed.format("Split", "list(") + item + split, "a.py", CHECKED, project=alone).findings
    assert [one.code for one in seeded] == ["SR121"]


@pytest.mark.parametrize(
    ("name", "path", "lines"),
    [("save_best", "b.pt", [9]), ("save_more", "best.pt", [9]), ("save_more", "b.pt", [9, 13])],
)
def test_the_best_model_beside_a_checkpoint_is_not_gone_on_from(name: str, path: str, lines: list[int]) -> None:
    text = TRAINED.format(begin="saved['epoch']").replace(
        "\n\nfor ", f"\n\ndef {name}():\n    torch.save({{'optimizer': optimizer.state_dict()}}, '{path}')\n\n\nfor "
    )
    found = lint_text(text + f"    {name}()\n", "train.py", CHECKED).findings
    assert [(one.code, one.line) for one in found] == [("SR151", line) for line in lines]


@pytest.mark.parametrize(
    ("seeded", "end", "count"),
    [(False, "", 0), (True, "for w in words:\n    fit(w)\n", 0), (True, "", 1), (False, "torch.save(net, 'a')\n", 1)],
)
def test_numbers_of_words_count_where_they_outlive_a_process_or_another_one_draws_the_same(
    seeded: bool, end: str, count: int
) -> None:
    text = "import torch\nwords = set('to be or not'.split())\nnumbers = {w: i for i, w in enumerate(words)}\n" + end
    project = FileInProject(is_seeded=seeded)
    assert len(lint_text(text, "train.py", CHECKED, project=project).findings) == count


@pytest.mark.parametrize(
    ("seeds", "before", "inside", "count"),
    [("", "", "np.random.shuffle(rows)", 0), ("np.random.seed(0)\n", "", "np.random.shuffle(rows)", 1),
     ("", "np.random.shuffle(rows)\n", "show(rows)", 1), ("", "", "set_seed(epoch)", 0), ("", "", "set_seed(9)", 1),
     ("", "", "torch.manual_seed(args.seed + epoch)", 0), ("set_seed(0)\n", "", "np.random.shuffle(rows)", 1)],
)  # fmt: skip
def test_generators_are_missed_in_a_checkpoint_of_training_that_could_be_repeated(
    seeds: str, before: str, inside: str, count: int
) -> None:
    """Not where the training loop draws from NumPy, which the program leaves out of what it seeds."""
    found = lint_text(DRAWN.format(seeds=seeds, before=before, inside=inside), "train.py", CHECKED).findings
    assert [one.code for one in found if one.code != "SR104"] == ["SR151"] * count


@pytest.mark.parametrize("seeded", [False, True])
def test_a_seed_from_the_system_counts_where_the_program_sets_another_that_is_lost(seeded: bool) -> None:
    text = "import os\nimport numpy as np\ndef start(worker):\n    np.random.seed(os.urandom(4)[0])\nload(start)\n"
    found = lint_text(text, "data.py", CHECKED, project=FileInProject(is_seeded=seeded)).findings
    assert [one.code for one in found] == ["SR112"] * seeded


@pytest.mark.parametrize(
    ("comment", "count"),
    [("  # use if you want new results", 0), ("  # Different results each time", 0), ("  # fix seed", 1), ("", 1)],
)
@pytest.mark.parametrize(
    ("made", "code"), [("random.randint(1, 10000)", "SR115"), ("int(time.time())", "SR111")]
)  # fmt: skip
def test_a_new_seed_counts_where_no_comment_says_that_new_results_are_wanted(
    made: str, code: str, comment: str, count: int
) -> None:
    text = (
        f"import random\nimport time\nimport torch\nif __name__ == '__main__':\n    seed = {made}{comment}\n"
        "    random.seed(seed)\n    torch.manual_seed(seed)\n    train(torch.rand(3))\n"
    )
    for end in ("\n", "\r\n"):
        found = lint_text(text.replace("\n", end), "train.py", CHECKED).findings
        assert [one.code for one in found] == [code] * count


@pytest.mark.parametrize(
    ("asked", "default", "reset", "count"),
    [("kind='umap'", "'tsne'", "", 0), ("", "'umap'", "", 0), ("kind='tsne'", "'umap'", "", 1),
     ("", "'tsne'", "", 1), ("kind=name", "'umap'", "", 1), ("**given", "'umap'", "", 1),
     ("kind='umap'", "'umap'", "    kind = options.kind\n", 1)],
)  # fmt: skip
def test_a_branch_that_no_caller_asks_for_also_through_who_passes_it_on(
    asked: str, default: str, reset: str, count: int
) -> None:
    text = (
        "from sklearn.manifold import TSNE\ndef draw(rows, kind='tsne'):\n    if kind == 'tsne':\n"
        "        rows = TSNE(2).fit_transform(rows)\n    save(rows)\n\n\n"
        f"def show(rows, kind={default}):\n{reset}    draw(rows, kind=kind)\n\n\n"
        f"if __name__ == '__main__':\n    show(train(), {asked})\n"
    )
    found = lint_text(text, "train.py", CHECKED).findings
    assert [one.code for one in found] == ["SR142"] * count


@pytest.mark.parametrize(
    ("name", "count"), [("target_boxes", 0), ("target_paths", 0), ("targets", 1), ("target_names", 1)]
)
def test_numbers_of_boxes_and_files_only_tell_images_apart(name: str, count: int) -> None:
    text = (
        "import glob\nimport torch\ntorch.manual_seed(0)\nread = [load(one) for one in glob.glob('*.txt')]\n\n\n"
        f"def score({name}):\n    found = {{}}\n    for number, row in enumerate({name}):\n"
        "        found[row] = number\n    return train(found, torch.rand(3))\n\n\nscore(read)\n"
    )
    assert len(lint_text(text, "score.py", CHECKED).findings) == count


@pytest.mark.parametrize(
    ("before", "count"),
    [("exit()", 0), ("sys.exit(0)", 0), ("raise SystemExit", 0), ("if done:\n        exit()", 1), ("leave()", 1)],
)
@pytest.mark.parametrize("around", ["def main():", "if __name__ == '__main__':"])
def test_what_stands_behind_the_end_of_a_block_is_not_reached(around: str, before: str, count: int) -> None:
    text = (
        f"import os\nimport sys\nimport torch\ntorch.manual_seed(0)\n\n\n{around}\n    {before}\n"
        "    os.environ['PYTHONHASHSEED'] = '0'\n    train()\n"
    )
    assert len(lint_text(text, "train.py", CHECKED).findings) == count


@pytest.mark.parametrize(("test", "count"), [("False", 0), ("0", 0), ("True", 1), ("ready", 1)])
def test_what_stands_under_a_false_constant_is_not_reached(test: str, count: int) -> None:
    text = f"import os\nif {test}:\n    show(os.listdir('d')[:80])\n"
    assert len(lint_text(text, "data.py", CHECKED).findings) == count


def test_cells_of_a_notebook_are_run_behind_one_that_ends() -> None:
    text = "import os\nraise SystemExit\nshow(os.listdir('d')[:80])\n"
    for name, count in (("data.py", 0), ("data.ipynb", 1)):
        assert len(lint_text(text, name, CHECKED).findings) == count


@pytest.mark.parametrize(("loaded", "count"), [("train.indices = load('rows')\n", 0), ("train.rows = load()\n", 1)])
def test_a_split_whose_indices_are_stored_is_the_same_again(loaded: str, count: int) -> None:
    text = (
        "from torch.utils.data import random_split\n\n\ndef main():\n    train, test = random_split(rows, [8, 2])\n"
        f"    if done:\n        {loaded}    fit(train)\n\n\nif __name__ == '__main__':\n    main()\n"
    )
    assert [one.code for one in lint_text(text, "train.py", CHECKED).findings] == ["SR141"] * count


@pytest.mark.parametrize(
    ("body", "count"),
    [("if ok(label):\n        kept.append(i)", 0), ("kept.append(i)\n    use(label)", 1),
     ("if ok(label):\n        kept.append(i)\n        rows.append(load(label))", 1),
     ("for row in load(label):\n        if ok(row):\n            kept.append(i)", 1)],
)  # fmt: skip
def test_numbers_of_the_elements_that_a_condition_holds_for_only_find_these(body: str, count: int) -> None:
    text = f"import os\nkept, rows = [], []\nfor i, label in enumerate(os.listdir('d')):\n    {body}\nuse(kept)\n"
    assert len(lint_text(text, "data.py", CHECKED).findings) == count


@pytest.mark.parametrize(
    ("test", "asked", "count"),
    [("small", "", 0), ("small", "small=False", 0), ("not small", "small=True", 0), ("small and ok", "", 0),
     ("small", "small=True", 1), ("small", "small=given", 1), ("small", "**given", 1), ("not small", "", 1),
     ("small or ok", "", 1), ("ok", "", 1)],
)  # fmt: skip
@pytest.mark.parametrize("again", [False, True])
def test_a_branch_of_a_switch_that_no_caller_turns_on(test: str, asked: str, count: int, again: bool) -> None:
    function = (
        f"def train(rows, small=False):\n    if {test}:\n        rows, rest = random_split(rows, [8, 2])\n"
        "    fit(rows)\n\n\n"
    )
    text = (
        f"from torch.utils.data import random_split\n\n\n{function * (1 + again)}"
        f"if __name__ == '__main__':\n    train(load(), {asked})\n"
    )
    assert len(lint_text(text, "train.py", CHECKED).findings) == count * (1 + again)


@pytest.mark.parametrize(("switch", "count"), [("True", 0), ("False", 1), ("given", 1)])
def test_what_stands_behind_else_of_a_switch_that_all_callers_turn_on(switch: str, count: int) -> None:
    text = (
        "from torch.utils.data import random_split\n\n\ndef train(rows, whole):\n    if whole:\n        fit(rows)\n"
        "    else:\n        rows, rest = random_split(rows, [8, 2])\n        fit(rows)\n\n\n"
        f"if __name__ == '__main__':\n    train(load(), {switch})\n"
    )
    assert len(lint_text(text, "train.py", CHECKED).findings) == count


@pytest.mark.parametrize(
    ("begin", "first", "store", "count"),
    [("{'cat': 0, 'dog': 1}", "0", "numbers[label] = n\n        n += 1", 0),
     ("{'cat': 0, 'dog': 1}", "2", "numbers[label] = n\n        n += 1", 1),
     ("{'pad': 0}", "0", "n += 1\n        numbers[label] = n", 1),
     ("{}", "0", "numbers[label] = n\n        n += 1", 1)],
)  # fmt: skip
def test_a_counter_behind_a_dictionary_that_has_all_classes(begin: str, first: str, store: str, count: int) -> None:
    text = (
        f"import os\nnumbers = {begin}\nn = {first}\nfor label in os.listdir('d'):\n"
        f"    if label not in numbers:\n        {store}\nuse(numbers)\n"
    )
    assert len(lint_text(text, "data.py", CHECKED).findings) == count


@pytest.mark.parametrize(("state", "count"), [("random.randint(1, 99)", 0), ("7", 1), ("rng.randint(1, 99)", 1)])
@pytest.mark.parametrize("seeded", [False, True])
def test_a_program_that_draws_its_states_anew_asks_for_no_other(state: str, count: int, seeded: bool) -> None:
    text = (
        "import random\nfrom sklearn.ensemble import RandomForestClassifier\n"
        f"from sklearn.model_selection import train_test_split\n{'random.seed(0)' if seeded else ''}\n"
        f"train, test = train_test_split(rows)\nRandomForestClassifier(random_state={state}).fit(train)\n"
    )
    found = lint_text(text, "train.py", CHECKED).findings
    assert [one.code for one in found] == ["SR142"] * (count or seeded)
