"""Writes tests/cases/gallery. See README.md."""

import case
import layers
import losses
import media
import quantised
import sequences
import tables
import vision

if __name__ == "__main__":
    case.FOLDER.mkdir(exist_ok=True)
    for old in case.FOLDER.glob("*.json"):
        old.unlink()
    for module in (layers, losses, quantised, sequences, vision, tables, media):
        module.write()
