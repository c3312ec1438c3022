"""Which classes are hard: those that were seen and are not among the easiest."""


class Miner:
    def __init__(self):
        self.distances = {}

    def note(self, name, step, distance):
        self.distances[name] = 0.9 * self.distances.get(name, distance) + 0.1 * distance

    def hardest(self, names, count):
        easy = sorted(self.distances, key=self.distances.get)[:2]
        seen = set(self.distances)
        chosen = []
        for name in seen - set(easy):
            chosen.append(names.index(name))
        return (chosen * count)[:count]
