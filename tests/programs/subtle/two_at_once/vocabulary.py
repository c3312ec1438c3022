"""Numbers for words."""


def numbered(texts):
    words = set()
    for text in texts:
        words.update(text.split())
    return {word: number for number, word in enumerate(words)}
