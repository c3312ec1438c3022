"""Inside compiled regions: which node of a graph does a backend compute wrongly, and at which stage?"""
