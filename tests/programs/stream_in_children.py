"""Prints, as JSON, what two children of `multiprocessing` draw from a stream, and one that seeds itself."""

import json
import multiprocessing
import sys

import samerun


def child(stream, seed, answers):
    if seed is not None:
        samerun.seed_everything(seed)
    answers.put(stream.python.random())


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    samerun.seed_everything(0)
    stream, answers, drawn = samerun.stream("noise"), context.SimpleQueue(), []
    for seed in (None, None, 0):
        process = context.Process(target=child, args=(stream, seed, answers))
        process.start()
        drawn.append(answers.get())
        process.join()
    print(json.dumps([*drawn, stream.python.random()]))
